"""What does the fitted formula say a step's time goes to, term by term?

In:   StepObservation's batches, StepCalibration
Out:  seconds by Cause; what a batch moves and computes
Leaves out: what was measured, and so the unexplained (decompose)
Read next by: decompose.

The fitted formula of one batch is  min(f(M, C), V·P + f(M', C')) + fixed + per sequence·S  with  f = longer arm + s·shorter
arm (s = 1: a sum, nothing overlaps; s = 0: a maximum, everything does). The parts follow it term by term:

- The longer arm of f at the fitted rates is visible whole, the shorter one with the share s of it. So in a maximum the
  parts hold one arm alone: the other is hidden behind it, takes no time of its own, and speeding it up would gain nothing.
- A visible arm is its bytes or FLOPs at the measured ceiling, and on top what the fitted rate falls short of it.
- By the vector kernel the products' FLOPs are hidden in the reading of the weights, which is visible whole.
- Of all reads of the weights in the step's batches, as many bytes as one batch of the same work would read are the weights'
  part; the rest is batching loss, at the rate reached.

Where a fitted rate lies above the measured ceiling, that rate stands for full, so that no part is negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepObservation
from inference_bench.gap.parts import Cause
from inference_bench.simulate.kernel.pricing import overlapped
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.simulate.step_work import work_form

Batches = Sequence[Sequence[StepPart]]


def count_parts(seen: StepObservation, reads: StepReads, calibration: StepCalibration) -> dict[Cause, float]:
    """What the fitted formula says the step's time goes to; every cause is there, in order.

    Unit:  seconds
    """
    found = dict.fromkeys(Cause, 0.0)
    for batch, kernel in zip(reads.batches, reads.kernels, strict=True):
        for cause, seconds in _batch_parts(batch, kernel, reads, calibration.shares.serial):
            found[cause] += seconds
    coefficients = calibration.step_time.coefficients
    num_sequences = sum(map(len, seen.batches))
    found[Cause.FIXED] = coefficients.fixed_s * len(seen.batches)
    found[Cause.SEQUENCE] = coefficients.sequence_s * num_sequences + coefficients.position_s * seen.num_positions
    found[Cause.REQUEST] = calibration.request_s if seen.includes_request else 0.0
    return found


# ── work ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What one batch moves and computes, and by which kernel.

    Where:  cached is read from the cache, moved is written to it or kept as states; reads are how often the weights are read
    Unit:   bytes and FLOPs
    """

    weights: float
    cached: float
    moved: float
    products: float
    attention: float
    reads: int = 1
    by_vector: bool = False


@dataclass(frozen=True, slots=True)
class StepReads:
    """The batches of a step, and how often they read the weights between them.

    Where:  once_bytes are what one batch of the same work would read of them
    Unit:   bytes
    """

    batches: tuple[BatchWork, ...]
    once_bytes: float
    rates: Rates

    @property
    def read_bytes(self) -> float:
        """Bytes of weights over all reads."""
        return sum(batch.reads * batch.weights for batch in self.batches)

    @property
    def num_reads(self) -> int:
        """How often the weights are read."""
        return sum(batch.reads for batch in self.batches)

    @property
    def kernels(self) -> tuple[Rate, ...]:
        """The rate at which each batch reads the weights."""
        return tuple(self.rates.vector if batch.by_vector else self.rates.weights for batch in self.batches)

    @property
    def once_share(self) -> float:
        """Of the bytes of weights read, the share that one batch would read; 1 where nothing is read again."""
        read = self.read_bytes
        return min(1.0, self.once_bytes / read) if read else 1.0

    @classmethod
    def of(cls, batches: Batches, calibration: StepCalibration) -> StepReads:
        """What the batches of a step read by the fitted formula."""
        form = work_form(calibration.served)
        counted = StepTime(form.coefficients, form.windows)
        rates = Rates.of(calibration)
        works = tuple(_chosen(batch, counted, calibration, rates) for batch in batches)
        together = [part for batch in batches for part in batch]
        return cls(works, _work(together, counted).weights, rates)


def _work(parts: Sequence[StepPart], counted: StepTime) -> BatchWork:
    """The work of a batch in which the weights are read once."""
    found = counted.parts_of(counted.load_of(parts))
    return BatchWork(
        weights=found.weight_bytes,
        cached=found.cache_bytes,
        moved=found.moved_bytes,
        products=found.product_flops,
        attention=found.attention_flops,
    )


