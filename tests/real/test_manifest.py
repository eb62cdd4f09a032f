"""A manifest beside the real engine: its template and tokenizer as token ids, its file, and the folders of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.cli.main import main
from inference_bench.engines.embedded_model import EmbeddedModel, ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.manifest.check import check_manifest
from inference_bench.manifest.components import Group, Manifest
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.outputs import outputs_of
from inference_bench.manifest.run import manifest_of_run

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    return ensure_embedded_model()


@pytest.fixture(scope="module")
def server(model: EmbeddedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    log = tmp_path_factory.mktemp("manifest") / "engine.log"
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=2048, num_slots=2, num_threads=1)
    with LlamaCppServer.start(config, log_path=log, model_sha256=model.sha256) as running:
        yield running


@pytest.fixture(scope="module")
def of_file(model: EmbeddedModel) -> Manifest:
    return create_manifest(Sources((str(model.path),)))


def test_the_hash_of_the_embedded_model_is_the_one_it_was_published_with(
    model: EmbeddedModel, of_file: Manifest
) -> None:
    (weights,) = of_file.of(Group.WEIGHTS)
    assert (weights.sha256, weights.num_bytes) == (model.sha256, 98_362_432)


def test_the_engine_confirms_every_component_of_its_file(server: LlamaCppServer, of_file: Manifest) -> None:
    found = check_manifest(of_file, Sources((server.base_url,)))
    assert found.is_confirmed


def test_template_and_tokenizer_of_the_file_make_the_tokens_that_the_engine_makes(
    server: LlamaCppServer, of_file: Manifest
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    by_engine = create_manifest(Sources((server.base_url,))).of(Group.TOKEN_IDS)
    assert len(by_engine) == 2
    assert [each.content for each in of_file.of(Group.TOKEN_IDS)] == [each.content for each in by_engine]


def test_a_file_whose_template_was_changed_is_told_from_what_is_served(
    server: LlamaCppServer, model: EmbeddedModel, tmp_path: Path
) -> None:
    changed = tmp_path / model.path.name
    content = model.path.read_bytes()
    changed.write_bytes(content.replace(b"You are a helpful AI assistant", b"You are a harmful AI assistant", 1))
    found = check_manifest(create_manifest(Sources((str(changed),))), Sources((server.base_url,)))
    assert {each.group for each in found.components if each.verdict == "different"} >= {
        Group.WEIGHTS,
        Group.CHAT_TEMPLATE,
    }
    assert not [each for each in found.components if each.verdict == "different" and each.group is Group.TOKENIZER]


def test_a_load_keeps_the_manifest_that_a_question_now_confirms(
    server: LlamaCppServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--concurrency",
        "1",
        "--requests",
        "2",
        "--prompt-tokens",
        "8",
        "--output-tokens",
        "4",
        "--runs",
        str(tmp_path),
    ]
    assert main(["load", server.base_url, "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    run_dir = Path(result["run_dir"])
    kept = manifest_of_run(run_dir)
    assert kept is not None
    assert (
        result["manifest_sha256"] == kept.sha256 == json.loads((run_dir / "meta.json").read_text())["manifest_sha256"]
    )
    assert main(["manifest", "verify", str(run_dir), server.base_url, "--strict"]) == 0
    assert {each.manifest_sha256 for each in outputs_of(run_dir)} == {kept.sha256}
