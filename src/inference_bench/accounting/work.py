"""What one forward step takes: FLOPs and bytes moved, operation by operation.

In:   ModelSpec, WeightCount, CacheFormat, and what each sequence brings to the step
Out:  StepWork, the sum of a few Operations; no time
Leaves out: activations that stay on the chip, softmax, rotary embedding and sampling: what is left is a lower limit of
      the work, so times derived from it are bounds
Read next by: roofline.

A multiply-add is 2 FLOPs. Decode and prefill are one case: a sequence brings `num_new` positions after `num_cached`
that are already in the cache. Decode at context t is (t - 1, 1); a prompt of T tokens is (0, T).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from inference_bench.accounting.cache import MAX_CONTEXT_TOKENS, MAX_SEQUENCES, CacheFormat
from inference_bench.accounting.experts import UNIFORM_ROUTING, count_expected_expert_bytes
from inference_bench.accounting.params import count_params, kept_by_identity
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.models import Attention, Mixer, ModelSpec


class HeadPositions(StrEnum):
    """For which positions the output head is computed; engines need it only for the last of each sequence."""

    LAST = "last"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """What one sequence brings to a step, and how many sequences bring the same."""

    num_cached: int
    num_new: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of work in a step, over all layers and sequences.

    Unit:  FLOPs and bytes, exact
    """

    name: str
    flops: int
    weight_bytes: int = 0
    cache_read_bytes: int = 0
    cache_write_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """All bytes it must move."""
        return self.weight_bytes + self.cache_read_bytes + self.cache_write_bytes

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte; None when nothing moves."""
        return self.flops / self.num_bytes if self.num_bytes else None


@dataclass(frozen=True, slots=True)
class StepWork:
    """One forward step: its operations, and how many positions it computes."""

    operations: tuple[Operation, ...]
    num_positions: int
    num_sequences: int

    @property
    def flops(self) -> int:
        """FLOPs of the whole step."""
        return sum(operation.flops for operation in self.operations)

    @property
    def num_bytes(self) -> int:
        """Bytes the whole step must move: each weight once, the cache it attends, the cache it adds."""
        return sum(operation.num_bytes for operation in self.operations)

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte of the whole step."""
        return self.flops / self.num_bytes if self.num_bytes else None


def decode_batch(context_tokens: int, batch: int) -> tuple[SequenceStep, ...]:
    """A batch of sequences that each emit one token while attending `context_tokens` positions, itself included.

    Raises:  RequestError for an empty context or batch
    """
    if context_tokens < 1 or batch < 1:
        raise RequestError(f"context {context_tokens} and batch {batch} must be at least 1")
    return (SequenceStep(context_tokens - 1, 1, batch),)


def prompt(num_tokens: int, num_cached: int = 0) -> tuple[SequenceStep, ...]:
    """One prompt of which the first `num_cached` tokens are already in the cache."""
    return (SequenceStep(num_cached, num_tokens - num_cached),)


class MixerWork(NamedTuple):
    """What one layer's mixer does for one sequence in a step.

    Unit:  FLOPs and bytes
    """

    flops: int
    read_bytes: int
    written_bytes: int

    def plus(self, other: MixerWork, times: int) -> MixerWork:
        """The sum of this and so many of another."""
        return MixerWork(*(own + times * more for own, more in zip(self, other, strict=True)))


def count_attended_pairs(num_cached: int, num_new: int, window: int | None = None, chunk: int | None = None) -> int:
    """Query-key pairs of one head: each new position attends what precedes it and itself, at most `window` of them.

    Formula:  Σ_{j=1..k} min(c + j, W); without a window k·c + k(k+1)/2; in chunks of C: Σ ((c + j - 1) mod C) + 1
    Where:    c num_cached, k num_new, W window

    >>> count_attended_pairs(0, 4), count_attended_pairs(4999, 1), count_attended_pairs(0, 4, window=2)
    (10, 5000, 7)
    >>> count_attended_pairs(0, 5, chunk=4)
    11
    """
    if chunk is not None:
        return _pairs_in_chunks(num_cached + num_new, chunk) - _pairs_in_chunks(num_cached, chunk)
    if window is None:
        return num_new * num_cached + num_new * (num_new + 1) // 2
    growing = max(0, min(num_new, window - num_cached))
    return growing * num_cached + growing * (growing + 1) // 2 + (num_new - growing) * window


