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
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError, StorageError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.names import fold_name
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Link, Shares, step_time_of
from inference_bench.simulate.step_time import StepTime

KIND: Final = "inference-bench profile"
_VERSION: Final = 1
_TEXTS: Final = ("machine", "engine", "model", "source", "as_of")
_MOST_BYTES: Final = 1 << 20


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
        if fold_name(machine.name) != fold_name(self.machine):
            raise RequestError(
                f"the profile was fitted on {self.machine}, and efficiencies do not carry over to {machine.name}; fit one there"
            )
        found = step_time_of(served, machine, self.shares, devices, self.link)
        where = f"{self.engine} with {self.model} on {self.devices} × {self.machine}"
        note = f"efficiencies fitted on {where}, as of {self.as_of} ({self.source})"
        return replace(found, origin=Origin.PREDICTED, notes=(note, *found.notes))


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
    try:
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the profile could not be written to {path}: {error.strerror or error}") from None


def load_profile(path: Path) -> StepProfile:
    """A profile from a file; fields that are not known are ignored.

    Raises:  RequestError naming what is wrong with it
    """
    try:
        text = path.read_bytes()[:_MOST_BYTES].decode("utf-8")
        values = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"{path} cannot be read as a profile: {error}") from None
    if not isinstance(values, dict) or values.get("kind") != KIND or values.get("version") != _VERSION:
        raise RequestError(f'{path} is no profile: it must be an object with kind "{KIND}" and version {_VERSION}')
    return _profile(values, path)


def _profile(values: Mapping[str, Any], path: Path) -> StepProfile:
    texts = {name: values.get(name) for name in _TEXTS}
    if missing := [name for name, text in texts.items() if not isinstance(text, str) or not text]:
        raise RequestError(f"{path}: {', '.join(missing)} of the profile must be text")
    devices = values.get("devices", 1)
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        raise RequestError(f"{path}: devices of the profile is {devices!r}; a whole number of at least 1 is needed")
    errors = values.get("errors") or {}
    if not isinstance(errors, Mapping):
        raise RequestError(f"{path}: errors of the profile must be an object of fractions")
    shares = Shares(
        bandwidth=_number(values, "bandwidth_share", path),
        compute=_number(values, "compute_share", path),
        fixed_s=_number(values, "fixed_s", path, 0.0),
        sequence_s=_number(values, "sequence_s", path, 0.0),
        serial=_number(values, "serial_share", path, 0.0),
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
        errors={str(name): _number(errors, name, path) for name in errors},
    )


def _link(values: object, path: Path) -> Link | None:
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise RequestError(f"{path}: link of the profile must be an object of bytes_per_s and latency_s, or null")
    return Link(_number(values, "bytes_per_s", path), _number(values, "latency_s", path), "the link is the profile's")


def _number(values: Mapping[str, Any], name: str, path: Path, default: float | None = None) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RequestError(f"{path}: {name} of the profile is {str(value)[:40]!r}; a number is needed")
    return float(value)
