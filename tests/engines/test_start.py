from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.engines import start
from inference_bench.engines.llama_cpp import LlamaCppServer
from inference_bench.engines.llama_cpp_host import HostConfig
from inference_bench.engines.sglang import SglangConfig, SglangServer
from inference_bench.engines.start import ENGINES, EngineSettings, start_engine
from inference_bench.engines.vllm import VllmConfig, VllmServer
from inference_bench.errors import MissingExtraError, RequestError, UnknownNameError

LOG = Path("log")


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each engine would be started with."""
    found: list[Any] = []
    for server in (LlamaCppServer, VllmServer, SglangServer):
        monkeypatch.setattr(server, "start", lambda config, *rest, **more: found.append(config))
    monkeypatch.setattr(start, "find_vllm", lambda venv: venv)
    monkeypatch.setattr(start, "find_sglang", lambda venv: venv)
    return found


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"no engine 'tgi' can be started; engines: llama.cpp, vllm, sglang"):
        start_engine("tgi", Path("m"), log_path=LOG)


def test_the_context_of_one_sequence_is_shared_out_over_the_slots_of_llama_cpp(configs: list[Any]) -> None:
    settings = EngineSettings(
        context_tokens=1025,
        num_slots=4,
        num_threads=2,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        kv_unified=True,
        flash_attention=True,
        token_budget=1024,
        micro_batch=128,
        prefix_cache=True,
        port=8080,
        flags={"swa_full": True},
    )
    start_engine("llama.cpp", Path("/models/m.gguf"), settings, log_path=LOG)
    assert configs == [
        HostConfig(
            "/models/m.gguf",
            "m",
            context_tokens_total=4100,
            num_slots=4,
            num_threads=2,
            cache_type_k="q8_0",
            cache_type_v="q4_0",
            kv_unified=True,
            flash_attention=True,
            swa_full=True,
            max_batch_tokens=1024,
            max_micro_batch_tokens=128,
            prompt_caching=True,
            port=8080,
        )
    ]


def test_the_speculation_of_the_embedded_engine_is_set_by_flags(configs: list[Any]) -> None:
    flags = {"speculation": "ngram_simple", "speculation_tokens": 4, "speculation_match_tokens": 3}
    start_engine("llama.cpp", Path("m"), EngineSettings(flags=flags), log_path=LOG)
    (config,) = configs
    assert (config.speculation, config.speculation_tokens, config.speculation_match_tokens) == ("ngram_simple", 4, 3)


def test_what_is_not_said_is_left_to_the_engine(configs: list[Any]) -> None:
    for engine in ENGINES:
        start_engine(engine, Path("/models/m"), log_path=LOG)
    llama_cpp, vllm, sglang = configs
    assert llama_cpp == HostConfig("/models/m", "m", None, 4, llama_cpp.num_threads)
    assert vllm == VllmConfig("/models/m", "m")
    assert sglang == SglangConfig("/models/m", "m")


def test_one_set_of_settings_becomes_each_engines_own(configs: list[Any]) -> None:
    settings = EngineSettings(
        context_tokens=2048,
        num_slots=8,
        cache_type_k="fp8",
        cache_type_v="fp8",
        block_tokens=32,
        memory_fraction=0.5,
        token_budget=512,
        prefix_cache=False,
        dtype="bfloat16",
        venv=Path("v"),
        flags={"seed": 1},
    )
    for engine in ("vllm", "sglang"):
        start_engine(engine, Path("/models/m"), settings, log_path=LOG)
    vllm, sglang = configs
    assert (vllm.context_tokens, sglang.context_tokens) == (2048, 2048)
    for config in configs:
        assert (config.max_running, config.cache_dtype, config.block_tokens) == (8, "fp8", 32)
        assert (config.memory_fraction, config.token_budget, config.prefix_cache) == (0.5, 512, False)
        assert (config.dtype, config.extra_flags) == ("bfloat16", {"seed": 1})


@pytest.mark.parametrize(
    ("engine", "setting", "value"),
    [
        ("llama.cpp", "block_tokens", 16),
        ("llama.cpp", "memory_fraction", 0.5),
        ("llama.cpp", "cache_bytes", 1 << 30),
        ("llama.cpp", "dtype", "float32"),
        ("vllm", "kv_unified", False),
        ("vllm", "micro_batch", 512),
        ("vllm", "flash_attention", True),
        ("sglang", "num_threads", 2),
        ("sglang", "cache_bytes", 1 << 30),
    ],
)
def test_a_setting_that_an_engine_does_not_take_is_refused_by_name(
    configs: list[Any], engine: str, setting: str, value: Any
) -> None:
    settings = replace(EngineSettings(), **{setting: value})
    with pytest.raises(
        RequestError, match=rf"{engine} takes no {setting} \(asked for: {value}\); it takes .*num_slots"
    ):
        start_engine(engine, Path("m"), settings, log_path=LOG)
    assert configs == []


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_keys_and_values_in_two_formats_are_refused_where_they_are_stored_alike(
    configs: list[Any], engine: str
) -> None:
    with pytest.raises(RequestError, match=rf"{engine} stores keys and values alike, not as fp8 and auto"):
        start_engine(engine, Path("m"), EngineSettings(cache_type_k="fp8", cache_type_v="auto"), log_path=LOG)


def test_the_embedded_engine_has_no_other_flags(configs: list[Any]) -> None:
    for flags in ({"mlock": True}, {"swa_full": "yes"}, {"speculation_tokens": "4"}, {"speculation_tokens": True}):
        with pytest.raises(RequestError, match="takes no flag"):
            start_engine("llama.cpp", Path("m"), EngineSettings(flags=flags), log_path=LOG)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_installed_is_said_to_be_missing(tmp_path: Path, engine: str) -> None:
    with pytest.raises(MissingExtraError, match="virtual environment of its own"):
        start_engine(engine, tmp_path, EngineSettings(venv=tmp_path / "none"), log_path=LOG)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (EngineSettings(num_slots=257), "num_slots 257 is outside what llama.cpp takes; give 1 to 256"),
        (EngineSettings(num_threads=513), "num_threads 513 is outside what llama.cpp takes; give 1 to 512"),
        (EngineSettings(num_slots=4, context_tokens=1 << 30), "context_tokens_total 4294967296"),
        (EngineSettings(cache_type_k="f8"), "cache_type_k 'f8' is not a cache format"),
        (EngineSettings(dtype="float16"), "llama.cpp takes no dtype"),
    ],
)
def test_what_llama_cpp_cannot_be_started_with_is_known_without_starting_it(
    tmp_path: Path, settings: EngineSettings, said: str
) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "m.gguf").write_bytes(b"")
    with pytest.raises(RequestError, match=said):
        start.check_start("llama.cpp", tmp_path / "m.gguf", settings)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_an_engine_without_its_environment_is_known_without_starting_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingExtraError, match="virtual environment of its own"):
        start.check_start(name, tmp_path, EngineSettings(venv=tmp_path / "none"))
