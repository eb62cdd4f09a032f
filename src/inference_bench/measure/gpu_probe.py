"""What can one NVIDIA card do at most? Its memory bandwidth and its bf16 and fp8 matrix-product rates, measured.

In:   PyTorch with CUDA, imported only when a probe starts
Out:  ProbeResult, the same as for a processor, with compute_format bf16 and, where the card has it, fp8 beside it
Leaves out: several cards, links between them, int8 and 4-bit formats, and clocks that fall after minutes of load.
Read next by: probe_here (the ceilings of a GPU server).

What this was verified on is said in gpu.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError
from inference_bench.measure.ceilings import (
    BandwidthRow,
    Circumstances,
    Movement,
    ProbeResult,
    ProductRow,
    Progress,
    bandwidth_row,
    conclude,
    count_product_bytes,
    power_of_two_batches,
    product_row,
)
from inference_bench.measure.gpu import Nvml, detect_gpus
from inference_bench.measure.gpu_fp8 import FP8, measure_fp8_product
from inference_bench.measure.machine_identity import GPUIdentity, identify_machine
from inference_bench.measure.timing import Call, Repeats, Stopwatch, time_calls
from inference_bench.units import KILO, format_bytes, format_si

Torch = Any  # the torch module, or one that answers like it
Tensor = Any

BF16_BYTES = 2
_STREAM_MATRIX = 32768  # 2 GiB in bf16, far beyond the cache of any card
_SMALLEST_STREAM_MATRIX = 4096
_CACHE_MULTIPLE = 8  # the weights used in turn are together this many times the cache
_MEMORY_SHARE = 0.5  # of what is free on the card
_REPEATS = Repeats(num_values=15, min_values=4, num_warmups=3, min_value_s=0.02, budget_s=1.0)
_PEAK_REPEATS = Repeats(num_values=15, min_values=4, num_warmups=3, min_value_s=0.1, budget_s=4.0)


@dataclass(frozen=True, slots=True)
class _Card:
    """One card through PyTorch: where tensors are made and how a call is timed."""

    torch: Torch
    device: str
    name: str
    cache_bytes: int
    free_bytes: int
    generator: Any

    def empty(self, *shape: int) -> Tensor:
        return self.torch.empty(shape, dtype=self.torch.bfloat16, device=self.device)

    def random(self, *shape: int) -> Tensor:
        """Values in [-1, 1): zeros would draw less power than real weights and run faster."""
        return self.empty(*shape).uniform_(-1.0, 1.0, generator=self.generator)

    def stopwatch(self) -> Stopwatch:
        """Times calls between two events on the card itself."""

        def elapsed_s(call: Call, num_calls: int) -> float:
            began, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            for _ in range(num_calls):
                call()
            ended.record()
            ended.synchronize()
            return float(began.elapsed_time(ended)) / KILO

        return elapsed_s


def measure_gpu(
    *,
    device_index: int = 0,
    matrix_size: int = 8192,
    max_batch: int = 8192,
    seed: int = 0,
    progress: Progress | None = None,
    torch: Torch | None = None,
    nvml: Nvml | None = None,
) -> ProbeResult:
    """One card's memory bandwidth and its bf16 and fp8 product rates, through PyTorch and the libraries under it.

    Where:    a product is columns [B, n] times the transpose of a weight [n, n], as a linear layer computes it, for
              B = 1, 2, 4 ... max_batch; the last, timed longest, is where the peak is expected
    Ignores:  the host's time to launch a call, hidden as long as it is shorter than the call itself
    Raises:   MissingExtraError without PyTorch; RequestError for a size of nothing;
              MeasurementError without a usable card or enough of its memory
    """
    started_s = time.perf_counter()
    batches = power_of_two_batches(max_batch)
    if matrix_size < 1:
        raise RequestError(f"matrix size {matrix_size} must be above 0")
    torch = _import_torch() if torch is None else torch
    card = _open_card(torch, device_index, seed)
    say = progress or _say_nothing
    try:
        with torch.no_grad():
            movements = _measure_movements(card, say)
            rows = _measure_products(card, matrix_size, batches, say)
            narrow = _measure_fp8(card, device_index, matrix_size, batches[-1], say)
    except torch.cuda.OutOfMemoryError as error:
        raise MeasurementError(
            f"{card.name}: too little free memory on the card; free some, or ask for less"
        ) from error
    finally:
        torch.cuda.empty_cache()  # PyTorch would keep it, and an engine that is started next could not have it
    circumstances = Circumstances(
        compute_format="bf16",
        matrix_size=matrix_size,
        identity=identify_machine(),
        gpu=_gpu_identity(card, nvml),
        method=f"bf16 products by PyTorch {torch.__version__}, CUDA {torch.version.cuda}, on {card.name}; medians of "
        "calls timed by events on the card; random values; bytes and FLOPs are counted from the shapes, not read "
        "from a hardware counter",
        notes=(f"fp8: {narrow}",) if isinstance(narrow, str) else (),
        seed=seed,
        elapsed_s=time.perf_counter() - started_s,
    )
    found = conclude(rows, [_as_movement(rows[0], card), *movements], circumstances)
    return found if isinstance(narrow, str) else replace(found, other_peaks={FP8: narrow.flops_per_s})


def _import_torch() -> Torch:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            f"timing a graphics card needs PyTorch with CUDA ({error}); install it with: pip install torch"
        ) from error


def _open_card(torch: Torch, device_index: int, seed: int) -> _Card:
    num_cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not 0 <= device_index < num_cards:
        raise MeasurementError(
            f"PyTorch {torch.__version__} sees {num_cards} CUDA cards; card {device_index} is not one of them"
        )
    device = f"cuda:{device_index}"
    torch.cuda.set_device(device_index)
    properties = torch.cuda.get_device_properties(device_index)
    free_bytes, _total_bytes = torch.cuda.mem_get_info(device_index)
    return _Card(
        torch=torch,
        device=device,
        name=properties.name,
        cache_bytes=int(properties.L2_cache_size),
        free_bytes=free_bytes,
        generator=torch.Generator(device=device).manual_seed(seed),
    )


def _gpu_identity(card: _Card, nvml: Nvml | None) -> GPUIdentity | None:
    """The driver's description of a card of this name; indexes may differ between the driver and PyTorch."""
    return next((gpu for gpu in detect_gpus(nvml).gpus if gpu.name == card.name), None)


