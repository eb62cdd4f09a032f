"""What did the NVIDIA cards of this machine do during a run? Power, clock, memory and use, once a second.

In:   the driver's own library, NVML, asked through nvidia-ml-py (extra `gpu`)
Out:  GpuSamples; no card, no driver or no package is an answer with its reason, never an error
Leaves out: other vendors, cards of another machine, and energy over less than a second
Read next by: loadtest, report.

Verified on: nothing yet; held to stand-ins for the library.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from inference_bench.measure.gpu import Nvml, ask_driver
from inference_bench.units import KILO, MEGA

GPU_TELEMETRY_FILE: Final = "gpu_telemetry.jsonl"
PERIOD_S: Final = 1.0
_JOIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One card at one moment of the run's clock; None for what this card does not tell.

    Where:    busy_fraction is the share of the driver's last period in which any kernel ran: it says nothing of how well
              the card was used
    """

    at_s: float
    index: int
    power_w: float | None = None
    sm_clock_hz: int | None = None
    memory_used_bytes: int | None = None
    busy_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class GpuTelemetry:
    """What the cards did; reason says why there is nothing."""

    samples: tuple[GpuSample, ...]
    reason: str | None = None


class GpuWatch:
    """Samples every card while the `with` block runs; nothing of it can end a run."""

    def __init__(
        self,
        clock: Callable[[], float],
        folder: Path | None = None,
        *,
        nvml: Nvml | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._clock, self._period_s = clock, period_s
        self._path = None if folder is None else folder / GPU_TELEMETRY_FILE
        self._samples: list[GpuSample] = []
        self._nvml, self._cards, self._reason = _open(nvml)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu telemetry", daemon=True)

    @property
    def result(self) -> GpuTelemetry:
        """What was seen so far."""
        return GpuTelemetry(tuple(self._samples), self._reason)

    def __enter__(self) -> Self:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        if self._cards:
            self._thread.join(_JOIN_S)
        if self._nvml is not None and not self._thread.is_alive():
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _run(self) -> None:
        begin_s, tick = time.perf_counter(), 0
        while True:
            samples = [_sample(self._nvml, index, card, self._clock()) for index, card in enumerate(self._cards)]
            self._samples += samples
            self._write(samples)
            if self._ending.is_set():
                return
            tick = max(tick + 1, int((time.perf_counter() - begin_s) / self._period_s) + 1)
            self._ending.wait(max(0.0, begin_s + tick * self._period_s - time.perf_counter()))

    def _write(self, samples: Sequence[GpuSample]) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.writelines(f"{json.dumps(asdict(sample))}\n" for sample in samples)
        except OSError as error:
            self._path = None
            self._reason = f"could not be written to the run folder: {(error.strerror or 'refused').lower()}"


def _open(nvml: Nvml | None) -> tuple[Nvml | None, list[Any], str | None]:
    """The library, a handle for each card, and why there is none."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return (
                None,
                [],
                "the package nvidia-ml-py is not installed; install it with: pip install 'inference-bench[gpu]'",
            )
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, [], f"no NVIDIA driver answered: {error}"
    try:
        cards = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        return nvml, [], f"the NVIDIA driver would not list its cards: {error}"
    return nvml, cards, None if cards else "the NVIDIA driver lists no card"


def _sample(nvml: Nvml, index: int, card: object, at_s: float) -> GpuSample:
    power_mw = ask_driver(nvml, nvml.nvmlDeviceGetPowerUsage, card)
    clock_mhz = ask_driver(nvml, nvml.nvmlDeviceGetClockInfo, card, nvml.NVML_CLOCK_SM)
    memory = ask_driver(nvml, nvml.nvmlDeviceGetMemoryInfo, card)
    rates = ask_driver(nvml, nvml.nvmlDeviceGetUtilizationRates, card)
    return GpuSample(
        at_s=at_s,
        index=index,
        power_w=None if power_mw is None else power_mw / KILO,
        sm_clock_hz=None if clock_mhz is None else clock_mhz * MEGA,
        memory_used_bytes=None if memory is None else int(memory.used),
        busy_fraction=None if rates is None else rates.gpu / 100,
    )
