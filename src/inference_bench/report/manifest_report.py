"""A manifest, a manifest beside what is served, two manifests: as text of at most 100 columns, and as JSON with stable keys.

In:   Manifest, ManifestComparison
Out:  a text; a dict ready for JSON
Leaves out: what the components mean (docs/manifest.md)
Read next by: cli.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from inference_bench.manifest.compare import ComparedComponent, ManifestComparison, Verdict
from inference_bench.manifest.components import Artifact, Component, Group, Manifest, said
from inference_bench.manifest.store import manifest_to_json
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, shorten, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_bytes, format_count

VERIFY_SCHEMA: Final = "inference-bench/manifest-verify/1"
DIFF_SCHEMA: Final = "inference-bench/manifest-diff/1"
_SAID_CHARS: Final = 26
_SOURCE_CHARS: Final = 36
_MOST_FILES: Final = 12  # of one group; the file holds all
_KINDS: Final = {
    Artifact.RELEASE: "a model release: a folder of weights, configuration and tokenizer",
    Artifact.CONVERTED_FOLDER: "a converted folder: made from another file, and no release",
    Artifact.SERVING_FILE: "a serving file: one .gguf model, made from a release",
    Artifact.ADAPTER: "an adapter, and no model by itself",
    None: "not known: no file was seen, only what a server says",
}
_ORIGIN_NOTE: Final = "unknown: nothing here says, and can show, what these files were made from"


def manifest_text(manifest: Manifest, written: Path | None = None) -> str:
    """What was found, by component, and where it was written."""
    parts = [
        f"manifest SHA-256  {manifest.sha256}",
        wrap(_KINDS[manifest.artifact], "artifact          "),
        wrap(_lineage(manifest), "made from         "),
        f"files             {_files(manifest)}",
        table_text(_components_table(manifest)),
        "" if written is None else f"written to {clean(written)}",
    ]
    return "\n".join(parts[:4]) + "\n\n" + "\n\n".join(filter(None, parts[4:]))


def _lineage(manifest: Manifest) -> str:
    known = [each for each in manifest.of(Group.LINEAGE) if not each.name.startswith("stated")]
    return "; ".join(f"{clean(each.name)} {clean(said(each))}" for each in known) or _ORIGIN_NOTE


def _files(manifest: Manifest) -> str:
    count = sum(each.num_bytes is not None for each in manifest.components if each.group is not Group.LINEAGE)
    return f"{format_count(count)} components of {format_bytes(manifest.num_bytes)} hashed"


def _components_table(manifest: Manifest) -> Table:
    shown, hidden = _shortened(manifest.components)
    rows = tuple(
        (_named(each), clean(said(each)), _size(each), shorten(clean(each.source), _SOURCE_CHARS)) for each in shown
    )
    note = "".join(f" {format_count(count)} more of {group} are in the file." for group, count in hidden.items())
    columns = (Column("component", "l"), Column("is", "l"), Column("bytes"), Column("read from", "l"))
    return Table("Components", columns, rows, note.strip())


def _shortened(components: Sequence[Component]) -> tuple[list[Component], Counter[str]]:
    """The first of each group, and how many more there are."""
    seen: Counter[str] = Counter()
    shown = []
    for each in components:
        seen[each.group.value] += 1
        if seen[each.group.value] <= _MOST_FILES or each.num_bytes is None:
            shown.append(each)
    kept = Counter(each.group.value for each in shown)
    return shown, seen - kept


def _named(each: Component | ComparedComponent) -> str:
    return f"{each.group.value.replace('_', ' ')}: {clean(each.name)}"


def _size(component: Component) -> str:
    return "" if component.num_bytes is None else format_count(component.num_bytes)


def manifest_json(manifest: Manifest, written: Path | None = None) -> dict[str, Any]:
    """The manifest as its file holds it, and beside that what was done."""
    artifact = manifest.artifact
    return {
        **manifest_to_json(manifest),
        "artifact": None if artifact is None else artifact.value,
        "hashed_bytes": manifest.num_bytes,
        "path": None if written is None else str(written),
    }


def verify_text(result: ManifestComparison, name: str, is_strict: bool) -> str:
    """Expected beside found, and the answer."""
    lines = [f"manifest {clean(name)}, SHA-256 {result.first_sha256[:12]}…"]
    unlisted = [each for each in result.components if each.verdict is Verdict.UNLISTED]
    blocks = [
        table_text(_compared_table(result, ("expected", "found"), (Verdict.SAME, Verdict.DIFFERENT, Verdict.UNKNOWN)))
    ]
    if unlisted:
        names = ", ".join(_named(each) for each in unlisted[:_MOST_FILES])
        more = len(unlisted) - _MOST_FILES
        blocks.append(
            wrap(f"found besides, and not in the manifest: {names}{f', and {more} more' if more > 0 else ''}")
        )
    return "\n\n".join([*lines, *filter(None, blocks), wrap(verify_answer(result, is_strict))])


def verify_answer(result: ManifestComparison, is_strict: bool) -> str:
    """What the comparison comes to, in a sentence."""
    different, unknown, same = (result.count(each) for each in (Verdict.DIFFERENT, Verdict.UNKNOWN, Verdict.SAME))
    if different:
        return f"No: of {different + unknown + same} components {different} differ, {same} the same, {unknown} unknown."
    if unknown == 0 and same:
        return f"Yes: all {same} components are the same."
    end = "; strictly, that is a no" if is_strict else ""
    return f"Not contradicted, and not confirmed: {same} components the same, {unknown} unknown{end}."


def _compared_table(result: ManifestComparison, titles: tuple[str, str], shown: Sequence[Verdict]) -> Table:
    order = [Verdict.DIFFERENT, Verdict.UNKNOWN, Verdict.SAME]
    kept = sorted(
        (each for each in result.components if each.verdict in shown), key=lambda each: order.index(each.verdict)
    )
    rows = tuple(
        (
            _named(each),
            _side(each.expected),
            _side(each.found),
            clean(": ".join(filter(None, (each.verdict.value, each.why)))),
        )
        for each in kept
    )
    columns = (Column("component", "l"), *(Column(title, "l") for title in titles), Column("verdict", "l"))
    marked = frozenset(index for index, each in enumerate(kept) if each.verdict is Verdict.DIFFERENT)
    return Table("Components", columns, rows, marked=marked)


def _side(component: Component | None) -> str:
    return NOT_AVAILABLE if component is None else shorten(clean(said(component)), _SAID_CHARS)


def verify_json(result: ManifestComparison, name: str, is_strict: bool) -> dict[str, Any]:
    """The same with full hashes."""
    return {
        "schema": VERIFY_SCHEMA,
        "manifest": name,
        "manifest_sha256": result.first_sha256,
        "strict": is_strict,
        "differs": result.differs,
        "confirmed": result.is_confirmed,
        "counts": {each.value: result.count(each) for each in Verdict},
        "components": list(_rows_json(result, ("expected", "found"))),
    }


def _rows_json(result: ManifestComparison, sides: tuple[str, str]) -> Iterator[dict[str, Any]]:
    for each in result.components:
        yield {
            "group": each.group.value,
            "name": each.name,
            sides[0]: _component_json(each.expected),
            sides[1]: _component_json(each.found),
            "verdict": each.verdict.value,
            "why": each.why or None,
        }


def _component_json(component: Component | None) -> dict[str, Any] | None:
    if component is None:
        return None
    return {
        "sha256": component.sha256,
        "bytes": component.num_bytes,
        "value": component.value,
        "source": component.source,
    }


def diff_text(result: ManifestComparison) -> str:
    """What differs between two manifests, and the answer."""
    head = f"first   SHA-256 {result.first_sha256}\nsecond  SHA-256 {result.second_sha256}"
    table = table_text(_compared_table(result, ("first", "second"), (Verdict.DIFFERENT,)))
    different, same = result.count(Verdict.DIFFERENT), result.count(Verdict.SAME)
    if different:
        answer = f"{format_count(different)} components differ, {format_count(same)} are the same."
    elif result.first_sha256 == result.second_sha256:
        answer = f"The same: all {format_count(same)} components, and the digest."
    else:
        answer = f"The same in all {format_count(same)} components; the digests differ because some were read from another place."
    return "\n\n".join(filter(None, (head, table, wrap(answer))))


def diff_json(result: ManifestComparison) -> dict[str, Any]:
    """The same with full hashes; components that are the same are counted."""
    rows = [each for each in _rows_json(result, ("first", "second")) if each["verdict"] != Verdict.SAME]
    return {
        "schema": DIFF_SCHEMA,
        "first_sha256": result.first_sha256,
        "second_sha256": result.second_sha256,
        "differs": result.differs,
        "counts": {each.value: result.count(each) for each in (Verdict.SAME, Verdict.DIFFERENT)},
        "components": rows,
    }
