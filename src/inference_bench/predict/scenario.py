"""What a plan is for: a model on machines, its traffic, what was promised, what things cost.

In:   a mapping as a TOML file gives it (docs/scenario.md), from which nothing is read that is not checked
Out:  Scenario
Leaves out: opening files; finding the model and the machines it names (see cli)
Read next by: plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.work import HeadPositions
from inference_bench.errors import RequestError, ScenarioError
from inference_bench.facts.fields import shown
from inference_bench.predict.cost import HostedPrices
from inference_bench.predict.engine_choice import NO_ENGINE, EngineChoice, choose_engine
from inference_bench.predict.scenario_fields import (
    Reader,
    Section,
    read_amount,
    read_bytes,
    read_count,
    read_factor,
    read_positive,
    read_probability,
    read_seconds,
    read_share,
    read_switch,
    read_text,
    read_token_count,
    read_tokens,
    read_volume,
    read_years,
)

if TYPE_CHECKING:
    from inference_bench.predict.efficiency import OwnMeasurements
    from inference_bench.predict.fitted_cost import FittedSteps

DEFAULT_MFU: Final = 0.5
DEFAULT_BANDWIDTH_SHARE: Final = 0.8
DEFAULT_TARGET_UTILISATION: Final = 0.8
MAX_MACHINES: Final = 20

_TOP: Final = (
    "model", "machine", "weights", "kv", "compute", "devices", "engine", "speed",
    "traffic", "objectives", "prices", "owned", "speculation", "assumptions",
)  # fmt: skip
_TRAFFIC: Final = (
    "prompt", "output", "prefix", "prefix_cache", "requests_per_day", "peak_factor", "target_utilisation", "think_time",
)  # fmt: skip
_OBJECTIVES: Final = ("ttft", "tpot", "e2e", "judged_by")
_HOSTED: Final = ("hosted_input", "hosted_output", "hosted_cached")
_PRICES: Final = ("usd_per_hour", "utilisation", *_HOSTED)
_OWNED: Final = ("price_usd", "years", "watts", "usd_per_kwh", "utilisation")
_SPECULATION: Final = ("alpha", "gamma", "c", "v")
_ASSUMPTIONS: Final = (
    "overhead", "mfu", "bandwidth_share", "max_batch", "weight_bytes", "cache_writes", "head_positions",
)  # fmt: skip


class JudgedBy(StrEnum):
    """Which pace the TPOT and E2E objectives are held against."""

    STEP = "step"  # decode steps alone
    FULL_LOAD = "full_load"  # with the prefills of a replica that is never idle in between


class Speed(StrEnum):
    """Where step times come from."""

    SHARES = "shares"  # stated shares of the machine's peaks
    EXPECTED = "expected"  # what real engines were measured to reach
    FITTED = "fitted"  # what was fitted to one server; no scenario file says so, a profile does


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is asked of the machine.

    Where:  prefix_tokens begin every prompt alike; prefix_cache says whether the engine keeps them; think_s is how long a
            user waits between an answer and the next request
    """

    prompt_tokens: int
    output_tokens: int
    prefix_tokens: int = 0
    prefix_cache: bool = True
    requests_per_day: float | None = None
    peak_factor: float = 1.0
    target_utilisation: float = DEFAULT_TARGET_UTILISATION
    think_s: float | None = None

    @property
    def total_tokens(self) -> int:
        """Positions a finished request holds in the cache."""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context_tokens(self) -> int:
        """The context a decode step attends, averaged over the generation."""
        return self.prompt_tokens + max(1, self.output_tokens // 2)


@dataclass(frozen=True, slots=True)
class Objectives:
    """What was promised to users; None is not promised."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    judged_by: JudgedBy = JudgedBy.STEP


@dataclass(frozen=True, slots=True)
class Prices:
    """What a machine and a hosted model cost.

    Where:  usd_per_hour is of one device, for each machine in the scenario's order; utilisation the share of the bought
            hours that is busy
    """

    usd_per_hour: tuple[float, ...] = ()
    utilisation: float | None = None
    hosted: HostedPrices | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """A machine of one's own, each device."""

    price_usd: float
    years: float
    watts: float
    usd_per_kwh: float
    utilisation: float = 1.0


@dataclass(frozen=True, slots=True)
class Speculation:
    """A draft: acceptance α, draft length γ, a draft step c and a verifying step v in target steps.

    Where:  verify_cost None is worked out from the cost of a step
    """

    acceptance: float
    draft_tokens: int
    draft_cost: float
    verify_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the plan rests on that nobody measured.

    Where:  mfu and bandwidth_share are the shares of the two peaks a step reaches; weight_bytes, in place of the count, is
            what the weights take and what a step reads of them
    """

    overhead_bytes: int | None = None
    mfu: float = DEFAULT_MFU
    bandwidth_share: float = DEFAULT_BANDWIDTH_SHARE
    max_batch: int | None = None
    weight_bytes: int | None = None
    cache_writes: bool = True
    head_positions: HeadPositions = HeadPositions.LAST
    defaults: tuple[str, ...] = ()


Named = str | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a plan is asked; a model and machines by name, path, or described in line.

    Where:  engine is one whose rule counts the cache, served_by the family of engines that speeds are expected from; own
            are measurements of it on one machine, and correct what is expected there; fitted are the step times of speed FITTED
    """

    model: Named
    machines: tuple[Named, ...]
    traffic: Traffic
    objectives: Objectives
    prices: Prices
    owned: Owned | None
    speculation: Speculation | None
    assumptions: Assumptions
    weights: str | None = None
    kv: str | None = None
    compute: str | None = None
    devices: int = 1
    engine: str = "none"
    speed: Speed = Speed.SHARES
    served_by: str | None = None
    own: OwnMeasurements | None = None
    fitted: FittedSteps | None = None


def scenario_from_mapping(values: Mapping[str, object]) -> Scenario:
    """The scenario a TOML file describes.

    Raises:  ScenarioError, QuantityError: a key that is not known, a value that is missing, cannot be, or contradicts another
    """
    top = Section(values, "", _TOP)
    model = top.needed("model", _named, '"qwen3-8b"')
    machines = _machines(top)
    engine, assumptions = _engine(top), _assumptions(top)
    return Scenario(
        model=model,
        machines=machines,
        traffic=_traffic(top),
        objectives=_objectives(top),
        prices=_prices(top, len(machines)),
        owned=_owned(top),
        speculation=_speculation(top),
        assumptions=assumptions,
        weights=top.optional("weights", read_text),
        kv=top.optional("kv", read_text),
        compute=top.optional("compute", read_text),
        devices=top.given("devices", read_count, 1),
        engine=engine.allocation,
        speed=_speed(top, engine, assumptions),
        served_by=engine.family,
    )


def _engine(top: Section) -> EngineChoice:
    name = top.given("engine", read_text, NO_ENGINE)
    try:
        return choose_engine(name)
    except RequestError as error:
        raise ScenarioError(str(error)) from None


def _speed(top: Section, engine: EngineChoice, assumed: Assumptions) -> Speed:
    """As given; else what is expected of the engine, unless shares of the peaks were stated."""
    states_shares = any(name not in assumed.defaults for name in ("mfu", "bandwidth_share"))
    default = Speed.SHARES if engine.family is None or states_shares else Speed.EXPECTED
    speed = Speed(top.given("speed", _one_of((Speed.SHARES, Speed.EXPECTED)), default.value))
    if speed is Speed.EXPECTED and engine.family is None:
        raise ScenarioError("speed 'expected' is that of an engine; give one, for example engine = \"vllm\"")
    return speed


def _one_of(allowed: tuple[str, ...]) -> Reader[str]:
    def read(value: object, what: str) -> str:
        if value not in allowed:
            raise ScenarioError(f"{what} is {shown(value)}; allowed: {', '.join(allowed)}")
        return str(value)

    return read


def _named(value: object, what: str) -> Named:
    return value if isinstance(value, Mapping) else read_text(value, what)


def _machines(top: Section) -> tuple[Named, ...]:
    def read(value: object, what: str) -> tuple[Named, ...]:
        listed = value if isinstance(value, list) else [value]
        if not 1 <= len(listed) <= MAX_MACHINES:
            raise ScenarioError(f"{what} names {len(listed)} machines; 1 to {MAX_MACHINES} are needed")
        return tuple(_named(item, what) for item in listed)

    return top.needed("machine", read, '"rtx-4090"')


def _section(top: Section, name: str, known: tuple[str, ...]) -> Section:
    return Section(top.values.get(name, {}), name, known)


def _traffic(top: Section) -> Traffic:
    section = _section(top, "traffic", _TRAFFIC)
    traffic = Traffic(
        prompt_tokens=section.needed("prompt", read_tokens, "4000"),
        output_tokens=section.needed("output", read_tokens, "500"),
        prefix_tokens=section.given("prefix", read_token_count, 0),
        prefix_cache=section.given("prefix_cache", read_switch, True),
        requests_per_day=section.optional("requests_per_day", read_volume),
        peak_factor=section.given("peak_factor", read_factor, 1.0),
        target_utilisation=section.given("target_utilisation", read_share, DEFAULT_TARGET_UTILISATION),
        think_s=section.optional("think_time", read_seconds),
    )
    if traffic.prefix_tokens >= traffic.prompt_tokens:
        raise ScenarioError(
            f"[traffic] prefix is {traffic.prefix_tokens} tokens of a prompt of {traffic.prompt_tokens}; "
            "it must be shorter than the prompt, whose last token is always computed"
        )
    _need_together(section, ("peak_factor",), "requests_per_day")
    return traffic


def _need_together(section: Section, given: tuple[str, ...], needed: str) -> None:
    for key in given:
        if key in section and needed not in section:
            raise ScenarioError(
                f"{section.label}{key} says nothing without {needed}; give {needed} too, or leave it out"
            )


def _objectives(top: Section) -> Objectives:
    section = _section(top, "objectives", _OBJECTIVES)
    ttft, tpot, e2e = (section.optional(key, read_seconds) for key in _OBJECTIVES[:3])
    if ttft is not None and e2e is not None and e2e < ttft:
        raise ScenarioError(f"[objectives] e2e ({e2e:g} s) is below ttft ({ttft:g} s), which is part of it")
    judged_by = section.given("judged_by", _one_of(tuple(JudgedBy)), JudgedBy.STEP.value)
    return Objectives(ttft, tpot, e2e, JudgedBy(judged_by))


def _prices(top: Section, machines: int) -> Prices:
    section = _section(top, "prices", _PRICES)
    _need_together(section, ("utilisation",), "usd_per_hour")
    _need_together(section, ("hosted_input", "hosted_cached"), "hosted_output")
    _need_together(section, ("hosted_output",), "hosted_input")
    return Prices(
        usd_per_hour=_hourly(section, machines),
        utilisation=section.optional("utilisation", read_share),
        hosted=_hosted(section) if "hosted_input" in section else None,
    )


def _hourly(section: Section, machines: int) -> tuple[float, ...]:
    """One price for all machines, or one for each of them."""

    def read(value: object, what: str) -> tuple[float, ...]:
        if not isinstance(value, list):
            return (read_amount(value, what),) * machines
        if len(value) != machines:
            raise ScenarioError(f"{what} holds {len(value)} prices for {machines} machines; give one, or one for each")
        return tuple(read_amount(item, what) for item in value)

    return section.given("usd_per_hour", read, ())


def _hosted(section: Section) -> HostedPrices:
    hosted = HostedPrices(
        input_usd=section.needed("hosted_input", read_amount, "0.20"),
        output_usd=section.needed("hosted_output", read_amount, "0.80"),
        cached_usd=section.optional("hosted_cached", read_amount),
    )
    if hosted.cached_usd is not None and hosted.cached_usd > hosted.input_usd:
        raise ScenarioError(
            f"[prices] hosted_cached ({hosted.cached_usd:g}) is above hosted_input ({hosted.input_usd:g}); "
            "cached input costs no more than other input"
        )
    return hosted


def _owned(top: Section) -> Owned | None:
    if "owned" not in top:
        return None
    section = _section(top, "owned", _OWNED)
    return Owned(
        price_usd=section.needed("price_usd", read_amount, "2000"),
        years=section.needed("years", read_years, "3"),
        watts=section.needed("watts", read_positive, "450"),
        usd_per_kwh=section.needed("usd_per_kwh", read_amount, "0.20"),
        utilisation=section.given("utilisation", read_share, 1.0),
    )


def _speculation(top: Section) -> Speculation | None:
    if "speculation" not in top:
        return None
    section = _section(top, "speculation", _SPECULATION)
    return Speculation(
        acceptance=section.needed("alpha", read_probability, "0.8"),
        draft_tokens=section.needed("gamma", _draft_tokens, "4"),
        draft_cost=section.needed("c", read_amount, "0.1"),
        verify_cost=section.optional("v", read_positive),
    )


def _draft_tokens(value: object, what: str) -> int:
    tokens = read_count(value, what)
    if tokens > 64:
        raise ScenarioError(f"{what} is {tokens}; a draft of 1 to 64 tokens is needed")
    return tokens


def _assumptions(top: Section) -> Assumptions:
    section = _section(top, "assumptions", _ASSUMPTIONS)
    positions = section.given("head_positions", _one_of(tuple(HeadPositions)), HeadPositions.LAST.value)
    return Assumptions(
        overhead_bytes=section.optional("overhead", read_bytes),
        mfu=section.given("mfu", read_share, DEFAULT_MFU),
        bandwidth_share=section.given("bandwidth_share", read_share, DEFAULT_BANDWIDTH_SHARE),
        max_batch=section.optional("max_batch", read_count),
        weight_bytes=section.optional("weight_bytes", read_bytes),
        cache_writes=section.given("cache_writes", read_switch, True),
        head_positions=HeadPositions(positions),
        defaults=tuple(key for key in ("mfu", "bandwidth_share", "overhead") if key not in section),
    )
