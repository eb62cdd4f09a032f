from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError
from inference_bench.measure.gpu_probe import measure_gpu

from .test_gpu import H200, FakeNvml

GIB = 1 << 30
TERA = 10**12


class FakeTensor:
    def __init__(self, torch: FakeTorch, shape: tuple[int, ...]) -> None:
        self._torch, self.shape = torch, shape

    def uniform_(self, low: float, high: float, generator: object = None) -> FakeTensor:
        assert (low, high) == (-1.0, 1.0)
        return self

    def t(self) -> FakeTensor:
        return FakeTensor(self._torch, self.shape[::-1])

    def to(self, dtype: str) -> FakeTensor:
        assert dtype == "e4m3"
        return self

    def view(self, dtype: object) -> FakeTensor:
        return self

    def copy_(self, source: FakeTensor) -> None:
        assert source.shape == self.shape
        self._torch.busy("copy", self.shape)


class FakeTorch:
    """A card whose calls take the seconds it is told; only its events can read its clock."""

    bfloat16, float32, float8_e4m3fn = "bfloat16", "float32", "e4m3"
    __version__ = "2.11.0"

    def __init__(
        self,
        seconds: dict[str, float],
        num_cards: int = 1,
        free_bytes: int = 100 * GIB,
        capability: tuple[int, int] = (9, 0),
    ) -> None:
        self._seconds = seconds
        self._now_s = 0.0
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.given_back: list[int] = []
        self.version = SimpleNamespace(cuda="13.0")
        torch = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at_s = torch._now_s

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Event) -> float:
                return (end.at_s - self.at_s) * 1000

        class OutOfMemoryError(RuntimeError):
            pass

        self.cuda = SimpleNamespace(
            is_available=lambda: num_cards > 0,
            device_count=lambda: num_cards,
            set_device=lambda index: None,
            get_device_capability=lambda index: capability,
            get_device_properties=lambda index: SimpleNamespace(name="NVIDIA H200", L2_cache_size=60 << 20),
            mem_get_info=lambda index: (free_bytes, 140 * GIB),
            Event=Event,
            empty_cache=lambda: self.given_back.append(len(self.calls)),
            OutOfMemoryError=OutOfMemoryError,
        )

    def busy(self, operation: str, shape: tuple[int, ...]) -> None:
        self.calls.append((operation, shape))
        self._now_s += self._seconds[operation]

    def Generator(self, device: str) -> SimpleNamespace:
        return SimpleNamespace(manual_seed=lambda seed: f"generator {seed}")

    @contextlib.contextmanager
    def no_grad(self) -> Iterator[None]:
        yield

    def empty(self, shape: tuple[int, ...], dtype: object, device: str) -> FakeTensor:
        assert (dtype, device) == ("bfloat16", "cuda:0")
        return FakeTensor(self, shape)

    def mm(self, columns: FakeTensor, weight: FakeTensor, out: FakeTensor) -> None:
        assert columns.shape[1] == weight.shape[0]
        assert out.shape == (columns.shape[0], weight.shape[1])
        self.busy("mm", columns.shape)

    def ones(self, shape: tuple[int, ...], dtype: object, device: str) -> str:
        assert (shape, dtype, device) == ((), "float32", "cuda:0")
        return "one"

    def _scaled_mm(
        self, columns: FakeTensor, weight: FakeTensor, scale_a: str, scale_b: str, out_dtype: str
    ) -> FakeTensor:
        assert (scale_a, scale_b, out_dtype) == ("one", "one", "bfloat16")
        assert columns.shape[1] == weight.shape[0]
        self.busy("fp8", columns.shape)
        return FakeTensor(self, (columns.shape[0], weight.shape[1]))

    def mv(self, matrix: FakeTensor, column: FakeTensor, out: FakeTensor) -> None:
        assert matrix.shape[1:] == column.shape
        self.busy("mv", matrix.shape)

    def sum(self, values: FakeTensor) -> None:
        self.busy("sum", values.shape)


SECONDS = {"fp8": 0.25, "mm": 0.5, "mv": 0.001, "sum": 0.0005, "copy": 0.001}


