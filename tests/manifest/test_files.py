"""What a model's files are made into; hashes are hashlib's of the same bytes, values those that were written."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import pytest

from convert import tiny
from inference_bench.convert.flow import ConversionRequest, conversion_json, convert_model
from inference_bench.errors import ModelFileError, RequestError
from inference_bench.manifest import folder as folders
from inference_bench.manifest.adapters import components_of_adapter
from inference_bench.manifest.components import Artifact, Group, Manifest
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.folder import group_of


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest_of(path: Path, **more: Any) -> Manifest:
    return create_manifest(Sources((str(path),), **more))


def value(manifest: Manifest, group: Group, name: str) -> object:
    found = manifest.find(group, name)
    return None if found is None else found.value


def digest(manifest: Manifest, group: Group, name: str) -> str | None:
    found = manifest.find(group, name)
    return None if found is None else found.sha256


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model-00001-of-00002.safetensors", Group.WEIGHTS),
        ("pytorch_model.bin", Group.WEIGHTS),
        ("model.safetensors.index.json", Group.CONFIG),
        ("vision/config.json", Group.CONFIG),
        ("merges.txt", Group.TOKENIZER),
        ("qwen.tiktoken", Group.TOKENIZER),
        ("chat_template.jinja", Group.CHAT_TEMPLATE),
        ("modeling_x.py", Group.CODE),
        ("something.else", Group.OTHER),
        ("README.md", None),
        ("LICENSE", None),
        (".gitattributes", None),
    ],
)
def test_a_file_is_for_what_its_name_says(name: str, group: Group | None) -> None:
    assert group_of(name) is group


def test_a_release_is_told_from_a_serving_file(folder: Path, model_file: Path) -> None:
    assert manifest_of(folder).artifact is Artifact.RELEASE
    assert manifest_of(model_file).artifact is Artifact.SERVING_FILE


def test_each_file_of_a_release_has_its_own_hash(folder: Path) -> None:
    (folder / "modeling_tiny.py").write_text("raise SystemExit\n")
    found = manifest_of(folder)
    for path in folder.iterdir():
        group = group_of(path.name)
        assert group is not None
        assert digest(found, group, path.name) == sha256(path.read_bytes())


def test_the_chat_template_has_one_hash_wherever_it_lies(folder: Path, model_file: Path) -> None:
    expected = sha256(tiny.TEMPLATE.encode())
    inside = json.loads((folder / "tokenizer_config.json").read_text())
    assert digest(manifest_of(model_file), Group.CHAT_TEMPLATE, "default") == expected, "GGUF metadata"
    assert inside["chat_template"] == tiny.TEMPLATE
    assert digest(manifest_of(folder), Group.CHAT_TEMPLATE, "default") == expected, "tokenizer_config.json"
    del inside["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(inside))
    (folder / "chat_template.jinja").write_text(tiny.TEMPLATE)
    assert digest(manifest_of(folder), Group.CHAT_TEMPLATE, "default") == expected, "a file of its own"


def test_of_two_templates_the_file_of_its_own_counts_and_both_are_kept(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("another")
    found = manifest_of(folder)
    assert digest(found, Group.CHAT_TEMPLATE, "default") == sha256(b"another")
    assert digest(found, Group.CHAT_TEMPLATE, "default in tokenizer_config.json") == sha256(tiny.TEMPLATE.encode())


def test_named_templates_are_kept_by_their_names(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert digest(manifest_of(folder), Group.CHAT_TEMPLATE, "tool_use") == sha256(b"b")


def test_a_gguf_says_its_format_its_size_and_its_vocabulary(model_file: Path) -> None:
    found = manifest_of(model_file)
    weights = sum(values.size for values in tiny.tensors().values())
    assert value(found, Group.FORMAT, "weights") == "all F32"
    assert value(found, Group.MODEL, "num_params") == weights
    assert value(found, Group.MODEL, "vocabulary_size") == len(tiny.VOCABULARY)


def test_two_formats_of_one_model_have_other_weights_and_the_same_tokenizer(tmp_path: Path, model_file: Path) -> None:
    other = tiny.write(tmp_path / "other.gguf", matrix_type=gguf.GGMLQuantizationType.Q8_0)
    merged = tiny.write(tmp_path / "merged.gguf", merges=tiny.MERGES[:-1])
    first, second, third = map(manifest_of, (model_file, other, merged))
    tokenizers = [digest(each, Group.TOKENIZER, "gguf") for each in (first, second, third)]
    assert tokenizers[0] == tokenizers[1] is not None
    assert tokenizers[2] != tokenizers[0], "one merge less is another tokenizer"
    assert first.of(Group.WEIGHTS)[0].sha256 != second.of(Group.WEIGHTS)[0].sha256


def test_one_conversation_is_the_same_tokens_from_the_file_and_from_the_folder(folder: Path, model_file: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    first, second = (manifest_of(path).of(Group.TOKEN_IDS) for path in (folder, model_file))
    assert len(first) == 2
    assert [each.content for each in first] == [each.content for each in second]


def test_another_template_makes_other_tokens(folder: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    before = manifest_of(folder).of(Group.TOKEN_IDS)
    (folder / "chat_template.jinja").write_text(tiny.TEMPLATE + " ")
    assert [each.value for each in manifest_of(folder).of(Group.TOKEN_IDS)] == [
        int(each.value or 0) + 1 for each in before
    ]


@pytest.mark.parametrize(
    "template", ["{{ strftime_now('%d') }}", "{{ raise_exception('no') }}", "{{ ''.__class__.__mro__ }}", "{% if %}"]
)
def test_tokens_of_a_template_that_prints_the_date_refuses_escapes_or_is_broken_are_unknown(
    folder: Path, template: str
) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert manifest_of(folder).of(Group.TOKEN_IDS) == ()


def test_sampling_defaults_are_those_of_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text(
        json.dumps(
            {"temperature": 0.6, "top_k": 20, "do_sample": True, "eos_token_id": [1, 2], "transformers_version": "5"}
        )
    )
    found = {each.name: each.value for each in manifest_of(folder).of(Group.SAMPLING)}
    assert found == {"temperature": "0.6", "top_k": 20, "do_sample": True, "eos_token_id": "[1,2]"}


def test_the_lineage_of_a_conversion_of_ours_is_known_by_its_note(tmp_path: Path, model_file: Path) -> None:
    made = convert_model(ConversionRequest(model_file, tmp_path / "small.gguf", "q8_0"))
    assert value(manifest_of(made.target), Group.LINEAGE, "conversion") is None, "without a note it is unknown"
    note = tmp_path / "small.gguf.json"
    note.write_text(json.dumps(conversion_json(made)))
    assert digest(manifest_of(made.target), Group.LINEAGE, "source_sha256") == sha256(model_file.read_bytes())


def test_a_folder_that_was_converted_is_told_from_a_release_by_its_note(tmp_path: Path, model_file: Path) -> None:
    made = convert_model(ConversionRequest(model_file, tmp_path / "folder", "hf"))
    assert manifest_of(made.target).artifact is Artifact.RELEASE, "nothing else shows that it was made here"
    (tmp_path / "folder.json").write_text(json.dumps(conversion_json(made)))
    assert manifest_of(made.target).artifact is Artifact.CONVERTED_FOLDER


def test_a_note_about_another_file_is_no_lineage(tmp_path: Path, model_file: Path) -> None:
    made = convert_model(ConversionRequest(model_file, tmp_path / "small.gguf", "q8_0"))
    note = json.dumps(conversion_json(made))
    model_file.with_name("tiny.gguf.json").write_text(note)
    assert manifest_of(model_file).of(Group.LINEAGE) == ()


def test_all_parts_of_a_model_in_parts_are_hashed_and_a_missing_one_is_named(tmp_path: Path, model_file: Path) -> None:
    for number in (1, 2):
        shutil.copy(model_file, tmp_path / f"big-{number:05d}-of-00002.gguf")
    first = tmp_path / "big-00001-of-00002.gguf"
    assert len(manifest_of(first).of(Group.WEIGHTS)) == 2
    (tmp_path / "big-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelFileError, match=r"big-00002-of-00002\.gguf is missing"):
        manifest_of(first)


def test_of_a_system_prompt_only_hash_and_length_are_kept(folder: Path, tmp_path: Path) -> None:
    secret = "You are the secret assistant."
    (tmp_path / "prompt.txt").write_text(secret)
    found = manifest_of(folder, system_prompt=tmp_path / "prompt.txt")
    kept = found.find(Group.SYSTEM_PROMPT, "text")
    assert kept is not None
    assert (kept.sha256, kept.num_bytes, kept.value) == (sha256(secret.encode()), len(secret), None)
    assert "secret" not in json.dumps(found.body)


def adapter(place: Path) -> Path:
    place.mkdir()
    (place / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "/home/someone/models/org/base", "r": 8})
    )
    (place / "adapter_model.safetensors").write_bytes(b"lora")
    return place


def test_an_adapter_is_kept_with_its_hash_and_the_name_of_its_base_without_its_place(
    folder: Path, tmp_path: Path
) -> None:
    found = manifest_of(folder, adapters=(adapter(tmp_path / "style"),))
    assert digest(found, Group.ADAPTER, "style/adapter_model.safetensors") == sha256(b"lora")
    assert value(found, Group.ADAPTER, "style/base_model") == "org/base"
    assert manifest_of(tmp_path / "style").artifact is Artifact.ADAPTER


def test_a_folder_that_is_no_adapter_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match="is no adapter"):
        list(components_of_adapter(folder))


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.safetensors").write_bytes(b"other")
    (folder / "more.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(ModelFileError, match="leads out of the model's folder"):
        manifest_of(folder)


def test_a_link_into_the_blobs_of_the_same_hub_download_is_followed(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "models--org--tiny"
    (home / "blobs").mkdir(parents=True)
    snapshot = home / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for each in folder.iterdir():
        each.rename(home / "blobs" / each.name)
        (snapshot / each.name).symlink_to(Path("../../blobs") / each.name)
    assert manifest_of(snapshot).of(Group.WEIGHTS)[0].sha256 == sha256(
        (home / "blobs" / "model.safetensors").read_bytes()
    )


def test_weights_of_no_bytes_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelFileError, match="is empty"):
        manifest_of(folder)


def test_a_broken_config_is_named(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": ')
    with pytest.raises(ModelFileError, match=r"config\.json is not JSON"):
        manifest_of(folder)


@pytest.mark.parametrize("name", ["gone", "empty", "notes.txt"])
def test_what_is_no_model_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(RequestError, match=r"holds no weights|is not there|is neither"):
        manifest_of(tmp_path / name)


def test_more_files_than_any_model_has_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    with pytest.raises(RequestError, match="more than 3 files"):
        manifest_of(folder)
