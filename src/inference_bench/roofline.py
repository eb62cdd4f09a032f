"""Work on a machine: the least time physics allows, and what sets it. The one max() in the project.

In:   StepWork or an Operation, and HardwareSpec
Out:  Bound (seconds, limited by memory or compute) and the table of phases and operations
Leaves out: efficiency; a bound assumes peak bandwidth and dense peak compute, perfectly overlapped
Read next by: predict, compare, charts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import HeadPositions, StepWork, count_step_work, decode_batch, prompt
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import ModelSpec


class LimitedBy(StrEnum):
    """Which resource sets the bound."""

    MEMORY = "memory"
    COMPUTE = "compute"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Roof:
    """A machine's two ceilings for one compute format.

    Where:  None is a rate that is not known; the other then stands alone
    """

    bandwidth_bytes_per_s: float | None
    peak_flops_per_s: float | None
    compute_format: str | None

    @property
    def ridge_flops_per_byte(self) -> float | None:
        """The intensity above which compute is the limit.

        Formula:  P_peak / BW
        Unit:     FLOP/byte
        """
        if self.bandwidth_bytes_per_s is None or self.peak_flops_per_s is None:
            return None
        return self.peak_flops_per_s / self.bandwidth_bytes_per_s

    def attainable_flops_per_s(self, intensity: float) -> float | None:
        """The roof over one intensity.

        Formula:  min(P_peak, I · BW)
        Unit:     FLOP/s
        Source:   Williams, Waterman and Patterson 2009, Roofline
        """
        arms = [self.peak_flops_per_s]
        arms += [None if self.bandwidth_bytes_per_s is None else intensity * self.bandwidth_bytes_per_s]
        known = [arm for arm in arms if arm is not None]
        return min(known) if known else None


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time some work can take.

    Where:  fraction_of_peak is the share of peak compute the bound leaves reachable; None where a rate is not known
    """

    name: str
    flops: int
    num_bytes: int
    seconds: float | None
    limited_by: LimitedBy
    fraction_of_peak: float | None

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte."""
        return self.flops / self.num_bytes if self.num_bytes else None


def roof(machine: HardwareSpec, weights: NumberFormat, compute_format: str | None = None) -> Roof:
    """The ceilings that products with these weights meet on this machine: weight-only int4 computes in 16 bits.

    Raises:  RequestError if the compute format asked for is not in the machine's table
    """
    from inference_bench.errors import RequestError

    chosen = compute_format or machine.compute_format(weights)
    if compute_format is not None and compute_format not in machine.peak_flops_per_s:
        known = ", ".join(machine.peak_flops_per_s) or "none"
        raise RequestError(f"{machine.name} has no dense {compute_format} rate; known rates: {known}")
    return Roof(machine.bandwidth_bytes_per_s, machine.peak_flops_per_s[chosen] if chosen else None, chosen)


def bound(name: str, flops: int, num_bytes: int, ceiling: Roof) -> Bound:
    """The least time `flops` and `num_bytes` take under a roof.

    Formula:  max(bytes / BW, FLOPs / P_peak)
    Unit:     seconds
    Ignores:  latency, launch overhead, imperfect overlap: all of them only add
    """
    memory = None if ceiling.bandwidth_bytes_per_s is None else num_bytes / ceiling.bandwidth_bytes_per_s
    compute = None if ceiling.peak_flops_per_s is None else flops / ceiling.peak_flops_per_s
    arms = {LimitedBy.COMPUTE: compute, LimitedBy.MEMORY: memory}
    known = {resource: seconds for resource, seconds in arms.items() if seconds is not None}
    if not known:
        return Bound(name, flops, num_bytes, None, LimitedBy.UNKNOWN, None)
    limit = max(known, key=lambda resource: known[resource])
    seconds = known[limit]
    fraction = compute / seconds if compute is not None and seconds else None
    return Bound(name, flops, num_bytes, seconds, limit, fraction)


def bound_step(name: str, work: StepWork, ceiling: Roof) -> Bound:
    """The least time of one forward step: summed traffic against summed FLOPs, never a sum of phases."""
    return bound(name, work.flops, work.num_bytes, ceiling)


def bound_operations(work: StepWork, ceiling: Roof) -> tuple[Bound, ...]:
    """Where each operation of a step sits, taken alone."""
    return tuple(bound(operation.name, operation.flops, operation.num_bytes, ceiling) for operation in work.operations)


@dataclass(frozen=True, slots=True)
class RooflineTable:
    """Where the phases of serving a model sit on a machine, and the operations inside them."""

    model: str
    machine: str
    ceiling: Roof
    context_tokens: int
    batch: int
    prompt_tokens: int
    phases: tuple[Bound, ...]
    operations: tuple[tuple[str, Bound], ...]  # (phase, operation)
    assumptions: tuple[str, ...]


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
) -> RooflineTable:
    """Decode at a batch and context, and prefill of a prompt, as phases and as operations.

    Raises:  RequestError
    """
    ceiling = roof(machine, weights.linear_format, compute_format)
    works = {
        "prefill": count_step_work(model, weights, cache_format, prompt(prompt_tokens), HeadPositions.LAST),
        "decode": count_step_work(model, weights, cache_format, decode_batch(context_tokens, batch)),
    }
    return RooflineTable(
        model=model.name,
        machine=machine.name,
        ceiling=ceiling,
        context_tokens=context_tokens,
        batch=batch,
        prompt_tokens=prompt_tokens,
        phases=tuple(bound_step(phase, work, ceiling) for phase, work in works.items()),
        operations=tuple((phase, item) for phase, work in works.items() for item in bound_operations(work, ceiling)),
        assumptions=(
            f"peak of {ceiling.compute_format or 'an unknown format'}, dense; weights stored as {weights.format_name}",
            "bytes are counted, not read from hardware counters: each weight once a step, the cache attended, the cache added",
            "the output head is computed for the last prompt position only",
            *model.assumptions,
        ),
    )
