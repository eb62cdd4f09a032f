"""What can this machine do at most, on the device that serves: its graphics card, or its processor?

In:   which device, or none: the card where there is one that PyTorch can use, else the processor
Out:  ProbeResult
Leaves out: how either is timed (gpu_probe, machine)
Read next by: verify, cli.

The choice of a card is verified with stand-ins for the driver and PyTorch only.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from enum import StrEnum
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.ceilings import ProbeResult, Progress
from inference_bench.measure.gpu import Nvml, detect_gpus
from inference_bench.measure.gpu_probe import Torch, measure_gpu
from inference_bench.measure.machine import probe

DEFAULT_BUDGET_S: Final = 25.0
_CPU_BATCH: Final = 512


class ProbeDevice(StrEnum):
    """What is probed."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


def probe_here(
    device: ProbeDevice = ProbeDevice.AUTO,
    *,
    progress: Progress | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    max_batch: int = _CPU_BATCH,
    nvml: Nvml | None = None,
    torch: Torch | None = None,
) -> ProbeResult:
    """The ceilings of a device of this machine.

    Where:    budget_s and max_batch are those of the processor's probe; a card's takes some seconds of its own
    Raises:   MeasurementError where a card is asked for and there is none that can be used; see `probe`, `measure_gpu`
    """
    reason = None if device is ProbeDevice.CPU else _why_no_card(nvml, torch)
    if device is ProbeDevice.GPU and reason is not None:
        raise MeasurementError(f"no graphics card can be probed: {reason}")
    if device is not ProbeDevice.CPU and reason is None:
        return measure_gpu(progress=progress, torch=torch, nvml=nvml)
    found = probe(progress=progress, budget_s=budget_s, max_batch=max_batch)
    listed = detect_gpus(nvml).gpus if device is ProbeDevice.AUTO else ()
    if not listed:
        return found
    return replace(found, notes=(*found.notes, f"{listed[0].name} is here and was not probed: {reason}"))


def _why_no_card(nvml: Nvml | None, torch: Torch | None) -> str | None:
    """Why no card can be probed; None where one can. PyTorch is loaded only where the driver lists a card."""
    detected = detect_gpus(nvml)
    if not detected.gpus:
        return detected.reason or "the driver lists no card"
    if torch is None:
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            return "timing a card needs PyTorch with CUDA, which is not installed"
    return None if torch.cuda.is_available() else f"PyTorch {torch.__version__} sees no CUDA card"
