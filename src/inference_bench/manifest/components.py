"""What is a manifest? Named components, each with a hash or a value and the place it was read from, under one digest.

In:   nothing; these are plain immutable values
Out:  Component, Manifest
Leaves out: where components come from, and the file they are kept in (store)
Read next by: everything here, report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.manifest.canonical import LARGEST_NUMBER, canonical_json, sha256_of
from inference_bench.units import format_count

SCHEMA: Final = "inference-bench/manifest/1"

Value = str | int | bool

_SHOWN_DIGITS: Final = 10
_SHOWN_CHARS: Final = 80
_LONGEST_TEXT: Final = 4096


class Group(StrEnum):
    """What kind of thing a component is, in the order in which they are shown."""

    MODEL = "model"
    WEIGHTS = "weights"
    CONFIG = "config"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat_template"
    TOKEN_IDS = "token_ids"
    SYSTEM_PROMPT = "system_prompt"
    CODE = "code"  # Python files of a model's folder, which some engines run
    OTHER = "other"  # further files of a model's folder
    ADAPTER = "adapter"
    FORMAT = "format"
    SAMPLING = "sampling"
    ENGINE = "engine"
    SETTING = "setting"  # as the engine reports it
    FLAG = "flag"  # as it was started
    LINEAGE = "lineage"


_ORDER: Final = {group: place for place, group in enumerate(Group)}


class Artifact(StrEnum):
    """What the files are: a model as it is released, a folder or a file made from one for serving, or an adapter of one."""

    RELEASE = "release"
    CONVERTED_FOLDER = "converted_folder"
    SERVING_FILE = "serving_file"
    ADAPTER = "adapter"


ARTIFACT_NAME: Final = "artifact"
SERVED_NAME: Final = "served_name"
SOURCE_NAME: Final = "source_sha256"
MADE_BY_US: Final = "conversion"


@dataclass(frozen=True, slots=True)
class Component:
    """One thing that is known of what is served.

    Where:    a file has sha256 and num_bytes; a setting has a value, a fraction being text (canonical.fraction_text); source is the
              place it was read from. Texts and numbers that no canonical JSON holds, as only a broken or hostile source has them,
              become texts that it does
    """

    group: Group
    name: str
    source: str
    sha256: str | None = None
    num_bytes: int | None = None
    value: Value | None = None

    def __post_init__(self) -> None:
        for name in ("name", "source", "value"):
            object.__setattr__(self, name, _canonical(getattr(self, name)))
        if self.num_bytes is not None and not 0 <= self.num_bytes <= LARGEST_NUMBER:
            object.__setattr__(self, "num_bytes", None)  # no file is as large: a broken or hostile source says so

    @property
    def key(self) -> tuple[Group, str]:
        """What tells it from all others of a manifest."""
        return self.group, self.name

    @property
    def content(self) -> tuple[str | None, int | None, Value | None]:
        """What it says, wherever that was read."""
        return self.sha256, self.num_bytes, self.value

    def to_json(self) -> dict[str, Any]:
        """Its fields by their names in a manifest's file; what is not known is left out."""
        fields = {
            "group": self.group.value,
            "name": self.name,
            "sha256": self.sha256,
            "bytes": self.num_bytes,
            "value": self.value,
            "source": self.source,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is known of what is served, in order.

    Formula:  sha256 is that of the canonical JSON of schema and components: two manifests of one digest say the same, word for word
    Raises:   RequestError for a component that is there twice
    """

    components: tuple[Component, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.components, key=lambda each: place_of(*each.key)))
        for first, second in pairwise(ordered):
            if first.key == second.key:
                raise RequestError(f"the manifest holds {first.group} {first.name[:80]!r} twice; each component once")
        object.__setattr__(self, "components", ordered)

    @property
    def body(self) -> dict[str, Any]:
        """What the digest is over."""
        return {"schema": SCHEMA, "components": [each.to_json() for each in self.components]}

    @property
    def sha256(self) -> str:
        """The one digest."""
        return sha256_of(canonical_json(self.body))

    @property
    def by_key(self) -> Mapping[tuple[Group, str], Component]:
        """Its components by what tells them apart."""
        return {each.key: each for each in self.components}

    @property
    def artifact(self) -> Artifact | None:
        """What the files are; None where none are known."""
        found = self.find(Group.MODEL, ARTIFACT_NAME)
        return None if found is None or found.value not in list(Artifact) else Artifact(str(found.value))

    @property
    def num_bytes(self) -> int:
        """Bytes of all files that were hashed."""
        return sum(each.num_bytes or 0 for each in self.components if each.group is not Group.LINEAGE)

    def find(self, group: Group, name: str) -> Component | None:
        """One component; None where it is not known."""
        return self.by_key.get((group, name))

    def of(self, *groups: Group) -> tuple[Component, ...]:
        """The components of some groups."""
        return tuple(each for each in self.components if each.group in groups)


def place_of(group: Group, name: str) -> tuple[int, str]:
    """Where a component stands in a manifest: by its group, then by its name."""
    return _ORDER[group], name


def merged(parts: Iterable[Iterable[Component]]) -> tuple[Component, ...]:
    """The components of several sources, of which the first that says something is kept.

    Raises:   RequestError where two of them contradict each other
    """
    kept: dict[tuple[Group, str], Component] = {}
    for each in (component for part in parts for component in part):
        first = kept.setdefault(each.key, each)
        contradicts = any(
            ours is not None and theirs is not None and ours != theirs
            for ours, theirs in zip(first.content, each.content, strict=True)
        )
        if contradicts:
            raise RequestError(
                f"the sources contradict each other: {each.group} {each.name[:80]!r} is {said(first)} by {first.source[:80]}, and "
                f"{said(each)} by {each.source[:80]}; make a manifest of each, and compare them"
            )
    return tuple(kept.values())


def _canonical(value: Value | None) -> Value | None:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
    is_too_large = isinstance(value, int) and abs(value) > LARGEST_NUMBER
    return f"more than {LARGEST_NUMBER}" if is_too_large else value


def said(component: Component) -> str:
    """What a component says, shortly: a value, or the beginning of a hash."""
    value = None if component.value is None else _worded(component.value)
    if value is not None and component.group is Group.TOKEN_IDS:
        value = f"{value} tokens"
    digest = None if component.sha256 is None else f"{component.sha256[:_SHOWN_DIGITS]}…"
    return " ".join(filter(None, (value, digest))) or "nothing"


def _worded(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return format_count(value)
    return value if len(value) <= _SHOWN_CHARS else f"{value[: _SHOWN_CHARS - 1]}…"
