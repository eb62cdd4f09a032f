"""How far apart are two generations, as long as they still speak of the same text?

In:   one by full recomputation, one by the path in question
Out:  PathComparison
Read next by: flow.
"""

from __future__ import annotations

from typing import Final

from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.paths import Generation
from inference_bench.labs.cache.result import PathComparison
from inference_bench.labs.logits import common_length, top_two_gap

LOGIT_TOLERANCE: Final = 2e-4


def compare(
    full: Generation,
    other: Generation,
    *,
    subject: str,
    prompt: str,
    num_prompt_tokens: int,
    store: str,
    fault: Fault | None,
) -> PathComparison:
    """Tokens, and logits on the common prefix alone.

    Where:  other may end at the first token that differs; that one was still chosen after the same text, so its logits are compared;
            those after it answer different texts, and are not
    """
    num_emitted = len(full.tokens)
    equal = common_length(full.tokens, other.tokens)
    compared = min(equal + 1, num_emitted)
    errors = (full.logits[:compared] - other.logits[:compared]).abs().amax(dim=1).tolist()
    over = (index for index, error in enumerate(errors) if error > LOGIT_TOLERANCE)
    return PathComparison(
        subject=subject,
        prompt=prompt,
        store=store,
        fault=fault,
        num_prompt_tokens=num_prompt_tokens,
        num_emitted=num_emitted,
        num_compared=compared,
        num_equal_tokens=equal,
        top_two_gap=top_two_gap(full.logits[equal]) if equal < num_emitted else None,
        max_logit_error=max(errors),
        first_over_tolerance=next(over, None),
        logit_errors=tuple(errors),
    )
