"""Where the time of a step comes from: a model's own work on a machine, or what an engine is known for.

In:   ServedModel and HardwareSpec, with shares of the peaks or an engine's name
Out:  StepTime
Leaves out: the reference case (reference_profiles), measured tables (step_table), saved profiles (step_profile), the scheduler's
      settings (presets)
Read next by: cli, calibrate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.communication import count_all_reduce_bytes, count_all_reduces
from inference_bench.accounting.parallel import rank_model, rank_weights
from inference_bench.errors import RequestError
from inference_bench.facts.fields import shown
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import ModelSpec
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import roof
from inference_bench.simulate.step_time import StepTime, WindowWork
from inference_bench.simulate.step_work import WorkForm, work_form
from inference_bench.units import GIGA, KILO, TERA, format_fraction, format_seconds, format_si

if TYPE_CHECKING:
    from inference_bench.predict.efficiency import OwnMeasurements

# --- what devices send one another --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """How devices sum what each has worked out.

    Where:  latency_s is that of one all-reduce of nothing; note says where both are from
    Unit:   bytes a second in one direction, seconds
    Raises:  RequestError for less than 1 kB/s or more than 1 PB/s, far beyond every link, or a message of more than a minute
    """

    bytes_per_s: float
    latency_s: float
    note: str

    def __post_init__(self) -> None:
        _require_within(self.bytes_per_s, LINK_RATES, "bytes a second of a link")
        _require_within(self.latency_s, LINK_LATENCIES, "seconds a message of a link")


LINK_RATES: Final = (1.0 * KILO, 1.0 * KILO * TERA)
LINK_LATENCIES: Final = (0.0, 60.0)


def _require_within(value: float, limits: tuple[float, float], what: str) -> None:
    least, most = limits
    if not least <= value <= most:
        raise RequestError(f"the {what} is {shown(value)}; it must lie between {least:g} and {most:g}")


PCIE_LATENCY_S: Final = 20e-6
UNKNOWN_LINK: Final = Link(
    16 * GIGA, PCIE_LATENCY_S, "no interconnect figure: 16 GB/s and 20 µs an all-reduce, as over PCIe 5, are assumed"
)
_FAST_LINK_BYTES_PER_S: Final = 100 * GIGA  # above it, in one direction, a link is more than PCIe
_PCIE_SHARE: Final = 0.25
_FAST_SHARE: Final = 0.5
_FAST_LATENCY_S: Final = 10e-6


def link_of(machine: HardwareSpec) -> Link:
    """What all-reduces between cards of this machine are assumed to reach.

    Formula:  half of the figure, which sums both directions, times 1/4 over PCIe (through host memory) or 1/2 over
              direct links; 20 µs or 10 µs a message; without a figure 16 GB/s and 20 µs
    Source:   LLMServingSim's cluster files (16 GB/s, 20 µs for cards on PCIe 5); published rows of vLLM over PCIe fit to
              between 1/5 and 1/3 (predict.efficiency, link); the rest are assumptions
    """
    both = machine.interconnect_bytes_per_s
    if both is None:
        return UNKNOWN_LINK
    is_pcie = both / 2 < _FAST_LINK_BYTES_PER_S
    share, latency = (_PCIE_SHARE, PCIE_LATENCY_S) if is_pcie else (_FAST_SHARE, _FAST_LATENCY_S)
    rate = share * both / 2
    return Link(
        rate,
        latency,
        f"all-reduces at {format_si(rate, 'B/s')} ({format_fraction(share)} of one direction "
        f"{'over PCIe' if is_pcie else 'of direct links'}) and {format_seconds(latency)} each are assumed",
    )


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What shares are of: the rates of one device, published or measured.

    Unit:    bytes a second, FLOPs a second
    Raises:  RequestError for rates below 1 a second, or far beyond every machine
    """

    bandwidth_bytes_per_s: float
    compute_flops_per_s: float

    def __post_init__(self) -> None:
        _require_within(self.bandwidth_bytes_per_s, CEILINGS, "bandwidth of a machine, in bytes a second,")
        _require_within(self.compute_flops_per_s, CEILINGS, "compute rate of a machine, in FLOPs a second,")


CEILINGS: Final = (1.0, 1e30)


