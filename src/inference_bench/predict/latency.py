"""From the time of a step to the latency of a request: TTFT, TPOT, E2E, and what a larger batch buys.

In:   a StepCost (a bound, stated shares of the peaks, or a fitted model) and the lengths of a request; or a Bound
Out:  RequestLatency; BatchCurve; expected ranges (a bound divided by a stated efficiency)
Leaves out: queueing, and which requests a scheduler puts into a step
Read next by: capacity, fit, phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import MAX_CONTEXT_TOKENS, MAX_SEQUENCES
from inference_bench.accounting.work import SequenceStep, decode_batch
from inference_bench.errors import RequestError
from inference_bench.roofline import Bound, Roof, bound

if TYPE_CHECKING:
    from inference_bench.predict.step_cost import ServedModel, StepCost
    from inference_bench.predict.step_sum import StepSum


@dataclass(frozen=True, slots=True)
class Range:
    """A low and a high value of one quantity."""

    low: float
    high: float


# What is assumed where nothing was measured: the share of each peak that real engines reach.
PLANNING_BANDWIDTH_FRACTION: Final = Range(0.7, 0.9)
PLANNING_COMPUTE_FRACTION: Final = Range(0.4, 0.6)
PLANNING_ASSUMPTION: Final = (
    "expected ranges assume 70-90 % of peak bandwidth and 40-60 % of dense peak compute; nothing was measured for them"
)


def predict_seconds(limit: Bound, ceiling: Roof) -> Range | None:
    """The time a bounded step is expected to take: its bytes and FLOPs at the planning shares of both ceilings.

    Formula:  max(bytes / (s · BW), FLOPs / (s · P_peak)) at the high shares .. at the low shares
    Unit:     seconds; None where no rate is known
    Source:   planning factors; replaced where a machine was measured
    """
    fast = _at_shares(limit, ceiling, PLANNING_BANDWIDTH_FRACTION.high, PLANNING_COMPUTE_FRACTION.high)
    slow = _at_shares(limit, ceiling, PLANNING_BANDWIDTH_FRACTION.low, PLANNING_COMPUTE_FRACTION.low)
    return None if fast is None or slow is None else Range(fast, slow)


def _at_shares(limit: Bound, ceiling: Roof, bandwidth_share: float, compute_share: float) -> float | None:
    bandwidth, peak = ceiling.bandwidth_bytes_per_s, ceiling.peak_flops_per_s
    reached = Roof(
        None if bandwidth is None else bandwidth * bandwidth_share,
        None if peak is None else peak * compute_share,
        ceiling.compute_format,
    )
    return bound(limit.name, limit.flops, limit.num_bytes, reached).seconds


def predict_prefill_seconds(flops: int, peak_flops_per_s: float, mfu: float) -> float:
    """Prefill time at a stated model FLOP utilisation.

    Formula:  FLOPs / (MFU · P_peak)
    Unit:     seconds                              Ignores: traffic, which bounds short prompts
    """
    return flops / (mfu * peak_flops_per_s)


def predict_end_to_end_seconds(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """E2E of one request from its first-token time and its pace.

    Formula:  TTFT + (n - 1) · TPOT; one output token has no TPOT
    Unit:     seconds
    """
    return ttft_s + (output_tokens - 1) * tpot_s if output_tokens > 1 else ttft_s


# ── one request ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """How long a request is, and how its prompt is prefilled.

    Where:   cached_tokens of the prompt are already in the cache; chunk_tokens are prefilled a step, None the whole
             prompt in one step
    Raises:  RequestError for lengths that no request can have
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    chunk_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_count("prompt", self.prompt_tokens, 1, MAX_CONTEXT_TOKENS)
        _check_count("output", self.output_tokens, 1, MAX_CONTEXT_TOKENS - self.prompt_tokens + 1)
        if self.chunk_tokens is not None:
            _check_count("prefill chunk", self.chunk_tokens, 1, MAX_CONTEXT_TOKENS)
        if not _is_count(self.cached_tokens) or not 0 <= self.cached_tokens < self.prompt_tokens:
            raise RequestError(
                f"a cached prefix of {self.cached_tokens} tokens does not leave a prompt of {self.prompt_tokens} at "
                "least one token to compute, which the first output token follows from"
            )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_count(what: str, value: int, least: int, most: int) -> None:
    if not _is_count(value) or not least <= value <= most:
        raise RequestError(f"{what} is {value}; a whole number in {least}..{most} is needed")


