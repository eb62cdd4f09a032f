"""What was served, where: all that a bound depends on.

In:   LoadedModel, formats, HardwareSpec, how many devices work on each token
Out:  Subject and its ceilings, as high as physics could set them
Read next by: least, judged.

A bound that is to convict must not be too strict: products run at the fastest rate that arithmetic with these weights can
have on the machine (16-bit accumulation, and 8-bit arithmetic where weights are quantised, included), tokens of a step
choose the same experts, and all devices share all work evenly. Where a processor's or a measured machine's rate of
arithmetic so narrow is not known, its wider ones do not bind: kernels may be many times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Roof

_ALL_ALIKE: Final = 1.0  # every token of a step chooses the same experts: the fewest that can be read
_PLAIN: Final = ("fp32", "tf32", "bf16", "fp16")
_QUANTISED: Final = (*_PLAIN, "fp8", "int8")
_NARROW: Final = ("fp8", "int8", "fp4")
_PUBLISHED_ALLOWANCE: Final = 1.02  # a data sheet rounds
_MEASURED_ALLOWANCE: Final = 2.0  # a ceiling that was measured on a busy machine may be half of the true one


@dataclass(frozen=True, slots=True)
class Subject:
    """A model in the formats it is said to be served in, and the devices that all work on each token.

    Raises:  RequestError for fewer than one device
    """

    served: ServedModel
    machine: HardwareSpec
    devices: int = 1

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise RequestError(f"{self.devices} devices cannot serve a model; at least 1 is needed")

    @property
    def least_served(self) -> ServedModel:
        """The same with the fewest experts that can be read."""
        return replace(self.served, expert_correlation=_ALL_ALIKE)

    @property
    def ceiling(self) -> Roof:
        """The most that all devices can do together.

        Formula:  devices · (BW, the fastest rate of arithmetic with these weights)
        """
        bandwidth, weights = self.machine.bandwidth_bytes_per_s, self.served.weights.linear_format
        rates = _rates(self.machine, weights) if _knows_narrow(self.machine, weights) else ()
        name, rate = max(rates, key=lambda row: row[1], default=_NONE)
        return Roof(
            None if bandwidth is None else bandwidth * self.devices,
            rate * self.devices if name else None,
            name,
        )

    @property
    def allowance(self) -> float:
        """How many times the stated ceilings the true ones may be."""
        return _MEASURED_ALLOWANCE if self.machine.origin is Origin.MEASURED else _PUBLISHED_ALLOWANCE


_NONE: Final[tuple[str | None, float]] = (None, 0.0)


def _knows_narrow(machine: HardwareSpec, weights: NumberFormat) -> bool:
    """Whether the narrowest arithmetic that software may run these products in has a rate."""
    if machine.origin is not Origin.MEASURED and machine.kind != "cpu-memory":
        return True
    if not weights.is_plain:
        return any(name in machine.peak_flops_per_s for name in _NARROW)
    return weights.bits_per_value > 16 or any(name in machine.peak_flops_per_s for name in ("bf16", "fp16"))


def _rates(machine: HardwareSpec, weights: NumberFormat) -> Iterator[tuple[str | None, float]]:
    """The rates at which products with these weights could run, under the names they have."""
    usable = {*weights.compute_formats, *(_PLAIN if weights.is_plain else _QUANTISED)}
    for name, rate in machine.peak_flops_per_s.items():
        if name in usable:
            yield name, rate
    for name, rate in (machine.acc16_flops_per_s or {}).items():
        if name in usable:
            yield f"{name}, 16-bit accumulation", rate


def subject_for(
    model: LoadedModel, machine: HardwareSpec, weights: str | None = None, cache: str | None = None, devices: int = 1
) -> Subject:
    """A model as it was loaded, in the formats a person names; None is its own format, and a 16-bit cache.

    Raises:  UnknownNameError, RequestError, ModelConfigError
    """
    keys, _, values = (cache or "fp16").partition("/")
    stored = CacheFormat(number_format(keys), number_format(values or keys))
    return Subject(ServedModel(model.spec, count_loaded_weights(model, weights), stored), machine, devices)
