"""A finished or cut-short run folder as one side of a comparison.

In:   a run folder of `verify` or `load`
Out:  Side: what was served by what, the measured points with their counted work, the records by part of the run
Leaves out: whether two sides did the same work (same_work)
Read next by: same_work, differences, charts.

A folder that somebody else may have written is not believed: what does not fit is None, and said as n/a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.loadtest.workload_memory import Asked, asked_in
from inference_bench.manifest.components import Manifest
from inference_bench.manifest.store import MANIFEST_FILE, read_manifest
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.operate.rollout.replay import META_KEY
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome, read_outcome
from inference_bench.records import RequestRecord
from inference_bench.roofline import Roof
from inference_bench.stats import Interval
from inference_bench.units import plain_number
from inference_bench.verify.saved import holds_result, read_result

_VERIFY: Final = "inference-bench/verify/"
_MOST_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class SidePoint:
    """A measured step as a run's result holds it.

    Unit:  seconds; FLOPs and bytes as counted from the model's shape; the interval is of the median, 95 %
    """

    phase: str
    batch: int
    context_tokens: int
    seconds: float
    interval: Interval | None
    bound_s: float | None
    flops: float
    num_bytes: float

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes it the same point in another run."""
        return self.phase, self.batch, self.context_tokens


@dataclass(frozen=True, slots=True)
class Side:
    """One run.

    Where:    facts are what may differ between runs that are compared, in the order they are shown; parts are the measured
              records by the part of the run, asked what was asked there where the folder remembers it; is_whole says that the
              run came to its end; is_shadow that it replays another; suite is what came of a suite of known answers; manifest is
              what it was served by, None where the folder has none, or an empty one
    """

    path: Path
    is_verify: bool
    is_whole: bool
    facts: Mapping[str, str | None]
    ceiling: Roof | None
    points: tuple[SidePoint, ...]
    parts: Mapping[str, tuple[RequestRecord, ...]] = field(repr=False)
    asked: Mapping[str, Asked] = field(repr=False)
    is_shadow: bool = False
    suite: SuiteOutcome | None = None
    manifest: Manifest | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.name

    @property
    def manifest_sha256(self) -> str | None:
        """The digest of its manifest; None without one."""
        return None if self.manifest is None else self.manifest.sha256

    def only(self, part: str) -> Side:
        """The same run with one of its parts alone, and without measured steps."""
        asked = {name: each for name, each in self.asked.items() if name == part}
        return replace(self, parts={part: self.parts[part]}, asked=asked, points=())


def read_side(path: Path) -> Side:
    """A run folder.

    Raises:  RunFolderError for what is no run, or holds a file that is broken
    """
    meta = RunFolder.open(path).read_meta()
    has_result = holds_result(path)
    result = read_result(path) if has_result else {}
    return Side(
        path=path,
        is_verify=str(result.get("schema")).startswith(_VERIFY) or path.name.endswith("-verify"),
        is_whole=has_result and result.get("is_interrupted") is not True,
        facts=_facts(meta, result),
        ceiling=_ceiling(_dict(result, "machine")),
        points=tuple(filter(None, map(_point, _list(result, "points")))),
        parts={name: tuple(records) for name, records in read_records(path).parts.items()},
        asked=asked_in(meta),
        is_shadow=isinstance(meta.get(META_KEY), dict),
        suite=read_outcome(path),
        manifest=_manifest(path),
    )


def _manifest(path: Path) -> Manifest | None:
    """What the run was served by; None of a run of an earlier version, and of a server that said nothing of itself."""
    found = read_manifest(path) if (path / MANIFEST_FILE).is_file() else None
    return found if found is not None and found.components else None


def _facts(meta: Mapping[str, object], result: Mapping[str, Any]) -> dict[str, str | None]:
    engine, model, machine = (_dict(result, name) for name in ("engine", "model", "machine"))
    figures = _dict(engine, "figures")
    settings = {**_dict(engine, "settings")}
    cache = [figures.get("cache_type_k"), figures.get("cache_type_v")]
    found = {
        "engine": engine.get("name") or meta.get("engine"),
        "version": engine.get("version"),
        "model": model.get("name") or result.get("model") or meta.get("model"),
        "weights": _dict(model, "weights").get("format"),
        "cache": " and ".join(map(str, cache)) if all(cache) else None,
        "machine": machine.get("name"),
        "slots": figures.get("num_slots") or figures.get("max_running"),
        "settings": ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or None,
        "model SHA-256": model.get("sha256") or engine.get("model_sha256"),
        "endpoint": result.get("endpoint"),
    }
    return {
        name: None if value is None or isinstance(value, dict) else str(value)[:_MOST_CHARS]
        for name, value in found.items()
    }


def _ceiling(machine: Mapping[str, Any]) -> Roof | None:
    bandwidth, peak = (_positive(machine.get(name)) for name in ("bandwidth_bytes_per_s", "peak_flops_per_s"))
    if bandwidth is None and peak is None:
        return None
    form = machine.get("compute_format")
    return Roof(bandwidth, peak, form if isinstance(form, str) else None)


def _point(values: object) -> SidePoint | None:
    if not isinstance(values, dict):
        return None
    seconds, flops, num_bytes = (_positive(values.get(name)) for name in ("measured_s", "flops", "bytes"))
    batch, context = values.get("batch"), values.get("nominal_context_tokens")
    if (
        seconds is None
        or flops is None
        or num_bytes is None
        or not isinstance(batch, int)
        or not isinstance(context, int)
    ):
        return None
    return SidePoint(
        phase=str(values.get("phase"))[:_MOST_CHARS],
        batch=batch,
        context_tokens=context,
        seconds=seconds,
        interval=_interval(values.get("interval_s")),
        bound_s=_positive(values.get("bound_s")),
        flops=flops,
        num_bytes=num_bytes,
    )


def _interval(values: object) -> Interval | None:
    if not isinstance(values, dict):
        return None
    low, high, confidence = (_positive(values.get(name)) for name in ("low", "high", "confidence"))
    return None if low is None or high is None or confidence is None or low > high else Interval(low, high, confidence)


def _positive(value: object) -> float | None:
    found = plain_number(value)
    return found if found is not None and found > 0 else None


def _dict(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    return found if isinstance(found, list) else []
