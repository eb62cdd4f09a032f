"""How is a manifest kept, and how is it known that nobody changed it?

In:   Manifest; the path of a file or of a run folder
Out:  the file, whole or not at all; a Manifest whose digest was checked
Leaves out: signing: a digest tells a change from none, and says nothing about who made it (see export)
Read next by: run, check, cli.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.files import open_regular, shown_name, write_whole
from inference_bench.manifest.canonical import canonical_json, sha256_of
from inference_bench.manifest.components import SCHEMA, Component, Group, Manifest
from inference_bench.measure.payload_fields import RepeatedKeyError, strict_json
from inference_bench.units import MEBI

MANIFEST_FILE: Final = "manifest.json"
_MAX_BYTES: Final = 64 * MEBI
_DIGEST: Final = "sha256"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FIELDS: Final = frozenset({"group", "name", "sha256", "bytes", "value", "source"})


class ManifestError(RequestError, ValueError):
    """A file that is not a manifest this version can read."""


class TamperedManifestError(ManifestError):
    """A manifest whose content is not what its digest was made of: somebody changed it, or it was cut short and mended."""

    exit_code = 1


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """The content of its file."""
    return {**manifest.body, _DIGEST: manifest.sha256}


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write its file, whole or not at all.

    Raises:   StorageError
    """
    write_whole(path, json.dumps(manifest_to_json(manifest), indent=1, ensure_ascii=False) + "\n")


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file, or in a run folder.

    Raises:   ManifestError for what is none, TamperedManifestError where its content is not what its digest was made of
    """
    file = path / MANIFEST_FILE if path.is_dir() else path
    where = shown_name(file)
    found = _object_in(file, where)
    if found.get("schema") != SCHEMA:
        raise ManifestError(
            f"{where} is not a manifest: its schema is {str(found.get('schema'))[:80]!r}, not {SCHEMA!r}"
        )
    stated = found.pop(_DIGEST, None)
    if not isinstance(stated, str) or not _SHA256.fullmatch(stated):
        raise ManifestError(f"{where} is not a manifest: it has no {_DIGEST} of 64 hexadecimal digits")
    try:
        actual = sha256_of(canonical_json(found))
    except RequestError as error:
        raise ManifestError(f"{where} is not a manifest: {error}") from None
    if actual != stated:
        raise TamperedManifestError(
            f"{where} was changed after it was made: its digest says {stated[:12]}…, and its content is {actual[:12]}…; make it anew, "
            "or take it from where it came from"
        )
    return _manifest(found, where)


def _object_in(file: Path, where: str) -> dict[str, Any]:
    try:
        with open_regular(file) as opened:
            content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"the manifest {where} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(content) > _MAX_BYTES:
        raise ManifestError(f"{where} is larger than {_MAX_BYTES // MEBI} MiB; no manifest is")
    try:
        found = strict_json(content, has_keys_once=True)
    except RepeatedKeyError as error:
        raise ManifestError(f"{where} is not a manifest: {error}") from None
    except (ValueError, RecursionError):
        raise ManifestError(f"{where} is not a manifest: it is not JSON") from None
    if not isinstance(found, dict):
        raise ManifestError(f"{where} is not a manifest: it is not a JSON object")
    return found


def _manifest(found: dict[str, Any], where: str) -> Manifest:
    """The manifest of a content whose digest is right; it may still have been made wrong.

    Raises:   ManifestError
    """
    entries = found.get("components")
    if not isinstance(entries, list) or set(found) != {"schema", "components"}:
        raise ManifestError(f"{where} is not a manifest: it holds schema, components and {_DIGEST}, and nothing else")
    try:
        manifest = Manifest(tuple(_component(each) for each in entries))
    except (RequestError, ValueError) as error:
        raise ManifestError(f"{where} is not a manifest: {error}") from None
    if manifest.body != found:
        raise ManifestError(f"{where} is not a manifest: its components are not in order")
    return manifest


def _component(entry: Any) -> Component:
    """Raises:   ValueError."""
    if not isinstance(entry, dict) or not set(entry) <= _FIELDS:
        raise ValueError(f"a component holds {', '.join(sorted(_FIELDS))}, and nothing else")
    name, source, digest = entry.get("name"), entry.get("source"), entry.get("sha256")
    num_bytes, value = entry.get("bytes"), entry.get("value")
    if entry.get("group") not in list(Group) or not isinstance(name, str) or not isinstance(source, str):
        raise ValueError("a component has a group that is known, a name and a source")
    if digest is not None and (not isinstance(digest, str) or not _SHA256.fullmatch(digest)):
        raise ValueError(f"the hash of {name[:80]!r} is not 64 hexadecimal digits")
    if num_bytes is not None and (type(num_bytes) is not int or num_bytes < 0):
        raise ValueError(f"the bytes of {name[:80]!r} are not a count")
    if value is not None and type(value) not in (str, int, bool):
        raise ValueError(f"the value of {name[:80]!r} is neither text nor a whole number nor a truth value")
    return Component(Group(entry["group"]), name, source, digest, num_bytes, value)
