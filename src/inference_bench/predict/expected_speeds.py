"""How long decode and prefill are expected to take: by an engine's fitted efficiencies, or by planning factors.

In:   the bounds of both phases; for an engine, what it serves on what
Out:  ExpectedSpeeds: a middle value and a range each, and the lines that say what they rest on
Leaves out: the efficiency model itself, which is loaded only where an engine is named
Read next by: fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.latency import PLANNING_ASSUMPTION, Range, predict_seconds
from inference_bench.roofline import Bound, LimitedBy, Roof

if TYPE_CHECKING:
    from inference_bench.predict.efficiency import Expectation, OwnMeasurements, Question
    from inference_bench.predict.placement import Split
    from inference_bench.predict.step_cost import ServedModel


@dataclass(frozen=True, slots=True)
class ExpectedSpeeds:
    """Expected times of both phases.

    Where:  the middle values are None where no engine's efficiencies were taken: planning factors are only a range;
            about_range says what the ranges are of middle values
    Unit:   seconds
    """

    decode_s: Range | None
    prefill_s: Range | None
    decode_middle_s: float | None = None
    prefill_middle_s: float | None = None
    lines: tuple[str, ...] = ()
    about_range: str = "the ranges above hold 4 of 5 measurements"


_SAME: Final = 1e-9  # two counts of the same bytes differ in their last digits
NO_SPEEDS: Final = ExpectedSpeeds(None, None)


def planning_speeds(decode: Bound, prefill: Bound, ceiling: Roof, *said: str) -> ExpectedSpeeds:
    """Both phases at the planning factors."""
    return ExpectedSpeeds(
        decode_s=predict_seconds(decode, ceiling),
        prefill_s=predict_seconds(prefill, ceiling) if prefill.seconds else None,
        lines=(*said, PLANNING_ASSUMPTION),
    )


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """What an engine does: so many sequences of a context, and one prompt of the whole context."""

    family: str
    served: ServedModel
    machine: HardwareSpec
    devices: int
    split: Split
    context_tokens: int
    sequences: int
    own: OwnMeasurements | None = None


def engine_speeds(asked: EngineAsked) -> ExpectedSpeeds | None:
    """Both phases at the fitted efficiencies of an engine; None where the machine's rates are not enough for them."""
    from inference_bench.predict.efficiency import DeviceSplit, Phase, Question, engine_setting
    from inference_bench.predict.efficiency.served import describe_expectation
    from inference_bench.predict.efficiency.terms import rates

    split = DeviceSplit.LAYER if asked.split == "pipeline" else DeviceSplit.TENSOR
    setting = engine_setting(asked.served, asked.machine, asked.family, asked.devices, split)
    if rates(setting) is None:
        return None
    decode = _expect(Question(setting, Phase.DECODE, asked.sequences, asked.context_tokens), asked.own)
    prefill = _expect(Question(setting, Phase.PREFILL, 1, asked.context_tokens), asked.own)
    return ExpectedSpeeds(
        decode_s=Range(decode.low_s, decode.high_s),
        prefill_s=Range(prefill.low_s, prefill.high_s),
        decode_middle_s=decode.seconds,
        prefill_middle_s=prefill.seconds,
        lines=tuple(describe_expectation(setting, asked.own)),
    )


def _expect(question: Question, own: OwnMeasurements | None) -> Expectation:
    from inference_bench.predict.efficiency import expect

    if own is None:
        return expect(question)
    setting = question.setting
    return expect(question, None, own.offsets(setting), own.calibration(setting, question.phase))


def not_before_memory(found: ExpectedSpeeds, decode: Bound) -> ExpectedSpeeds:
    """Decode no faster than one device can read: efficiencies also divide the norms and routers that every rank reads whole.

    Unit:  seconds
    """
    least, expected, middle = decode.seconds, found.decode_s, found.decode_middle_s
    if decode.limited_by is not LimitedBy.MEMORY or least is None or expected is None or middle is None:
        return found
    ends = Range(max(least, expected.low), max(least, expected.high))
    return replace(found, decode_s=ends, decode_middle_s=max(least, middle))


def below_bound(beside: Mapping[str, tuple[float | None, float | None]], machine: HardwareSpec) -> tuple[str, ...]:
    """Said of an expectation shorter than the bound: engines on GeForce cards accumulate in 16 bits, at twice the rate.

    Where:  beside holds the expected seconds and those of the bound, by phase
    """
    told = [
        name
        for name, (expected, limit) in beside.items()
        if expected is not None and limit is not None and expected < limit * (1 - _SAME)
    ]
    if not told:
        return ()
    what = f"what is expected of {' and '.join(told)} lies below the bound"
    if machine.acc16_flops_per_s:
        return (
            f"{what}, which takes 32-bit accumulation: engines on such cards accumulate in 16 bits, at a higher rate",
        )
    return (f"{what}: trust the bound, and measure",)


def no_rates(family: str, machine: HardwareSpec) -> str:
    """Why an engine was named and its efficiencies were not taken."""
    return (
        f"the efficiencies of {family} were not taken: they need the bandwidth and a compute rate of {machine.name}, "
        "of which one is not known"
    )
