"""What stands above every lab's figures: what was asked of which model, where, when, by which versions, and what was left out.

In:   plain values
Out:  LabHead, SubjectIdentity
Read next by: session, every lab's result, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubjectIdentity:
    """The model that a lab computed with.

    Where:  sha256 is that of the weights' file, or of a folder's files by name and hash; num_parameters counts a tied table once
    """

    name: str
    source: str
    revision: str | None
    sha256: str
    num_parameters: int
    dtype: str


@dataclass(frozen=True, slots=True)
class LabHead:
    """One run of one lab.

    Unit:   seconds; bytes
    Where:  subject is None where no model takes part; peak_memory_bytes is the most this process held at once, None where the
            system does not tell; left_out is what the quick mode, or this machine, did not do
    """

    lab: str
    question: str
    started_at: str
    elapsed_s: float
    peak_memory_bytes: int | None
    machine: str
    num_threads: int
    load_average_1min: float | None
    subject: SubjectIdentity | None
    software: Mapping[str, str]
    seed: int
    is_quick: bool
    left_out: tuple[str, ...]
    assumptions: tuple[str, ...]
