"""What is a way to quantise, to the lab? A name, exact bytes, and a change to a network that can be undone.

In:   a loaded model, windows to calibrate on and windows to judge on
Out:  Method, QuantiseBench
Leaves out: each method's own arithmetic (rtn, gptq, awq, smoothquant, llm_int8, kv_cache, mixed)
Read next by: those modules, flow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from inference_bench.labs.model import LabModel
from inference_bench.labs.windows import Windows


@dataclass(frozen=True, slots=True)
class QuantiseBench:
    """What every method works with: one model, text to calibrate on, and other text to judge on.

    Where:  group is how many columns share a scale, wherever a method has groups
    """

    model: LabModel
    calibration: Windows
    evaluation: Windows
    group: int
    say: Callable[[str], None]
    is_quick: bool


@dataclass(frozen=True, slots=True)
class Method:
    """One way to quantise.

    Where:  family is the heading it stands under; applied changes the network for the time of a `with` block and puts it back, bit for
            bit; weight_bytes are the exact bytes of the whole model stored that way, scales and zero points among them; weight_error
            is |W - W'| / |W| (Frobenius) over the changed matrices, None where the weights stay; detail says what was set;
            cache_bytes_per_token are those of a rounded KV cache with its scales, None where the cache stays
    Unit:   bytes
    """

    name: str
    family: str
    weight_bytes: int | None
    weight_error: float | None
    detail: str
    applied: Callable[[Any], AbstractContextManager[None]]
    cache_bytes_per_token: float | None = None
