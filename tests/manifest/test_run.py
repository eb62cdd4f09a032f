"""The manifest in a run folder, and the record of each output."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from convert import tiny
from engines.fake_server import FakeServer
from inference_bench.engines.attach import attach
from inference_bench.errors import MeasurementError
from inference_bench.loadtest.flow import LoadRequest, measure_load
from inference_bench.manifest import run as runs
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.folder import list_files
from inference_bench.manifest.known_hashes import recall_hashes
from inference_bench.manifest.outputs import output_of_answer, outputs_of
from inference_bench.manifest.run import (
    CHANGED_KEY,
    keep_manifest,
    manifest_of_load,
    manifest_of_run,
    manifest_of_server,
)
from inference_bench.manifest.store import TamperedManifestError
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from manifest.answers import MODELS, say_llama_cpp


def engine(version: str) -> Manifest:
    return Manifest((Component(Group.ENGINE, "version", "a test", value=version),))


def test_the_manifest_of_a_run_and_its_digest_are_in_its_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "load")
    assert keep_manifest(folder, engine("1")) == engine("1").sha256
    assert manifest_of_run(folder.path) == engine("1")
    assert folder.read_meta()["manifest_sha256"] == engine("1").sha256


def test_of_a_run_that_is_resumed_the_first_manifest_stays_and_what_changed_is_noted(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "load")
    keep_manifest(folder, engine("1"))
    assert keep_manifest(folder, engine("2")) == engine("1").sha256
    assert manifest_of_run(folder.path) == engine("1")
    assert folder.read_meta()[CHANGED_KEY] == ["engine version"]


def test_a_run_of_an_earlier_version_has_no_manifest(tmp_path: Path) -> None:
    assert manifest_of_run(RunFolder.create(tmp_path, "load").path) is None


def test_a_load_asks_the_server_and_hashes_small_files_of_it(server: FakeServer, model_file: Path) -> None:
    say_llama_cpp(server, model_path=str(model_file))
    found = manifest_of_load(Target(server.url))
    assert found.find(Group.SETTING, "num_slots") is not None
    assert found.find(Group.WEIGHTS, "tiny.gguf") is not None


def test_a_load_reads_no_large_file_that_was_not_hashed_before(
    server: FakeServer, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_MOST_READ_BYTES", 1000)
    say_llama_cpp(server, model_path=str(model_file))
    assert manifest_of_load(Target(server.url)).of(Group.WEIGHTS) == ()
    known = create_manifest(Sources((str(model_file),)))
    assert manifest_of_load(Target(server.url)).of(Group.WEIGHTS)[0].sha256 == known.of(Group.WEIGHTS)[0].sha256
    model_file.write_bytes(model_file.read_bytes())
    assert manifest_of_load(Target(server.url)).of(Group.WEIGHTS) == (), "it was written since"


def test_a_file_that_is_called_as_a_template_is_remembered_by_its_own_hash(folder: Path) -> None:
    (folder / "default").write_text("a file")
    create_manifest(Sources((str(folder),)))
    known = recall_hashes(list_files(folder))
    assert known["default"] == hashlib.sha256(b"a file").hexdigest()
    assert len(known) == len(list(folder.iterdir()))


def test_a_load_asks_a_server_of_no_known_engine_for_its_models_and_nothing_else(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "owned_by": "somebody"}]})
    found = manifest_of_load(Target(server.url))
    assert {each.value for each in found.components} == {"m", "somebody"}
    assert [path for _, path, _, _ in server.requests] == ["/v1/models"]


def test_a_load_does_not_ask_a_second_time_for_models_that_are_known(server: FakeServer) -> None:
    say_llama_cpp(server)
    known = manifest_of_load(Target(server.url), MODELS)
    assert "/v1/models" not in [path for _, path, _, _ in server.requests]
    assert known == manifest_of_load(Target(server.url))


def test_a_load_test_asks_for_the_list_of_models_once(server: FakeServer, tmp_path: Path) -> None:
    say_llama_cpp(server)
    chunk = {"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 128, "completion_tokens": 1}}
    events = "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, usage))
    server.say_text("/v1/completions", f"{events}data: [DONE]\n\n", "text/event-stream")
    with pytest.raises(
        MeasurementError, match="tokens a word"
    ):  # after the manifest: this server counts all texts alike
        measure_load(LoadRequest(server.url, num_requests=1, output_tokens=1, runs=tmp_path))
    assert "/props" in [path for _, path, _, _ in server.requests]
    assert [path for _, path, _, _ in server.requests].count("/v1/models") == 1


def test_a_load_on_a_server_that_lists_no_model_has_an_empty_manifest(server: FakeServer) -> None:
    assert manifest_of_load(Target(server.url)) == Manifest(())


def test_a_load_names_the_model_it_asks_for_and_not_the_first_of_the_list(server: FakeServer) -> None:
    say_llama_cpp(server)
    found = manifest_of_load(Target(server.url, "style")).find(Group.MODEL, "served_name")
    assert found is not None
    assert found.value == "style"


def test_a_verification_takes_the_hashes_it_has_and_the_tokens_of_files_where_the_server_makes_none(
    server: FakeServer, model_file: Path
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    say_llama_cpp(server, chat_template=tiny.TEMPLATE)
    for path in ("/apply-template", "/tokenize"):
        del server.replies[path]
    found = manifest_of_server(attach(server.url), None, model_file, {"tiny.gguf": "7" * 64})
    assert found.of(Group.WEIGHTS)[0].sha256 == "7" * 64
    assert len(found.of(Group.TOKEN_IDS)) == 2
    assert found.find(Group.SETTING, "num_slots") is not None


def record(status: RequestStatus, times_s: tuple[float, ...]) -> RequestRecord:
    return RequestRecord(
        "measure-1", Origin.MEASURED, Stage.MEASURE, status, 1.0, 1.25, 5.0, times_s,
        prompt_tokens=7, output_tokens=len(times_s) or None, finish_reason="stop" if times_s else None,
    )  # fmt: skip


def test_each_output_of_a_run_names_what_it_came_from_and_how_it_went(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "load")
    folder.update_meta({"target": "http://127.0.0.1:9"})
    keep_manifest(folder, engine("1"))
    with folder.open_writer() as writer:
        writer.append(record(RequestStatus.COMPLETED, (2.0, 3.0)))
        writer.append(record(RequestStatus.FAILED, ()))
    done, failed = outputs_of(folder.path)
    assert asdict(done) == {
        "request_id": "measure-1",
        "manifest_sha256": engine("1").sha256,
        "prompt_tokens": 7,
        "output_tokens": 2,
        "finish_reason": "stop",
        "ttft_s": 1.0,
        "e2e_s": 4.0,
        "answered_by": "http://127.0.0.1:9",
        "is_fallback": False,
    }
    assert (failed.answered_by, failed.ttft_s, failed.output_tokens) == (None, None, None), "nobody answered"


def test_outputs_of_a_run_whose_manifest_was_changed_are_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "load")
    keep_manifest(folder, engine("1"))
    path = folder.path / "manifest.json"
    path.write_text(path.read_text().replace('"1"', '"2"'))
    with pytest.raises(TamperedManifestError):
        outputs_of(folder.path)


def test_the_record_of_an_answer_names_the_fallback_that_gave_it() -> None:
    from inference_bench.operate.answers import Answer, EndpointIdentity

    spare = EndpointIdentity("spare", "http://127.0.0.1:9", "m", "c" * 64)
    answer = Answer(
        "r1", "2026-11-30T00:00:00Z", RequestStatus.COMPLETED, (), spare, True, 10.0, 2.0, 0.5, "stop", 7, None, 3
    )
    found = output_of_answer(answer)
    assert (found.answered_by, found.is_fallback, found.manifest_sha256) == ("spare", True, "c" * 64)
    assert (found.ttft_s, found.e2e_s, found.prompt_tokens, found.output_tokens) == (0.5, 2.0, 7, 3)