@dataclass(frozen=True, slots=True)
class RequestLatency:
    """The latency of a request, in a batch of such requests that decode together.

    Where:  tpot_s is None for one output token, which is followed by no gap; decode_s is all gaps together; the mean-
            context figures take every step at the mean context instead; tolerance is how closely the sums are known
    Unit:   seconds
    """

    lengths: RequestLengths
    batch: int
    ttft_s: float
    tpot_s: float | None
    decode_s: float
    e2e_s: float
    mean_context_decode_s: float
    mean_context_e2e_s: float
    tolerance: float

    @property
    def mean_context_error(self) -> float | None:
        """How far the shortcut is from the sum over steps.

        Formula:  (n - 1) · step(mean context) / Σ step(context) - 1; None without a second output token
        """
        return self.mean_context_decode_s / self.decode_s - 1 if self.decode_s else None


def predict_request_latency(
    cost: StepCost, lengths: RequestLengths, batch: int = 1, beside: Sequence[SequenceStep] = ()
) -> RequestLatency:
    """TTFT, TPOT and E2E of a request that is prefilled alone and then decodes in a batch of its like.

    Formula:  E2E = TTFT + Σ_{j=1..n-1} step(B sequences at context T + j); TPOT = the sum / (n - 1)
    Where:    T prompt, n output tokens; beside are sequences that decode in the steps that prefill the prompt
    Unit:     seconds
    Ignores:  queueing, and the prefills of other requests between the steps
    Raises:   RequestError
    """
    _check_count("batch", batch, 1, MAX_SEQUENCES)
    prefill = sum_prefill_steps(cost, lengths, beside)
    decode = sum_decode_steps(cost, lengths.prompt_tokens, lengths.output_tokens, batch)
    gaps = lengths.output_tokens - 1
    shortcut = gaps * _mean_context_step_s(cost, lengths, batch) if gaps else 0.0
    return RequestLatency(
        lengths=lengths,
        batch=batch,
        ttft_s=prefill.seconds,
        tpot_s=decode.seconds / gaps if gaps else None,
        decode_s=decode.seconds,
        e2e_s=prefill.seconds + decode.seconds,
        mean_context_decode_s=shortcut,
        mean_context_e2e_s=prefill.seconds + shortcut,
        tolerance=max(prefill.tolerance, decode.tolerance),
    )


def predict_ttft_seconds(cost: StepCost, lengths: RequestLengths, beside: Sequence[SequenceStep] = ()) -> float:
    """The time to the first token, which comes at the end of the last prefill chunk.

    Formula:  Σ chunks step(chunk over what is cached, and the sequences that decode beside it)
    Unit:     seconds                              Ignores: queueing; contexts beside the prompt do not grow meanwhile
    Raises:   RequestError
    """
    return sum_prefill_steps(cost, lengths, beside).seconds


def sum_prefill_steps(cost: StepCost, lengths: RequestLengths, beside: Sequence[SequenceStep] = ()) -> StepSum:
    """The steps that prefill a prompt: whole chunks first, the shorter rest last."""
    from inference_bench.predict.step_sum import StepSum, sum_steps

    cached, new = lengths.cached_tokens, lengths.prompt_tokens - lengths.cached_tokens
    chunk = new if lengths.chunk_tokens is None else min(lengths.chunk_tokens, new)
    num_whole, rest = divmod(new, chunk)
    whole = sum_steps(lambda i: cost.step_s((SequenceStep(cached + i * chunk, chunk), *beside)), num_whole)
    if not rest:
        return whole
    last = SequenceStep(lengths.prompt_tokens - rest, rest)
    end = sum_steps(lambda _: cost.step_s((last, *beside)), 1)
    return StepSum(whole.seconds + end.seconds, whole.num_priced + 1, whole.tolerance)


def sum_decode_steps(cost: StepCost, prompt_tokens: int, output_tokens: int, batch: int = 1) -> StepSum:
    """The steps that emit the second to the last output token of a batch of alike sequences.

    Formula:  Σ_{j=1..n-1} step(B sequences at context T + j): step j attends the prompt, the j tokens fed so far
              included
    Unit:     seconds, as a sum over steps within its stated tolerance
    Raises:   RequestError
    """
    from inference_bench.predict.step_sum import sum_steps

    RequestLengths(prompt_tokens, output_tokens)
    return sum_steps(lambda i: cost.step_s(decode_batch(prompt_tokens + 1 + i, batch)), output_tokens - 1)


