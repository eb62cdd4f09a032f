"""What a fitted formula says, in plain words.

In:   a fit, the observations, the served model and the ceilings
Out:  sentences: how a decode step is made up, what limits it, what cache and prompts take; and what to be careful about
Leaves out: the fit (candidates)
Read next by: fitting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from inference_bench.calibrate.steps.candidates import MAXIMA, VECTORS
from inference_bench.calibrate.steps.columns import BatchWork, measured_steps
from inference_bench.calibrate.steps.forms import StepForm, StepParameter
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Ceilings, Shares
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.units import format_fraction, format_seconds

_NEAR_ROOF: Final = 2 / 3  # of a step that the memory roof explains: then it is called near
_CLEARLY: Final = 1.5
_MOST_SEQUENCES: Final = 256
_FEW_HELD_OUT: Final = 8
_PLAIN: Final = {
    StepKind.DECODE: "decode steps",
    StepKind.PREFILL: "prompts alone",
    StepKind.CACHED_PREFILL: "prompts of which the beginning is cached",
    StepKind.MIXED: "prompts beside decoding",
}


@dataclass(frozen=True)
class StepReading:
    """A fitted formula with what is needed to say it."""

    served: ServedModel
    machine_name: str
    form: StepForm
    shares: Shares
    step_time: StepTime
    ceilings: Ceilings
    observations: Sequence[StepObservation]

    def sentences(self) -> tuple[str, ...]:
        """The formula in words: what is said of decoding only where decoding was measured, of prompts where prompts were."""
        kinds = {each.kind for each in self.observations}
        said: list[str] = []
        if StepKind.DECODE in kinds:
            said += [self._decode_step(), *self._vector_kernel(), self._first_limit(), *self._turn(), *self._context()]
        if kinds - {StepKind.DECODE}:
            said.append(self._prompt())
        return tuple(said)

    # --- what a step is made of ---------------------------------------------------------------------------------------

    @cached_property
    def _one(self) -> BatchWork:
        return self._work(0, 1)

    @property
    def _read_s(self) -> float:
        """One read of the weights, with what a step takes besides."""
        return self._one.weights / self.shares.bandwidth + self.shares.fixed_s

    @property
    def _sequence_s(self) -> float:
        """One more sequence, its context apart."""
        return (
            self._one.products / self.shares.compute + self._one.moved / self.shares.bandwidth + self.shares.sequence_s
        )

    @cached_property
    def _context_tokens(self) -> int:
        """The shortest context at which decoding was measured."""
        return min(int(each.mean_context_tokens) for each in self.observations if each.kind is StepKind.DECODE)

    def _work(self, cached: int, new: int) -> BatchWork:
        step = StepObservation(StepKind.PREFILL, "one", ((StepPart(cached, new, new == 1),),), 1.0, 1)
        return measured_steps((step,), self.served, self.ceilings)[0].batches[0]

    def _decode_s(self, num_sequences: int) -> float:
        return self.step_time.step_s([StepPart(self._context_tokens, 1, True)] * num_sequences)

    def _cached_s(self, work: BatchWork) -> float:
        """What reading the cache and attending takes."""
        by_memory = work.cache / (self.shares.cache or self.shares.bandwidth)
        by_compute = work.pairs / (self.shares.attention or self.shares.compute)
        return max(by_memory, by_compute) if self.form in MAXIMA else by_memory + by_compute

    # --- sentences ----------------------------------------------------------------------------------------------------

    def _decode_step(self) -> str:
        read, each = format_seconds(self._read_s, 2), format_seconds(self._sequence_s, 2)
        beyond = self._largest_by_vector
        where = f" beyond {_sequences(beyond)}" if beyond else ""
        if self.form in MAXIMA:
            return (
                f"On {self.machine_name} memory and compute overlap: a decode step{where} takes the longer of {read} for one read of "
                f"the weights and {each} for each sequence"
            )
        return (
            f"On {self.machine_name} a decode step{where} is additive: {read} for one read of the weights plus {each} for each "
            "sequence"
        )

    @cached_property
    def _largest_by_vector(self) -> int:
        """Up to how many sequences the kernel for single positions is the quicker one; 0 where there is none."""
        if self.form not in VECTORS:
            return 0
        own = self.step_time.coefficients.vector_s
        sizes = range(1, _MOST_SEQUENCES + 1)
        return next((size - 1 for size in sizes if self._matrix_s(size) <= own * size), _MOST_SEQUENCES)

    def _matrix_s(self, num_sequences: int) -> float:
        """One read of the weights and the products of all sequences."""
        memory = self._one.weights / self.shares.bandwidth
        compute = num_sequences * self._one.products / self.shares.compute
        return max(memory, compute) if self.form in MAXIMA else memory + compute

    def _vector_kernel(self) -> Iterator[str]:
        """Where a kernel for single positions is the quicker one."""
        most, each = self._largest_by_vector, format_seconds(self.step_time.coefficients.vector_s, 2)
        if most == 1:
            yield f"A lone sequence has a kernel of its own, {each} a step; from 2 sequences on the matrix kernel takes over"
        elif most == _MOST_SEQUENCES:
            yield f"The weights are read once for each sequence, {each} a sequence, however many there are"
        elif most:
            yield (
                f"Up to {most} sequences the weights are read once for each of them, {each} a sequence; from {most + 1} on the matrix "
                "kernel takes over"
            )

    def _first_limit(self) -> str:
        """What sets the step of a lone sequence."""
        name = self.served.weights.format_name.upper()
        work = self._work(self._context_tokens, 1)
        step_s = self._decode_s(1)
        roof_s = work.weights + work.moved + work.cache
        reached = roof_s / step_s
        if reached >= _NEAR_ROOF:
            return f"{name} stays near the memory roof at batch 1: {format_fraction(reached, 2)} of the bandwidth is reached"
        memory_s = self._read_s + work.cache / (self.shares.cache or self.shares.bandwidth)
        compute_s = self._sequence_s
        over = f"the step takes {step_s / roof_s:.1f} times the memory roof"
        if self._largest_by_vector or memory_s >= _CLEARLY * compute_s:
            return f"{name} is bound by memory at batch 1 and reaches {format_fraction(reached, 2)} of the bandwidth"
        if compute_s >= _CLEARLY * memory_s:
            return f"{name} is compute-bound already at batch 1: {over}"
        return f"{name} takes about as long to compute as to read at batch 1: {over}"

    def _turn(self) -> Iterator[str]:
        """From which batch on more sequences are no longer nearly free."""
        balance = self._read_s / self._sequence_s if self._sequence_s > 0 else None
        if balance is not None and max(2, self._largest_by_vector + 1) <= balance < _MOST_SEQUENCES:
            yield (
                f"Up to about {_sequences(round(balance))} reading the weights is the larger part of a decode step, beyond it the "
                "sequences are"
            )

    def _context(self) -> Iterator[str]:
        """What a cached position takes, over the contexts that were measured."""
        contexts = [each.mean_context_tokens for each in self.observations if each.kind is StepKind.DECODE]
        longest = int(max(contexts))
        if longest > self._context_tokens:
            long, short = self._work(longest, 1), self._work(self._context_tokens, 1)
            each_s = (self._cached_s(long) - self._cached_s(short)) / (longest - self._context_tokens)
            share = self.shares.cache
            how = f": the cache is read at {format_fraction(share, 2)} of the bandwidth" if share else ""
            most = "up to " if self.form in MAXIMA else ""
            yield f"Every cached position of every sequence adds {most}{format_seconds(each_s, 2)}{how}"

    def _prompt(self) -> str:
        one, two = self._work(0, 1), self._work(0, 2)
        products = (two.products - one.products) / self.shares.compute
        token = format_seconds(products + (two.moved - one.moved) / self.shares.bandwidth, 2)
        each_pair = one.pairs / (self.shares.attention or self.shares.compute)
        return f"A prompt takes {token} a token, and {format_seconds(each_pair, 2)} for every pair of positions that is attended"


def _sequences(count: int) -> str:
    return "1 sequence" if count == 1 else f"{count} sequences"


# --- what to be careful about ---------------------------------------------------------------------------------------


def cautions(
    observations: Sequence[StepObservation],
    parameters: Sequence[StepParameter],
    options: Sequence[str],
    num_honest: int,
) -> tuple[str, ...]:
    """What a reader should know before using the numbers."""
    num_held_out = sum(each.is_held_out for each in observations)
    notes = [f"{each.name}: {each.note}" for each in parameters if each.note]
    if not num_honest:
        notes.append(
            f"{num_held_out} step(s) were held out: too few to choose a formula by some and judge it by others, so no honest error is given"
        )
    elif num_honest < _FEW_HELD_OUT:
        notes.append(f"the error on held-out steps rests on {num_honest} of them")
    notes += [f"not told by these steps: {_UNTOLD[name]}" for name in _UNTOLD if name not in options]
    if missing := [_PLAIN[kind] for kind in StepKind if kind not in {each.kind for each in observations}]:
        notes.append(f"not measured: {', '.join(missing)}")
    return tuple(notes)


_UNTOLD: Final = {
    "cache": "how fast the cache is read, which is taken as the weights are",
    "attention": "how fast pairs are attended, which is taken as products are",
}
