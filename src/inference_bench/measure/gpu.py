"""Which NVIDIA cards are in this machine? Their names, sizes and clocks.

In:   the driver's own library, NVML, asked through nvidia-ml-py
Out:  GPUDetection: the cards, or the reason why there is none. No card is an answer, never an error.
Leaves out: other vendors, partitions of a card (MIG), and anything that must be timed; see gpu_probe.
Read next by: gpu_probe, and whatever is asked about the hardware that is "here".

Verified on: nothing yet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference_bench.measure.machine_identity import GPUIdentity
from inference_bench.units import KILO, MEGA

Nvml = Any  # the pynvml module, or one that answers like it

_BITS_PER_BYTE = 8
_TRANSFERS_PER_CLOCK = 2


@dataclass(frozen=True, slots=True)
class GPUDetection:
    """The NVIDIA cards of this machine; when there is none, `reason` says how that is known."""

    gpus: tuple[GPUIdentity, ...]
    reason: str | None = None


def detect_gpus(nvml: Nvml | None = None) -> GPUDetection:
    """Every NVIDIA card the driver lists. `nvml` stands in for the pynvml module."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return GPUDetection((), "the package nvidia-ml-py, which asks the driver, is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GPUDetection((), f"no NVIDIA driver answered: {error}")
    try:
        gpus = tuple(_identify(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return GPUDetection((), f"the NVIDIA driver would not list its cards: {error}")
    finally:
        ask_driver(nvml, nvml.nvmlShutdown)
    return GPUDetection(gpus, None if gpus else "the NVIDIA driver lists no card")


def bound_memory_bytes_per_s(gpu: GPUIdentity) -> float | None:
    """The rate that the card's memory clock and bus width allow, as a datasheet prints it; None if either is unknown.

    Formula:  2 · clock · bus width / 8
    Unit:     bytes/s
    Ignores:  refresh, ECC and everything else that makes the real rate lower
    Source:   NVIDIA, CUDA C++ Best Practices Guide, "Theoretical Bandwidth Calculation"
    """
    if gpu.max_memory_clock_hz is None or gpu.memory_bus_width_bits is None:
        return None
    return _TRANSFERS_PER_CLOCK * gpu.max_memory_clock_hz * gpu.memory_bus_width_bits / _BITS_PER_BYTE


def _identify(nvml: Nvml, index: int) -> GPUIdentity:
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = ask_driver(nvml, nvml.nvmlDeviceGetMemoryInfo, card)
    capability = ask_driver(nvml, nvml.nvmlDeviceGetCudaComputeCapability, card)
    cuda = ask_driver(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    ecc = ask_driver(nvml, nvml.nvmlDeviceGetEccMode, card)
    limit_mw = ask_driver(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, card)
    return GPUIdentity(
        index=index,
        name=_text(ask_driver(nvml, nvml.nvmlDeviceGetName, card)) or "unnamed NVIDIA card",
        memory_bytes=None if memory is None else int(memory.total),
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        driver_version=_text(ask_driver(nvml, nvml.nvmlSystemGetDriverVersion)),
        cuda_driver_version=None if cuda is None else f"{cuda // KILO}.{cuda % KILO // 10}",
        memory_bus_width_bits=ask_driver(nvml, nvml.nvmlDeviceGetMemoryBusWidth, card),
        max_memory_clock_hz=_hertz(ask_driver(nvml, nvml.nvmlDeviceGetMaxClockInfo, card, nvml.NVML_CLOCK_MEM)),
        max_sm_clock_hz=_hertz(ask_driver(nvml, nvml.nvmlDeviceGetMaxClockInfo, card, nvml.NVML_CLOCK_SM)),
        power_limit_w=None if limit_mw is None else limit_mw / KILO,
        is_ecc_on=None if ecc is None else bool(ecc[0]),
        pcie_generation=ask_driver(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, card),
        pcie_lanes=ask_driver(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, card),
    )


def ask_driver(nvml: Nvml, question: Callable[..., Any], *arguments: object) -> Any:
    """The driver's answer, or None where this card or driver does not know."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _text(answer: str | bytes | None) -> str | None:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _hertz(megahertz: int | None) -> int | None:
    return None if megahertz is None else megahertz * MEGA
