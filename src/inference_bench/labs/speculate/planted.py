"""Would a cache that is rolled back to the wrong place be noticed?

In:   a network, a draft that is sometimes wrong, a prompt with its plain answer
Out:  PlantedRollback
Read next by: flow.

One token too many stays: keys of a token that was never said. One too few: the next token stands at the place of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.speculate.compare import compare
from inference_bench.labs.speculate.drafts import Draft
from inference_bench.labs.speculate.greedy import Decoded, Limits, decode_speculatively
from inference_bench.labs.speculate.result import PlantedRollback

OFFSETS: Final = (1, -1)


class WronglyRolledBack(CachedNetwork):
    """A network whose cache keeps so many tokens too many after a rejection."""

    def __init__(self, network: Any, off_by: int) -> None:
        super().__init__(network)
        self.off_by = off_by

    def keep(self, num_tokens: int) -> None:
        """Take back the wrong number."""
        super().keep(num_tokens + self.off_by)


def plant_rollback(
    wrong: WronglyRolledBack,
    draft: Draft,
    gamma: int,
    prompt: Sequence[int],
    plain: Decoded,
    tolerance: float,
    told: Callable[[int], None],
) -> PlantedRollback | None:
    """Decode with the mistake in it; None where no proposal was wrong, so that nothing had to be taken back."""
    done = decode_speculatively(wrong, draft, prompt, gamma, Limits(len(plain.ids)), told)
    if all(each.num_trials == each.num_accepted for each in done.rounds):
        return None
    seen = compare(plain, done, "", draft.name, gamma, tolerance)
    parted = seen.divergence
    worst = max(seen.max_logit_difference, 0.0 if parted is None else parted.logit_difference)
    return PlantedRollback(
        off_by=wrong.off_by,
        num_tokens=len(plain.ids),
        num_equal_tokens=seen.num_equal_tokens,
        max_logit_difference=worst,
        is_caught_by_tokens=parted is not None and not parted.is_near_tie,
        is_caught_by_logits=worst > tolerance,
    )
