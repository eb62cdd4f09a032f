from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from inference_bench.measure.gpu import bound_memory_bytes_per_s, detect_gpus

GIB = 1 << 30


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """Answers like the pynvml module for a machine with these cards; what a card lacks is 'not supported'."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    def __init__(self, *cards: dict[str, object], init_error: str | None = None) -> None:
        self._cards = cards
        self._init_error = init_error
        self.num_open = 0

    def nvmlInit(self) -> None:
        if self._init_error:
            raise FakeNvmlError(self._init_error)
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, object]:
        return self._cards[index]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13010

    def __getattr__(self, name: str):
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def question(card: dict[str, object], *arguments: object) -> object:
            key = (name.removeprefix("nvmlDeviceGet"), *arguments)
            if key not in card:
                raise FakeNvmlError("Not Supported")
            return card[key]

        return question


H200 = {
    ("Name",): "NVIDIA H200",
    ("MemoryInfo",): SimpleNamespace(total=143771 << 20),
    ("CudaComputeCapability",): (9, 0),
    ("MemoryBusWidth",): 6144,
    ("MaxClockInfo", FakeNvml.NVML_CLOCK_MEM): 3201,
    ("MaxClockInfo", FakeNvml.NVML_CLOCK_SM): 1980,
    ("EnforcedPowerLimit",): 700_000,
    ("EccMode",): [1, 1],
    ("MaxPcieLinkGeneration",): 5,
    ("MaxPcieLinkWidth",): 16,
}


def test_a_card_is_described_in_plain_units() -> None:
    nvml = FakeNvml(H200)
    detection = detect_gpus(nvml)
    (gpu,) = detection.gpus
    assert detection.reason is None
    assert (gpu.name, gpu.index, gpu.memory_bytes) == ("NVIDIA H200", 0, 143771 * 1024 * 1024)
    assert (gpu.compute_capability, gpu.driver_version, gpu.cuda_driver_version) == ("9.0", "580.159.04", "13.1")
    assert (gpu.max_memory_clock_hz, gpu.max_sm_clock_hz) == (3_201_000_000, 1_980_000_000)
    assert (gpu.power_limit_w, gpu.is_ecc_on) == (700.0, True)
    assert (gpu.pcie_generation, gpu.pcie_lanes) == (5, 16)
    assert nvml.num_open == 0


@pytest.mark.parametrize(
    ("memory_mhz", "bus_bits", "printed_bytes_per_s", "tolerance"),
    [
        (3201, 6144, 4.8e12, 0.03),  # H200: the datasheet rounds down to 4.8 TB/s
        (2619, 5120, 3.35e12, 0.005),  # H100 SXM: 3.35 TB/s
        (1593, 5120, 2.039e12, 0.005),  # A100 80 GB SXM: 2,039 GB/s
        (10501, 384, 1.008e12, 0.005),  # GeForce RTX 4090: 1,008 GB/s
    ],
)
def test_the_memory_bound_agrees_with_datasheets(
    memory_mhz: int, bus_bits: int, printed_bytes_per_s: float, tolerance: float
) -> None:
    card = {("MaxClockInfo", FakeNvml.NVML_CLOCK_MEM): memory_mhz, ("MemoryBusWidth",): bus_bits}
    (gpu,) = detect_gpus(FakeNvml(card)).gpus
    assert bound_memory_bytes_per_s(gpu) == pytest.approx(printed_bytes_per_s, rel=tolerance)


def test_what_a_card_does_not_tell_is_none() -> None:
    (gpu,) = detect_gpus(FakeNvml({("Name",): b"Old card"})).gpus
    assert gpu.name == "Old card"
    assert gpu.memory_bytes is None
    assert gpu.compute_capability is None
    assert gpu.power_limit_w is None
    assert gpu.is_ecc_on is None
    assert bound_memory_bytes_per_s(gpu) is None


def test_cards_keep_the_driver_s_order() -> None:
    detection = detect_gpus(FakeNvml(H200, {("Name",): "NVIDIA L4"}))
    assert [(gpu.index, gpu.name) for gpu in detection.gpus] == [(0, "NVIDIA H200"), (1, "NVIDIA L4")]


def test_a_missing_driver_is_an_answer_with_a_reason() -> None:
    detection = detect_gpus(FakeNvml(init_error="NVML Shared Library Not Found"))
    assert detection.gpus == ()
    assert detection.reason == "no NVIDIA driver answered: NVML Shared Library Not Found"


def test_a_missing_package_is_an_answer_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    detection = detect_gpus()
    assert detection.gpus == ()
    assert "nvidia-ml-py" in detection.reason


def test_a_driver_without_cards_is_an_answer_with_a_reason() -> None:
    detection = detect_gpus(FakeNvml())
    assert detection.gpus == ()
    assert detection.reason == "the NVIDIA driver lists no card"


def test_a_driver_that_fails_midway_is_an_answer_and_is_closed() -> None:
    class Lost(FakeNvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, object]:
            raise FakeNvmlError("GPU is lost")

    nvml = Lost(H200)
    detection = detect_gpus(nvml)
    assert detection.gpus == ()
    assert "GPU is lost" in detection.reason
    assert nvml.num_open == 0


def test_this_machine_answers_without_raising() -> None:
    detection = detect_gpus()
    assert detection.gpus or detection.reason
