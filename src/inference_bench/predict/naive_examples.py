"""The usual formula's error on models that show one reason each: in bytes, on a card, in an engine, for a short request.

In:   names of packaged models and machines, a cache format
Out:  Example, CardCase, EngineCase, ShortCase, CacheCurve
Leaves out: how they are said
Read next by: naive_study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import CacheCount, CacheFormat, LayerCache, count_cache, count_naive_kv_bytes
from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.facts.models import LayerType, ModelSpec
from inference_bench.predict.capacity import count_sequences, largest_that_fits
from inference_bench.predict.fit import DEFAULT_OVERHEAD_BYTES
from inference_bench.predict.naive_causes import Cause, Correction, corrections
from inference_bench.predict.naive_error import CONTEXTS
from inference_bench.predict.naive_rows import Known
from inference_bench.predict.placement import allocate

if TYPE_CHECKING:
    from inference_bench.accounting.allocation import BlockPool, EngineAllocation

SHORT_TOKENS: Final = 256  # a question and a short answer
EXAMPLE_CONTEXT: Final = CONTEXTS[1]
LONG_CONTEXT: Final = CONTEXTS[2]
CURVE_CONTEXTS: Final = tuple(1 << power for power in range(7, 18))
# model, machine, tokens of each sequence: one for each reason, a model that is uniform, and a case of short requests
CARDS: Final = (
    ("gemma-3-27b-it", "h100", EXAMPLE_CONTEXT),
    ("gpt-oss-20b", "rtx-4090", LONG_CONTEXT),
    ("GLM-4.7-Flash", "h100", EXAMPLE_CONTEXT),
    ("Qwen3-Next-80B-A3B-Instruct", "b200", EXAMPLE_CONTEXT),
    ("gemma-3n-E4B-it", "rtx-4090", EXAMPLE_CONTEXT),
    ("Qwen3-8B", "l40s", EXAMPLE_CONTEXT),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h100", SHORT_TOKENS),
)


@dataclass(frozen=True, slots=True)
class Example:
    """A model at one length, and what its usual figure needs to become the true one; `longer` is at a longer one."""

    model: ModelSpec
    layer_types: str
    count: CacheCount
    corrections: tuple[Correction, ...]
    longer: CacheCount
    fmt: CacheFormat

    def layers(self, layer_type: LayerType) -> LayerCache:
        """The layers of one type; none of them where the model has no such layer."""
        found = (layer for layer in self.count.layers if layer.layer_type is layer_type)
        return next(found, LayerCache(layer_type, 0, None, 0, None, 0))

    def corrected(self, cause: Cause) -> int:
        """Bytes that one cause adds to the usual figure, without their sign."""
        return abs(sum(each.num_bytes for each in self.corrections if each.cause is cause))

    @property
    def usual_row_bytes(self) -> int:
        """What the usual formula charges one layer for one token."""
        return (count_naive_kv_bytes(self.model, self.fmt, 1) or 0) // self.model.num_hidden_layers

    @property
    def final_factor(self) -> float | None:
        """What the factor tends to as the context grows: the ratio of what one more token adds; None where that is nothing."""
        usual = count_naive_kv_bytes(self.model, self.fmt, 1)
        return usual / self.longer.next_token_bytes if usual and self.longer.next_token_bytes else None


@dataclass(frozen=True, slots=True)
class CardCase:
    """How many sequences of one length one card holds beside the weights, counted three ways.

    Where:  free_bytes are what weights and overhead leave; vllm counts its blocks, None where its layout is not counted
            or it stores no such cache
    """

    model: str
    machine: str
    context_tokens: int
    weight_format: str
    weight_bytes: int
    memory_bytes: int
    free_bytes: int
    usual: int
    true: int
    vllm: int | None


@dataclass(frozen=True, slots=True)
class EngineCase:
    """What engines set aside for one sequence; None where a layout is not counted.

    Where:  unmanaged is vLLM with its hybrid cache manager off
    Unit:   bytes
    """

    model: str
    count: CacheCount
    llama_cpp: EngineAllocation | None
    vllm: EngineAllocation | None
    unmanaged: EngineAllocation | None

    @property
    def pool(self) -> BlockPool | None:
        """The blocks of vLLM."""
        return None if self.vllm is None else self.vllm.pool


@dataclass(frozen=True, slots=True)
class ShortCase:
    """A model whose sequences take something whatever their length, so that the usual formula says too little of short ones.

    Where:  below_tokens is the length from which on it no longer does; usual and true are at `tokens`;
            first_bytes is what vLLM holds of a request from its first token on
    """

    model: str
    layer_types: str
    fixed_bytes: int
    below_tokens: int
    tokens: int
    usual_bytes: int
    true_bytes: int
    first_bytes: int | None

    @property
    def shortfall(self) -> float:
        """How many times the usual figure is needed."""
        return self.true_bytes / self.usual_bytes


@dataclass(frozen=True, slots=True)
class CacheCurve:
    """A model's cache over the length of one sequence: (tokens, usual bytes, true bytes) each."""

    model: str
    layer_types: str
    points: tuple[tuple[int, int, int], ...]

    @property
    def last_factor(self) -> float | None:
        """How many times the truth the usual formula says at the longest of the lengths; None where that is nothing."""
        _, usual, true = self.points[-1]
        return usual / true if true else None


