"""What came after these words the last time? A draft without a model, from the context itself.

In:   the context's token ids
Out:  proposals
Read next by: drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_NGRAM: Final = 3


def look_up(ids: Sequence[int], count: int, most_ngram: int = MOST_NGRAM) -> list[int]:
    """What followed the longest n-gram that ends the context and stands in it earlier too.

    Where:   n goes from most_ngram down to 1; of several places the one that is followed by most tokens, up to count, and of those
             the latest
    Ignores: what follows beyond the end of the context: in a loop shorter than count, fewer tokens are proposed
    Source:  prompt lookup decoding (Saxena 2023)

    >>> look_up([7, 8, 9, 1, 7, 8], 2), look_up([1, 2, 3], 2)
    ([9, 1], [])
    """
    for size in range(min(most_ngram, len(ids) - 1), 0, -1):
        if (after := _place_after(ids, size, count)) is not None:
            return list(ids[after : after + count])
    return []


def _place_after(ids: Sequence[int], size: int, count: int) -> int | None:
    """Where what follows begins; None where the n-gram that ends the context stands nowhere else."""
    wanted = list(ids[-size:])
    places = [place + size for place in range(len(ids) - size) if list(ids[place : place + size]) == wanted]
    return max(places, key=lambda after: (min(count, len(ids) - after), after), default=None)
