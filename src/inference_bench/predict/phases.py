"""Where the phases and operations of serving a model sit under a machine's roof, and what would turn their limit.

In:   ModelSpec, WeightCount, CacheFormat, HardwareSpec; what is decoded and prefilled, over how many devices
Out:  RooflineTable: phases, operations, intensities, the balance batch, and decode over batch
Leaves out: what real engines reach of these bounds; pipelines and expert parallelism
Read next by: report.roofline_report, charts.ceilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.cache import MAX_CONTEXT_TOKENS, MAX_SEQUENCES, CacheFormat
from inference_bench.accounting.communication import ACTIVATION_BITS, count_all_reduce_bytes
from inference_bench.accounting.parallel import rank_model, rank_weights
from inference_bench.accounting.step_operations import itemise_step
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import SequenceStep, StepWork, count_step_work, decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.intensities import BalanceBatch, IntensityRow, balance_batch, intensities
from inference_bench.predict.latency import BatchLimits, BatchRow, bound_batch_limits, predict_batch_curve
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Bound, Roof, bound, bound_sending, bound_step, roof

MAX_DEVICES: Final = 1 << 16
_CURVE_BATCHES: Final = tuple(1 << power for power in range(11))


@dataclass(frozen=True, slots=True)
class RooflineTable:
    """Where the phases of serving a model sit on a machine, and the operations inside them.

    Where:  FLOPs and bytes are those of one device; an operation is named with its phase; prefill_chunk is the part of
            a prompt that one step with decodes takes, None where no such step was asked for
    """

    model: str
    machine: str
    devices: int
    ceiling: Roof
    context_tokens: int
    batch: int
    prompt_tokens: int
    prefill_chunk: int | None
    phases: tuple[Bound, ...]
    operations: tuple[tuple[str, Bound], ...]
    intensities: tuple[IntensityRow, ...]
    balance: BalanceBatch
    curve: tuple[BatchRow, ...]
    limits: BatchLimits
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankBound:
    """The bound of a step on one of several devices that share each layer: a StepCost.

    Formula:  max(bytes of the rank / BW, FLOPs of the rank / P_peak, bytes it sends / (interconnect / 2))
    Where:    model and weights are those of one rank; sending may overlap with the rest, so it is an arm of the max
    Unit:     seconds
    """

    model: ModelSpec
    weights: WeightCount
    cache_format: CacheFormat
    ceiling: Roof
    devices: int = 1

    def count_link_bytes(self, positions: int) -> int:
        """Bytes the rank sends in a step of so many positions."""
        return count_all_reduce_bytes(self.model, positions, self.devices)

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step.

        Raises:  RequestError if no ceiling is known
        """
        work = count_step_work(self.model, self.weights, self.cache_format, sequences)
        seconds = bound("step", work.flops, work.num_bytes, self.ceiling, self._link(work)).seconds
        if seconds is None:
            raise RequestError("neither the bandwidth nor the compute rate is known, so no time can be derived")
        return seconds

    def bound_phase(self, name: str, work: StepWork) -> Bound:
        """A whole step."""
        return bound_step(name, work, self.ceiling, self._link(work))

    def bound_operations(self, work: StepWork) -> tuple[Bound, ...]:
        """Each operation of a step, taken alone; what the rank sends is the last."""
        alone = [bound(item.name, item.flops, item.num_bytes, self.ceiling) for item in work.operations]
        if self.devices > 1:
            alone.append(bound_sending("all-reduce", self._link(work), self.ceiling))
        return tuple(alone)

    def bound_limits(self, served: ServedModel, context_tokens: int) -> BatchLimits:
        """What decode tends to as the batch grows; what a token makes the rank send is one more limit."""
        limits = bound_batch_limits(served, self.ceiling, context_tokens)
        sent, rate = self.count_link_bytes(1), self.ceiling.link_bytes_per_s
        return replace(limits, interconnect_tokens_per_s=rate / sent if rate is not None and sent else None)

    def _link(self, work: StepWork) -> int:
        return self.count_link_bytes(work.num_positions)


def rank_bound(
    model: ModelSpec, weights: WeightCount, cache_format: CacheFormat, ceiling: Roof, devices: int = 1
) -> RankBound:
    """The bound of one of so many devices.

    Raises:  RequestError if the model does not divide over them
    """
    if not 1 <= devices <= MAX_DEVICES:
        raise RequestError(f"devices is {devices}; 1..{MAX_DEVICES} can share a model")
    return RankBound(rank_model(model, devices), rank_weights(model, weights, devices), cache_format, ceiling, devices)