def _chosen(parts: Sequence[StepPart], counted: StepTime, calibration: StepCalibration, rates: Rates) -> BatchWork:
    """The work of a batch by the kernel that the fitted formula takes for it."""
    work, serial = _work(parts, counted), calibration.shares.serial
    vector_s = calibration.step_time.coefficients.vector_s
    if not vector_s:
        return work
    num_positions = sum(part.new for part in parts)
    memory_s = rates.moved.reached_s(work.moved) + rates.cached.reached_s(work.cached)
    attention_s = rates.attention.reached_s(work.attention)
    by_matrix = overlapped(
        memory_s + rates.weights.reached_s(work.weights), attention_s + rates.products.reached_s(work.products), serial
    )
    if vector_s * num_positions + overlapped(memory_s, attention_s, serial) >= by_matrix:
        return work
    return BatchWork(
        counted.coefficients.weight_bytes_of_one,
        work.cached,
        work.moved,
        0.0,
        work.attention,
        num_positions,
        by_vector=True,
    )


# ── rates ──────────────────────────────────────────────────────────────────────────────────────────


class Rate(NamedTuple):
    """A rate that is reached, and the one that stands for full."""

    reached: float
    full: float

    def reached_s(self, amount: float) -> float:
        """How long it takes."""
        return amount / self.reached

    def full_s(self, amount: float) -> float:
        """How long it would take at the full rate."""
        return amount / self.full

    def lost_s(self, amount: float) -> float:
        """The difference."""
        return self.reached_s(amount) - self.full_s(amount)


class Rates(NamedTuple):
    """The rates of a fitted formula.

    Where:  moving is the better of the rates of weights and cache: what the cache loses against it is never negative
    Unit:   bytes or FLOPs a second
    """

    weights: Rate
    vector: Rate
    moved: Rate
    cached: Rate
    moving: Rate
    products: Rate
    attention: Rate

    @classmethod
    def of(cls, calibration: StepCalibration) -> Rates:
        """The measured ceilings times the fitted shares."""
        shares = calibration.shares
        bandwidth, compute = calibration.bandwidth_bytes_per_s, calibration.compute_flops_per_s
        cache, attention = shares.cache or shares.bandwidth, shares.attention or shares.compute
        best = max(cache, shares.bandwidth)
        full = bandwidth * max(1.0, best)
        return cls(
            weights=_rate(bandwidth, shares.bandwidth),
            vector=_rate(bandwidth, shares.vector or shares.bandwidth),
            moved=_rate(bandwidth, shares.bandwidth),
            cached=Rate(bandwidth * cache, full),
            moving=Rate(bandwidth * best, full),
            products=_rate(compute, shares.compute),
            attention=_rate(compute, attention),
        )


def _rate(ceiling: float, share: float) -> Rate:
    return Rate(ceiling * share, ceiling * max(1.0, share))


# ── parts ──────────────────────────────────────────────────────────────────────────────────────────


def _batch_parts(batch: BatchWork, kernel: Rate, reads: StepReads, serial: float) -> Iterator[tuple[Cause, float]]:
    """The parts of one batch, overhead aside."""
    rates, read = reads.rates, batch.reads * batch.weights
    once = read * reads.once_share
    memory_s = rates.cached.reached_s(batch.cached) + rates.moved.reached_s(batch.moved)
    memory_s += 0.0 if batch.by_vector else kernel.reached_s(read)
    compute_s = rates.products.reached_s(batch.products) + rates.attention.reached_s(batch.attention)
    memory, compute = (1.0, serial) if memory_s >= compute_s else (serial, 1.0)
    weights = 1.0 if batch.by_vector else memory
    yield Cause.WEIGHTS, weights * kernel.full_s(once)
    yield Cause.CACHE, memory * (rates.cached.full_s(batch.cached) + rates.moved.full_s(batch.moved))
    yield Cause.COMPUTE, compute * (rates.products.full_s(batch.products) + rates.attention.full_s(batch.attention))
    yield Cause.BANDWIDTH_LOST, weights * kernel.lost_s(once)
    yield Cause.BANDWIDTH_LOST, memory * (rates.moving.lost_s(batch.cached) + rates.moved.lost_s(batch.moved))
    yield Cause.CACHE_LOST, memory * (rates.cached.reached_s(batch.cached) - rates.moving.reached_s(batch.cached))
    yield Cause.COMPUTE_LOST, compute * rates.products.lost_s(batch.products)
    yield Cause.COMPUTE_LOST, compute * rates.attention.lost_s(batch.attention)
    yield Cause.BATCHING, weights * kernel.reached_s(read - once)
