"""What is asked of the batch lab?

In:   texts and numbers as a person gives them
Out:  BatchRequest
Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.batch.prompts import PROMPTS
from inference_bench.labs.settings import BFLOAT16, FLOAT32, LabSettings

BOTH: Final = "both"
DTYPE_CHOICES: Final = (BOTH, FLOAT32, BFLOAT16)
BATCHES: Final = (1, 2, 4, 8, 16)
_QUICK_TOKENS, _TOKENS = 48, 512
_MOST_TOKENS: Final = 4096


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One run of the lab.

    Where:  batches are how many prompts are decoded together; num_tokens is the length of the longer run, None for 512, or 48 in
            quick mode; dtype is one number format, or both
    Raises: RequestError for batches, a length or a format that cannot be
    """

    settings: LabSettings = field(default_factory=LabSettings)
    batches: tuple[int, ...] = BATCHES
    num_tokens: int | None = None
    dtype: str = BOTH

    def __post_init__(self) -> None:
        if not self.batches or min(self.batches) < 1 or max(self.batches) > len(PROMPTS):
            said = ", ".join(map(str, self.batches)) or "none"
            raise RequestError(
                f"batches {said} cannot be measured: each is 1 to {len(PROMPTS)}, the prompts that this lab has"
            )
        if list(self.batches) != sorted(set(self.batches)):
            raise RequestError(f"batches {', '.join(map(str, self.batches))} must go up, each once; sort them")
        if self.num_tokens is not None and not 2 <= self.num_tokens <= _MOST_TOKENS:
            raise RequestError(
                f"a run of {self.num_tokens} tokens shows nothing; give 2 to {_MOST_TOKENS}, usually {_TOKENS}"
            )
        if self.dtype not in DTYPE_CHOICES:
            raise RequestError(f"{self.dtype!r} is no number format of this lab; formats: {', '.join(DTYPE_CHOICES)}")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The formats to compute in."""
        return (FLOAT32, BFLOAT16) if self.dtype == BOTH else (self.dtype,)

    @property
    def long_tokens(self) -> int:
        """Tokens of the longer run."""
        return self.num_tokens or (_QUICK_TOKENS if self.settings.is_quick else _TOKENS)