@dataclass(frozen=True, slots=True)
class Shares:
    """What is reached of the peaks, and what a step costs besides.

    Where:  bandwidth and compute are shares of the published peaks; serial is the share of the shorter of memory and
            compute time that is not overlapped; cache is the share of the bandwidth at which cached positions are read (None: as
            bandwidth), attention the share of the compute rate at which pairs are attended (None: as compute), vector the
            share of the bandwidth in a kernel that reads the weights once for every position (None: there is none); the
            defaults are the bound
    Unit:   fractions; seconds a step, a sequence
    Raises:  RequestError for a share of less than 0.001 (a fault, not an efficiency) or more than 4 (a published peak may be
             a base clock's, and a measured one that of slower kernels than the engine's own), a step of more than 1000 s, or
             a serial share beyond 1
    """

    bandwidth: float = 1.0
    compute: float = 1.0
    fixed_s: float = 0.0
    sequence_s: float = 0.0
    serial: float = 0.0
    cache: float | None = None
    attention: float | None = None
    vector: float | None = None

    def __post_init__(self) -> None:
        _require_within(self.bandwidth, PEAK_SHARES, "share of bandwidth")
        _require_within(self.compute, PEAK_SHARES, "share of compute")
        _require_within(self.fixed_s, OWN_TIMES_S, "fixed time of a step")
        _require_within(self.sequence_s, OWN_TIMES_S, "time of a sequence in a step")
        _require_within(self.serial, SERIAL_SHARES, "share of a step that is not overlapped")
        for share, what in (
            (self.cache, "bandwidth for the cache"),
            (self.attention, "compute for attention"),
            (self.vector, "bandwidth of a kernel for single positions"),
        ):
            if share is not None:
                _require_within(share, PEAK_SHARES, f"share of {what}")

    @property
    def is_bound(self) -> bool:
        """Whether nothing is lost."""
        return self == Shares()


PEAK_SHARES: Final = (1e-3, 4.0)
SERIAL_SHARES: Final = (0.0, 1.0)
OWN_TIMES_S: Final = (0.0, 1_000.0)
BOUND_SHARES: Final = Shares()


def step_time_of(
    served: ServedModel,
    machine: HardwareSpec,
    shares: Shares = BOUND_SHARES,
    devices: int = 1,
    link: Link | None = None,
    compute_format: str | None = None,
) -> StepTime:
    """A model's own work on a machine, at stated shares of its peaks.

    Raises:   RequestError where a rate is not known, or the model does not divide over the devices
    """
    ceilings = ceilings_of(served, machine, compute_format)
    return step_time_at(served, ceilings, machine.name, shares, devices, link or link_of(machine))


def ceilings_of(served: ServedModel, machine: HardwareSpec, compute_format: str | None = None) -> Ceilings:
    """The ceilings of a machine for weights in a model's format.

    Raises:   RequestError where one is not known
    """
    found = roof(machine, served.weights.linear_format, compute_format)
    if found.bandwidth_bytes_per_s is None or found.peak_flops_per_s is None:
        missing = "bandwidth" if found.bandwidth_bytes_per_s is None else "compute rate"
        raise RequestError(
            f"the {missing} of {machine.name} for {served.weights.format_name} weights is not known; measure or give it"
        )
    return Ceilings(found.bandwidth_bytes_per_s, found.peak_flops_per_s)


def step_time_at(
    served: ServedModel,
    ceilings: Ceilings,
    machine: str,
    shares: Shares = BOUND_SHARES,
    devices: int = 1,
    link: Link = UNKNOWN_LINK,
) -> StepTime:
    """The same at stated ceilings of one device, published or measured.

    Formula:  as Coefficients, of the work of one tensor-parallel rank; over N ranks fixed += all-reduces · latency and
              per position += 2·(N - 1)/N · all-reduces · D · 2 bytes / link; where the cache has a share of its own its bytes
              count bandwidth / cache times, where attention has one its FLOPs count compute / attention times, windows
              included; vector = (weights + experts that one position reads) / (bandwidth · vector share)
    Ignores:  sending that overlaps with computing
    Raises:   RequestError for no device, or where the model does not divide over them
    """
    if devices < 1:
        raise RequestError(f"devices is {devices}; at least 1 is needed")
    form = work_form(rank_of(served, devices))
    fixed_s, position_s, notes = _sending(served.model, devices, link)
    found = step_time_of_form(form, ceilings, shares, fixed_s, position_s)
    return replace(
        found,
        origin=Origin.BOUND if shares.is_bound and devices == 1 else Origin.PREDICTED,
        source=f"the work of {served.model.name} ({served.weights.format_name}) on {devices} × {machine}",
        notes=(_said_shares(shares), *notes, *form.notes),
    )


