"""Is a measured time possible at all: each request held to the least time that physics allows it.

In order: `subject` (which model, in which formats, on which machine), `least` (the least time of a prompt and of a
generation), `seen` (what a record shows of the steps behind it), `causes` (why a time may be too short), `evidence` (how
that is known, in words), `bounds` (of each class of requests and of the run), `judged` (all of it, from RequestRecords).
"""

from __future__ import annotations

from inference_bench.referee.bounds import ClassBounds, RunBound
from inference_bench.referee.causes import Cause
from inference_bench.referee.judged import DEFAULT_STAMP_ERROR_S, Above, Flag, Refereed, Verdict, referee
from inference_bench.referee.seen import Measure
from inference_bench.referee.subject import Subject, subject_for

__all__ = [
    "DEFAULT_STAMP_ERROR_S",
    "Above",
    "Cause",
    "ClassBounds",
    "Flag",
    "Measure",
    "Refereed",
    "RunBound",
    "Subject",
    "Verdict",
    "referee",
    "subject_for",
]
