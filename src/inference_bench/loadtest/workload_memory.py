"""What was asked of the server, kept with the run: so that a folder alone still shows whether it came to pass.

In:   a Workload, before it is sent; later the JSON that was kept of it
Out:  plain values for `meta.json`; the Asked that they stand for, and its arrival proof
Leaves out: the prompts, and the lengths one by one; how requests ended (the journal)
Read next by: session, report (saved_load, exports).

Arrival times are kept to the last bit, as base64 of doubles. A file that someone else may have written is not believed:
what does not fit is None, and the run is shown without it.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, prove_arrivals
from inference_bench.errors import RequestError
from inference_bench.records import RequestRecord, Stage
from inference_bench.units import plain_number
from inference_bench.workload import (
    Arrivals,
    ClosedLoop,
    Constant,
    GammaArrivals,
    OnOff,
    OpenLoop,
    Poisson,
    Ramp,
    Steps,
    Workload,
)

META_KEY: Final = "asked"  # in meta.json, by the group of the run that a workload was sent as

_PROCESSES: Final = {kind.__name__: kind for kind in (Poisson, GammaArrivals, Constant, OnOff, Ramp, Steps)}


@dataclass(frozen=True, slots=True)
class LengthRange:
    """The shortest, mean and longest of what was asked for.

    Unit:     tokens
    """

    least: int
    mean: float
    most: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> LengthRange:
        """The range of these lengths."""
        return cls(min(lengths), sum(lengths) / len(lengths), max(lengths))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is remembered of a workload."""

    name: str
    seed: int
    arrival: ClosedLoop | OpenLoop
    prompt_tokens: LengthRange
    output_tokens: LengthRange
    notes: tuple[str, ...] = ()


def asked_of(workload: Workload) -> Asked:
    """What is worth remembering of a workload."""
    requests = workload.requests
    return Asked(
        workload.name,
        workload.seed,
        workload.arrival,
        LengthRange.of(requests.prompt_tokens),
        LengthRange.of(requests.output_tokens),
        workload.notes,
    )


def asked_to_json(asked: Asked) -> dict[str, Any]:
    """Plain values, from which `asked_from_json` gives back the same."""
    return {
        "name": asked.name,
        "seed": asked.seed,
        "arrival": _arrival_to_json(asked.arrival),
        "prompt_tokens": asdict(asked.prompt_tokens),
        "output_tokens": asdict(asked.output_tokens),
        "notes": list(asked.notes),
    }


def asked_from_json(values: object) -> Asked | None:
    """What was remembered; None for values that `asked_to_json` did not write."""
    try:
        return _asked(_expect(values, dict))
    except (KeyError, TypeError, ValueError, RequestError, binascii.Error):
        return None


def asked_in(meta: Mapping[str, object]) -> dict[str, Asked]:
    """What a run's meta remembers, by the group it was sent as; empty where it remembers nothing."""
    kept = meta.get(META_KEY)
    found = {str(group): asked_from_json(values) for group, values in kept.items()} if isinstance(kept, dict) else {}
    return {group: asked for group, asked in found.items() if asked is not None}


def prove_asked(records: Sequence[RequestRecord], asked: Asked) -> ArrivalProof:
    """Whether the measured requests of a group arrived as asked; of a schedule, the part that they were.

    Where:    the part is from the first to the last index that was sent, so that one that is missing between is seen
    """
    arrival = asked.arrival
    indices = [r.index for r in records if r.stage is Stage.MEASURE and r.index is not None]
    if isinstance(arrival, OpenLoop) and indices:
        part = arrival.times_s[max(0, min(indices)) : max(indices) + 1]
        if 0 < len(part) < len(arrival):
            arrival = replace(arrival, times_s=part)
    return prove_arrivals(records, arrival)


def _arrival_to_json(arrival: ClosedLoop | OpenLoop) -> dict[str, Any]:
    if isinstance(arrival, ClosedLoop):
        return {"policy": "closed loop", **asdict(arrival)}
    return {
        "policy": "open loop",
        "process": arrival.process,
        "nominal_rate": arrival.nominal_rate,
        "drawn_from": _process_to_json(arrival.drawn_from),
        "times_s": _doubles_to_text(arrival.times_s),
    }


def _process_to_json(process: Arrivals | None) -> dict[str, Any] | None:
    """A process by its kind and fields; None for one that is not known by name, whose proof then lacks its fit."""
    kind = _PROCESSES.get(type(process).__name__)
    return None if kind is None or not isinstance(process, kind) else {"kind": kind.__name__, **asdict(process)}


def _asked(values: dict[str, Any]) -> Asked:
    return Asked(
        _expect(values["name"], str),
        _expect(values["seed"], int),
        _arrival(_expect(values["arrival"], dict)),
        _range(_expect(values["prompt_tokens"], dict)),
        _range(_expect(values["output_tokens"], dict)),
        tuple(_expect(note, str) for note in _expect(values["notes"], list)),
    )


def _arrival(values: dict[str, Any]) -> ClosedLoop | OpenLoop:
    if values["policy"] == "closed loop":
        return ClosedLoop(
            _expect(values["concurrency"], int), _expect(values["num_requests"], int), _number(values["think_s"])
        )
    nominal = values["nominal_rate"]
    return OpenLoop(
        _doubles(_expect(values["times_s"], str)),
        _expect(values["process"], str),
        None if nominal is None else _number(nominal),
        _process(values["drawn_from"]),
    )


def _process(values: object) -> Arrivals | None:
    if values is None:
        return None
    given = _expect(values, dict)
    kind = _PROCESSES[given["kind"]]
    return kind(**{field.name: _plain(given[field.name]) for field in fields(kind)})


def _plain(value: object) -> Any:
    """A field of a process: a number, a yes or no, or numbers."""
    if isinstance(value, list):
        return tuple(map(_number, value))
    return value if isinstance(value, bool) else _number(value)


def _range(values: dict[str, Any]) -> LengthRange:
    return LengthRange(_expect(values["least"], int), _number(values["mean"]), _expect(values["most"], int))


def _expect(value: object, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(kind.__name__)
    return value


def _number(value: object) -> float:
    if (found := plain_number(value)) is None:
        raise TypeError("a number")
    return found


def _doubles_to_text(values: array[float]) -> str:
    kept = array("d", values)
    if sys.byteorder == "big":
        kept.byteswap()
    return base64.b64encode(kept.tobytes()).decode("ascii")


def _doubles(text: str) -> array[float]:
    found = array("d")
    found.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        found.byteswap()
    return found
