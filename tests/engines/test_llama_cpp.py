from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.engines.llama_cpp_host import build_params
from inference_bench.errors import (
    InferenceBenchError,
    MissingExtraError,
    RequestError,
    ServerStartError,
    StorageError,
    UnknownNameError,
)

CONFIG = HostConfig("model.gguf", "model", context_tokens_total=512, num_slots=1, num_threads=1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    return path


@pytest.fixture
def _engine_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the engine's package were installed, so that only the check after it can fail."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def start(config: HostConfig, folder: Path) -> None:
    with LlamaCppServer.start(config, log_path=folder / "log", startup_timeout_s=5):
        pytest.fail("the server should not have been started")


def test_a_missing_engine_is_named_with_the_command_that_installs_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[bench\]'"):
        start(replace(CONFIG, model_path=str(model)), tmp_path)
    assert not (tmp_path / "log").exists()


@pytest.mark.usefixtures("_engine_there")
@pytest.mark.parametrize("name", ["absent.gguf", "."])
def test_a_model_that_is_not_a_file_is_refused_before_anything_is_started(tmp_path: Path, name: str) -> None:
    with pytest.raises(ServerStartError, match="there is no model file at"):
        LlamaCppServer.start(replace(CONFIG, model_path=str(tmp_path / name)), log_path=tmp_path / "log")
    assert not (tmp_path / "log").exists()


@pytest.mark.usefixtures("_engine_there")
@pytest.mark.parametrize("field", ["cache_type_k", "cache_type_v"])
def test_an_unknown_cache_format_is_refused_with_the_known_ones(model: Path, tmp_path: Path, field: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"{field} 'fp8'.*q8_0"):
        start(replace(CONFIG, model_path=str(model), **{field: "fp8"}), tmp_path)


@pytest.mark.usefixtures("_engine_there")
@pytest.mark.parametrize("field", ["context_tokens_total", "num_slots", "num_threads"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_a_count_the_engine_cannot_hold_is_refused(model: Path, tmp_path: Path, field: str, value: int) -> None:
    with pytest.raises(RequestError, match=f"{field} {value} is outside"):
        start(replace(CONFIG, model_path=str(model), **{field: value}), tmp_path)


@pytest.mark.usefixtures("_engine_there")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"speculation": "magic"}, "speculation 'magic' is not one of llama.cpp's; use ngram_simple"),
        ({"speculation": "draft_simple"}, "speculation draft_simple needs a draft model"),
        ({"speculation": "ngram_simple", "speculation_draft_path": "d"}, "ngram_simple takes no draft model"),
        ({"speculation": "ngram_simple", "speculation_tokens": 0}, "speculation_tokens 0 is outside"),
        ({"speculation": "draft_simple", "speculation_draft_path": "absent.gguf"}, "there is no draft model at absent"),
    ],
)
def test_a_speculation_that_cannot_be_is_refused(model: Path, tmp_path: Path, asked: Any, said: str) -> None:
    with pytest.raises(InferenceBenchError, match=said):
        start(replace(CONFIG, model_path=str(model), **asked), tmp_path)


def test_the_engines_own_parameters_say_how_it_drafts() -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    plain = build_params(CONFIG, xllamacpp).speculative
    asked = replace(CONFIG, speculation="ngram_simple", speculation_tokens=4, speculation_match_tokens=3)
    drafting = build_params(asked, xllamacpp).speculative
    kinds = xllamacpp.common_speculative_type
    assert list(plain.types) == [kinds.COMMON_SPECULATIVE_TYPE_NONE]
    assert list(drafting.types) == [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    assert (drafting.ngram_simple.size_m, drafting.ngram_simple.size_n) == (4, 3)


@pytest.mark.usefixtures("_engine_there")
def test_a_log_that_cannot_be_written_is_refused_before_anything_is_started(model: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        start(replace(CONFIG, model_path=str(model)), tmp_path / "absent")


def test_a_configuration_crosses_to_the_other_process_unchanged() -> None:
    config = replace(CONFIG, model_path='/a "b"/ü\n.gguf', flash_attention=False, port=8080, cache_type_v="q8_0")
    assert "\n" not in config.to_json()
    assert HostConfig(**json.loads(config.to_json())) == config


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its pipe was closed")
def test_the_process_of_the_engine_ends_when_its_starter_was_gone_before_it_looked() -> None:
    read, write = os.pipe()
    os.close(write)
    done = subprocess.run(
        [sys.executable, "-m", "inference_bench.engines.llama_cpp_host", CONFIG.to_json()],
        stdin=read,
        capture_output=True,
        timeout=30,
        check=False,
    )
    os.close(read)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
