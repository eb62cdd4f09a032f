"""A user's own measurements of an engine on a machine, and what they correct.

In:   a table of measurements, or the result of a verify run; the engine, the machine and the model that are asked about
Out:  OwnMeasurements, whose offsets `expect` and `EngineCost` take
Leaves out: how offsets are found (predict.efficiency.calibration)
Read next by: cli.

Only rows of the same engine family on the same machine count. Rows may be of other models and formats: what is corrected
are efficiencies, which differ less between models than times do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from inference_bench.accounting.params import count_params
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_loaded_weights, count_weights
from inference_bench.errors import MeasurementTableError, RequestError, RunFolderError, UnknownNameError
from inference_bench.facts.fields import shown
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_model
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.measure.store import read_json_object
from inference_bench.origin import Origin
from inference_bench.predict.efficiency import (
    Observation,
    OwnMeasurements,
    Phase,
    Question,
    engine_family,
    engine_setting,
    expected_time,
    fitted,
    own_measurements,
)
from inference_bench.predict.efficiency.bounds import bound_of
from inference_bench.predict.efficiency.question import shape
from inference_bench.predict.fit import cache_format
from inference_bench.predict.step_cost import ServedModel
from inference_bench.score.query import _threads_fraction, case
from inference_bench.score.rows import MeasuredRow, read_rows
from inference_bench.units import format_count, format_seconds

RESULT_FILE: Final = "result.json"
_SCHEMA: Final = "inference-bench/verify/"
_MOST_SHOWN: Final = 5
_MOST_TOKENS: Final = 100_000_000
_OVER_PUBLISHED: Final = 1.1
_OVER_MEASURED: Final = 2.0
_SLOWEST: Final = 1000
_LEAST, _MOST = 1e-9, 1e14  # of seconds and of bytes that anyone measured
_STAND_IN: Final = "RTX 4090"  # read in place of a machine that only the user knows, and then exchanged for theirs


def calibration_from(
    path: str | Path, engine: str, machine: HardwareSpec, model: LoadedModel | None = None
) -> OwnMeasurements:
    """What the rows of one engine family on one machine say of it.

    Where:   path is a CSV table, a run folder of a verification, or its result.json; model is the one asked about, for a
             run of a model that is not known by name
    Raises:  RequestError with what the file holds instead, MeasurementTableError, RunFolderError
    """
    path = Path(path)
    is_run = path.is_dir() or path.suffix == ".json"
    named = _from_run(path, engine, machine, model) if is_run else _from_table(path, engine, machine)
    doubts = [_doubt(row) for _, row in named]
    rows = [row for (_, row), doubt in zip(named, doubts, strict=True) if doubt is None]
    left_out = [f"{name} {doubt}" for (name, _), doubt in zip(named, doubts, strict=True) if doubt is not None]
    if not rows:
        raise RequestError(
            f"{path.name}: no row of {engine} on {machine.name} can be right: {'; '.join(_shortened(left_out))}"
        )
    return own_measurements(engine, machine.name, rows, path.name, _shortened(left_out))


def _doubt(row: Observation) -> str | None:
    """Why nothing of this kind can have been measured: faster than any peak of the machine, or far from any engine.

    Formula:  t < bound / a, bound at the machine's best peak whatever engines compute in, t > 1000 · expected
    Where:    a is what published rates may be off by; measured ceilings leave out the caches that small models live in
    """
    question = row.question
    form, machine = shape(question), question.setting.machine
    rates = (*machine.peak_flops_per_s.values(), *(machine.acc16_flops_per_s or {}).values())
    share = max(1.0, max(rates, default=0.0) / min(form.limits.peak, form.limits.peak_16bit))
    bound = bound_of(replace(form, waves=1.0), compute_share=share)
    allowed = _OVER_MEASURED if machine.origin is Origin.MEASURED else _OVER_PUBLISHED
    if row.seconds * allowed < bound:
        return (
            f"({format_seconds(row.seconds)}) is faster than the bound of {format_seconds(bound)}: lengths, formats or "
            "devices are not as the row says"
        )
    expected = expected_time(form, fitted()).seconds
    if row.seconds > _SLOWEST * expected:
        return (
            f"({format_seconds(row.seconds)}) is over {format_count(_SLOWEST)} times the {format_seconds(expected)} that "
            "are expected: its unit, lengths or devices are not as the row says"
        )
    return None


# ── a table ────────────────────────────────────────────────────────────────────────────────────────


def _from_table(path: Path, engine: str, machine: HardwareSpec) -> list[tuple[str, Observation]]:
    rows = read_rows(path)
    mine = [row for row in rows if _is_asked(row, engine, machine)]
    if not mine:
        found = _listed(f"{engine_family(row.engine)} on {row.hardware}" for row in rows)
        raise RequestError(f"{path.name} has no row of {engine} on {machine.name}; it has {found}")
    asked = [(f"row {row.row}", _observation(row, machine)) for row in mine if not row.is_suspect]
    usable = [(name, item) for name, item in asked if isinstance(item, Observation)]
    if not usable:
        told = (f"{name}: {item}" for name, item in asked if isinstance(item, str))
        reasons = _listed(told, "their notes doubt all of them")
        raise RequestError(f"{path.name}: no row of {engine} on {machine.name} can be used: {reasons}")
    return usable


def _listed(found: Iterable[str], nothing: str = "no rows") -> str:
    """What there is, each once."""
    different = sorted(set(found))
    return "; ".join(_shortened(different)) if different else nothing


def _shortened(found: Sequence[str]) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    more = len(found) - _MOST_SHOWN
    return (*found[:_MOST_SHOWN], *([f"{format_count(more)} more"] if more > 0 else []))


def _is_asked(row: MeasuredRow, engine: str, machine: HardwareSpec) -> bool:
    return engine_family(row.engine) == engine and _is_machine(row.hardware, machine)


def _is_machine(name: str, machine: HardwareSpec) -> bool:
    """Whether a name is that of the machine, as it stands or as one of the names it is known by."""
    if name.casefold() == machine.name.casefold():
        return True
    try:
        return hardware(name).name == machine.name
    except UnknownNameError:
        return False


def _observation(row: MeasuredRow, machine: HardwareSpec) -> Observation | str:
    """What a row shows of the machine that is asked about, or why it shows nothing."""
    asked = case(replace(row, hardware=_STAND_IN))
    if asked.question is None or asked.seconds is None:
        return asked.reason or "it asks nothing"
    setting = asked.question.setting
    on = engine_setting(setting.served, machine, setting.engine).machine
    mine = replace(
        setting,
        machine=on,
        is_early=setting.is_early and bool(row.date),
        threads_fraction=_threads_fraction(row.notes, on),
    )
    return Observation(replace(asked.question, setting=mine), asked.seconds)


# ── a verification ─────────────────────────────────────────────────────────────────────────────────


def _from_run(
    path: Path, engine: str, machine: HardwareSpec, model: LoadedModel | None
) -> list[tuple[str, Observation]]:
    result = _read_result(path)
    run_engine, run_machine = _text(result, "engine", "name"), _text(result, "machine", "name")
    if engine_family(run_engine) != engine or not _is_machine(run_machine, machine):
        raise RequestError(
            f"{path.name} is a run of {run_engine[:40]} on {run_machine[:80]}, not of {engine} on {machine.name}"
        )
    served, scale = _served(result, path, model)
    setting = replace(engine_setting(served, machine, engine), weight_scale=scale)
    points = result.get("points")
    rows = []
    for number, point in enumerate(points if isinstance(points, list) else [], 1):
        phase, batch, context, seconds = _point(point, f"{path.name}: point {number}")
        rows.append((f"point {number}", Observation(Question(setting, phase, batch, context), seconds)))
    if not rows:
        raise RequestError(f"{path.name} holds no measured point")
    return rows


def _read_result(path: Path) -> Mapping[str, Any]:
    result = read_json_object(path / RESULT_FILE if path.is_dir() else path)
    if not str(result.get("schema", "")).startswith(_SCHEMA):
        raise RunFolderError(
            f"{path.name} is not the result of a verification; a run folder with result.json is needed"
        )
    return result


def _text(result: Mapping[str, Any], part: str, key: str) -> str:
    table = result.get(part)
    value = table.get(key) if isinstance(table, Mapping) else None
    if not isinstance(value, str):
        raise RunFolderError(f"the run's result has no {part} {key}")
    return value


def _served(result: Mapping[str, Any], path: Path, model: LoadedModel | None) -> tuple[ServedModel, float]:
    """What the run served, and the size of its weights over the counted one.

    Raises:  RequestError for a model that is neither known nor the one asked about
    """
    name, fmt = _text(result, "model", "name"), cache_format(_cache(result))
    weights = result["model"].get("weights")
    weights = weights if isinstance(weights, Mapping) else {}
    spec = _spec(result["model"], name, model)
    if spec is None:
        raise RequestError(f"{path.name} measured {name[:80]}, which is not known by name; ask about that same model")
    same = model is not None and model.spec == spec
    label = str(weights.get("format", "")).split(" + ")[0]
    counted = count_loaded_weights(model, None) if same and model else count_weights(spec, weight_plan(label))
    size = weights.get("bytes")
    if size is not None and not _is_number(size):
        raise RunFolderError(
            f"{path.name}: the weights have {shown(size)} bytes; a number from {_LEAST:g} to {_MOST:g} is needed"
        )
    return ServedModel(spec, counted, fmt), float(size) / counted.total if size else 1.0


def _spec(identity: Mapping[str, Any], name: str, model: LoadedModel | None) -> ModelSpec | None:
    """The model a run names: the one asked about if it has that name or that many parameters, else a known one."""
    if model is not None:
        shape = (count_params(model.spec).total, model.spec.num_hidden_layers)
        if model.spec.name == name or shape == (identity.get("params_total"), identity.get("num_hidden_layers")):
            return model.spec
    try:
        return known_model(name)
    except UnknownNameError:
        return None


def _cache(result: Mapping[str, Any]) -> str:
    cache = result.get("cache")
    return str(cache.get("format", "fp16")) if isinstance(cache, Mapping) else "fp16"


def _point(point: Any, what: str) -> tuple[Phase, int, int, float]:
    """Phase, batch, context and seconds of one measured point.

    Raises:  MeasurementTableError
    """
    values: Mapping[str, Any] = point if isinstance(point, Mapping) else {}
    counts: Sequence[Any] = (values.get("batch"), values.get("context_tokens"))
    sound = all(type(count) is int and 1 <= count <= _MOST_TOKENS for count in counts)
    if values.get("phase") not in ("decode", "prefill") or not sound or not _is_number(values.get("measured_s")):
        raise MeasurementTableError(
            f"{what} needs a phase, a batch, context_tokens and a measured_s above zero, from {_LEAST:g} to {_MOST:g}"
        )
    return Phase(values["phase"]), values["batch"], values["context_tokens"], float(values["measured_s"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _LEAST <= value <= _MOST