def roofline_table(
    model: ModelSpec,
    weights: WeightCount,
    cache_format: CacheFormat,
    machine: HardwareSpec,
    *,
    context_tokens: int,
    batch: int,
    prompt_tokens: int,
    compute_format: str | None = None,
    devices: int = 1,
    prefill_chunk: int | None = None,
) -> RooflineTable:
    """Decode at a batch and context, and prefill of a prompt, as phases and as operations.

    Where:   with a prefill_chunk there is a third phase: a hybrid iteration of the decodes and the prompt's last chunk
    Raises:  RequestError
    """
    _check_lengths(context_tokens, batch, prompt_tokens, prefill_chunk)
    ceiling = roof(machine, weights.linear_format, compute_format)
    rank = rank_bound(model, weights, cache_format, ceiling, devices)
    works = _phase_works(rank, context_tokens, batch, prompt_tokens, prefill_chunk)
    served = ServedModel(rank.model, rank.weights, cache_format)
    knows_a_rate = ceiling.bandwidth_bytes_per_s is not None or ceiling.peak_flops_per_s is not None
    return RooflineTable(
        model=model.name,
        machine=machine.name,
        devices=devices,
        ceiling=ceiling,
        context_tokens=context_tokens,
        batch=batch,
        prompt_tokens=prompt_tokens,
        prefill_chunk=prefill_chunk,
        phases=tuple(rank.bound_phase(phase, work) for phase, work in works.items()),
        operations=tuple((phase, item) for phase, work in works.items() for item in rank.bound_operations(work)),
        intensities=intensities(served, context_tokens, batch),
        balance=balance_batch(served, ceiling, context_tokens),
        curve=predict_batch_curve(rank, context_tokens, _curve_batches(batch)) if knows_a_rate else (),
        limits=rank.bound_limits(served, context_tokens),
        assumptions=_assumptions(model, weights, machine, ceiling, devices),
    )


def _check_lengths(context_tokens: int, batch: int, prompt_tokens: int, prefill_chunk: int | None) -> None:
    asked = {
        "context": (context_tokens, MAX_CONTEXT_TOKENS),
        "batch": (batch, MAX_SEQUENCES),
        "prompt": (prompt_tokens, MAX_CONTEXT_TOKENS),
    }
    if prefill_chunk is not None:
        asked["prefill chunk"] = (prefill_chunk, prompt_tokens)
    for what, (value, most) in asked.items():
        if not 1 <= value <= most:
            raise RequestError(f"{what} is {value}; it must be at least 1 and at most {most}")


def _curve_batches(batch: int) -> tuple[int, ...]:
    """Powers of two, and the batch that was asked for."""
    return tuple(sorted({*_CURVE_BATCHES, batch}))


def _phase_works(
    rank: RankBound, context_tokens: int, batch: int, prompt_tokens: int, prefill_chunk: int | None
) -> dict[str, StepWork]:
    """What a rank does in a step of each phase."""
    fixed = rank.model, rank.weights, rank.cache_format
    decodes = decode_batch(context_tokens, batch)
    works = {
        "prefill": itemise_step(*fixed, prefills=prompt(prompt_tokens)),
        "decode": itemise_step(*fixed, decodes),
    }
    if prefill_chunk is not None:
        works["hybrid"] = itemise_step(*fixed, decodes, prompt(prompt_tokens, prompt_tokens - prefill_chunk))
    return works


def _assumptions(
    model: ModelSpec, weights: WeightCount, machine: HardwareSpec, ceiling: Roof, devices: int
) -> tuple[str, ...]:
    shared = [] if devices == 1 else _sharing(machine, ceiling, devices)
    return (
        f"peak of {ceiling.compute_format or 'an unknown format'}, dense; weights stored as {weights.format_name}",
        "bytes are counted, not read from hardware counters: each weight once a step, the cache attended, the cache added",
        "the output head is computed for the last prompt position only",
        "decode over batch is shown whether or not such a batch fits in the memory",
        *shared,
        *model.assumptions,
    )


def _sharing(machine: HardwareSpec, ceiling: Roof, devices: int) -> list[str]:
    """What was assumed of devices that share each layer."""
    lines = [
        f"tensor parallel over {devices} devices: FLOPs, bytes and times are those of one of them",
        f"all-reduce by rings of {ACTIVATION_BITS}-bit activations, two a layer; a phase's bound lets it overlap with all "
        "else, so it is one more arm of the max and no summand",
    ]
    if ceiling.link_bytes_per_s is None:
        lines.append(f"the interconnect of {machine.name} is not known: all-reduce has no time, and no phase counts it")
    else:
        lines.append("a device sends at half of the interconnect's figure, which sums both directions")
    return lines