def _mean_context_step_s(cost: StepCost, lengths: RequestLengths, batch: int) -> float:
    """A decode step at the mean context of a generation.

    Formula:  step(T + n / 2); between two whole contexts, the mean of both
    """
    from inference_bench.predict.step_sum import checked_seconds

    doubled = 2 * lengths.prompt_tokens + lengths.output_tokens
    contexts = doubled // 2, -(-doubled // 2)
    return sum(checked_seconds(cost.step_s(decode_batch(context, batch))) for context in contexts) / 2


def predict_hybrid_step_seconds(
    cost: StepCost, context_tokens: int, batch: int, chunk_tokens: int, num_cached: int = 0
) -> float:
    """One step in which a batch decodes and a prompt's chunk is prefilled: they share one read of the weights.

    Formula:  max(Σ bytes / BW, Σ FLOPs / P) under a bound: never the sum of a decode step and a prefill
    Unit:     seconds
    Raises:   RequestError
    """
    from inference_bench.predict.step_sum import checked_seconds

    _check_count("prefill chunk", chunk_tokens, 1, MAX_CONTEXT_TOKENS)
    _check_count("cached prefix", num_cached, 0, MAX_CONTEXT_TOKENS)
    _check_count("batch", batch, 1, MAX_SEQUENCES)
    _check_count("context", context_tokens, 1, MAX_CONTEXT_TOKENS)
    chunk = SequenceStep(num_cached, chunk_tokens)
    return checked_seconds(cost.step_s((*decode_batch(context_tokens, batch), chunk)))


# ── what a larger batch buys ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Decode at one batch.

    Where:  tokens_per_s is over the whole batch
    """

    batch: int
    step_s: float

    @property
    def tokens_per_s(self) -> float:
        """Aggregate tokens a second: B / step."""
        return self.batch / self.step_s

    @property
    def sequence_tokens_per_s(self) -> float:
        """Tokens a second that one sequence gets: 1 / step."""
        return 1 / self.step_s


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What aggregate tokens a second tend to as the batch grows.

    Where:  None is a rate that is not known, or nothing to move
    Unit:   tokens/s
    """

    memory_tokens_per_s: float | None
    compute_tokens_per_s: float | None
    interconnect_tokens_per_s: float | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """The lowest of them."""
        rates = (self.memory_tokens_per_s, self.compute_tokens_per_s, self.interconnect_tokens_per_s)
        return min((rate for rate in rates if rate is not None), default=None)


def predict_batch_curve(cost: StepCost, context_tokens: int, batches: Sequence[int]) -> tuple[BatchRow, ...]:
    """Decode over batch at one context.

    Unit:    seconds a step, tokens/s
    Raises:  RequestError
    """
    from inference_bench.predict.step_sum import checked_seconds

    _check_count("context", context_tokens, 1, MAX_CONTEXT_TOKENS)
    rows = []
    for batch in batches:
        _check_count("batch", batch, 1, MAX_SEQUENCES)
        rows.append(BatchRow(batch, checked_seconds(cost.step_s(decode_batch(context_tokens, batch)))))
        if not rows[-1].step_s:
            raise RequestError(f"a decode step of {batch} sequence(s) takes no time, so no rate can be derived")
    return tuple(rows)


def bound_batch_limits(served: ServedModel, ceiling: Roof, context_tokens: int) -> BatchLimits:
    """What decode tends to when the weights are shared by ever more sequences: the cache is shared by none.

    Formula:  BW / (bytes of cache and state that one sequence reads at this context), which is BW / (k·t) where all
              layers attend everything and less than that where windows are full; P / FLOPs of one token
    Unit:     tokens/s
    Ignores:  the cache a step adds; a batch that fills the memory first
    Raises:   RequestError
    """
    work = served.work(decode_batch(context_tokens, 1))
    read = sum(operation.cache_read_bytes for operation in work.operations)
    bandwidth, peak = ceiling.bandwidth_bytes_per_s, ceiling.peak_flops_per_s
    return BatchLimits(
        None if bandwidth is None or not read else bandwidth / read,
        None if peak is None or not work.flops else peak / work.flops,
    )