def example(known: Known, fmt: CacheFormat) -> Example:
    """One model at 32k, and at 128k, or at its own limit where that is shorter."""
    model, context = known.model, known.capped(EXAMPLE_CONTEXT)
    return Example(
        model=model,
        layer_types=known.layer_types,
        count=count_cache(model, fmt, context),
        corrections=corrections(model, fmt, context) or (),
        longer=count_cache(model, fmt, known.capped(LONG_CONTEXT)),
        fmt=fmt,
    )


def card_case(model_name: str, machine_name: str, context: int, fmt: CacheFormat) -> CardCase:
    """Sequences on one card beside the weights as the model is published.

    Formula:  floor((memory - weights - overhead) / bytes of a sequence); for vLLM whole blocks, one request being
              admitted while the others hold what they keep, with the tokens in flight that its server takes on the card
    """
    model, machine = known_loaded_model(model_name), hardware(machine_name)
    weights = count_loaded_weights(model, None)
    count = count_cache(model.spec, fmt, context)
    memory = machine.memory_bytes or 0
    free = memory - weights.total - DEFAULT_OVERHEAD_BYTES
    vllm = _allocated(lambda: allocate(model.spec, fmt, context, 1, "vllm", machine))
    return CardCase(
        model=model.spec.name,
        machine=machine.name,
        context_tokens=context,
        weight_format=weights.format_name,
        weight_bytes=weights.total,
        memory_bytes=memory,
        free_bytes=free,
        usual=count_sequences(free, count.naive_bytes or 1),
        true=count_sequences(free, count.total_bytes),
        vllm=None if vllm is None or vllm.pool is None else _count_requests(vllm.pool, free),
    )


def _count_requests(pool: BlockPool, free_bytes: int) -> int:
    spare = pool.count_blocks(free_bytes) - pool.admission_blocks
    return 0 if spare < 0 else 1 + spare // pool.steady_blocks


def engine_case(known: Known, fmt: CacheFormat) -> EngineCase:
    """What llama.cpp and vLLM set aside for one sequence of 32k, or of the model's own limit."""
    from inference_bench.accounting.allocation.vllm import VllmSettings, vllm_allocation

    model, context = known.model, known.capped(EXAMPLE_CONTEXT)
    unmanaged = VllmSettings(hybrid_manager=False)
    return EngineCase(
        model=model.name,
        count=count_cache(model, fmt, context),
        llama_cpp=_allocated(lambda: allocate(model, fmt, context, 1, "llama.cpp")),
        vllm=_allocated(lambda: allocate(model, fmt, context, 1, "vllm")),
        unmanaged=_allocated(lambda: vllm_allocation(model, fmt, context, 1, unmanaged)),
    )


def _allocated(allocation: Callable[[], EngineAllocation | None]) -> EngineAllocation | None:
    """An allocation; None where the engine cannot, or its layout is not counted."""
    try:
        return allocation()
    except RequestError:
        return None


def short_cases(known: Iterable[Known], fmt: CacheFormat) -> tuple[ShortCase, ...]:
    """Every model that keeps something of a sequence whatever its length, the one with the longest such lengths first."""
    found = [case for each in known if (case := _short_case(each, fmt)) is not None]
    return tuple(sorted(found, key=lambda case: (-case.below_tokens, case.model)))


def _short_case(known: Known, fmt: CacheFormat) -> ShortCase | None:
    model, tokens = known.model, known.capped(SHORT_TOKENS)
    count = count_cache(model, fmt, tokens)
    if not (count.fixed_bytes_per_sequence and count.naive_bytes):
        return None

    def is_too_little(length: int) -> bool:
        usual = count_naive_kv_bytes(model, fmt, length)
        return usual is not None and usual < count_cache(model, fmt, length).total_bytes

    vllm = _allocated(lambda: allocate(model, fmt, tokens, 1, "vllm"))
    return ShortCase(
        model=model.name,
        layer_types=known.layer_types,
        fixed_bytes=count.fixed_bytes_per_sequence,
        below_tokens=largest_that_fits(is_too_little, known.capped(None)) + 1,
        tokens=tokens,
        usual_bytes=count.naive_bytes,
        true_bytes=count.total_bytes,
        first_bytes=None if vllm is None or vllm.pool is None else vllm.pool.first_token_bytes,
    )


def cache_curve(known: Known, fmt: CacheFormat) -> CacheCurve:
    """A model's cache at powers of two of its length, up to its own limit."""
    lengths = sorted({known.capped(length) for length in CURVE_CONTEXTS})
    counts = [count_cache(known.model, fmt, length) for length in lengths]
    points = tuple((count.context_tokens, count.naive_bytes or 0, count.total_bytes) for count in counts)
    return CacheCurve(known.model.name, known.layer_types, points)