def _measure_products(card: _Card, size: int, batches: tuple[int, ...], progress: Progress) -> list[ProductRow]:
    """Every batch over weights used in turn, so that none is still in the cache when its turn comes again."""
    num_weights = max(2, -(-_CACHE_MULTIPLE * card.cache_bytes // (BF16_BYTES * size * size)))
    weights = itertools.cycle([card.random(size, size).t() for _ in range(num_weights)])
    rows = []
    for batch in batches:
        columns, result = card.random(batch, size), card.empty(batch, size)
        repeats = _PEAK_REPEATS if batch == batches[-1] else _REPEATS

        def call(columns: Tensor = columns, result: Tensor = result) -> None:
            card.torch.mm(columns, next(weights), out=result)

        rows.append(product_row(size, batch, BF16_BYTES, time_calls(call, repeats, card.stopwatch())))
        progress(f"matrix product, B = {batch}: {format_si(rows[-1].flops_per_s, 'FLOP/s')}")
    return rows


def _measure_fp8(card: _Card, index: int, size: int, batch: int, progress: Progress) -> ProductRow | str:
    capability = tuple(card.torch.cuda.get_device_capability(index))
    row = measure_fp8_product(card.torch, card.device, capability, size, batch, _PEAK_REPEATS, card.stopwatch())
    progress(f"fp8 product, B = {batch}: {row if isinstance(row, str) else format_si(row.flops_per_s, 'FLOP/s')}")
    return row


def _as_movement(row: ProductRow, card: _Card) -> BandwidthRow:
    movement = Movement("product", "columns times weights with B = 1, weights used in turn", row.counted_bytes)
    return bandwidth_row(movement, row.timing, card.cache_bytes)


def _measure_movements(card: _Card, progress: Progress) -> list[BandwidthRow]:
    rows = []
    for movement, call in _movements(card):
        timing = time_calls(call, _REPEATS, card.stopwatch())
        rows.append(bandwidth_row(movement, timing, card.cache_bytes))
        progress(f"memory bandwidth, {movement.method}: {format_si(rows[-1].bytes_per_s, 'B/s')}")
    return rows


def _movements(card: _Card) -> Iterator[tuple[Movement, Call]]:
    torch, size = card.torch, _stream_matrix(card)
    matrix, column, result = card.random(size, size), card.random(size), card.empty(size)
    yield (
        Movement("matvec", "matrix-vector product", count_product_bytes(size, 1, BF16_BYTES)),
        lambda: torch.mv(matrix, column, out=result),
    )
    matrix_bytes = BF16_BYTES * size * size
    words = matrix.view(torch.float32)  # the same bytes in wider words, all of them finite
    yield Movement("sum", "sum of all values", matrix_bytes), lambda: torch.sum(words)
    target = card.empty(size, size)
    yield (
        Movement("copy", "copy on the card; bytes read plus bytes written", 2 * matrix_bytes, is_read_dominated=False),
        lambda: target.copy_(matrix),
    )


def _stream_matrix(card: _Card) -> int:
    """The side of the largest matrix that fits twice into half of the card's free memory."""
    size = _STREAM_MATRIX
    while 2 * BF16_BYTES * size * size > _MEMORY_SHARE * card.free_bytes:
        size //= 2
        if size < _SMALLEST_STREAM_MATRIX:
            raise MeasurementError(f"{card.name} has only {format_bytes(card.free_bytes)} free; free some memory on it")
    return size


def _say_nothing(_text: str) -> None:
    return