def _pairs_in_chunks(num_positions: int, chunk: int) -> int:
    whole, rest = divmod(num_positions, chunk)
    return whole * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2


def count_read_positions(num_cached: int, num_new: int, window: int | None = None, chunk: int | None = None) -> int:
    """Positions of the cache the step must read at least once: its own new ones included.

    Formula:  c + k; with a window min(c, W - 1) + k; in chunks of C: c mod C + k
    """
    if chunk is not None:
        return num_new + num_cached % chunk
    return num_new + (num_cached if window is None else min(num_cached, window - 1))


def count_step_work(
    model: ModelSpec,
    weights: WeightCount,
    cache_format: CacheFormat,
    sequences: Sequence[SequenceStep],
    head_positions: HeadPositions = HeadPositions.LAST,
    correlation: float = UNIFORM_ROUTING,
) -> StepWork:
    """FLOPs and bytes of one forward step over a batch of sequences, which share one read of the weights.

    Formula:  FLOPs = 2·(N_matmul of the experts used - V·D)·positions + 2·V·D·(head positions) + Σ layers 4·N·H·pairs;
              bytes = weights once (of the routed experts only those expected to be chosen; one row a token of an input
              table) + cache attended + cache added + recurrent states read and written
    Where:    correlation 0 is tokens that choose experts independently and uniformly, 1 tokens that all choose alike
    Unit:     FLOPs and bytes, exact but for the expected number of experts
    Ignores:  activations, softmax, rotary embedding, towers and encoders (they run once an input); a norm or bias is 2
              FLOPs a parameter, as in N_matmul
    Raises:   RequestError for an empty step or negative lengths
    Source:   Kaplan et al. 2020, Scaling Laws for Neural Language Models, table 1, with attention counted exactly
    """
    if not sequences or any(step.num_cached < 0 or step.num_new < 1 or step.count < 1 for step in sequences):
        raise RequestError("a step needs at least one sequence, and each brings at least one new position")
    if any(step.num_cached + step.num_new > MAX_CONTEXT_TOKENS or step.count > MAX_SEQUENCES for step in sequences):
        raise RequestError(f"a step has at most {MAX_SEQUENCES} sequences of at most {MAX_CONTEXT_TOKENS} tokens")
    positions = sum(step.num_new * step.count for step in sequences)
    num_sequences = sum(step.count for step in sequences)
    head_count = num_sequences if head_positions is HeadPositions.LAST else positions
    params = _params(model)
    dense = params.feed_forward + params.shared_experts + params.router
    read_experts = count_expected_expert_bytes(model, weights.experts, positions, correlation)
    operations = (
        Operation("embedding rows", 0, 0 if weights.tied else weights.embedding_row * positions),
        Operation("attention projections", 2 * (params.attention + params.state_space) * positions, weights.attention),
        *_mixers(model, cache_format, sequences),
        Operation("feed-forward", 2 * dense * positions, weights.feed_forward),
        Operation("experts", 2 * params.routed_active * positions, read_experts),
        Operation("output head", 2 * model.vocab_size * model.table_width * head_count, weights.head_read),
        Operation(
            "norms and other",
            2 * (params.norm + params.other + _reused_params(model)) * positions,
            weights.norm + weights.other,
        ),
    )
    kept = tuple(operation for operation in operations if operation.flops or operation.num_bytes)
    return StepWork(kept, positions, num_sequences)


