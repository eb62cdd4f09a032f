"""Which mistakes in batching show, and in what? Each planted, decoded, and held against the runs alone.

In:   a network, prompts, what each gives alone
Out:  FaultRows, PadRows, Checks
Leaves out: rounding between right runs (agreement)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from inference_bench.labs.batch.decoding import Decoded, Layout, Masking, Positions, decode, lay_out
from inference_bench.labs.batch.padding import pad_left
from inference_bench.labs.batch.result import FaultRow, PadRow
from inference_bench.labs.checks import Check
from inference_bench.units import format_count, format_number

ROTARY_HIDES: Final = (
    "all positions of a sequence move by the same number, and rotary attention sees differences alone: no fault in this model, "
    "one in a model with learned positions"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake; is_shift marks the one that moves every position of a sequence alike."""

    name: str
    layout: Layout
    why: str
    is_shift: bool = False


FAULTS: Final = (
    Fault("positions from the left edge", Layout(Positions.LEFT), "positions are wrong by the padding", is_shift=True),
    Fault(
        "left-edge positions, prefill only",
        Layout(Positions.LEFT_THEN_MASK),
        "the prompt lies later than the tokens after it",
    ),
    Fault("no mask", Layout(masking=Masking.MISSING), "padding is attended as if it were text"),
    Fault("no mask after the prefill", Layout(masking=Masking.DROPPED_AFTER), "padding is attended from the first step on"),
    Fault(
        "right padding, last column read", Layout(is_left=False), "the first token follows padding"
    ),
    Fault(
        "right padding, positions go on",
        Layout(Positions.WIDTH_AFTER, is_left=False, reads_last_column=False),
        "the answer lies later than the prompt",
    ),
)  # fmt: skip


def is_rotary(network: Any) -> bool:
    """Whether positions enter by rotation, so that only their differences count."""
    config = network.config
    return bool(getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None))


def plant_faults(
    network: Any,
    prompts: Sequence[Sequence[int]],
    pad_id: int,
    alone: Sequence[Decoded],
    allowed: float,
    say: Callable[[str], None],
) -> tuple[FaultRow, ...]:
    """Every fault in one batch of these prompts, along the tokens that each prompt takes alone."""
    rows = []
    forced = [each.tokens[0] for each in alone]
    right = torch.stack([each.logits[:, 0] for each in alone], dim=1)
    for fault in FAULTS:
        say(f"planting a fault: {fault.name}")
        padded = lay_out(prompts, pad_id, fault.layout)
        found = decode(network, padded, len(right), layout=fault.layout, forced=forced)
        off = float((found.logits - right).abs().max())
        changed = sum(
            a != b for row, own in zip(found.tokens, forced, strict=True) for a, b in zip(row, own, strict=True)
        )
        is_hidden = fault.is_shift and is_rotary(network)
        rows.append(
            FaultRow(
                fault.name, off, changed, len(right) * len(prompts), off > allowed, changed > 0,
                not is_hidden, ROTARY_HIDES if is_hidden else fault.why,
            )
        )  # fmt: skip
    return tuple(rows)


def lengthen_padding(
    network: Any, prompt: Sequence[int], pad_id: int, pads: Sequence[int], num_steps: int, say: Callable[[str], None]
) -> tuple[PadRow, ...]:
    """One prompt behind so many pads, along the tokens it takes without any."""
    plain = decode(network, pad_left([prompt], pad_id), num_steps)
    rows = []
    for num_pads in pads:
        say(f"one prompt behind {num_pads} pads")
        found = decode(network, pad_left([prompt], pad_id, num_pads), num_steps, forced=plain.tokens)
        changed = sum(a != b for a, b in zip(found.tokens[0], plain.tokens[0], strict=True))
        rows.append(PadRow(num_pads, num_steps, float((found.logits - plain.logits).abs().max()), changed))
    return tuple(rows)


def check_faults(rows: Sequence[FaultRow], allowed: float) -> Check:
    """Each planted fault shows in the logits, but one that cannot."""
    odd = [row for row in rows if row.is_caught_by_logits != row.is_expected]
    caught = sum(row.is_caught_by_logits for row in rows)
    tokens = sum(row.is_caught_by_tokens for row in rows)
    hidden = [row for row in rows if not row.is_expected]
    names = f"; not as expected: {', '.join(row.name for row in odd)}" if odd else ""
    return Check(
        "planted faults show in the logits",
        not odd,
        f"{format_count(caught)} of {format_count(len(rows))} by logits, {format_count(tokens)} by tokens{names}",
        f"each above {format_number(allowed)}"
        + (", but for a shift of all positions in a rotary model" if hidden else ""),
    )


def check_pads(rows: Sequence[PadRow], allowed: float) -> Check:
    """Padding changes nothing, however much of it there is."""
    worst = max(rows, key=lambda row: row.max_difference)
    return Check(
        "more padding leaves the logits as they are",
        worst.max_difference <= allowed,
        f"at most {format_number(worst.max_difference)}, behind {format_count(worst.num_pad_tokens)} pads",
        f"at most {format_number(allowed)}",
    )
