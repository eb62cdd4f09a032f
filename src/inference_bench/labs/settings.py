"""What does every lab ask? Which model, how it is computed, and how thoroughly.

In:   texts and numbers as a person gives them
Out:  LabSettings
Read next by: every lab, cli.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format

FLOAT32: Final = "float32"
BFLOAT16: Final = "bfloat16"
DTYPES: Final = (FLOAT32, BFLOAT16)
MOST_SEED: Final = 2**63 - 1  # what PyTorch takes


def value_bytes(dtype: str) -> int:
    """Bytes of one value in a number format that PyTorch names.

    >>> value_bytes(FLOAT32), value_bytes(BFLOAT16)
    (4, 2)
    """
    return number_format(dtype).count_bytes(1)


@dataclass(frozen=True, slots=True)
class LabSettings:
    """What all labs have in common.

    Where:  model is None for the embedded model, else a folder as Transformers writes it, a .gguf file, or a hub id; revision pins a
            hub id; num_threads None is every core this process may use; is_quick leaves out what takes long, and says what
    Raises: RequestError for a number of threads, a number format or a seed that cannot be
    """

    model: str | None = None
    revision: str | None = None
    dtype: str = FLOAT32
    num_threads: int | None = None
    seed: int = 0
    is_quick: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise RequestError(f"a model cannot be computed in {self.dtype!r} here; formats: {', '.join(DTYPES)}")
        if self.num_threads is not None and self.num_threads < 1:
            raise RequestError(f"{self.num_threads} threads cannot compute; give 1 or more")
        if not 0 <= self.seed <= MOST_SEED:
            raise RequestError(f"{self.seed} cannot be a seed; give 0 to {MOST_SEED}")
        if self.revision is not None and self.model is None:
            raise RequestError("a revision pins a model on the hub; name that model too")
