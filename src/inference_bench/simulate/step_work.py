"""What a step of a model moves and computes, as a few coefficients: taken from its exact count by differences.

In:   ServedModel
Out:  WorkForm: Coefficients without rates, the windows, and how far the form is off where it does not hold
Leaves out: rates, shares and what devices send one another (step_sources)
Read next by: step_sources.

A step's work is linear in its positions, sequences, cached positions and attended pairs, with one more slope for each
window in the model's layers. So few counts give every coefficient exactly. Layers that attend in chunks, pick positions,
or choose between two ways of computing are no such form: for those the coefficients hold for decoding, and the largest
error on probes is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from inference_bench.accounting.work import SequenceStep
from inference_bench.facts.models import Attention, Mixer, MixtureOfExperts
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.kernel.pricing import constant_bytes, constant_flops
from inference_bench.simulate.step_time import Coefficients, StepPart, StepTime, WindowWork
from inference_bench.units import format_fraction

_NEAR: Final = 2  # cached positions of the probes for what does not depend on the context
_EXACT: Final = 1e-6
_PROBES: Final = tuple(
    (SequenceStep(cached, new, count),)
    for cached, new, count in (
        *((context, 1, batch) for context in (100, 1_000, 4_000, 16_000, 64_000) for batch in (1, 64)),
        *((past, new, 1) for past in (0, 2_048, 16_384) for new in (64, 512, 2_048, 8_192)),
    )
)


@dataclass(frozen=True, slots=True)
class WorkForm:
    """A model's step as coefficients with rates of 1.

    Where:  bytes_error and flops_error are the largest relative errors on probe steps, found at worst_bytes and worst_flops
    """

    coefficients: Coefficients
    windows: tuple[WindowWork, ...]
    bytes_error: float
    flops_error: float
    worst_bytes: str
    worst_flops: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What is approximate, in words; nothing where the form is exact."""
        return tuple(
            f"the {what} of a step are approximated: up to {format_fraction(error)} off on probes, at {worst}"
            for what, error, worst in (
                ("bytes", self.bytes_error, self.worst_bytes),
                ("FLOPs", self.flops_error, self.worst_flops),
            )
            if error > _EXACT
        )


def work_form(served: ServedModel) -> WorkForm:
    """The coefficients of a served model's step, by differences of its exact count.

    Formula:  slopes between the windows' ends from decoding at two contexts; what a sequence, a position and a step take
              from three steps at a short context
    Unit:     bytes and FLOPs
    """
    slopes = _slopes(served)
    windows = tuple(WindowWork(reach, bytes_, flops) for reach, bytes_, flops in slopes.windows if bytes_ or flops)
    coefficients = _coefficients(served, slopes)
    bytes_error, worst_bytes, flops_error, worst_flops = 0.0, "", 0.0, ""
    for steps in _PROBES:
        by_bytes, by_flops = probe_errors(served, coefficients, windows, steps)
        if by_bytes > bytes_error:
            bytes_error, worst_bytes = by_bytes, _said(steps[0])
        if by_flops > flops_error:
            flops_error, worst_flops = by_flops, _said(steps[0])
    return WorkForm(coefficients, windows, bytes_error, flops_error, worst_bytes, worst_flops)


def probe_errors(
    served: ServedModel, coefficients: Coefficients, windows: tuple[WindowWork, ...], steps: Sequence[SequenceStep]
) -> tuple[float, float]:
    """How far the form is from the exact count of a step, as fractions: of bytes, of FLOPs."""
    work = served.work(steps)
    load = [StepPart(step.num_cached, step.num_new, step.num_new == 1) for step in steps for _ in range(step.count)]
    form = StepTime(coefficients, windows)
    extra = form.load_of(load)
    values = form.vector
    num_bytes = constant_bytes(values, extra.positions, extra.sequences) + coefficients.read_bytes * extra.cached
    num_bytes += sum(w.read_bytes * reads for w, reads in zip(windows, extra.window_reads, strict=True))
    flops = constant_flops(values, extra.positions, extra.sequences) + coefficients.flops_per_pair * extra.pairs
    flops += sum(w.flops_per_pair * pairs for w, pairs in zip(windows, extra.window_pairs, strict=True))
    return abs(num_bytes / work.num_bytes - 1), abs(flops / work.flops - 1)


def _said(step: SequenceStep) -> str:
    if step.num_new == 1:
        return f"{step.count} sequence(s) that decode after {step.num_cached} positions"
    return f"{step.num_new} new positions after {step.num_cached}"


class _Slopes(NamedTuple):
    """Bytes a cached position and FLOPs a pair: of layers without a window, and by window."""

    read_bytes: float
    flops_per_pair: float
    windows: tuple[tuple[int, float, float], ...]


