"""What someone asks about, as a Setting; and in words, how well the fit knows it.

In:   ServedModel, HardwareSpec, an engine family, devices
Out:  Setting; the lines that an answer says of its expectations
Read next by: fit, plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.origin import Origin
from inference_bench.predict.efficiency.calibration import OwnMeasurements
from inference_bench.predict.efficiency.expectation import Pace, familiarity_of
from inference_bench.predict.efficiency.parameters import Calibration, Familiarity, Fitted, fitted
from inference_bench.predict.efficiency.question import Phase
from inference_bench.predict.efficiency.setting import DeviceSplit, Setting
from inference_bench.predict.step_cost import ServedModel
from inference_bench.units import format_count

MAIN_MEMORY: Final = "cpu-memory"


def engine_setting(
    served: ServedModel,
    machine: HardwareSpec,
    engine: str,
    devices: int = 1,
    split: DeviceSplit = DeviceSplit.TENSOR,
) -> Setting:
    """A model served by an engine of today on devices of a machine.

    Where:  a machine that was measured here and says nothing of its kind is a processor with its main memory
    """
    if machine.origin is Origin.MEASURED and machine.kind is None:
        machine = replace(machine, kind=MAIN_MEMORY)
    tensor = 1 if split is DeviceSplit.LAYER else devices
    return Setting(served, machine, engine, tensor=tensor, devices=devices, split=split)


def width_of(setting: Setting, phase: Phase, own: OwnMeasurements | None, known: Fitted | None = None) -> float:
    """Half of the 80 % interval of a phase, as a logarithm."""
    known = known or fitted()
    calibration = own.calibration(setting, phase) if own is not None else Calibration.NONE
    return known.width(phase.value, familiarity_of(setting, known, phase), calibration)


def describe_expectation(setting: Setting, own: OwnMeasurements | None, pace: Pace = Pace.ALONE) -> Iterator[str]:
    """What expected times rest on, in words."""
    known, machine = fitted(), setting.machine
    yield (
        f"expected times: efficiencies fitted on {format_count(known.num_rows)} published rows, as of {known.source.as_of}; "
        f"{_seen(setting, known, pace)}; intervals hold 4 of 5 measurements, on average, and end at the bound"
    )
    if machine.origin is Origin.MEASURED:
        yield (
            f"efficiencies were fitted over published peaks, and here stand over the measured ceilings of {machine.name}, "
            "which are lower: own measurements correct that"
        )
    if own is not None:
        yield own.describe(setting, pace)


def _seen(setting: Setting, known: Fitted, pace: Pace) -> str:
    """What was measured, of decoding and of prompts where that differs."""
    decode, prompts = (
        _told(setting, familiarity_of(setting, known, phase, pace)) for phase in (Phase.DECODE, Phase.PREFILL)
    )
    engine = setting.engine
    return f"{engine} {decode}" if decode == prompts else f"{engine} {decode} for decoding, for prompts {prompts}"


def _told(setting: Setting, familiarity: Familiarity) -> str:
    machine = setting.machine.name
    if familiarity is Familiarity.KNOWN:
        return f"on {machine} was among them"
    if familiarity is Familiarity.POOL:
        return f"on {machine} was not among them, on other machines like it ({setting.pool}) it was"
    return f"on {setting.pool} machines was not among them: taken from other engines"
