"""Verdicts over components as they are, and manifests over a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.manifest.compare import Verdict, compare_found, compare_manifests
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.from_files import Described
from inference_bench.manifest.store import ManifestError, TamperedManifestError, read_manifest, write_manifest

A, B = "a" * 64, "b" * 64


def part(group: Group, name: str, **content: Any) -> Component:
    return Component(group, name, "a test", **content)


def verdict(expected: Component, found: Component) -> Verdict:
    return compare_found(Manifest((expected,)), Described((found,))).components[0].verdict


@pytest.mark.parametrize(
    ("expected", "found", "answer"),
    [
        ({"sha256": A}, {"sha256": A}, Verdict.SAME),
        ({"sha256": A}, {"sha256": B}, Verdict.DIFFERENT),
        ({"sha256": A, "num_bytes": 5}, {"num_bytes": 5}, Verdict.UNKNOWN),
        ({"sha256": A, "num_bytes": 5}, {"num_bytes": 6}, Verdict.DIFFERENT),
        ({"sha256": A, "num_bytes": 5}, {"sha256": A}, Verdict.SAME),
        ({"value": "f16"}, {"value": "f16"}, Verdict.SAME),
        ({"value": 1}, {"value": True}, Verdict.DIFFERENT),
        ({"value": 1}, {"value": "1"}, Verdict.DIFFERENT),
        ({"value": 1}, {}, Verdict.UNKNOWN),
        ({}, {}, Verdict.UNKNOWN),
    ],
)
def test_a_hash_is_confirmed_by_a_hash_alone_and_a_value_by_the_same_value(
    expected: dict[str, Any], found: dict[str, Any], answer: Verdict
) -> None:
    assert verdict(part(Group.WEIGHTS, "x", **expected), part(Group.WEIGHTS, "x", **found)) is answer


def test_a_file_missing_from_a_full_listing_is_different_and_from_another_unknown() -> None:
    manifest = Manifest((part(Group.WEIGHTS, "x", sha256=A),))
    listed = compare_found(manifest, Described((), frozenset({Group.WEIGHTS})))
    asked = compare_found(manifest, Described(()))
    assert (listed.components[0].verdict, asked.components[0].verdict) == (Verdict.DIFFERENT, Verdict.UNKNOWN)


def test_a_file_too_many_in_a_full_listing_is_different() -> None:
    manifest = Manifest((part(Group.WEIGHTS, "x", sha256=A), part(Group.CODE, "a.py", sha256=A)))
    found = Described(
        (*manifest.components, part(Group.CODE, "evil.py", sha256=B)), frozenset({Group.WEIGHTS, Group.CODE})
    )
    rows = {each.name: each.verdict for each in compare_found(manifest, found).components}
    assert rows["evil.py"] is Verdict.DIFFERENT


def test_weights_under_another_name_are_the_same_weights() -> None:
    manifest = Manifest((part(Group.WEIGHTS, "old.gguf", sha256=A),))
    found = compare_found(manifest, Described((part(Group.WEIGHTS, "new.gguf", sha256=A),), frozenset({Group.WEIGHTS})))
    (row,) = found.components
    assert (row.verdict, row.why) == (Verdict.SAME, "the same bytes under another name, new.gguf")


def test_nothing_confirmed_is_no_confirmation() -> None:
    assert not compare_found(Manifest(()), Described(())).is_confirmed


def test_two_manifests_differ_in_what_was_changed_added_and_removed() -> None:
    first = Manifest((part(Group.ENGINE, "version", value="1"), part(Group.FLAG, "gone", value=1)))
    second = Manifest((part(Group.ENGINE, "version", value="2"), part(Group.FLAG, "new", value=1)))
    rows = {
        each.name: (each.verdict, each.why.partition(":")[0]) for each in compare_manifests(first, second).components
    }
    assert rows == {
        "version": (Verdict.DIFFERENT, ""),
        "gone": (Verdict.DIFFERENT, "removed"),
        "new": (Verdict.DIFFERENT, "added"),
    }


def test_a_component_read_from_another_place_is_the_same_under_another_digest() -> None:
    first = Manifest((Component(Group.ENGINE, "version", "here", value="1"),))
    second = Manifest((Component(Group.ENGINE, "version", "there", value="1"),))
    assert not compare_manifests(first, second).differs
    assert first.sha256 != second.sha256


def test_a_component_that_is_there_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="twice"):
        Manifest((part(Group.FLAG, "x", value=1), part(Group.FLAG, "x", value=2)))


def test_the_digest_is_the_hash_of_the_canonical_json_of_schema_and_components() -> None:
    manifest = Manifest((Component(Group.FLAG, "x", "a test", value=1), Component(Group.WEIGHTS, "w", "ö", A, 5)))
    expected = (
        '{"components":[{"bytes":5,"group":"weights","name":"w","sha256":"' + A + '","source":"ö"},'
        '{"group":"flag","name":"x","source":"a test","value":1}],"schema":"inference-bench/manifest/1"}'
    )
    assert manifest.sha256 == hashlib.sha256(expected.encode()).hexdigest()


_COMPONENTS = st.builds(
    Component,
    st.sampled_from(Group),
    st.text(max_size=8),
    st.text(max_size=8),
    st.none() | st.just(A),
    st.none() | st.integers(0, 1 << 50),
    st.none() | st.booleans() | st.integers(-(1 << 50), 1 << 50) | st.text(max_size=8),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_COMPONENTS, max_size=6, unique_by=lambda each: each.key), st.randoms(use_true_random=False))
def test_a_manifest_is_read_back_as_it_was_written_in_whatever_order_it_was_made(
    tmp_path_factory: pytest.TempPathFactory, components: list[Component], random: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "read-back.json"
    manifest = Manifest(tuple(components))
    write_manifest(manifest, path)
    assert read_manifest(path) == manifest
    random.shuffle(components)
    assert Manifest(tuple(components)).sha256 == manifest.sha256


def written(path: Path, change: Any = lambda content: None) -> Path:
    write_manifest(Manifest((part(Group.ENGINE, "version", value="1"), part(Group.WEIGHTS, "w", sha256=A))), path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["components"][1].update(value="2"),
        lambda content: content["components"][0].update(source="elsewhere"),
        lambda content: content["components"].pop(),
        lambda content: content.update(note="more"),
        lambda content: content.update(sha256=B),
    ],
)
def test_a_manifest_whose_content_is_not_what_its_digest_says_is_found_out(tmp_path: Path, change: Any) -> None:
    with pytest.raises(TamperedManifestError, match="was changed after it was made") as caught:
        read_manifest(written(tmp_path / "m.json", change))
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": "inference-bench/manifest/1"}',
        '{"schema": "other/1", "sha256": "' + A + '"}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(ManifestError, match="is not a manifest") as caught:
        read_manifest(tmp_path / "m.json")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "entry",
    [
        {"group": "magic", "name": "x", "source": ""},
        {"group": "flag", "name": 1, "source": ""},
        {"group": "flag", "name": "x", "source": "", "sha256": "short"},
        {"group": "flag", "name": "x", "source": "", "bytes": -1},
        {"group": "flag", "name": "x", "source": "", "value": [1]},
        {"group": "flag", "name": "x", "source": "", "more": 1},
        "text",
    ],
    ids=str,
)
def test_a_manifest_made_wrong_under_a_right_digest_is_refused(tmp_path: Path, entry: object) -> None:
    from inference_bench.manifest.canonical import canonical_json, sha256_of

    body = {"schema": "inference-bench/manifest/1", "components": [entry]}
    (tmp_path / "m.json").write_text(json.dumps({**body, "sha256": sha256_of(canonical_json(body))}))
    with pytest.raises(ManifestError, match="is not a manifest"):
        read_manifest(tmp_path / "m.json")


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such file"):
        read_manifest(tmp_path / "gone.json")


def test_a_key_that_is_there_twice_is_refused_whichever_a_reader_would_take(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_manifest(Manifest(()), path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("{", '{"components": [{"group": "model"}],', 1), encoding="utf-8")
    with pytest.raises(ManifestError, match="the key 'components' is there twice"):
        read_manifest(path)
