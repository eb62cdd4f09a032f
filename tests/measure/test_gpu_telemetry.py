"""Cards are sampled beside a run, and nothing that a driver does can end one. Held to stand-ins: not tried on a card."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference_bench.measure.gpu_telemetry import GPU_TELEMETRY_FILE, GpuSample, GpuWatch
from measure.test_gpu import FakeNvml, FakeNvmlError

CARD = {
    ("PowerUsage",): 312_500,
    ("ClockInfo", FakeNvml.NVML_CLOCK_SM): 1980,
    ("MemoryInfo",): SimpleNamespace(used=70 << 30, total=141 << 30),
    ("UtilizationRates",): SimpleNamespace(gpu=97, memory=40),
}


def test_every_card_is_sampled_at_both_ends_in_plain_units(tmp_path: Path) -> None:
    nvml = FakeNvml(CARD, {})
    times_s = iter(range(1000))
    with GpuWatch(lambda: float(next(times_s)), tmp_path, nvml=nvml, period_s=60) as watch:
        pass
    samples = watch.result.samples
    assert len(samples) >= 4 or len(samples) == 2
    assert samples[0] == GpuSample(0.0, 0, 312.5, 1_980_000_000, 70 << 30, 0.97)
    assert samples[1] == GpuSample(1.0, 1)
    assert watch.result.reason is None
    assert nvml.num_open == 0
    lines = [json.loads(line) for line in (tmp_path / GPU_TELEMETRY_FILE).read_text().splitlines()]
    assert [GpuSample(**line) for line in lines] == list(samples)


def test_a_run_is_sampled_again_and_again() -> None:
    with GpuWatch(time.perf_counter, nvml=FakeNvml(CARD), period_s=0.01) as watch:
        deadline = time.monotonic() + 10
        while len(watch.result.samples) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(watch.result.samples) >= 4
    assert {sample.power_w for sample in watch.result.samples} == {312.5}


@pytest.mark.parametrize(
    ("nvml", "says"),
    [(FakeNvml(init_error="Driver Not Loaded"), "no NVIDIA driver answered"), (FakeNvml(), "lists no card")],
)
def test_no_driver_and_no_card_are_answers(nvml: FakeNvml, says: str) -> None:
    with GpuWatch(time.perf_counter, nvml=nvml) as watch:
        pass
    assert watch.result.samples == ()
    assert says in (watch.result.reason or "")
    assert nvml.num_open == 0


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with GpuWatch(time.perf_counter) as watch:
        pass
    assert "pip install 'inference-bench[gpu]'" in (watch.result.reason or "")


def test_a_driver_that_will_not_list_its_cards_is_an_answer() -> None:
    class Shy(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            raise FakeNvmlError("Unknown Error")

    nvml = Shy(CARD)
    with GpuWatch(time.perf_counter, nvml=nvml) as watch:
        pass
    assert "would not list its cards" in (watch.result.reason or "")
    assert nvml.num_open == 0


def test_what_cannot_be_written_is_said_and_sampling_goes_on(tmp_path: Path) -> None:
    (tmp_path / GPU_TELEMETRY_FILE).mkdir()
    with GpuWatch(time.perf_counter, tmp_path, nvml=FakeNvml(CARD)) as watch:
        pass
    assert watch.result.samples
    assert "could not be written" in (watch.result.reason or "")
