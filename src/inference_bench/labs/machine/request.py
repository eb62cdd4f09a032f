"""What is asked of the machine lab?

In:   texts and numbers as a person gives them
Out:  MachineRequest
Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.settings import LabSettings
from inference_bench.measure.ceilings import power_of_two_batches

_QUICK_BATCHES: Final = (1, 4, 16, 64, 256)
_MOST_BATCH: Final = 4096
_LEAST_SIZE, _MOST_SIZE = 64, 32768


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One run of the lab.

    Where:  max_batch is the most columns; matrix_size None is 8192, or as much less as memory, or the quick mode, asks for
    Raises: RequestError for a size or a batch that cannot be
    """

    settings: LabSettings = field(default_factory=LabSettings)
    max_batch: int = 512
    matrix_size: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_batch <= _MOST_BATCH:
            raise RequestError(
                f"{self.max_batch} columns cannot be multiplied here; give 1 to {_MOST_BATCH}, usually 512"
            )
        if self.matrix_size is not None and not _LEAST_SIZE <= self.matrix_size <= _MOST_SIZE:
            raise RequestError(
                f"a matrix of {self.matrix_size} rows cannot be measured; give {_LEAST_SIZE} to {_MOST_SIZE}, usually 8192"
            )

    @property
    def batches(self) -> tuple[int, ...]:
        """The columns of each row: powers of two, or every second of them in quick mode."""
        if self.settings.is_quick:
            return tuple(batch for batch in _QUICK_BATCHES if batch <= self.max_batch)
        return power_of_two_batches(self.max_batch)
