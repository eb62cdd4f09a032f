"""A manifest, a manifest beside what is served, two manifests: as text of at most 100 columns, and as JSON with stable keys.

In:   Manifest, ManifestComparison
Out:  a text; a dict ready for JSON
Leaves out: what the components mean (docs/manifest.md)
Read next by: cli.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from inference_bench.manifest.compare import ComparedComponent, ManifestComparison, Verdict
from inference_bench.manifest.components import Artifact, Component, Group, Manifest, said
from inference_bench.manifest.create import AT_ITS_PATH
from inference_bench.manifest.store import manifest_to_json
from inference_bench.report.table import Column, Table
from inference_bench.report.text import MAX_COLUMNS, clean, display_columns, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_bytes, format_count

VERIFY_SCHEMA: Final = "inference-bench/manifest-verify/1"
DIFF_SCHEMA: Final = "inference-bench/manifest-diff/1"
_NAME_COLUMNS, _SAID_COLUMNS = 34, 22  # of a terminal, beyond which a text takes another line
_GAP_COLUMNS: Final = 2
_SOURCE_CHARS: Final = 28
_MOST_FILES: Final = 12  # of one group; the file holds all
_KINDS: Final = {
    Artifact.RELEASE: "a model release: a folder of weights, configuration and tokenizer",
    Artifact.CONVERTED_FOLDER: "a converted folder: made from another file, and no release",
    Artifact.SERVING_FILE: "a serving file: one .gguf model as an engine loads it, and no release",
    Artifact.ADAPTER: "an adapter, and no model by itself",
    None: "not known: no file was seen, only what a server says",
}
_ORIGIN_NOTE: Final = "unknown: nothing here says, and can show, what these files were made from"
_AT_ITS_PATH: Final = "file at its path"
_PATH_NOTE: Final = (
    f"{_AT_ITS_PATH}: {AT_ITS_PATH}; it was hashed now, and may have been replaced since the server loaded it."
)
_KEY_NOTE: Final = "…: the end of a longer key, which the file has whole."


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
    rows = [(_named(each), _side(each), _size(each), _read_from(each)) for each in shown]
    notes = [f"{format_count(count)} more of {group} are in the file." for group, count in hidden.items()]
    sources = [row[-1] for row in rows]
    notes += [_PATH_NOTE] if _AT_ITS_PATH in sources else []
    notes += [_KEY_NOTE] if any(" …" in source for source in sources) else []
    columns = (Column("component", "l"), Column("is", "l"), Column("bytes"), Column("read from", "l"))
    return Table("Components", columns, _over_lines(columns, rows), " ".join(notes))


def _read_from(component: Component) -> str:
    """Where it was read, in few words: of a long key of an endpoint's answer the end, since its beginning is that of all of them."""
    source = clean(component.source)
    if source == AT_ITS_PATH:
        return _AT_ITS_PATH
    place, _, key = source.partition(" ")
    parents, _, last = key.rpartition(".")
    is_long = place.startswith("/") and bool(parents) and len(source) > _SOURCE_CHARS
    return f"{place} …{last}" if is_long else source


def _over_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Rows of which no text is cut: what is wider than its column goes on below; the last column takes what the others leave."""
    caps = [_NAME_COLUMNS, *([_SAID_COLUMNS] * (len(columns) - 2))]
    lines = [
        [wrap(cell, max_columns=cap).splitlines() or [""] for cell, cap in zip(row[:-1], caps, strict=True)]
        for row in rows
    ]
    taken = 0
    for index, column in enumerate(columns[:-1]):
        texts = [column.title, *(line for row in lines for line in row[index])]
        taken += max(map(display_columns, texts)) + _GAP_COLUMNS
    for row, whole in zip(lines, rows, strict=True):
        row.append(wrap(whole[-1], max_columns=MAX_COLUMNS - taken).splitlines() or [""])
    return tuple(cells for row in lines for cells in zip_longest(*row, fillvalue=""))


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
    listed = (Verdict.SAME, Verdict.DIFFERENT, Verdict.UNKNOWN)
    blocks = [table_text(_compared_table(result, ("expected", "found", "verdict"), listed, _verdict_words))]
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
    if result.confirms_nothing:
        return f"No: nothing of it could be confirmed; all {unknown} components are unknown."
    if unknown == 0:
        return f"Yes: all {same} components are the same."
    end = "; strictly, that is a no" if is_strict else ""
    return f"Not contradicted, and not confirmed: {same} components the same, {unknown} unknown{end}."


def _compared_table(
    result: ManifestComparison,
    titles: tuple[str, str, str],
    shown: Sequence[Verdict],
    answer: Callable[[ComparedComponent], str],
) -> Table:
    """Both sides of each component that is shown, and what `answer` says of it, under three titles."""
    order = [Verdict.DIFFERENT, Verdict.UNKNOWN, Verdict.SAME]
    kept = sorted(
        (each for each in result.components if each.verdict in shown), key=lambda each: order.index(each.verdict)
    )
    rows = [(_named(each), _side(each.expected), _side(each.found), answer(each)) for each in kept]
    columns = tuple(Column(title, "l") for title in ("component", *titles))
    return Table("Components", columns, _over_lines(columns, rows))


def _side(component: Component | None) -> str:
    """What one side says; a list is spaced, so that it breaks between its words."""
    return NOT_AVAILABLE if component is None else clean(said(component)).replace('","', '", "')


def _verdict_words(each: ComparedComponent) -> str:
    return clean(": ".join(filter(None, (each.verdict.value, each.why))))


def _change_word(each: ComparedComponent) -> str:
    """What became of a component between two manifests: that it is different is why it is in the table."""
    return each.why or "changed"


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
    table = table_text(_compared_table(result, ("first", "second", "change"), (Verdict.DIFFERENT,), _change_word))
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
