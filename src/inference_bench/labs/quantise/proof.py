"""What must hold for the figures of the quantise lab to mean anything?

In:   the network, its rows, what was seen before and after
Out:  Checks
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from inference_bench.facts.formats import number_format
from inference_bench.labs.checks import Check
from inference_bench.labs.quantise.activations import Inputs
from inference_bench.labs.quantise.linears import linear_layers
from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.quantise.result import MethodRow
from inference_bench.labs.quantise.rtn import Grid, storage_bits
from inference_bench.labs.quantise.smoothquant import smoothing_alone
from inference_bench.units import format_count, format_fraction, format_number

_MOST_CHANGE: Final = 1e-3  # of the greatest logit, by smoothing alone
_MILD_LOSS: Final = 0.05
_IDENTITY_TOKENS: Final = 64
MILDEST: Final = "int8 channel"
# as the project's specification has them: a group, with or without a zero point, bits a value
_PUBLISHED_BITS: Final = ((128, True, 4.125), (64, True, 4.25), (32, True, 4.5), (128, False, 4.25))
_FACT: Final = {8: "int8-channel", 4: "int4-g64"}


def restored_check(rows: Sequence[MethodRow], sha256_before: str, sha256_after: str) -> Check:
    """Every method gave the network back, and at the end every bit of it is what it was."""
    unrestored = [row.name for row in rows if not row.is_restored]
    same = sha256_before == sha256_after
    found = f"not after {', '.join(unrestored)}" if unrestored else f"after each of {len(rows)} methods"
    return Check(
        "the network comes back bit for bit",
        same and not unrestored,
        f"{found}; SHA-256 of all its tensors {'the same' if same else 'another'} at the end",
        "the same",
    )


def same_loss_check(before: float, after: float) -> Check:
    """The unquantised network's perplexity on the first window, at the start and at the end."""
    return Check(
        "float32 loses the same at the end as at the start",
        before == after,
        f"{format_number(after, 9)} nats on the first window, {format_number(before, 9)} at the start",
        "the same number",
    )


def smoothing_check(bench: QuantiseBench, inputs: Inputs, strength: float) -> Check:
    """Smoothing without rounding leaves the model's logits as they are.

    Formula:  max|y - y'| / max|y| over the first tokens of the evaluation
    """
    network = bench.model.network
    ids = torch.tensor([bench.evaluation.ids[0][:_IDENTITY_TOKENS]])
    with torch.inference_mode():
        own = network(input_ids=ids, use_cache=False).logits
        with smoothing_alone(network, inputs, strength):
            smoothed = network(input_ids=ids, use_cache=False).logits
    change = float((own - smoothed).abs().max() / own.abs().max())
    return Check(
        "smoothing alone changes no output",
        change <= _MOST_CHANGE,
        f"{format_fraction(change)} of the greatest logit, α = {strength:g}",
        f"{format_fraction(_MOST_CHANGE)} at most",
    )


def bits_check() -> Check:
    """Storage bits are those that the specification states."""
    found = [storage_bits(8, 128, Grid(4, group, symmetric)) / 1024 for group, symmetric, _ in _PUBLISHED_BITS]
    return Check(
        "int4 takes the bits a value that are published",
        found == [bits for _, _, bits in _PUBLISHED_BITS],
        ", ".join(format_number(each, 4) for each in found),
        ", ".join(format_number(bits, 4) for _, _, bits in _PUBLISHED_BITS) + " (groups of 128, 64, 32; 128 with zero)",
    )


def bytes_check(network: Any) -> Check:
    """Bytes of the real matrices are those that the table of formats counts, which shares no line with storage_bits."""
    mine = theirs = 0
    for layer in linear_layers(network).values():
        rows, columns = layer.out_features, layer.in_features
        grids = [Grid(8)] + ([Grid(4, 64)] if columns % 64 == 0 else [])
        for grid in grids:
            mine += storage_bits(rows, columns, grid) // 8
            theirs += number_format(_FACT[grid.bits]).count_matrix_bytes(rows, columns)
    return Check(
        "bytes of int8 and int4 matrices agree with the table of formats",
        mine == theirs,
        f"{format_count(mine)} bytes",
        f"{format_count(theirs)} bytes",
    )


def disjoint_check(bench: QuantiseBench, is_one_text: bool) -> Check:
    """What is judged on was not calibrated on; refused before, said here."""
    calibration, evaluation = bench.calibration, bench.evaluation
    if is_one_text:
        apart = calibration.end <= evaluation.start or evaluation.end <= calibration.start
        where = "of the same text"
    else:
        apart, where = not set(calibration.ids) & set(evaluation.ids), "of another text"
    return Check(
        "calibration and evaluation share no token",
        apart,
        f"tokens {_span(calibration.start, calibration.end)} calibrate, {_span(evaluation.start, evaluation.end)} {where} judge",
        "apart",
    )


def _span(start: int, end: int) -> str:
    return f"{format_count(start)} to {format_count(end - 1)}"


def mild_check(rows: Sequence[MethodRow], plain: float) -> Check:
    """int8 with a scale a channel is so mild that a large loss would be a mistake of this lab."""
    found = next(row.perplexity for row in rows if row.name == MILDEST)
    return Check(
        "int8 with a scale a channel stays near float32",
        abs(found / plain - 1) <= _MILD_LOSS,
        f"perplexity {format_number(found, 5)} against {format_number(plain, 5)}",
        f"within {format_fraction(_MILD_LOSS)}",
    )
