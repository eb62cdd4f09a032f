"""The reference case: one model on one of two machines, by which simulators are held to each other.

In:   a profile's name
Out:  ReferenceProfile: StepTime, the memory of the cache, a price
Leaves out: any other model or machine (step_sources)
Read next by: served, cli, bridge.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from inference_bench.errors import UnknownNameError
from inference_bench.simulate.settings import KvMemory
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.units import GIGA, TERA

_REFERENCE_WEIGHT_BYTES: Final = 5.5 * GIGA
_REFERENCE_MATMUL_PARAMS: Final = 8_927_875_072
_REFERENCE_LAYERS: Final = 36
_REFERENCE_HIDDEN: Final = 4096
_REFERENCE_KV_BYTES: Final = 147_456


class ReferenceProfile(NamedTuple):
    """A server of the reference case: its step time, the memory of its cache, and its price.

    Unit:  US dollars an hour
    """

    step_time: StepTime
    memory: KvMemory
    usd_per_hour: float


# name: cache budget in bytes, bandwidth, FLOPs a second reached, dollars an hour
_REFERENCES: Final = {
    "24GB-bf16": (16 * GIGA, 1 * TERA, 0.5 * 165 * TERA, 1.0),
    "H100-bf16": (72 * GIGA, 3.35 * TERA, 0.5 * 989 * TERA, 2.5),
}


def reference_profiles() -> tuple[str, ...]:
    """The names of the reference profiles."""
    return tuple(_REFERENCES)


def reference_profile(name: str) -> ReferenceProfile:
    """The reference case on one of its two machines.

    Formula:  max((W + k·cached) / BW, (2·N·positions + 4·L·d·pairs) / C)
    Raises:   UnknownNameError
    Source:   the project's SPEC, section 6, and golden/slo_capacity.json
    """
    row = next((row for known, row in _REFERENCES.items() if known.casefold() == name.casefold()), None)
    if row is None:
        raise UnknownNameError(f"no reference profile is called {name[:80]!r}; known: {', '.join(_REFERENCES)}")
    budget, bandwidth, compute, usd = row
    title = next(known for known in _REFERENCES if known.casefold() == name.casefold())
    coefficients = Coefficients(
        weight_bytes=_REFERENCE_WEIGHT_BYTES,
        read_bytes=_REFERENCE_KV_BYTES,
        flops_per_position=2 * _REFERENCE_MATMUL_PARAMS,
        flops_per_pair=4 * _REFERENCE_LAYERS * _REFERENCE_HIDDEN,
        bandwidth_bytes_per_s=bandwidth,
        compute_flops_per_s=compute,
    )
    step_time = StepTime(
        coefficients, source=f"the reference model on {title}", notes=("half of the dense peak is reached",)
    )
    return ReferenceProfile(step_time, KvMemory(budget, _REFERENCE_KV_BYTES), usd)
