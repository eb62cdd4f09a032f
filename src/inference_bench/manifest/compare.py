"""Is it the same? A manifest beside what was found, or beside another manifest, component by component.

In:   two sets of components
Out:  ManifestComparison: a row for each, with a verdict and why
Leaves out: finding (check), tables (report)
Read next by: check, report, cli.

Three answers, and the third is not the first: the same, different, unknown. A server that does not say which tokenizer it loaded has
not confirmed it. A hash is confirmed by a hash alone: a size or a name that agrees leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from inference_bench.manifest.components import Component, Group, Manifest, place_of
from inference_bench.manifest.from_files import Described


class Verdict(StrEnum):
    """What is known of one component."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    UNLISTED = "unlisted"  # found, and the manifest says nothing of it


@dataclass(frozen=True, slots=True)
class ComparedComponent:
    """One component: what was expected, what was found, and what that means.

    Where:    why says what a reader could not tell from the two
    """

    group: Group
    name: str
    expected: Component | None
    found: Component | None
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class ManifestComparison:
    """All components of both, in order.

    Where:    first and second are the digests; second is None where there was no second manifest
    """

    first_sha256: str
    second_sha256: str | None
    components: tuple[ComparedComponent, ...]

    def count(self, verdict: Verdict) -> int:
        """How many components have this verdict."""
        return sum(each.verdict is verdict for each in self.components)

    @property
    def differs(self) -> bool:
        """Whether anything is known to be different."""
        return self.count(Verdict.DIFFERENT) > 0

    @property
    def confirms_nothing(self) -> bool:
        """Whether not one component was found to be what the manifest says: nothing was shown by asking."""
        return self.count(Verdict.SAME) == 0

    @property
    def is_confirmed(self) -> bool:
        """Whether everything that the manifest says was found to be so."""
        return not self.differs and self.count(Verdict.UNKNOWN) == 0 and not self.confirms_nothing


_Key: TypeAlias = tuple[Group, str]


def compare_found(manifest: Manifest, found: Described) -> ManifestComparison:
    """What a manifest says beside what was found in one or several places."""
    by_key = {each.key: each for each in found.components}
    listed = manifest.by_key
    groups = {each.group for each in manifest.components}
    renamed = _renamed(listed, by_key)
    taken = {new.key for new in renamed.values()}
    rows = [_expected_row(each, by_key, renamed.get(each.key), found.complete) for each in manifest.components]
    rows += [
        _extra_row(extra, listed, groups, found.complete)
        for key, extra in by_key.items()
        if key not in listed and key not in taken
    ]
    return ManifestComparison(manifest.sha256, None, _in_order(rows))


def _expected_row(
    expected: Component, by_key: Mapping[_Key, Component], renamed: Component | None, complete: frozenset[Group]
) -> ComparedComponent:
    found = by_key.get(expected.key)
    if found is not None:
        verdict, why = _verdict(expected, found)
        return ComparedComponent(expected.group, expected.name, expected, found, verdict, why)
    if renamed is not None:
        why = f"the same bytes under another name, {renamed.name[:60]}"
        return ComparedComponent(expected.group, expected.name, expected, renamed, Verdict.SAME, why)
    if expected.group in complete and not _has_namesake(expected, by_key):
        return ComparedComponent(expected.group, expected.name, expected, None, Verdict.DIFFERENT, "not there")
    return ComparedComponent(expected.group, expected.name, expected, None, Verdict.UNKNOWN, "not said")


def _extra_row(
    extra: Component, listed: Iterable[_Key], groups: Set[Group], complete: frozenset[Group]
) -> ComparedComponent:
    """A component of which the manifest is silent: of files that were all listed, and of adapters, it is one too many."""
    is_too_many = extra.group in complete and (
        not _has_namesake(extra, listed)
        if extra.group is Group.ADAPTER
        else Group.WEIGHTS in groups and extra.group in groups
    )
    verdict = Verdict.DIFFERENT if is_too_many else Verdict.UNLISTED
    why = "the manifest has no such component" if is_too_many else "the manifest says nothing of it"
    return ComparedComponent(extra.group, extra.name, None, extra, verdict, why)


def _has_namesake(component: Component, by_key: Iterable[_Key]) -> bool:
    """Whether another component belongs to the same adapter; those of other groups stand for themselves."""
    if component.group is not Group.ADAPTER:
        return False
    head = component.name.partition("/")[0]
    return any(group is Group.ADAPTER and name.partition("/")[0] == head for group, name in by_key)


def _renamed(listed: Mapping[_Key, Component], by_key: Mapping[_Key, Component]) -> dict[_Key, Component]:
    """Weights that lie under another name, by the name they had."""
    spare = {
        each.sha256: each
        for key, each in by_key.items()
        if each.group is Group.WEIGHTS and key not in listed and each.sha256
    }
    return {
        key: spare[each.sha256]
        for key, each in listed.items()
        if each.group is Group.WEIGHTS and key not in by_key and each.sha256 in spare
    }


def _verdict(expected: Component, found: Component) -> tuple[Verdict, str]:
    """What two statements of one thing mean."""
    pairs = tuple(zip(expected.content, found.content, strict=True))
    if any(
        ours is not None and theirs is not None and (ours != theirs or type(ours) is not type(theirs))
        for ours, theirs in pairs
    ):
        return Verdict.DIFFERENT, ""
    if expected.sha256 is not None and found.sha256 is None:
        return Verdict.UNKNOWN, "its hash is not said"
    is_confirmed = any(ours is not None and theirs is not None for ours, theirs in pairs)
    if not is_confirmed:
        return Verdict.UNKNOWN, "nothing to compare"
    return Verdict.SAME, ""


def compare_manifests(first: Manifest, second: Manifest) -> ManifestComparison:
    """Two manifests: what is the same, different, only in the first, only in the second."""
    theirs, ours = second.by_key, first.by_key
    rows = [
        ComparedComponent(each.group, each.name, each, None, Verdict.DIFFERENT, "removed")
        for key, each in ours.items()
        if key not in theirs
    ]
    rows += [
        ComparedComponent(each.group, each.name, None, each, Verdict.DIFFERENT, "added")
        for key, each in theirs.items()
        if key not in ours
    ]
    rows += [_both(each, theirs[key]) for key, each in ours.items() if key in theirs]
    return ManifestComparison(first.sha256, second.sha256, _in_order(rows))


def _both(first: Component, second: Component) -> ComparedComponent:
    is_same = first.content == second.content and type(first.value) is type(second.value)
    why = "" if not is_same or first.source == second.source else "read from another place"
    return ComparedComponent(
        first.group, first.name, first, second, Verdict.SAME if is_same else Verdict.DIFFERENT, why
    )


def _in_order(rows: Iterable[ComparedComponent]) -> tuple[ComparedComponent, ...]:
    return tuple(sorted(rows, key=lambda each: place_of(each.group, each.name)))