def step_time_of_form(
    form: WorkForm, ceilings: Ceilings, shares: Shares, fixed_s: float = 0.0, position_s: float = 0.0
) -> StepTime:
    """The same for work that was counted before, with what sending takes a step and a position.

    Formula:  as step_time_at
    """
    bandwidth, peak = ceilings.bandwidth_bytes_per_s, ceilings.compute_flops_per_s
    reads = shares.bandwidth / (shares.cache or shares.bandwidth)
    pairs = shares.compute / (shares.attention or shares.compute)
    own = form.coefficients
    coefficients = replace(
        own,
        read_bytes=own.read_bytes * reads,
        flops_per_pair=own.flops_per_pair * pairs,
        bandwidth_bytes_per_s=bandwidth * shares.bandwidth,
        compute_flops_per_s=peak * shares.compute,
        serial_share=shares.serial,
        fixed_s=shares.fixed_s + fixed_s,
        sequence_s=shares.sequence_s,
        position_s=position_s,
        vector_s=0.0 if shares.vector is None else own.weight_bytes_of_one / (bandwidth * shares.vector),
    )
    windows = tuple(
        WindowWork(each.max_positions, each.read_bytes * reads, each.flops_per_pair * pairs) for each in form.windows
    )
    return StepTime(
        coefficients,
        windows,
        origin=Origin.BOUND if shares.is_bound else Origin.PREDICTED,
        notes=(_said_shares(shares), *form.notes),
    )


def rank_of(served: ServedModel, devices: int) -> ServedModel:
    """The model as one of several tensor-parallel devices serves it.

    Raises:  RequestError where heads or widths do not divide
    """
    if devices == 1:
        return served
    weights = rank_weights(served.model, served.weights, devices)
    return replace(served, model=rank_model(served.model, devices), weights=weights)


def _sending(model: ModelSpec, devices: int, link: Link) -> tuple[float, float, tuple[str, ...]]:
    """Seconds a step and a position that all-reduces take, and what is assumed."""
    if devices == 1:
        return 0.0, 0.0, ()
    sent = count_all_reduce_bytes(model, _MANY_POSITIONS, devices) / _MANY_POSITIONS
    return count_all_reduces(model) * link.latency_s, sent / link.bytes_per_s, (link.note,)


_MANY_POSITIONS: Final = 1 << 20  # so that rounding up to whole bytes is lost


def _said_shares(shares: Shares) -> str:
    if shares.is_bound:
        return "all of both peaks is reached, perfectly overlapped: no step is faster"
    on_top = "".join(
        f", {format_seconds(seconds)} {what} come on top"
        for seconds, what in ((shares.fixed_s, "a step"), (shares.sequence_s, "a sequence"))
        if seconds
    )
    besides = "".join(
        f", {format_fraction(share)} of {what}"
        for share, what in (
            (shares.cache, "bandwidth where the cache is read"),
            (shares.attention, "compute in attention"),
            (shares.vector, "bandwidth where the weights are read once for every position"),
        )
        if share is not None
    )
    bandwidth, compute = format_fraction(shares.bandwidth), format_fraction(shares.compute)
    return f"{bandwidth} of bandwidth and {compute} of compute are reached{besides}{on_top}"


# --- what is expected of an engine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps a workload can ask for: a table of times has to reach so far.

    Where:  prompt_tokens is the length of one prompt where a step may hold several (0: a step's prompt positions are one
            prompt)
    """

    max_batch: int = 256
    max_context: int = 32_768
    max_chunk: int = 8_192
    prompt_tokens: int = 0

    def __post_init__(self) -> None:
        for what in ("max_batch", "max_context", "max_chunk"):
            if getattr(self, what) < 1:
                raise RequestError(f"{what} of a table of step times is {getattr(self, what)}; at least 1 is needed")


def engine_step_time(
    served: ServedModel,
    machine: HardwareSpec,
    engine: str,
    reach: StepRange | None = None,
    devices: int = 1,
    own: OwnMeasurements | None = None,
) -> StepTime:
    """What is expected of an engine in service, tabulated: decoding by batch and mean context, prompts by positions and past.

    Where:    a step with both takes their sum less one step that does next to nothing: the weights are read and the layers
              started once
    Ignores:  how contexts are spread around their mean
    Raises:   RequestError where the machine's rates are not known
    """
    from inference_bench.predict.efficiency import (
        EngineCost,
        Pace,
        Phase,
        engine_family,
        engine_setting,
        fitted,
        step_parameters,
    )
    from inference_bench.predict.efficiency.served import describe_expectation
    from inference_bench.simulate.step_table import tabulate

    setting = engine_setting(served, machine, engine_family(engine), devices)
    known = fitted()
    parameters, in_service = step_parameters(setting, Phase.DECODE, known, Pace.IN_SERVICE)
    offsets = {} if own is None else own.offsets(setting, Pace.IN_SERVICE)
    cost = EngineCost(setting, parameters, offsets, in_service)
    return replace(
        tabulate(cost, reach or StepRange()),
        origin=Origin.PREDICTED,
        source=f"the expectation of {setting.engine} {'in service' if in_service else 'alone'} with {served.model.name} on "
        f"{devices} × {machine.name}",
        notes=tuple(map(_without_intervals, describe_expectation(setting, own, Pace.IN_SERVICE))),
    )


def _without_intervals(note: str) -> str:
    """What expected times rest on, less what it says of intervals: a step has one time here."""
    return note.partition("; intervals hold")[0]