# a step is counted thousands of times for one model: what depends on the model alone is counted once
_params = kept_by_identity(count_params)
_mixer_groups = kept_by_identity(ModelSpec.mixer_groups)


def _reused_params(model: ModelSpec) -> int:
    """Parameters of blocks that several layers share, once for each use beyond the first."""
    return sum(part.num_params * (part.uses - 1) for part in model.parts)


def _mixers(model: ModelSpec, fmt: CacheFormat, sequences: Sequence[SequenceStep]) -> tuple[Operation, Operation]:
    """Scores and weighted values over the cache, and the updates of recurrent states."""
    attention, recurrent = MixerWork(0, 0, 0), MixerWork(0, 0, 0)
    for mixer, num_layers in _mixer_groups(model):
        for step in sequences:
            work, is_state = mixer_work(mixer, fmt, step.num_cached, step.num_new, model.state_bits)
            layers = num_layers * step.count
            if is_state:
                recurrent = recurrent.plus(work, layers)
            else:
                attention = attention.plus(work, layers)
    return (
        Operation("attention", attention.flops, 0, attention.read_bytes, attention.written_bytes),
        Operation("recurrent state", recurrent.flops, 0, recurrent.read_bytes, recurrent.written_bytes),
    )


def attention_work(attention: Attention, fmt: CacheFormat, num_cached: int, num_new: int) -> MixerWork:
    """Work of one grouped-query attention layer for one sequence.

    Formula:  2·N·(H + Hv)·pairs FLOPs; reads what is attended, writes what is new unless another layer keeps it
    Unit:     FLOPs and bytes, exact
    """
    window, chunk = attention.sliding_window, attention.attention_chunk
    pairs = count_attended_pairs(num_cached, num_new, window, chunk)
    rows, heads = attention.num_key_value_heads, attention.num_attention_heads
    per_position = fmt.keys.count_bytes(rows * attention.head_dim) + fmt.values.count_bytes(
        rows * attention.value_width
    )
    return MixerWork(
        2 * heads * (attention.head_dim + attention.value_width) * pairs,
        per_position * count_read_positions(num_cached, num_new, window, chunk),
        0 if attention.shared_kv_from is not None else per_position * num_new,
    )


def matrix_intensity(
    rows: int, columns: int, batch: float, bytes_per_value: float, vector_bytes_per_value: float | None = None
) -> float:
    """FLOPs a byte of an m×n matrix times B columns, each operand moved once.

    Formula:  2·m·n·B / (b·m·n + b'·(n·B + m·B)); B = 1 is the matrix-vector product
    Where:    b bytes a value of the matrix, b' of the columns: the same unless only the weights are quantised; B may be
              an average
    Unit:     FLOP/byte
    """
    columns_bytes = bytes_per_value if vector_bytes_per_value is None else vector_bytes_per_value
    moved = bytes_per_value * rows * columns + columns_bytes * batch * (columns + rows)
    return 2 * rows * columns * batch / moved


def decode_attention_intensity(attention: Attention, bytes_per_value: float) -> float:
    """FLOPs a byte of decode attention, whatever the batch and the context.

    Formula:  4·N·H·t / (2·K·H·t·b) = 2·N / (K·b)
    Unit:     FLOP/byte
    """
    return 2 * attention.num_attention_heads / (attention.num_key_value_heads * bytes_per_value)


def mixer_work(
    mixer: Mixer, fmt: CacheFormat, num_cached: int, num_new: int, state_bits: int | None = None
) -> tuple[MixerWork, bool]:
    """Work of one layer's mixer for one sequence, and whether it is a recurrent state's.

    Unit:  FLOPs and bytes
    """
    if isinstance(mixer, Attention):
        return attention_work(mixer, fmt, num_cached, num_new), False
    from inference_bench.accounting import rare_work

    return rare_work.mixer_work(mixer, fmt, num_cached, num_new, state_bits)
