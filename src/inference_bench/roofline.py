"""Work on a machine: the least time physics allows, and what sets it. The one max() in the project.

In:   FLOPs, bytes of memory and bytes between devices, or a StepWork; HardwareSpec
Out:  Roof (the ceilings) and Bound (seconds, and which of memory, compute and interconnect sets them)
Leaves out: efficiency; a bound assumes the peak of each resource, all of them perfectly overlapped
Read next by: predict, compare, charts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.accounting.work import StepWork
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.hardware import HardwareSpec


class LimitedBy(StrEnum):
    """Which resource sets the bound."""

    MEMORY = "memory"
    COMPUTE = "compute"
    INTERCONNECT = "interconnect"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Roof:
    """A machine's ceilings for one compute format.

    Where:  None is a rate that is not known; the others then stand alone. link_bytes_per_s is what a device sends to the
            others in one direction
    """

    bandwidth_bytes_per_s: float | None
    peak_flops_per_s: float | None
    compute_format: str | None
    link_bytes_per_s: float | None = None

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

    Where:  fraction_of_peak is the share of peak compute the bound leaves reachable; None where a rate is not known;
            link_bytes is what one device sends to the others
    """

    name: str
    flops: int
    num_bytes: int
    seconds: float | None
    limited_by: LimitedBy
    fraction_of_peak: float | None
    link_bytes: int = 0

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte."""
        return self.flops / self.num_bytes if self.num_bytes else None


def roof(machine: HardwareSpec, weights: NumberFormat, compute_format: str | None = None) -> Roof:
    """The ceilings that products with these weights meet on this machine: weight-only int4 computes in 16 bits.

    Where:   half of the interconnect's figure, which sums both directions, is what a device can send

    Raises:  RequestError if the compute format asked for is not in the machine's table
    """
    from inference_bench.errors import RequestError

    chosen = compute_format or machine.compute_format(weights)
    if compute_format is not None and compute_format not in machine.peak_flops_per_s:
        known = ", ".join(machine.peak_flops_per_s) or "none"
        raise RequestError(f"{machine.name} has no dense {compute_format} rate; known rates: {known}")
    link = None if machine.interconnect_bytes_per_s is None else machine.interconnect_bytes_per_s / 2
    return Roof(machine.bandwidth_bytes_per_s, machine.peak_flops_per_s[chosen] if chosen else None, chosen, link)


def bound(name: str, flops: int, num_bytes: int, ceiling: Roof, link_bytes: int = 0) -> Bound:
    """The least time `flops`, `num_bytes` and `link_bytes` take under a roof.

    Formula:  max(bytes / BW, FLOPs / P_peak, sent bytes / (interconnect / 2))
    Where:    sending is one more arm, not a sum: it may overlap with the rest of a step; nothing sent, no such arm
    Unit:     seconds
    Ignores:  latency, launch overhead, imperfect overlap: all of them only add
    """
    memory = None if ceiling.bandwidth_bytes_per_s is None else num_bytes / ceiling.bandwidth_bytes_per_s
    compute = None if ceiling.peak_flops_per_s is None else flops / ceiling.peak_flops_per_s
    arms = {LimitedBy.COMPUTE: compute, LimitedBy.MEMORY: memory}
    if link_bytes and ceiling.link_bytes_per_s is not None:
        arms[LimitedBy.INTERCONNECT] = link_bytes / ceiling.link_bytes_per_s
    known = {resource: seconds for resource, seconds in arms.items() if seconds is not None}
    if not known:
        return Bound(name, flops, num_bytes, None, LimitedBy.UNKNOWN, None, link_bytes)
    limit = max(known, key=lambda resource: known[resource])
    seconds = known[limit]
    fraction = compute / seconds if compute is not None and seconds else None
    return Bound(name, flops, num_bytes, seconds, limit, fraction, link_bytes)


def bound_step(name: str, work: StepWork, ceiling: Roof, link_bytes: int = 0) -> Bound:
    """The least time of one forward step: summed traffic against summed FLOPs, never a sum of phases."""
    return bound(name, work.flops, work.num_bytes, ceiling, link_bytes)


def bound_sending(name: str, link_bytes: int, ceiling: Roof) -> Bound:
    """The least time a device needs to send so much to the others, taken alone.

    Formula:  bytes / (interconnect / 2): its figure counts both directions
    Unit:     seconds; None where the interconnect is not known
    Ignores:  latency of a message, which is most of the time of a small one
    """
    rate = ceiling.link_bytes_per_s
    if rate is None:
        return Bound(name, 0, 0, None, LimitedBy.UNKNOWN, None, link_bytes)
    return Bound(name, 0, 0, link_bytes / rate, LimitedBy.INTERCONNECT, None, link_bytes)