def test_rows_and_ceilings_follow_from_the_card_s_own_times() -> None:
    torch = FakeTorch(SECONDS)
    result = measure_gpu(torch=torch, nvml=FakeNvml(H200), matrix_size=8192, max_batch=512)
    assert [row.batch for row in result.rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    first, last = result.rows[0], result.rows[-1]
    assert first.counted_bytes == 2 * (8192 * 8192 + 2 * 8192)
    assert first.seconds == pytest.approx(0.5)
    assert last.counted_flops == 2 * 8192 * 8192 * 512
    assert result.peak_flops_per_s == pytest.approx(2 * 8192 * 8192 * 512 / 0.5)
    assert result.peak_batch == 512
    assert torch.given_back == [len(torch.calls)]  # the card's memory, once everything is timed
    # 2 GiB summed in half a millisecond is the fastest read
    assert result.bandwidth_method == "sum"
    assert result.bandwidth_bytes_per_s == pytest.approx(2 * GIB / 0.0005)
    assert result.ridge_flops_per_byte == pytest.approx(result.peak_flops_per_s / result.bandwidth_bytes_per_s)


def test_a_copy_counts_both_ways_and_never_sets_the_ceiling() -> None:
    torch = FakeTorch(SECONDS | {"copy": 0.0001})
    result = measure_gpu(torch=torch, nvml=FakeNvml(H200), matrix_size=64, max_batch=1)
    copy = next(row for row in result.bandwidth_rows if row.method == "copy")
    assert copy.bytes_per_s == pytest.approx(4 * GIB / 0.0001)
    assert result.bandwidth_method == "sum"


def test_the_result_names_card_format_and_software() -> None:
    result = measure_gpu(torch=FakeTorch(SECONDS), nvml=FakeNvml(H200), matrix_size=64, max_batch=1)
    assert result.compute_format == "bf16"
    assert result.gpu.name == "NVIDIA H200"
    assert "PyTorch 2.11.0, CUDA 13.0, on NVIDIA H200" in result.method


def test_a_card_that_the_driver_does_not_list_has_no_identity() -> None:
    result = measure_gpu(torch=FakeTorch(SECONDS), nvml=FakeNvml(), matrix_size=64, max_batch=1)
    assert result.gpu is None


def test_little_free_memory_gives_a_smaller_stream() -> None:
    torch = FakeTorch(SECONDS, free_bytes=4 * GIB)
    measure_gpu(torch=torch, nvml=FakeNvml(), matrix_size=64, max_batch=1)
    # two arrays of 32768² in bf16 are 4 GiB, more than half; two of 16384² are 1 GiB
    assert ("sum", (16384, 16384)) in torch.calls
    assert ("sum", (32768, 32768)) not in torch.calls


def test_a_full_card_is_a_measurement_error() -> None:
    with pytest.raises(MeasurementError, match=r"NVIDIA H200 has only 10\.0 MB free"):
        measure_gpu(torch=FakeTorch(SECONDS, free_bytes=10_000_000), nvml=FakeNvml())


def test_running_out_of_memory_is_a_measurement_error() -> None:
    torch = FakeTorch(SECONDS)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise torch.cuda.OutOfMemoryError

    torch.mm = refuse
    with pytest.raises(MeasurementError, match="too little free memory"):
        measure_gpu(torch=torch, nvml=FakeNvml(), matrix_size=64, max_batch=1)


@pytest.mark.parametrize(("num_cards", "index"), [(0, 0), (1, 1), (1, -1)])
def test_a_card_that_is_not_there_is_a_measurement_error(num_cards: int, index: int) -> None:
    with pytest.raises(MeasurementError, match=f"sees {num_cards} CUDA cards; card {index} is not one of them"):
        measure_gpu(torch=FakeTorch(SECONDS, num_cards=num_cards), device_index=index)


def test_a_missing_pytorch_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="pip install torch"):
        measure_gpu()


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="matrix size 0"):
        measure_gpu(torch=FakeTorch(SECONDS), matrix_size=0)


def test_the_fp8_rate_of_a_card_that_has_the_units_stands_beside_the_bf16_rate() -> None:
    result = measure_gpu(torch=FakeTorch(SECONDS), nvml=FakeNvml(H200), matrix_size=8192, max_batch=512)
    assert result.other_peaks == {"fp8": pytest.approx(2 * 8192 * 8192 * 512 / 0.25)}
    assert result.peak_flops_per_s == pytest.approx(2 * 8192 * 8192 * 512 / 0.5)


def test_a_card_without_fp8_units_says_so_and_keeps_its_bf16_rate() -> None:
    torch = FakeTorch(SECONDS, capability=(8, 0))
    result = measure_gpu(torch=torch, nvml=FakeNvml(H200), matrix_size=64, max_batch=1)
    assert result.other_peaks == {}
    assert any("no fp8 units (compute capability 8.0" in note for note in result.notes)
    assert not [call for call in torch.calls if call[0] == "fp8"]


def test_an_fp8_product_that_pytorch_refuses_is_a_note_and_not_an_end() -> None:
    torch = FakeTorch(SECONDS)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("Invalid scaling configuration.\nmore")

    torch._scaled_mm = refuse
    result = measure_gpu(torch=torch, nvml=FakeNvml(H200), matrix_size=64, max_batch=1)
    assert result.other_peaks == {}
    assert any("refused an fp8 product: Invalid scaling configuration." in note for note in result.notes)
