from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.measure import probe_here as module
from inference_bench.measure.gpu_probe import measure_gpu
from inference_bench.measure.here import machine_from_probe, remember_probe, this_machine
from inference_bench.measure.probe_here import ProbeDevice, probe_here

from .test_gpu import H200, FakeNvml
from .test_gpu_probe import SECONDS, FakeTorch

NO_CARD = FakeNvml(init_error="Driver Not Loaded")


def of_card() -> module.ProbeResult:
    return measure_gpu(torch=FakeTorch(SECONDS), nvml=FakeNvml(H200), matrix_size=64, max_batch=1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the two probes was started; both answer with a card's figures."""
    calls: list[str] = []

    def answer(name: str) -> object:
        return lambda **_options: (calls.append(name), replace(of_card(), notes=()))[1]

    monkeypatch.setattr(module, "probe", answer("processor"))
    monkeypatch.setattr(module, "measure_gpu", answer("card"))
    return calls


def test_a_card_that_pytorch_can_use_is_what_is_probed(asked: list[str]) -> None:
    probe_here(nvml=FakeNvml(H200), torch=FakeTorch(SECONDS))
    assert asked == ["card"]


def test_without_a_card_the_processor_is_probed_and_nothing_is_said_of_cards(asked: list[str]) -> None:
    assert probe_here(nvml=NO_CARD).notes == ()
    assert asked == ["processor"]


def test_a_card_without_pytorch_is_named_as_not_probed(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    (note,) = probe_here(nvml=FakeNvml(H200)).notes
    assert "NVIDIA H200 is here and was not probed" in note
    assert "needs PyTorch" in note
    assert asked == ["processor"]


def test_a_processor_that_is_asked_for_is_probed_beside_a_card(asked: list[str]) -> None:
    assert probe_here(ProbeDevice.CPU, nvml=FakeNvml(H200), torch=FakeTorch(SECONDS)).notes == ()
    assert asked == ["processor"]


def test_a_card_that_is_asked_for_and_is_not_there_is_an_error(asked: list[str]) -> None:
    with pytest.raises(MeasurementError, match="no graphics card can be probed: no NVIDIA driver answered"):
        probe_here(ProbeDevice.GPU, nvml=NO_CARD)
    blind = SimpleNamespace(__version__="2.13", cuda=SimpleNamespace(is_available=lambda: False))
    with pytest.raises(MeasurementError, match="sees no CUDA card"):
        probe_here(ProbeDevice.GPU, nvml=FakeNvml(H200), torch=blind)
    assert asked == []


def test_the_machine_of_a_probed_card_has_its_name_memory_and_rates() -> None:
    found = of_card()
    machine = machine_from_probe(found)
    assert machine.name == "this machine's NVIDIA H200"
    assert machine.memory_bytes == found.gpu.memory_bytes != found.identity.memory_bytes
    assert set(machine.peak_flops_per_s) == {"bf16", "fp8"}


def test_a_remembered_card_is_this_machine_later(tmp_path: Path) -> None:
    remember_probe(of_card(), tmp_path)
    machine = this_machine(tmp_path)
    assert machine.name == "this machine's NVIDIA H200"
    assert set(machine.peak_flops_per_s) == {"bf16", "fp8"}


@pytest.mark.parametrize(
    ("field", "value"), [("other_peaks", {"fp8": -1}), ("other_peaks", 7), ("memory_bytes", "much"), ("name", 3)]
)
def test_remembered_ceilings_that_this_version_would_not_write_are_forgotten(
    tmp_path: Path, field: str, value: object
) -> None:
    remember_probe(of_card(), tmp_path)
    path = tmp_path / "probe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert this_machine(tmp_path).bandwidth_bytes_per_s is None
