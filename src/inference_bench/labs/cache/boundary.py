"""How much of a cached prefix may be reused when a suffix follows it? Not always all: a tokenizer may merge across the boundary.

In:   a tokenizer's encode, two texts
Out:  ReusablePrefix
Leaves out: the cache itself (reuse)
Read next by: reuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.labs.logits import common_length

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ReusablePrefix:
    """The ids of a prefix alone, of the whole text, and where they part.

    Where:  num_reusable_tokens are those at the head of the prefix's ids that the whole text's ids begin with too; first_difference
            is the place of the first token where the pieces joined and the whole differ, None where they are the same
    """

    prefix_ids: tuple[int, ...]
    apart_ids: tuple[int, ...]
    whole_ids: tuple[int, ...]
    num_reusable_tokens: int
    first_difference: int | None

    @property
    def warning(self) -> str | None:
        """What to know before the prefix's cache is reused; None where all of it may be."""
        if self.first_difference is None:
            return None
        lost = len(self.prefix_ids) - self.num_reusable_tokens
        return (
            f"prefix and suffix tokenised apart differ from the whole text at token {self.first_difference}; reuse the first "
            f"{self.num_reusable_tokens} of {len(self.prefix_ids)} cached tokens, compute the last {lost} again"
        )


def reusable_prefix(tokenizer_encode: Encode, prefix: str, suffix: str) -> ReusablePrefix:
    """Which tokens of a prefix a cache may keep when this suffix follows.

    Where:    tokenizer_encode gives a text's ids without anything put before or after it
    Raises:   RequestError for an empty prefix or suffix
    """
    if not prefix or not suffix:
        raise RequestError(
            "a prefix and a suffix of at least one character each are needed to see what merges between them"
        )
    alone, whole = tuple(tokenizer_encode(prefix)), tuple(tokenizer_encode(prefix + suffix))
    apart = (*alone, *tokenizer_encode(suffix))
    same = common_length(apart, whole)
    return ReusablePrefix(
        prefix_ids=alone,
        apart_ids=apart,
        whole_ids=whole,
        num_reusable_tokens=common_length(alone, whole),
        first_difference=None if same == len(apart) == len(whole) else same,
    )
