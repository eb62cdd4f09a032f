"""`compare`: two run folders beside each other, or the reason why that would say nothing.

In:   two run folders
Out:  RunComparison
Leaves out: drawing and words (charts, report)
Read next by: charts, report, cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.compare_runs.differences import Better, Difference, differences, point_difference
from inference_bench.compare_runs.same_work import (
    SharedParts,
    SharedSteps,
    require_same_work,
    shared_parts,
    shared_steps,
)
from inference_bench.compare_runs.side import Side, SidePoint, read_side
from inference_bench.errors import RequestError
from inference_bench.manifest.compare import Verdict, compare_manifests
from inference_bench.manifest.components import Component, Manifest

_MOST_NAMED: Final = 8
_MOST_COMPONENTS: Final = 40


@dataclass(frozen=True, slots=True)
class PartDifferences:
    """One part of both runs."""

    name: str
    figures: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class PointPair:
    """One measured step of both runs."""

    first: SidePoint
    second: SidePoint
    difference: Difference


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs of the same work.

    Where:    changed are the facts that differ, (what, first, second)
    """

    first: Side
    second: Side
    changed: tuple[tuple[str, str | None, str | None], ...]
    points: tuple[PointPair, ...]
    parts: tuple[PartDifferences, ...]
    reading: tuple[str, ...]
    notes: tuple[str, ...]


def compare_runs(first: Path, second: Path) -> RunComparison:
    """Two runs beside each other.

    Raises:  RunFolderError for what is no run; RequestError where they did not do the same work
    """
    sides = read_side(first), read_side(second)
    if first.resolve() == second.resolve():
        raise RequestError(f"both runs are {first}; give two different ones")
    require_same_work(*sides)
    shared, steps = shared_parts(*sides), shared_steps(*sides)
    names = [name for name in shared.same if not steps.pairs or name in sides[0].asked]  # a step is not told twice
    parts = tuple(PartDifferences(name, differences(sides[0].parts[name], sides[1].parts[name])) for name in names)
    pairs = tuple(PointPair(*pair, point_difference(*pair)) for pair in steps.pairs)
    return RunComparison(
        first=sides[0],
        second=sides[1],
        changed=tuple(changed_facts(*sides)),
        points=pairs,
        parts=parts,
        reading=tuple(_reading(sides[0], pairs, parts)),
        notes=tuple(_notes(sides, shared, steps, has_parts=bool(parts))),
    )


def changed_facts(first: Side, second: Side) -> Iterator[tuple[str, str | None, str | None]]:
    """What the runs say of themselves that differs; of their manifests where both have one."""
    for name in first.facts:
        mine, theirs = first.facts[name], second.facts.get(name)
        if mine != theirs:
            yield name, mine, theirs
    if first.manifest is not None and second.manifest is not None:
        yield from _changed_components(first.manifest, second.manifest)


def _changed_components(first: Manifest, second: Manifest) -> Iterator[tuple[str, str | None, str | None]]:
    apart = [each for each in compare_manifests(first, second).components if each.verdict is Verdict.DIFFERENT]
    for each in apart[:_MOST_COMPONENTS]:
        yield f"manifest: {each.group} {each.name}", _content(each.expected), _content(each.found)
    if len(apart) > _MOST_COMPONENTS:
        yield f"manifest: {len(apart) - _MOST_COMPONENTS} more components", None, None


def _content(component: Component | None) -> str | None:
    """A component's value, or the beginning of its hash; None where the manifest has no such component."""
    if component is None:
        return None
    if component.value is not None:
        return str(component.value)
    return f"SHA-256 {component.sha256[:12]}" if component.sha256 is not None else f"{component.num_bytes} bytes"


def _reading(first: Side, pairs: Sequence[PointPair], parts: Sequence[PartDifferences]) -> Iterator[str]:
    """What the second run does better and worse, as counts that the tables show."""
    if first.is_verify and pairs:
        yield _counted("steps", [pair.difference for pair in pairs])
    for part in parts:
        where = f" in part {part.name}" if len(parts) > 1 and part.name else ""
        yield _counted(f"latency figures{where}", [each for each in part.figures if each.better is Better.LOWER])


def _counted(what: str, found: Sequence[Difference]) -> str:
    better = sum(each.is_improvement is True for each in found)
    worse = sum(each.is_improvement is False for each in found)
    return (
        f"Of {len(found)} {what} the second run is clearly faster in {better} and clearly slower in {worse}; in "
        f"{len(found) - better - worse} the runs do not tell"
    )


def _notes(sides: tuple[Side, Side], shared: SharedParts, steps: SharedSteps, *, has_parts: bool) -> Iterator[str]:
    for side in sides:
        if not side.is_whole:
            yield f"{side.name} did not come to its end; what it measured by then is compared"
    for reasons in list(shared.apart.values())[:_MOST_NAMED]:
        yield f"left out, for it is not the same work: {'; '.join(reasons)}"
    if len(shared.apart) > _MOST_NAMED:
        yield f"{len(shared.apart) - _MOST_NAMED} more parts that are not the same work are left out"
    if shared.alone:
        yield f"parts that only one run has are left out: {', '.join(sorted(shared.alone)[:_MOST_NAMED])}"
    if steps.num_apart:
        yield f"{steps.num_apart} measured steps of the same name that compute other FLOPs are left out"
    if steps.num_alone:
        yield f"{steps.num_alone} measured steps that only one run has are left out"
    if has_parts:
        yield "the intervals are of one pair of runs: what differs between two runs of one server is not in them"
