"""What has to hold for the figures of this lab to mean anything.

In:   its comparisons, draws and server answers
Out:  Checks
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.labs.checks import Check
from inference_bench.labs.speculate.result import (
    Comparison,
    PlantedFault,
    PlantedRollback,
    SampledDraft,
    ServerAnswer,
    ServerResult,
)
from inference_bench.units import format_count, format_number

MOST_IDENTITY_ERROR: Final = 1e-9
_SHOWN_IDENTITY_ERROR: Final = "1e-9 at any token"
NEAR_TIE_NATS: Final = 0.1
"""Below this lead of the first choice over the second, kernels that round weights and activations to a few bits may swap the two."""


def all_checks(
    comparisons: Sequence[Comparison],
    tolerance: float,
    sampled: Sequence[SampledDraft],
    planted: Sequence[PlantedFault],
    rollbacks: Sequence[PlantedRollback],
    server: ServerResult | None,
) -> tuple[Check, ...]:
    """Every check of the lab."""
    return (
        *_answers(comparisons, tolerance),
        *(check for each in sampled for check in _draws(each)),
        *(_planted(each) for each in planted),
        *(_rollback(each) for each in rollbacks),
        *(() if server is None else (_server(server.answers),)),
    )


def _answers(comparisons: Sequence[Comparison], tolerance: float) -> Iterator[Check]:
    """One check a draft: every answer is the plain one, or parts from it at a near tie."""
    for draft in dict.fromkeys(each.draft for each in comparisons):
        mine = [each for each in comparisons if each.draft == draft]
        equal = sum(each.divergence is None for each in mine)
        ties = sum(each.divergence is not None and each.divergence.is_near_tie for each in mine)
        found = f"{format_count(equal)} of {format_count(len(mine))} equal" + (
            f", {format_count(ties)} part at a near tie" if ties else ""
        )
        yield Check(f"answers, {draft}", equal + ties == len(mine), found, "all equal, or a near tie")
        error = max(each.max_logit_difference for each in mine)
        yield Check(
            f"logits, {draft}",
            error <= tolerance,
            f"differ by {format_number(error)}",
            f"{format_number(tolerance)} at any token",
        )


def _draws(sampled: SampledDraft) -> Iterator[Check]:
    yield Check(
        f"identity, {sampled.draft}",
        sampled.identity_error <= MOST_IDENTITY_ERROR,
        f"off by {format_number(sampled.identity_error)}",
        _SHOWN_IDENTITY_ERROR,
    )
    yield Check(
        f"drawn, {sampled.draft}",
        sampled.total_variation <= sampled.total_variation_allowed,
        f"total variation {format_number(sampled.total_variation)}",
        f"{format_number(sampled.total_variation_allowed)}, 99.9 % of honest draws",
    )
    error = abs(sampled.acceptance_sampled - sampled.acceptance_analytic)
    yield Check(
        f"acceptance, {sampled.draft}",
        error <= sampled.acceptance_error_allowed,
        f"off Σ min(p, q) by {format_number(error)}",
        f"{format_number(sampled.acceptance_error_allowed)}, 3.29 σ",
    )


def _planted(fault: PlantedFault) -> Check:
    return Check(
        f"caught: {fault.name}",
        fault.is_caught,
        f"total variation {format_number(fault.total_variation)}",
        f"above {format_number(fault.total_variation_allowed)}",
    )


def _rollback(fault: PlantedRollback) -> Check:
    by = [
        name for name, is_so in (("tokens", fault.is_caught_by_tokens), ("logits", fault.is_caught_by_logits)) if is_so
    ]
    return Check(
        f"caught: {rollback_words(fault.off_by)}",
        bool(by),
        f"by {' and '.join(by) or 'nothing'}",
        "by tokens or logits",
    )


def rollback_words(off_by: int) -> str:
    """What is wrong with a rollback."""
    return f"{abs(off_by)} token too {'many' if off_by > 0 else 'few'} kept"


def _server(answers: Sequence[ServerAnswer]) -> Check:
    same = sum(each.is_same_text for each in answers)
    ties = sum(is_server_tie(each) for each in answers)
    found = f"{format_count(same)} of {format_count(len(answers))} the same" + (
        f", {format_count(ties)} part at a near tie" if ties else ""
    )
    return Check("server's texts, off and on", same + ties == len(answers), found, "all the same, or a near tie")


def is_server_tie(answer: ServerAnswer) -> bool:
    """Whether two texts part where the server itself hardly preferred one token."""
    return not answer.is_same_text and answer.gap_nats is not None and answer.gap_nats <= NEAR_TIE_NATS
