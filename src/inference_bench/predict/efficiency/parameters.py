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
            seen_alone and seen_serving hold "engine/machine" and "engine/pool" of the rows of either kind
    """

    alone: Parameters
    serving: Parameters
    widths: Mapping[str, Mapping[str, Mapping[str, float]]]
    seen_alone: frozenset[str]
    seen_serving: frozenset[str]
    num_rows: int
    source: Source

    @property
    def seen(self) -> frozenset[str]:
        """What was measured in either way."""
        return self.seen_alone | self.seen_serving

    def familiarity(self, engine: str, machine: str, pool: str, *, is_serving: bool | None = None) -> Familiarity:
        """How close an engine on a machine lies to the rows: those of servers, those timed alone, or either."""
        seen = self.seen if is_serving is None else self.seen_serving if is_serving else self.seen_alone
        if f"{engine}/{machine}" in seen:
            return Familiarity.KNOWN
        return Familiarity.POOL if f"{engine}/{pool}" in seen else Familiarity.NEW

    def width(self, phase: str, familiarity: Familiarity, calibration: Calibration) -> float:
        """Half of an 80 % interval, as a logarithm."""
        return self.widths[phase][familiarity.value][calibration.value]


def is_served(engine: str, known: Fitted, pool: str | None = None) -> bool:
    """Whether an engine family was measured while requests came and went, on a pool of machines or on any."""
    return _is_among(engine, known.seen_serving) if pool is None else f"{engine}/{pool}" in known.seen_serving


def _is_among(engine: str, seen: frozenset[str]) -> bool:
    return any(name.partition("/")[0] == engine for name in seen)


def timed_alone(engine: str, pool: str, known: Fitted) -> Fitted:
    """The parameters for an engine's steps alone: of one that was measured on such machines in service only, its servers'."""
    if is_served(engine, known, pool) and not _is_among(engine, known.seen_alone):
        return replace(known, alone=known.serving)
    return known


def parameters_of_engine(engine: str, known: Fitted) -> Parameters:
    """The parameters of an engine's steps in service: fitted on servers where servers of it were measured.

    Where:  steps timed alone leave out what a scheduler and its clients add; of engines that were only ever timed alone
            nothing else is known
    """
    return known.serving if is_served(engine, known) else known.alone


@cache
def fitted() -> Fitted:
    """The parameters that ship."""
    return from_mapping(json.loads(Path(__file__).with_name(_FILE).read_text(encoding="utf-8")))


def from_mapping(data: Mapping[str, object]) -> Fitted:
    """Parameters from the layout of the file; see `to_mapping`."""
    values: Mapping[str, Mapping[str, float]] = data["parameters"]  # type: ignore[assignment]
    norms: Mapping[str, float] = data["norms"]  # type: ignore[assignment]
    return Fitted(
        alone=Parameters(values["alone"], norms["alone"]),
        serving=Parameters(values["serving"], norms["serving"]),
        widths=data["interval_half_widths"],  # type: ignore[arg-type]
        seen_alone=frozenset(data["seen_alone"]),  # type: ignore[call-overload]
        seen_serving=frozenset(data["seen_serving"]),  # type: ignore[call-overload]
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
        "seen_alone": sorted(result.seen_alone),
        "seen_serving": sorted(result.seen_serving),
        "parameters": {"alone": dict(result.alone.values), "serving": dict(result.serving.values)},
    }
