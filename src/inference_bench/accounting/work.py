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

from inference_bench.accounting.cache import CacheFormat, count_position_bytes
from inference_bench.accounting.params import count_attention_params, count_feed_forward_params, count_params
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.models import Attention, ModelSpec


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


def count_attended_pairs(num_cached: int, num_new: int, window: int | None = None) -> int:
    """Query-key pairs of one head: each new position attends what precedes it and itself, at most `window` of them.

    Formula:  Σ_{j=1..k} min(c + j, W); without a window k·c + k(k+1)/2
    Where:    c num_cached, k num_new, W window

    >>> count_attended_pairs(0, 4), count_attended_pairs(4999, 1), count_attended_pairs(0, 4, window=2)
    (10, 5000, 7)
    """
    if window is None:
        return num_new * num_cached + num_new * (num_new + 1) // 2
    growing = max(0, min(num_new, window - num_cached))
    return growing * num_cached + growing * (growing + 1) // 2 + (num_new - growing) * window


def count_read_positions(num_cached: int, num_new: int, window: int | None = None) -> int:
    """Positions of the cache the step must read at least once: its own new ones included.

    Formula:  c + k; with a window min(c, W - 1) + k
    """
    return num_new + (num_cached if window is None else min(num_cached, window - 1))


def count_step_work(
    model: ModelSpec,
    weights: WeightCount,
    cache_format: CacheFormat,
    sequences: Sequence[SequenceStep],
    head_positions: HeadPositions = HeadPositions.LAST,
) -> StepWork:
    """FLOPs and bytes of one forward step over a batch of sequences, which share one read of the weights.

    Formula:  FLOPs = 2·(N_matmul - V·D)·positions + 2·V·D·(head positions) + Σ layers 4·N·H·pairs;
              bytes = weights once (one row a token of an untied input table) + cache attended + cache added
    Unit:     FLOPs and bytes, exact
    Ignores:  activations, softmax, rotary embedding; a norm or bias is 2 FLOPs a parameter, as in N_matmul
    Raises:   RequestError for an empty step or negative lengths
    Source:   Kaplan et al. 2020, Scaling Laws for Neural Language Models, table 1, with attention counted exactly
    """
    if not sequences or any(step.num_cached < 0 or step.num_new < 1 or step.count < 1 for step in sequences):
        raise RequestError("a step needs at least one sequence, and each brings at least one new position")
    positions = sum(step.num_new * step.count for step in sequences)
    num_sequences = sum(step.count for step in sequences)
    head_count = num_sequences if head_positions is HeadPositions.LAST else positions
    operations = (
        _embedding(weights, positions),
        _projections(model, weights, positions),
        _attention(model, cache_format, sequences),
        _feed_forward(model, weights, positions),
        Operation("output head", 2 * model.vocab_size * model.hidden_size * head_count, weights.head_read),
        Operation("norms and other", 2 * count_params(model).norm * positions, weights.norm + weights.other),
    )
    kept = tuple(operation for operation in operations if operation.flops or operation.num_bytes)
    return StepWork(kept, positions, num_sequences)


def _embedding(weights: WeightCount, positions: int) -> Operation:
    """One row a token; a tied table is read whole by the head, which already counts these rows."""
    return Operation("embedding rows", 0, 0 if weights.tied else weights.embedding_row * positions)


def _projections(model: ModelSpec, weights: WeightCount, positions: int) -> Operation:
    params = sum(count_attention_params(layer.attention, model.hidden_size) for layer in model.layers)
    return Operation("attention projections", 2 * params * positions, weights.attention)


def _feed_forward(model: ModelSpec, weights: WeightCount, positions: int) -> Operation:
    params = sum(count_feed_forward_params(layer.feed_forward, model.hidden_size) for layer in model.layers)
    return Operation("feed-forward", 2 * params * positions, weights.feed_forward)


def _attention(model: ModelSpec, fmt: CacheFormat, sequences: Sequence[SequenceStep]) -> Operation:
    flops = read = written = 0
    for attention, num_layers in model.attention_groups():
        per_position = count_position_bytes(attention, fmt)
        for step in sequences:
            layers = num_layers * step.count
            pairs = count_attended_pairs(step.num_cached, step.num_new, attention.sliding_window)
            flops += layers * _flops_per_pair(attention) * pairs
            read += (
                layers * per_position * count_read_positions(step.num_cached, step.num_new, attention.sliding_window)
            )
            written += layers * per_position * step.num_new
    return Operation("attention", flops, 0, read, written)


def _flops_per_pair(attention: Attention) -> int:
    """Score and weighted value of one query-key pair, all heads: 2·N·H each."""
    return 4 * attention.num_attention_heads * attention.head_dim


def matrix_intensity(rows: int, columns: int, batch: int, bytes_per_value: float) -> float:
    """FLOPs a byte of an m×n matrix times B columns, each operand moved once.

    Formula:  2·m·n·B / (b·(m·n + n·B + m·B)); B = 1 is the matrix-vector product
    Unit:     FLOP/byte
    """
    return 2 * rows * columns * batch / (bytes_per_value * (rows * columns + columns * batch + rows * batch))


def decode_attention_intensity(attention: Attention, bytes_per_value: float) -> float:
    """FLOPs a byte of decode attention, whatever the batch and the context.

    Formula:  4·N·H·t / (2·K·H·t·b) = 2·N / (K·b)
    Unit:     FLOP/byte
    """
    return 2 * attention.num_attention_heads / (attention.num_key_value_heads * bytes_per_value)
