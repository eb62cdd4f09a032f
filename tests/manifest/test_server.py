"""What a running server says beside a manifest: answers are those of real engines, shortened."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from convert import tiny
from engines.fake_server import FakeServer
from inference_bench.errors import RequestError, ServerError
from inference_bench.manifest.check import check_manifest
from inference_bench.manifest.compare import ManifestComparison, Verdict
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.store import read_manifest, write_manifest
from manifest.answers import MODELS, TEMPLATE_SHA256, say_llama_cpp


def manifest_of(server: FakeServer, *paths: Path) -> Manifest:
    return create_manifest(Sources((*map(str, paths), server.url), timeout_s=2))


def check(manifest: Manifest, *places: str) -> ManifestComparison:
    return check_manifest(manifest, Sources(places, timeout_s=2))


def verdicts(found: ManifestComparison) -> dict[str, Verdict]:
    return {f"{each.group} {each.name}": each.verdict for each in found.components}


def test_everything_that_llama_cpp_reports_is_in_the_manifest(server: FakeServer) -> None:
    say_llama_cpp(server)
    found = {(each.group.value, each.name): each for each in manifest_of(server).components}
    assert found["chat_template", "default"].sha256 == TEMPLATE_SHA256
    assert found["engine", "version"].value == "b1234-abc"
    assert found["sampling", "temperature"].value == "0.8"
    assert found["sampling", "samplers"].value == '["top_k"]'
    assert found["model", "vocabulary_size"].value == 264
    assert found["setting", "num_slots"].value == 4
    ids = found["token_ids", "one turn, set 1"]
    assert (ids.value, ids.sha256) == (3, hashlib.sha256(b"[1,2,3]").hexdigest())
    assert not [key for key in found if key[0] == "weights"], "a path that is not here gives no hash"


def test_the_same_server_has_the_same_digest_tomorrow(server: FakeServer) -> None:
    say_llama_cpp(server, media_marker="<__media_1__>")
    first = manifest_of(server)
    say_llama_cpp(server, media_marker="<__media_2__>", is_sleeping=False)
    assert manifest_of(server).sha256 == first.sha256


def test_an_unchanged_server_is_confirmed(server: FakeServer) -> None:
    say_llama_cpp(server)
    found = check(manifest_of(server), server.url)
    assert found.is_confirmed
    assert not found.differs


@pytest.mark.parametrize(
    ("changed", "component"),
    [
        ({"chat_template": "other"}, "chat_template default"),
        ({"build_info": "b1235-def"}, "engine version"),
        ({"total_slots": 8}, "setting num_slots"),
        ({"model_ftype": "Q4_0"}, "format weights"),
        ({"default_generation_settings": {"n_ctx": 1024, "params": {"temperature": 0.7}}}, "sampling temperature"),
    ],
)
def test_each_change_of_a_server_is_named(server: FakeServer, changed: dict[str, Any], component: str) -> None:
    say_llama_cpp(server)
    manifest = manifest_of(server)
    say_llama_cpp(server, **changed)
    found = check(manifest, server.url)
    assert [name for name, verdict in verdicts(found).items() if verdict is Verdict.DIFFERENT] == [component]


def test_a_server_that_keeps_its_name_and_serves_another_model_is_found_out(server: FakeServer) -> None:
    say_llama_cpp(server)
    manifest = manifest_of(server)
    lie = {"data": [{**MODELS["data"][0], "meta": {**MODELS["data"][0]["meta"], "n_params": 5, "n_vocab": 7}}]}
    server.say("/v1/models", lie)
    found = verdicts(check(manifest, server.url))
    assert found["model served_name"] is Verdict.SAME
    assert (found["model num_params"], found["model vocabulary_size"]) == (Verdict.DIFFERENT, Verdict.DIFFERENT)


def test_another_tokenizer_behind_the_same_template_is_found_by_its_tokens(server: FakeServer) -> None:
    say_llama_cpp(server)
    manifest = manifest_of(server)
    server.say("/tokenize", {"tokens": [1, 2, 4]})
    found = verdicts(check(manifest, server.url))
    assert found["token_ids one turn, set 1"] is Verdict.DIFFERENT
    assert found["chat_template default"] is Verdict.SAME


def test_what_a_server_does_not_say_is_unknown_and_not_equal(server: FakeServer) -> None:
    say_llama_cpp(server)
    manifest = manifest_of(server)
    for path in ("/apply-template", "/tokenize"):
        del server.replies[path]
    found = check(manifest, server.url)
    assert verdicts(found)["token_ids one turn, set 1"] is Verdict.UNKNOWN
    assert (found.differs, found.is_confirmed) == (False, False)


def test_files_of_a_server_elsewhere_stay_unknown(server: FakeServer, model_file: Path) -> None:
    say_llama_cpp(server, chat_template=tiny.TEMPLATE)
    manifest = create_manifest(Sources((str(model_file),)))
    found = verdicts(check(manifest, server.url))
    assert found["weights tiny.gguf"] is Verdict.UNKNOWN
    assert found["chat_template default"] is Verdict.SAME


def test_files_at_the_path_a_server_here_names_are_hashed(server: FakeServer, model_file: Path) -> None:
    say_llama_cpp(server, model_path=str(model_file))
    manifest = create_manifest(Sources((str(model_file),)))
    assert verdicts(check(manifest, server.url))["weights tiny.gguf"] is Verdict.SAME
    with model_file.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    assert verdicts(check(manifest, server.url))["weights tiny.gguf"] is Verdict.DIFFERENT


def test_an_adapter_that_the_manifest_does_not_have_is_a_difference(server: FakeServer) -> None:
    say_llama_cpp(server)
    manifest = manifest_of(server)
    server.say("/lora-adapters", [{"id": 0, "path": "/x/style.gguf", "scale": 1.0}])
    assert verdicts(check(manifest, server.url))["adapter style.gguf"] is Verdict.DIFFERENT
    assert verdicts(check(manifest_of(server), server.url))["adapter style.gguf"] is Verdict.SAME


def test_an_adapter_that_a_server_no_longer_has_is_a_difference(server: FakeServer) -> None:
    say_llama_cpp(server)
    server.say("/lora-adapters", [{"id": 0, "path": "/x/style.gguf", "scale": 1.0}])
    manifest = manifest_of(server)
    server.say("/lora-adapters", [])
    assert verdicts(check(manifest, server.url))["adapter style.gguf"] is Verdict.DIFFERENT


def test_an_adapter_known_by_its_hash_is_there_and_not_confirmed_by_its_name(server: FakeServer) -> None:
    say_llama_cpp(server)
    server.say("/lora-adapters", [{"id": 0, "path": "/x/style.gguf", "scale": 1.0}])
    known = Component(Group.ADAPTER, "style.gguf", "the file", "a" * 64, 5)
    assert verdicts(check(Manifest((known,)), server.url))["adapter style.gguf"] is Verdict.UNKNOWN


def test_vllm_makes_tokens_of_messages_in_one_question(server: FakeServer) -> None:
    server.say(
        "/v1/models",
        {"data": [{"id": "base", "owned_by": "vllm", "max_model_len": 4096}, {"id": "style", "parent": "base"}]},
    )
    server.say("/version", {"version": "0.32.0"})
    server.say("/tokenize", {"count": 2, "tokens": [9, 8], "max_model_len": 4096})
    found = {(each.group.value, each.name): each for each in manifest_of(server).components}
    assert found["token_ids", "one turn, set 1"].sha256 == hashlib.sha256(b"[9,8]").hexdigest()
    assert found["engine", "version"].value == "0.32.0"
    assert found["adapter", "style/base_model"].value == "base"
    asked = [body for method, path, _, body in server.requests if (method, path) == ("POST", "/tokenize")]
    assert b'"add_generation_prompt": true' in asked[0]


@pytest.mark.parametrize("tokens", ["many", [1, "2"], [-1], [True], []], ids=str)
def test_tokens_that_are_none_are_unknown(server: FakeServer, tokens: object) -> None:
    say_llama_cpp(server)
    server.say("/tokenize", {"tokens": tokens})
    assert manifest_of(server).of(Group.TOKEN_IDS) == ()


def test_tokens_of_a_template_that_prints_the_date_are_not_asked_for(server: FakeServer) -> None:
    say_llama_cpp(server, chat_template="{{ strftime_now('%d %b %Y') }}")
    assert manifest_of(server).of(Group.TOKEN_IDS) == ()


def test_a_server_that_answers_nonsense_still_gives_a_manifest_that_can_be_written_and_read(
    server: FakeServer, tmp_path: Path
) -> None:
    huge = {"n_params": 1 << 60, "n_vocab": 10**400, "size": -1, "n_ctx_train": "many"}
    params = {"temperature": "\ud800", "top_k": 10**30, "top_p": 1e400, "samplers": [["\udfff"]], "seed": {"a": 1}}
    say_llama_cpp(
        server, default_generation_settings={"params": params}, build_info="x" * 100_000, chat_template=["no"]
    )
    server.say("/v1/models", {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": huge}]})
    server.say(
        "/lora-adapters", [{"path": "/x/a.gguf", "scale": "big"}, {"path": "/y/a.gguf", "scale": 10**400}, 5, {}]
    )
    manifest = manifest_of(server)
    write_manifest(manifest, tmp_path / "m.json")
    assert read_manifest(tmp_path / "m.json") == manifest
    assert manifest.find(Group.MODEL, "num_params") is not None


def test_files_and_a_server_that_contradict_each_other_make_no_manifest(server: FakeServer, model_file: Path) -> None:
    say_llama_cpp(server)
    with pytest.raises(RequestError, match="contradict each other: model 'num_params'"):
        manifest_of(server, model_file)


def test_files_and_a_server_of_them_make_one_manifest(server: FakeServer, model_file: Path) -> None:
    header = create_manifest(Sources((str(model_file),)))
    say_llama_cpp(server, chat_template=tiny.TEMPLATE)
    server.say("/v1/models", {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {}}]})
    for path in ("/apply-template", "/tokenize"):
        del server.replies[path]
    found = manifest_of(server, model_file)
    assert set(header.by_key) <= set(found.by_key)
    assert found.find(Group.SETTING, "num_slots") is not None


def test_an_address_that_is_no_model_server_is_refused(server: FakeServer) -> None:
    server.say_text("/", "hello", "text/html")
    with pytest.raises(ServerError):
        manifest_of(server)


def test_an_address_where_nothing_answers_is_refused(server: FakeServer) -> None:
    server.close()
    with pytest.raises(ServerError, match="could not connect"):
        manifest_of(server)
