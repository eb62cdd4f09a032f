"""Where does a decode step's time go, and which of it does its bound not know?

In:   LabModel, prompts, LabCeilings
Out:  StepBreakdown
Leaves out: the times of other batches (speed)
Read next by: flow.

Every operation that PyTorch is asked for in a step is timed where it is dispatched. The recorder costs time around the calls, not in
them; so what is left over, Python and dispatch, is taken from steps that ran without it. Of both kinds the fastest step is told, which
other work disturbed least. Where that difference still comes out below nothing, it is shown as it is, and no time per call is given.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inference_bench.labs.batch.bounds import attention_alone, decode_work, products_alone, whole_step
from inference_bench.labs.batch.decoding import Decoder
from inference_bench.labs.batch.padding import pad_left
from inference_bench.labs.batch.result import StepBreakdown, StepPart
from inference_bench.labs.machine.result import LabCeilings
from inference_bench.labs.model import LabModel
from inference_bench.stats import median

_WARMUP_STEPS: Final = 2
_SAY_EVERY: Final = 4  # steps, between two that are timed
_CACHE_DIMENSIONS: Final = 4  # [B, K, L, H]
_LENGTH: Final = -2


class Kind(StrEnum):
    """What an operation is for."""

    PRODUCTS = "matrix products"
    ATTENTION = "attention"
    CACHE = "cache made longer by copying"
    OTHER = "norms, activations, rotary, views"
    REST = "Python and dispatch"


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("linear", "mm", "addmm", "bmm", "matmul", "baddbmm"), Kind.PRODUCTS),
    **dict.fromkeys(("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"), Kind.ATTENTION),
}


@dataclass(slots=True)
class Recorded:
    """Calls and seconds of one step by kind, and the bytes its cache copies moved."""

    calls: dict[Kind, int] = field(default_factory=lambda: defaultdict(int))
    seconds_s: dict[Kind, float] = field(default_factory=lambda: defaultdict(float))
    copied_bytes: int = 0


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # its module has no types
    """Counts and times every operation while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Recorded()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation."""
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        elapsed_s = time.perf_counter() - began
        kind = kind_of(func.overloadpacket.__name__, args)
        self.found.calls[kind] += 1
        self.found.seconds_s[kind] += elapsed_s
        if kind is Kind.CACHE:
            self.found.copied_bytes += 2 * result.nbytes  # read once, written once
        return result


def kind_of(name: str, args: Sequence[Any]) -> Kind:
    """What an operation is for; a concatenation along the length of a cache is told from that of rotary halves."""
    if name == "cat":
        dimension = args[1] if len(args) > 1 else 0
        rank = max((part.dim() for part in args[0]), default=0)
        is_cache = rank == _CACHE_DIMENSIONS and dimension in (_LENGTH, _LENGTH + _CACHE_DIMENSIONS)
        return Kind.CACHE if is_cache else Kind.OTHER
    return _KINDS.get(name, Kind.OTHER)


def break_down(
    model: LabModel,
    prompts: Sequence[Sequence[int]],
    pad_id: int,
    ceilings: LabCeilings,
    num_steps: int,
    say: Callable[[str], None],
) -> StepBreakdown:
    """Steps without and with the recorder in turn, so that noise is in both; the fastest of each."""
    say(f"B = {len(prompts)}: where a step's time goes")
    padded = pad_left(prompts, pad_id)
    decoder, plain_s, recorded = Decoder(model.network, padded), [], list[Recorded]()
    with torch.inference_mode():
        tokens = decoder.prefill().argmax(dim=-1)
        for step in range(_WARMUP_STEPS + num_steps):
            if step % _SAY_EVERY == 0:
                say(f"B = {len(prompts)}: step {step + 1} of {_WARMUP_STEPS + num_steps}, taken apart")
            began = time.perf_counter()
            tokens = decoder.step(tokens).argmax(dim=-1)
            elapsed_s = time.perf_counter() - began
            with Recorder() as recorder:
                tokens = decoder.step(tokens).argmax(dim=-1)
            if step >= _WARMUP_STEPS:
                plain_s.append(elapsed_s)
                recorded.append(recorder.found)
    contexts = [length + 2 * _WARMUP_STEPS + num_steps for length in padded.lengths]
    say(f"B = {len(prompts)}: the linear layers alone")
    linears = Linears.of(model.network)
    return _conclude(
        model, contexts, ceilings, min(plain_s), _fastest(recorded), linears, linears.alone_s(len(prompts), num_steps)
    )


def _fastest(recorded: Sequence[Recorded]) -> Recorded:
    """The step whose operations took least; the copied bytes, which grow from step to step, are those of the middle one."""
    least = min(recorded, key=lambda each: sum(each.seconds_s.values()))
    return replace(least, copied_bytes=int(median([each.copied_bytes for each in recorded])))


def _conclude(
    model: LabModel,
    contexts: Sequence[int],
    ceilings: LabCeilings,
    step_s: float,
    recorded: Recorded,
    linears: Linears,
    alone_s: float,
) -> StepBreakdown:
    work = decode_work(model.spec, model.dtype, contexts)
    least = {Kind.PRODUCTS: products_alone(work, ceilings), Kind.ATTENTION: attention_alone(work, ceilings)}
    seconds = {kind: recorded.seconds_s[kind] for kind in Kind if kind is not Kind.REST}
    calls = {kind: recorded.calls[kind] for kind in seconds}
    rest_s = step_s - sum(seconds.values())
    num_calls = sum(calls.values())
    parts = [
        StepPart(
            kind.value,
            calls[kind],
            seconds[kind],
            seconds[kind] / step_s,
            least[kind].seconds if kind in least else None,
        )
        for kind in seconds
    ]
    return StepBreakdown(
        batch=len(contexts),
        context_tokens=sum(contexts) / len(contexts),
        step_s=step_s,
        bound_s=whole_step(work, ceilings).seconds or 0.0,
        num_calls=num_calls,
        parts=(*parts, StepPart(Kind.REST.value, num_calls, rest_s, rest_s / step_s, None)),
        num_linears=len(linears.layers),
        linears_alone_s=alone_s,
        linear_weight_bytes=sum(layer.weight.nbytes for layer in linears.layers),
        copied_cache_bytes=recorded.copied_bytes,
        overhead_per_call_s=rest_s / num_calls if rest_s > 0 else None,
    )


@dataclass(frozen=True, slots=True)
class Linears:
    """Every linear layer of a network, in its order, the output head among them."""

    layers: tuple[Any, ...]

    @classmethod
    def of(cls, network: Any) -> Linears:
        """Those of a network."""
        return cls(tuple(layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)))

    def alone_s(self, batch: int, num_repeats: int) -> float:
        """The least time of all of them one after another on inputs of a decode step's shape."""
        dtype = self.layers[0].weight.dtype
        widths = {int(layer.in_features) for layer in self.layers}
        inputs = {width: torch.ones(batch, 1, width, dtype=dtype) for width in widths}
        values_s = []
        with torch.inference_mode():
            for repeat in range(num_repeats + 1):
                began = time.perf_counter()
                for layer in self.layers:
                    layer(inputs[layer.in_features])
                if repeat:
                    values_s.append(time.perf_counter() - began)
        return min(values_s)
