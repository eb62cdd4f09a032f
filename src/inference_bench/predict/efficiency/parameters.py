"""The fitted efficiencies, as they ship: numbers with their provenance, fitted by scripts/fit_efficiency.py.

In:   fitted.json beside this file
Out:  Fitted: one Parameters for steps timed alone and one for serving, and the widths of 80 % intervals
Leaves out: the rows they were fitted on, which stay where they were published
Read next by: expectation, calibration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from inference_bench.facts.source import Source

_FILE: Final = "fitted.json"
INTERVAL_SHARE: Final = 0.8
_STATIC_BATCH, _IN_STATIC_BATCH = "e2e", ("decode", "prefill")
SERVING: Final = "serving"  # how the names of serving phases begin


class Calibration(StrEnum):
    """How much of a user's own measurements a prediction rests on."""

    NONE = "none"
    ONE = "one"
    SEVERAL = "several"


class Familiarity(StrEnum):
    """How close what is asked lies to what was fitted."""

    KNOWN = "known"  # this engine on this machine
    POOL = "pool"  # this engine on machines of the same pool
    NEW = "new"  # an engine, or an engine on a pool, that was never measured


@dataclass(frozen=True, slots=True)
class Parameters:
    """Logarithms of factors by effect name; norm says how memory and compute time overlap.

    Where:  time of both = (memory^norm + compute^norm)^(1/norm): 1 is a sum, large is a perfect overlap
    """

    values: Mapping[str, float]
    norm: float

    def log_factor(self, names: tuple[str, ...]) -> float:
        """The sum of the effects; an effect that was never fitted is zero."""
        get = self.values.get
        return sum(get(name, 0.0) for name in names)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Everything that was fitted.

    Where:  widths maps phase, familiarity and calibration to the half-width of the interval, as a logarithm;
            seen maps a phase to "engine/machine" and "engine/pool" of its rows
    """

    alone: Parameters
    serving: Parameters
    widths: Mapping[str, Mapping[str, Mapping[str, float]]]
    seen: Mapping[str, frozenset[str]]
    num_rows: int
    source: Source

    @property
    def engines(self) -> tuple[str, ...]:
        """Every engine that was measured."""
        return tuple(sorted({name.partition("/")[0] for names in self.seen.values() for name in names}))

    def has(self, name: str, *, is_serving: bool | None = None) -> bool:
        """Whether an engine, or an "engine/machine" or "engine/pool", was measured: in service, alone, or in either way."""
        wanted = [
            names for phase, names in self.seen.items() if is_serving is None or phase.startswith(SERVING) == is_serving
        ]
        return any(found == name or found.partition("/")[0] == name for names in wanted for found in names)

    def familiarity(self, engine: str, machine: str, pool: str, phase: str) -> Familiarity:
        """How close an engine on a machine lies to the rows of a phase; a static batch has timed its prompts and tokens."""
        seen = self.seen[phase]
        if phase in _IN_STATIC_BATCH:
            seen = seen | self.seen[_STATIC_BATCH]
        if f"{engine}/{machine}" in seen:
            return Familiarity.KNOWN
        return Familiarity.POOL if f"{engine}/{pool}" in seen else Familiarity.NEW

    def width(self, phase: str, familiarity: Familiarity, calibration: Calibration) -> float:
        """Half of an 80 % interval, as a logarithm."""
        return self.widths[phase][familiarity.value][calibration.value]


def is_served(engine: str, known: Fitted, pool: str | None = None) -> bool:
    """Whether an engine family was measured while requests came and went, on a pool of machines or on any."""
    return known.has(engine if pool is None else f"{engine}/{pool}", is_serving=True)


def timed_alone(engine: str, pool: str, known: Fitted) -> Fitted:
    """The parameters for an engine's steps alone: of one that was measured on such machines in service only, its servers'."""
    if is_served(engine, known, pool) and not known.has(engine, is_serving=False):
        return replace(known, alone=known.serving)
    return known


@cache
def fitted() -> Fitted:
    """The parameters that ship."""
    return from_mapping(json.loads(Path(__file__).with_name(_FILE).read_text(encoding="utf-8")))


def from_mapping(data: Mapping[str, object]) -> Fitted:
    """Parameters from the layout of the file; see `to_mapping`."""
    values: Mapping[str, Mapping[str, float]] = data["parameters"]  # type: ignore[assignment]
    norms: Mapping[str, float] = data["norms"]  # type: ignore[assignment]
    seen: Mapping[str, list[str]] = data["seen"]  # type: ignore[assignment]
    return Fitted(
        alone=Parameters(values["alone"], norms["alone"]),
        serving=Parameters(values["serving"], norms["serving"]),
        widths=data["interval_half_widths"],  # type: ignore[arg-type]
        seen={phase: frozenset(names) for phase, names in seen.items()},
        num_rows=int(data["rows"]),  # type: ignore[call-overload]
        source=Source(str(data["source"]), str(data["as_of"])),
    )


def to_mapping(result: Fitted) -> dict[str, object]:
    """The layout of the file."""
    return {
        "source": result.source.title,
        "as_of": result.source.as_of,
        "rows": result.num_rows,
        "norms": {"alone": result.alone.norm, "serving": result.serving.norm},
        "interval_half_widths": result.widths,
        "seen": {phase: sorted(names) for phase, names in result.seen.items()},
        "parameters": {"alone": dict(result.alone.values), "serving": dict(result.serving.values)},
    }
