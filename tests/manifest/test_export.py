"""The forms for other programs: CycloneDX by the library's own validator, in-toto by its public specification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.export import ExportFormat, export_manifest


@pytest.fixture
def manifest(model_file: Path) -> Manifest:
    pytest.importorskip("cyclonedx")
    return create_manifest(Sources((str(model_file),), flags={"mlock": True}))


def test_the_bill_of_materials_is_valid_by_the_standards_schema(manifest: Manifest) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = export_manifest(manifest, ExportFormat.CYCLONEDX)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(found)) is None
    model = found["metadata"]["component"]
    assert (found["specVersion"], model["type"], model["name"]) == ("1.6", "machine-learning-model", "tiny.gguf")


def test_the_bill_of_materials_holds_every_component(manifest: Manifest) -> None:
    model = export_manifest(manifest, ExportFormat.CYCLONEDX)["metadata"]["component"]
    files = {(each["group"], each["name"]): each["hashes"][0]["content"] for each in model["components"]}
    values = {each["name"]: each["value"] for each in model["properties"]}
    for each in manifest.components:
        if each.value is not None:
            assert f"inference-bench:{each.group}:{each.name}" in values
        else:
            assert files[each.group.value, each.name] == each.sha256
    assert values["inference-bench:flag:mlock"] == "true"
    assert values["inference-bench:manifest:sha256"] == manifest.sha256


def test_one_manifest_is_one_document(manifest: Manifest) -> None:
    first, second = (export_manifest(manifest, ExportFormat.CYCLONEDX) for _ in range(2))
    assert first == second


def test_the_statement_is_about_the_weights_and_carries_the_bill_of_materials(manifest: Manifest) -> None:
    found = export_manifest(manifest, ExportFormat.IN_TOTO)
    assert set(found) == {"_type", "subject", "predicateType", "predicate"}
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["subject"] == [{"name": "tiny.gguf", "digest": {"sha256": manifest.of(Group.WEIGHTS)[0].sha256}}]
    assert found["predicateType"] == "https://cyclonedx.org/bom"
    assert found["predicate"]["bomFormat"] == "CycloneDX"


def test_a_statement_about_no_file_is_refused() -> None:
    with pytest.raises(RequestError, match="holds no hash of weights"):
        export_manifest(Manifest((Component(Group.ENGINE, "name", "x", value="y"),)), ExportFormat.IN_TOTO)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cyclonedx.output", None)
    with pytest.raises(MissingExtraError, match=r"inference-bench\[bom\]"):
        export_manifest(Manifest(()), ExportFormat.CYCLONEDX)
