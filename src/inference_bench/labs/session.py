"""Who measured what, where and when: from the first second of a lab to the head of its result.

In:   a lab's name and question, LabSettings
Out:  LabSession, which says how far the lab is and makes its LabHead
Leaves out: what is measured
Read next by: the flow of every lab.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.head import LabHead, SubjectIdentity
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.thread_waiting import waiting_notes
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.measure.software import software_versions
from inference_bench.units import KIBI

Progress = Callable[[str], None]

LAB_PACKAGES: Final = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "llguidance", "jsonschema")


def _say_nothing(_line: str) -> None:
    return


@dataclass(slots=True)
class LabSession:
    """A lab that is under way; left_out and assumptions grow as it goes.

    Raises:  RequestError for more threads than cores
    """

    lab: str
    question: str
    settings: LabSettings
    progress: Progress | None = None
    subject: SubjectIdentity | None = None
    left_out: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=waiting_notes)
    machine: MachineIdentity = field(default_factory=identify_machine)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    started_s: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        asked, cores = self.settings.num_threads, self.machine.num_usable_cores
        if asked is not None and asked > cores:
            raise RequestError(
                f"{asked} threads are asked for, and this process may use {counted(range(cores), 'core')}; more threads than that only "
                f"wait for one another: give 1 to {cores}"
            )

    @property
    def num_threads(self) -> int:
        """Threads that compute: those asked for, or every core this process may use."""
        return self.settings.num_threads or self.machine.num_usable_cores

    def say(self, line: str) -> None:
        """What is being done now."""
        (self.progress or _say_nothing)(f"{self.lab}: {line}")

    def head(self) -> LabHead:
        """The head of the result, as of now."""
        identity = self.machine
        return LabHead(
            lab=self.lab,
            question=self.question,
            started_at=self.started_at,
            elapsed_s=time.perf_counter() - self.started_s,
            peak_memory_bytes=peak_memory_bytes(),
            machine=f"{identity.cpu_model or identity.architecture}, {counted(range(identity.num_usable_cores), 'core')}",
            num_threads=self.num_threads,
            load_average_1min=identity.load_average_1min,
            subject=self.subject,
            software=software_versions(LAB_PACKAGES),
            seed=self.settings.seed,
            is_quick=self.settings.is_quick,
            left_out=tuple(self.left_out),
            assumptions=tuple(self.assumptions),
        )


def peak_memory_bytes() -> int | None:
    """The most memory this process has held at once, as the system counts it; None where it does not tell."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else int(most) * KIBI


@contextmanager
def computing_threads(num_threads: int) -> Iterator[None]:
    """PyTorch's threads set for the time of a lab, and put back after it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def counted(items: Sequence[object], name: str) -> str:
    """How many, in words.

    >>> counted([1], "prompt"), counted([1, 2], "prompt")
    ('1 prompt', '2 prompts')
    """
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"
