"""Fitted step times on file: what an engine reached on a machine, to be used for other models there.

In:   a JSON file
Out:  StepProfile; StepTime of a model at its efficiencies
Leaves out: how it was fitted (calibrate)
Read next by: cli, calibrate.

The file is one object:  kind "inference-bench profile", version 1, machine, engine, model (it was fitted on), devices,
bandwidth_share, compute_share, serial_share, fixed_s, sequence_s, link {bytes_per_s, latency_s} or null, errors {name:
fraction}, source, as_of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.fields import shown
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.names import fold_name
from inference_bench.files import open_regular, shown_name, write_whole
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.json_text import parse_json
from inference_bench.simulate.step_sources import (
    LINK_LATENCIES,
    LINK_RATES,
    OWN_TIMES_S,
    PEAK_SHARES,
    SERIAL_SHARES,
    Link,
    Shares,
    step_time_of,
)
from inference_bench.simulate.step_time import StepTime

KIND: Final = "inference-bench profile"
_VERSION: Final = 1
_TEXTS: Final = ("machine", "engine", "model", "source", "as_of")
_MOST_BYTES: Final = 1 << 20
_MOST_DEVICES: Final = 1 << 16
_ERRORS: Final = (-1.0, 1e30)  # of the fit: simulated over measured, less one


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What an engine reached on a machine.

    Where:  model is the one it was fitted on, over so many devices; errors are what was left of the fit, as fractions;
            as_of is the date that whoever saved it gave
    """

    shares: Shares
    machine: str
    engine: str
    model: str
    source: str
    as_of: str
    devices: int = 1
    link: Link | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    def step_time(self, served: ServedModel, machine: HardwareSpec, devices: int = 1) -> StepTime:
        """A model's own work at these efficiencies: the shares and the fixed times are carried over as they are.

        Raises:  RequestError for another machine: efficiencies belong to a card and its kernels
        """
        if _same_name(machine.name) != _same_name(self.machine):
            raise RequestError(
                f"the profile was fitted on {self.machine}, and efficiencies do not carry over to {machine.name}; fit one there"
            )
        found = step_time_of(served, machine, self.shares, devices, self.link)
        where = f"{self.engine} with {self.model} on {self.devices} × {self.machine}"
        note = f"efficiencies fitted on {where}, as of {self.as_of} ({self.source})"
        return replace(found, origin=Origin.PREDICTED, notes=(note, *found.notes))


def _same_name(machine: str) -> str:
    """One name for a machine that goes by several."""
    try:
        return fold_name(hardware(machine).name)
    except UnknownNameError:
        return fold_name(machine)


def save_profile(profile: StepProfile, path: Path) -> None:
    """A profile as a file.

    Raises:  StorageError
    """
    link = profile.link
    shares = profile.shares
    values: dict[str, Any] = {
        "kind": KIND,
        "version": _VERSION,
        **{name: getattr(profile, name) for name in _TEXTS},
        "devices": profile.devices,
        "bandwidth_share": shares.bandwidth,
        "compute_share": shares.compute,
        "serial_share": shares.serial,
        "fixed_s": shares.fixed_s,
        "sequence_s": shares.sequence_s,
        "link": None if link is None else {"bytes_per_s": link.bytes_per_s, "latency_s": link.latency_s},
        "errors": dict(profile.errors),
    }
    write_whole(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def load_profile(path: Path) -> StepProfile:
    """A profile from a file; fields that are not known are ignored.

    Raises:  RequestError naming what is wrong with it
    """
    try:
        with open_regular(path) as file:
            values = parse_json(file.read(_MOST_BYTES).decode("utf-8"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RequestError(f"{shown_name(path)} cannot be read as a profile: {why}") from None
    except ValueError as error:
        raise RequestError(f"{shown_name(path)} cannot be read as a profile: {error}") from None
    if not isinstance(values, dict) or values.get("kind") != KIND or values.get("version") != _VERSION:
        raise RequestError(f'{path} is no profile: it must be an object with kind "{KIND}" and version {_VERSION}')
    return _profile(values, path)


def _profile(values: Mapping[str, Any], path: Path) -> StepProfile:
    texts = {name: values.get(name) for name in _TEXTS}
    if missing := [name for name, text in texts.items() if not isinstance(text, str) or not text]:
        raise RequestError(f"{path}: {', '.join(missing)} of the profile must be text")
    devices = values.get("devices", 1)
    if not isinstance(devices, int) or isinstance(devices, bool) or not 1 <= devices <= _MOST_DEVICES:
        raise RequestError(
            f"{path}: devices of the profile is {shown(devices)}; a whole number from 1 to {_MOST_DEVICES} is needed"
        )
    errors = values.get("errors") or {}
    if not isinstance(errors, Mapping):
        raise RequestError(f"{path}: errors of the profile must be an object of fractions")
    shares = Shares(
        bandwidth=_number(values, "bandwidth_share", path, PEAK_SHARES),
        compute=_number(values, "compute_share", path, PEAK_SHARES),
        fixed_s=_number(values, "fixed_s", path, OWN_TIMES_S, 0.0),
        sequence_s=_number(values, "sequence_s", path, OWN_TIMES_S, 0.0),
        serial=_number(values, "serial_share", path, SERIAL_SHARES, 0.0),
    )
    return StepProfile(
        shares=shares,
        machine=str(texts["machine"]),
        engine=str(texts["engine"]),
        model=str(texts["model"]),
        source=str(texts["source"]),
        as_of=str(texts["as_of"]),
        devices=devices,
        link=_link(values.get("link"), path),
        errors={str(name): _number(errors, name, path, _ERRORS) for name in errors},
    )


def _link(values: object, path: Path) -> Link | None:
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise RequestError(f"{path}: link of the profile must be an object of bytes_per_s and latency_s, or null")
    rate, latency_s = (
        _number(values, name, path, limits)
        for name, limits in (("bytes_per_s", LINK_RATES), ("latency_s", LINK_LATENCIES))
    )
    return Link(rate, latency_s, "the link is the profile's")


def _number(
    values: Mapping[str, Any], name: str, path: Path, limits: tuple[float, float], default: float | None = None
) -> float:
    value, (least, most) = values.get(name, default), limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise RequestError(
            f"{path}: {name} of the profile is {shown(value)}; a number between {least:g} and {most:g} is needed"
        )
    return float(value)
