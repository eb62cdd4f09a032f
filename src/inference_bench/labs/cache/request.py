"""What is asked of the cache lab.

In:   numbers and a text as a person gives them
Out:  CacheRequest
Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.settings import FLOAT32, LabSettings

LEAST_TOKENS, MOST_TOKENS = 3, 1024  # the last fault to act is first seen in the third token
LEAST_LENGTH, MOST_LENGTH, MOST_LENGTHS = 2, 8192, 12
QUICK_TOKENS, FULL_TOKENS = 24, 64
QUICK_LENGTHS: Final = (32, 64, 128, 256)
FULL_LENGTHS: Final = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """One run of the lab.

    Where:  num_tokens are those the real model emits from each prompt, None as many as the mode does; prompt_text is a text of the
            user's own in the place of the prompts that are built in: it is read, counted and not kept; lengths are the numbers of
            emitted tokens at which cached and uncached generation are timed, () those of the mode
    Raises: RequestError for a number that cannot be, an empty text, or a number format in which the tolerance means nothing
    """

    settings: LabSettings = field(default_factory=LabSettings)
    num_tokens: int | None = None
    prompt_text: str | None = None
    lengths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.settings.dtype != FLOAT32:
            raise RequestError(
                f"the cache lab compares logits within a tolerance for {FLOAT32}, and {self.settings.dtype} was asked for; use {FLOAT32}"
            )
        if self.num_tokens is not None and not LEAST_TOKENS <= self.num_tokens <= MOST_TOKENS:
            raise RequestError(
                f"{self.num_tokens} tokens are too few or too many to compare; give {LEAST_TOKENS} to {MOST_TOKENS}"
            )
        if self.prompt_text is not None and not self.prompt_text.strip():
            raise RequestError("the prompt is empty; give a text of at least a word")
        _require_lengths(self.lengths)

    @property
    def emitted(self) -> int:
        """Tokens that the real model emits from each prompt."""
        return self.num_tokens or (QUICK_TOKENS if self.settings.is_quick else FULL_TOKENS)

    @property
    def timed_lengths(self) -> tuple[int, ...]:
        """Lengths at which generation is timed."""
        return self.lengths or (QUICK_LENGTHS if self.settings.is_quick else FULL_LENGTHS)


def _require_lengths(lengths: tuple[int, ...]) -> None:
    if len(lengths) > MOST_LENGTHS:
        raise RequestError(f"{len(lengths)} lengths are too many; give at most {MOST_LENGTHS}")
    if any(not LEAST_LENGTH <= length <= MOST_LENGTH for length in lengths):
        raise RequestError(f"lengths {list(lengths)} must each lie in {LEAST_LENGTH} to {MOST_LENGTH} tokens")
    if any(later <= earlier for earlier, later in pairwise(lengths)):
        raise RequestError(f"lengths {list(lengths)} must go up, each once; sort them")
