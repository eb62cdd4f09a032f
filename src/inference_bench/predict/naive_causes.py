"""Why is the usual formula wrong about a model? Its error taken apart, byte by byte, by what the layers do otherwise.

In:   ModelSpec, CacheFormat, a context length
Out:  Corrections: bytes to add to the usual figure, cause by cause; with them it is the true cache, exactly
Leaves out: engine rounding
Read next by: naive_rows, naive_examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from inference_bench.accounting.cache import (
    LOGICAL_STATE,
    CacheFormat,
    Kept,
    count_cross_rows,
    count_kept,
    count_naive_kv_bytes,
    count_state,
)
from inference_bench.facts.models import Attention, LayerType, Mixer, ModelSpec


class Cause(StrEnum):
    """What a layer does that the usual formula does not know."""

    WINDOW = "sliding windows"
    CHUNK = "chunked attention"
    LATENT = "latents"
    COMPRESSED = "compressed positions"
    INDEX = "index keys"
    NO_ATTENTION = "layers without attention"
    STATE = "fixed states"
    SHARED = "shared caches"
    SHAPE = "unlike heads"
    CROSS = "cross-attention"


@dataclass(frozen=True, slots=True)
class Correction:
    """Bytes that one cause adds to the usual figure; below zero where the formula charges too much.

    Where:  layers are those it concerns
    Unit:   bytes of one sequence, exact
    """

    cause: Cause
    layers: int
    num_bytes: int


def corrections(model: ModelSpec, fmt: CacheFormat, context_tokens: int) -> tuple[Correction, ...] | None:
    """What turns the usual figure into the true one, the largest first; None where the formula has nothing to multiply.

    Formula:  usual + Σ corrections = true; each layer is charged 1/L of the usual figure, and its causes are the
              differences on the way from that to what it keeps: its own heads, then its window, then its state
    Unit:     bytes, exact
    """
    usual = count_naive_kv_bytes(model, fmt, context_tokens)
    if usual is None:
        return None
    charge = usual // model.num_hidden_layers
    found: dict[Cause, list[int]] = {}
    for layer, count in model.layer_groups():
        for cause, difference in _layer(layer.mixers, charge, fmt, context_tokens, model.state_bits):
            if difference:
                total = found.setdefault(cause, [0, 0])
                total[0] += count
                total[1] += count * difference
    each = [Correction(cause, layers, num_bytes) for cause, (layers, num_bytes) in found.items() if num_bytes]
    return tuple(sorted(each, key=lambda one: (-abs(one.num_bytes), one.cause)))


def _layer(
    mixers: Sequence[Mixer], charge: int, fmt: CacheFormat, context: int, state_bits: int | None
) -> Iterator[tuple[Cause, int]]:
    """The differences of one layer; where it mixes in several ways, the first that attends answers for the charge."""
    charged = next((mixer for mixer in mixers if count_state(mixer) is None), None)
    if charged is None:
        yield Cause.NO_ATTENTION, -charge
    for mixer in mixers:
        state = count_state(mixer)
        if state is not None:
            yield Cause.STATE, LOGICAL_STATE.count_bytes(state, state_bits)
        else:
            yield from _attention(mixer, charge if mixer is charged else 0, fmt, context)


def _attention(mixer: Mixer, charge: int, fmt: CacheFormat, context: int) -> Iterator[tuple[Cause, int]]:
    kept, cross = count_kept(mixer), count_cross_rows(mixer)
    if cross is not None:
        positions, row = cross
        yield Cause.CROSS, positions * (fmt.keys.count_bytes(row) + fmt.values.count_bytes(row)) - charge
    elif isinstance(mixer, Attention):
        yield from _grouped(mixer, kept, charge, fmt, context)
    elif mixer.layer_type is LayerType.LATENT_ATTENTION:
        yield Cause.LATENT, _bytes(kept[:1], fmt, context) - charge
        yield Cause.INDEX, _bytes(kept[1:], fmt, context)
    elif mixer.layer_type is LayerType.COMPRESSED_ATTENTION:
        yield Cause.COMPRESSED, _bytes(kept, fmt, context) - charge
    else:  # grouped attention with an index, and what keeps the recent positions alone
        inner = getattr(mixer, "attention", None)
        own = count_kept(inner) if inner is not None else kept
        yield from _grouped(inner, own, charge, fmt, context)
        yield Cause.INDEX, _bytes(kept[len(own) :], fmt, context)


def _grouped(
    attention: Attention | None, kept: Sequence[Kept], charge: int, fmt: CacheFormat, context: int
) -> Iterator[tuple[Cause, int]]:
    if not kept:
        yield Cause.SHARED, -charge
        return
    everywhere = _bytes([part._replace(limit=None) for part in kept], fmt, context)
    yield Cause.SHAPE, everywhere - charge
    limit = Cause.CHUNK if attention is not None and attention.attention_chunk is not None else Cause.WINDOW
    yield limit, _bytes(kept, fmt, context) - everywhere


def _bytes(kept: Sequence[Kept], fmt: CacheFormat, context: int) -> int:
    return sum(part.count_rows(context) * part.row_bytes(fmt) for part in kept)