def _reaches(served: ServedModel) -> list[int]:
    """After how many positions the slopes change: windows, chunks, and how many positions are picked."""
    found = {reach for mixer, _ in served.model.mixer_groups() for reach in _reach(mixer)}
    return sorted(reach for reach in found if reach > 2 * _NEAR)


def _reach(mixer: Mixer) -> Iterator[int]:
    if isinstance(mixer, Attention):
        yield from (reach for reach in (mixer.sliding_window, mixer.attention_chunk) if reach)
        return
    from inference_bench.facts import mixers as m

    if isinstance(mixer, m.LatentAttention) and mixer.top_k:
        yield mixer.top_k
    elif isinstance(mixer, m.IndexedAttention):
        yield mixer.indexer.top_k * mixer.indexer.block_size
        yield from _reach(mixer.attention)
    elif isinstance(mixer, m.CompressedAttention):
        yield mixer.sliding_window
        if mixer.compress_ratio and mixer.indexer and mixer.indexer.top_k:
            yield mixer.indexer.top_k * mixer.compress_ratio


def _slopes(served: ServedModel) -> _Slopes:
    """Slopes of decoding over the context, from each window's end to the next; a window's own is what drops behind it."""
    reaches = _reaches(served)
    ends = [_NEAR, *(reach - 1 for reach in reaches)]
    spans = [*pairwise(ends)]
    last = reaches[-1] if reaches else 4096
    spans.append((last, 4 * last))  # whole chunks apart
    slopes = [_slope(served, low, high) for low, high in spans]
    windows = [
        (reach, max(0.0, before[0] - after[0]), max(0.0, before[1] - after[1]))
        for reach, (before, after) in zip(reaches, pairwise(slopes), strict=True)
    ]
    return _Slopes(*slopes[-1], tuple(windows))


def _slope(served: ServedModel, low: int, high: int) -> tuple[float, float]:
    before, after = (served.work((SequenceStep(cached, 1),)) for cached in (low, high))
    return (after.num_bytes - before.num_bytes) / (high - low), (after.flops - before.flops) / (high - low)


def _coefficients(served: ServedModel, slopes: _Slopes) -> Coefficients:
    """What a step, a sequence and a position take besides what they attend.

    Where:  one: one position of one sequence; more: two of one; both: one of each of two
    """
    one, more, both = (served.work((SequenceStep(_NEAR, new, count),)) for new, count in ((1, 1), (2, 1), (1, 2)))
    experts = [
        sum(each.weight_bytes for each in step.operations if each.name == "experts") for step in (one, more, both)
    ]
    bytes_one, bytes_more, bytes_both = (
        step.num_bytes - moved for step, moved in zip((one, more, both), experts, strict=True)
    )
    read = _NEAR * (slopes.read_bytes + sum(window[1] for window in slopes.windows))
    pair = slopes.flops_per_pair + sum(window[2] for window in slopes.windows)
    write = bytes_more - bytes_one
    flops_position = more.flops - one.flops - pair * (_NEAR + 2)
    flops_sequence = both.flops - more.flops - pair * (2 * (_NEAR + 1) - (2 * _NEAR + 3))
    state = bytes_both - bytes_more - read
    resident, missed, always = _experts(served)
    return Coefficients(
        weight_bytes=_clean(bytes_one - write - state - read + always),
        read_bytes=slopes.read_bytes,
        flops_per_position=_clean(flops_position),
        flops_per_pair=slopes.flops_per_pair,
        bandwidth_bytes_per_s=1.0,
        compute_flops_per_s=1.0,
        expert_bytes=resident,
        expert_miss=missed,
        write_bytes=_clean(write),
        state_bytes=_clean(state),
        flops_per_sequence=_clean(flops_sequence),
    )


def _clean(value: float) -> float:
    """Not below zero, where only rounding or a broken form takes it there."""
    return max(0.0, float(value))


def _experts(served: ServedModel) -> tuple[float, float, float]:
    """Bytes of experts that are read by chance, the chance that a position leaves one out, and bytes always read.

    Formula:  resident · (1 - correlation), 1 - k/E, resident · correlation · k/E
    Where:    mixtures of several sizes are taken at their mean share by bytes
    """
    resident = served.weights.experts
    shares = [
        (count, block.experts_per_token / block.num_experts)
        for layer, count in served.model.layer_groups()
        if isinstance(block := layer.feed_forward, MixtureOfExperts)
    ]
    if not resident or not shares:
        return 0.0, 0.0, 0.0
    share = sum(count * each for count, each in shares) / sum(count for count, _ in shares)
    correlation = served.expert_correlation
    return resident * (1 - correlation), 1 - share, resident * correlation * share
