"""Fitted step times on file: what an engine reached on a machine, to be used for other models there.

In:   a JSON file
Out:  StepProfile; StepTime of a model at its efficiencies
Leaves out: how it was fitted (calibrate)
Read next by: cli, calibrate.

The file is one object:  kind "inference-bench profile", version 2, machine, engine, model (it was fitted on), devices,
bandwidth_share, compute_share, cache_share, attention_share, vector_share (null: as the others, or none), serial_share, fixed_s,
sequence_s, request_s, form, weights_format, cache_format, ceilings {bandwidth_bytes_per_s, compute_flops_per_s} that the shares
are of or null, link {bytes_per_s, latency_s} or null, scheduler {budget_rule, max_running, token_budget, micro_batch,
prefix_cache} or null, cache {bytes, block_size} or null, served (profile_work: what a step of its own model takes, and its
cache) or null, measured {max_context_tokens, max_batch} or null, compute_format (of the ceilings) or null, errors {name:
fraction}, intervals {name: [low, high]}, held_out_error, source, as_of.  Version 1 has neither ceilings nor what is named beside
them, and is read still.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.names import fold_name
from inference_bench.facts.source import Source
from inference_bench.files import open_regular, shown_name, write_whole
from inference_bench.origin import Origin
from inference_bench.predict.fitted_cost import MeasuredReach
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.json_text import parse_json
from inference_bench.simulate.profile_fields import MOST_DEVICES, ProfileCache, ProfileFields
from inference_bench.simulate.profile_work import OwnWork, read_work, work_values
from inference_bench.simulate.settings import MOST_REQUEST_S, SchedulerSettings
from inference_bench.simulate.step_sources import (
    OWN_TIMES_S,
    PEAK_SHARES,
    SERIAL_SHARES,
    UNKNOWN_LINK,
    Ceilings,
    Link,
    Shares,
    step_time_at,
    step_time_of,
    step_time_of_form,
)
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import format_fraction

KIND: Final = "inference-bench profile"
_VERSION: Final = 2
_READ: Final = (1, _VERSION)
_TEXTS: Final = ("machine", "engine", "model", "source", "as_of")
_MOST_BYTES: Final = 1 << 20
_ERRORS: Final = (-1.0, 1e30)  # of the fit: simulated over measured, less one
_HELD_OUT: Final = (0.0, 1e30)
_REQUESTS_S: Final = (0.0, MOST_REQUEST_S)


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What an engine reached on a machine.

    Where:  model is the one it was fitted on, over so many devices, in weights_format and cache_format; errors are what was left
            of the fit, as fractions, held_out_error the median of what it did not see; as_of is the date that whoever saved it
            gave; ceilings are what the shares are of (None: the machine's published peaks), compute_format the one that the
            compute rate is in; request_s is what a request takes besides its steps; scheduler and cache are those of the server;
            intervals are of single numbers, by name; served is what a step of the model takes on one device, measured how far
            the steps reached that it was fitted to
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
    form: str = ""
    request_s: float = 0.0
    weights_format: str | None = None
    cache_format: str | None = None
    ceilings: Ceilings | None = None
    scheduler: SchedulerSettings | None = None
    cache: ProfileCache | None = None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    held_out_error: float | None = None
    served: OwnWork | None = None
    measured: MeasuredReach | None = None
    compute_format: str | None = None

    def own_step_time(self) -> StepTime | None:
        """The steps of the very model it was fitted on; None where it does not say what those take."""
        if self.served is None or self.ceilings is None or self.devices != 1:
            return None
        found = step_time_of_form(self.served.form, self.ceilings, self.shares)
        source = f"the work of {self.model} on {self.machine}, as its profile holds it"
        return replace(found, origin=Origin.PREDICTED, source=source, notes=(self.note, *found.notes))

    def step_time(self, served: ServedModel, machine: HardwareSpec | None = None, devices: int = 1) -> StepTime:
        """A model's own work at these efficiencies: the shares and the fixed times are carried over as they are.

        Where:   no machine is needed where the profile has ceilings of its own
        Raises:  RequestError for another machine: efficiencies belong to a card and its kernels; or for none and no ceilings
        """
        if machine is not None:
            self.require_machine(machine)
        if self.ceilings is not None:
            link = self.link or UNKNOWN_LINK
            found = step_time_at(served, self.ceilings, self.machine, self.shares, devices, link)
        else:
            found = step_time_of(served, machine or hardware(self.machine), self.shares, devices, self.link)
        return replace(found, origin=Origin.PREDICTED, notes=(self.note, *self._other_formats(served), *found.notes))

    def require_machine(self, machine: HardwareSpec) -> None:
        """Refuse a machine that is not the profile's.

        Raises:  RequestError
        """
        if _same_name(machine.name) != _same_name(self.machine):
            raise RequestError(
                f"the profile was fitted on {self.machine}, and efficiencies do not carry over to {machine.name}; fit one there"
            )

    @property
    def note(self) -> str:
        """What times by it rest on, in words."""
        error = self.held_out_error
        off = "" if error is None else f", held-out error {format_fraction(error)}"
        where = f"{self.engine} with {self.model} on {self.devices} × {self.machine}"
        return f"efficiencies fitted on {where}, as of {self.as_of} ({self.source}){off}"

    def _other_formats(self, served: ServedModel) -> Iterator[str]:
        """Formats it was not fitted with: bytes are counted as they are, but kernels differ."""
        for what, fitted, asked in (
            ("weights", self.weights_format, served.weights.format_name),
            ("a cache", self.cache_format, served.cache_format.name),
        ):
            if fitted is not None and fold_name(fitted) != fold_name(asked):
                yield (
                    f"the profile was fitted with {what} in {fitted}, and {asked} is asked for: its bytes are counted, "
                    "but other kernels may reach another share"
                )

    def own_machine(self, weights: WeightCount) -> HardwareSpec:
        """The machine as the profile knows it: its ceilings, and no memory.

        Raises:  UnknownNameError where it has no ceilings and its machine is not known
        """
        if self.ceilings is None:
            return hardware(self.machine)
        formats, own = weights.linear_format.compute_formats, self.compute_format
        computed = own if own in formats else next(iter(formats), None)
        return HardwareSpec(
            name=self.machine,
            memory_bytes=None,
            bandwidth_bytes_per_s=self.ceilings.bandwidth_bytes_per_s,
            peak_flops_per_s={computed: self.ceilings.compute_flops_per_s} if computed else {},
            source=Source(f"ceilings of a profile: {self.source}", self.as_of),
            origin=Origin.MEASURED,
        )


def _same_name(machine: str) -> str:
    """One name for a machine that goes by several."""
    try:
        return fold_name(hardware(machine).name)
    except UnknownNameError:
        return fold_name(machine)


def profile_values(profile: StepProfile) -> dict[str, Any]:
    """A profile as its file holds it."""
    link, ceilings, cache, rules = profile.link, profile.ceilings, profile.cache, profile.scheduler
    shares = profile.shares
    return {
        "kind": KIND,
        "version": _VERSION,
        **{name: getattr(profile, name) for name in _TEXTS},
        "devices": profile.devices,
        "weights_format": profile.weights_format,
        "cache_format": profile.cache_format,
        "form": profile.form,
        "bandwidth_share": shares.bandwidth,
        "compute_share": shares.compute,
        "cache_share": shares.cache,
        "attention_share": shares.attention,
        "vector_share": shares.vector,
        "serial_share": shares.serial,
        "fixed_s": shares.fixed_s,
        "sequence_s": shares.sequence_s,
        "request_s": profile.request_s,
        "ceilings": None
        if ceilings is None
        else {
            "bandwidth_bytes_per_s": ceilings.bandwidth_bytes_per_s,
            "compute_flops_per_s": ceilings.compute_flops_per_s,
        },
        "link": None if link is None else {"bytes_per_s": link.bytes_per_s, "latency_s": link.latency_s},
        "scheduler": None if rules is None else _scheduler_values(rules),
        "cache": None if cache is None else {"bytes": cache.num_bytes, "block_size": cache.block_size},
        "served": None if profile.served is None else work_values(profile.served),
        "measured": None if profile.measured is None else asdict(profile.measured),
        "compute_format": profile.compute_format,
        "errors": dict(profile.errors),
        "intervals": {name: list(ends) for name, ends in profile.intervals.items()},
        "held_out_error": profile.held_out_error,
    }


def _scheduler_values(rules: SchedulerSettings) -> dict[str, Any]:
    return {
        "budget_rule": rules.budget_rule.value,
        "max_running": rules.max_running,
        "token_budget": rules.budget,
        "micro_batch": rules.micro_batch,
        "prefix_cache": rules.prefix_cache,
    }


def save_profile(profile: StepProfile, path: Path) -> None:
    """A profile as a file.

    Raises:  StorageError
    """
    write_whole(path, json.dumps(profile_values(profile), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
    if not isinstance(values, dict) or values.get("kind") != KIND or values.get("version") not in _READ:
        versions = " or ".join(map(str, _READ))
        raise RequestError(f'{path} is no profile: it must be an object with kind "{KIND}" and version {versions}')
    return _profile(ProfileFields(values, path))


def _profile(fields: ProfileFields) -> StepProfile:
    return StepProfile(
        shares=Shares(
            bandwidth=fields.number("bandwidth_share", PEAK_SHARES),
            compute=fields.number("compute_share", PEAK_SHARES),
            fixed_s=fields.number("fixed_s", OWN_TIMES_S, 0.0),
            sequence_s=fields.number("sequence_s", OWN_TIMES_S, 0.0),
            serial=fields.number("serial_share", SERIAL_SHARES, 0.0),
            cache=fields.number_or_none("cache_share", PEAK_SHARES),
            attention=fields.number_or_none("attention_share", PEAK_SHARES),
            vector=fields.number_or_none("vector_share", PEAK_SHARES),
        ),
        **fields.texts(_TEXTS),
        devices=fields.count("devices", MOST_DEVICES, 1),
        link=fields.link(),
        errors=fields.numbers("errors", _ERRORS),
        form=fields.text_or_none("form") or "",
        request_s=fields.number("request_s", _REQUESTS_S, 0.0),
        weights_format=fields.text_or_none("weights_format"),
        cache_format=fields.text_or_none("cache_format"),
        ceilings=fields.ceilings(),
        scheduler=fields.scheduler(),
        cache=fields.cache(),
        intervals=fields.intervals(),
        served=read_work(fields),
        measured=fields.measured(),
        compute_format=fields.text_or_none("compute_format"),
        held_out_error=fields.number_or_none("held_out_error", _HELD_OUT),
    )
