"""One scenario on one machine: what a batch needs in memory and how long its steps take.

In:   Scenario, LoadedModel, HardwareSpec, and what says how long a step takes
Out:  Deployment: bytes and seconds of any batch, the largest batch within memory and objectives, and what sets it
Leaves out: rates, replicas and money (see plan)
Read next by: plan, remedies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from inference_bench.accounting.cache import MAX_CONTEXT_TOKENS, MAX_SEQUENCES
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import SequenceStep, decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.origin import Origin
from inference_bench.predict.capacity import FullLoad, largest_that_fits
from inference_bench.predict.fit import DEFAULT_OVERHEAD_BYTES, cache_format, loaded_weights
from inference_bench.predict.latency import predict_end_to_end_seconds
from inference_bench.predict.placement import Placement, Placer
from inference_bench.predict.scenario import JudgedBy, Scenario, Speed
from inference_bench.predict.stated_model import StatedModel
from inference_bench.predict.step_cost import PeakShares, ServedModel, StepCost, first_token_s, verifying
from inference_bench.roofline import roof

ROUNDING: Final = 1 + 1e-12  # a step of exactly the objective is within it


class Limit(StrEnum):
    """What keeps the batch from being larger."""

    MEMORY = "memory"
    TPOT = "TPOT"
    E2E = "E2E"
    TTFT = "TTFT"
    MAX_BATCH = "batch cap"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A scenario's model on a machine, ready to be asked about any batch.

    Where:  placer counts memory on the fullest device; cost says how long a step takes; origin is that of its times
    """

    scenario: Scenario
    machine: HardwareSpec
    memory_bytes: int
    served: ServedModel
    placer: Placer
    cost: StepCost
    origin: Origin

    @property
    def weights(self) -> WeightCount:
        """The weights as counted, whatever was stated."""
        return self.served.weights

    def on(self, machine: HardwareSpec) -> Deployment:
        """The same on another machine, at the speed the scenario asks for.

        Raises:  RequestError where its memory or rate is not known
        """
        cost = scenario_cost(self.scenario, self.served, machine)
        placer = replace(self.placer, machine=machine)
        return replace(self, machine=machine, memory_bytes=_known_memory(machine), placer=placer, cost=cost)

    @property
    def overhead_bytes(self) -> int:
        """What the runtime takes on each device."""
        given = self.scenario.assumptions.overhead_bytes
        return DEFAULT_OVERHEAD_BYTES if given is None else given

    def placement(self, context: int, sequences: int) -> Placement:
        """What the fullest device holds of so many sequences that share nothing."""
        return self.placer.place(context, sequences)

    def weight_bytes(self) -> int:
        """Weights on the fullest device: counted, or as stated."""
        counted, stated = self.placement(1, 1).weight_bytes, self.scenario.assumptions.weight_bytes
        return counted if stated is None else math.ceil(stated * counted / self.weights.total)

    def cache_bytes(self, sequences: int, prefix_cached: bool) -> int:
        """Cache of so many full-length sequences on the fullest device.

        Formula:  B · KV(prompt + output); with a shared prefix p: KV(p) + B · KV(prompt + output - p)
        """
        traffic = self.scenario.traffic
        if not prefix_cached:
            return self.placement(traffic.total_tokens, sequences).cache_bytes
        own = self.placement(traffic.total_tokens - traffic.prefix_tokens, sequences).cache_bytes
        return self.placement(traffic.prefix_tokens, 1).cache_bytes + own

    @property
    def free_bytes(self) -> int:
        """Memory left for the cache; below zero when not even the weights fit.

        Formula:  memory - weights - overhead
        """
        return self.memory_bytes - self.weight_bytes() - self.overhead_bytes

    def max_sequences(self, prefix_cached: bool) -> int:
        """How many full-length sequences fit."""
        free = self.free_bytes
        return largest_that_fits(
            lambda count: count == 0 or self.cache_bytes(count, prefix_cached) <= free, MAX_SEQUENCES
        )

    def step_s(self, batch: int) -> float:
        """A decode step of a batch at the mean context of the generation."""
        return self.cost.step_s(decode_batch(self.scenario.traffic.mean_context_tokens, batch))

    def verify_s(self, batch: int, draft_tokens: int) -> float:
        """A step that verifies a draft in each sequence of a batch, with logits at every position."""
        cached = self.scenario.traffic.mean_context_tokens - 1
        return verifying(self.cost).step_s((SequenceStep(cached, draft_tokens + 1, batch),))

    def prefill_s(self, prefix_cached: bool) -> float:
        """Reading one prompt, of which the prefix may be in the cache already."""
        traffic = self.scenario.traffic
        return self.cost.step_s(prompt(traffic.prompt_tokens, traffic.prefix_tokens if prefix_cached else 0))

    def ttft_s(self, prefix_cached: bool) -> float:
        """A lone request's first token: its prompt, and of a server also the steps until the token is out."""
        traffic = self.scenario.traffic
        cached = traffic.prefix_tokens if prefix_cached else 0
        return first_token_s(self.cost, traffic.prompt_tokens, traffic.output_tokens, cached)

    def full_load(self, batch: int, prefix_cached: bool) -> FullLoad:
        """The accounting of a replica that always runs this batch."""
        return FullLoad(self.prefill_s(prefix_cached), self.step_s(batch), batch, self.scenario.traffic.output_tokens)

    def pace_s(self, batch: int, prefix_cached: bool) -> float:
        """The time of a token that objectives are held against: a step alone, or with prefills in between."""
        if self.scenario.objectives.judged_by is JudgedBy.STEP:
            return self.step_s(batch)
        load = self.full_load(batch, prefix_cached)
        return load.effective_step_s or load.step_s

    def e2e_s(self, batch: int, prefix_cached: bool) -> float:
        """One request: its first token, and then at the pace of a batch of this size."""
        return predict_end_to_end_seconds(
            self.ttft_s(prefix_cached), self.pace_s(batch, prefix_cached), self.scenario.traffic.output_tokens
        )

    def solo_e2e_s(self, prefix_cached: bool) -> float:
        """One request on a machine that is otherwise idle."""
        return predict_end_to_end_seconds(
            self.ttft_s(prefix_cached), self.step_s(1), self.scenario.traffic.output_tokens
        )

    def largest_batch(self, prefix_cached: bool) -> tuple[int, Limit]:
        """The largest batch that fits and keeps every objective, and what sets it; 0 where none does."""
        found = self.max_sequences(prefix_cached)
        limit = Limit.NONE if found == MAX_SEQUENCES else Limit.MEMORY
        cap, objectives = self.scenario.assumptions.max_batch, self.scenario.objectives
        if cap is not None and cap < found:
            found, limit = cap, Limit.MAX_BATCH
        if objectives.ttft_s is not None and self.ttft_s(prefix_cached) > objectives.ttft_s * ROUNDING:
            return 0, Limit.TTFT if found else limit
        for cause, objective in ((Limit.TPOT, objectives.tpot_s), (Limit.E2E, objectives.e2e_s)):
            if objective is None:
                continue
            within = self._within(cause, objective, prefix_cached, found)
            if within < found:
                found, limit = within, cause
        return found, limit

    def works(self, prefix_cached: bool) -> bool:
        """Whether a single sequence fits and keeps every objective, as then some batch does."""
        if self.cache_bytes(1, prefix_cached) > self.free_bytes:
            return False
        promised, has_steps = self.scenario.objectives, self.scenario.traffic.output_tokens > 1
        if promised.ttft_s is not None and self.ttft_s(prefix_cached) > promised.ttft_s * ROUNDING:
            return False
        if promised.tpot_s is not None and has_steps and self.pace_s(1, prefix_cached) > promised.tpot_s * ROUNDING:
            return False
        return promised.e2e_s is None or self.e2e_s(1, prefix_cached) <= promised.e2e_s * ROUNDING

    def _within(self, cause: Limit, objective_s: float, prefix_cached: bool, most: int) -> int:
        """The largest batch that keeps one objective."""
        output, most_s = self.scenario.traffic.output_tokens, objective_s * ROUNDING
        first = 0.0 if cause is Limit.TPOT else self.ttft_s(prefix_cached)
        if first > most_s:
            return 0
        if output == 1:  # no steps follow the first token: the whole request is its first token, whatever the batch
            return most

        def keeps(batch: int) -> bool:
            pace = self.pace_s(batch, prefix_cached)
            return (pace if cause is Limit.TPOT else predict_end_to_end_seconds(first, pace, output)) <= most_s

        return largest_that_fits(lambda batch: batch == 0 or keeps(batch), most)


def deploy(
    scenario: Scenario,
    model: LoadedModel,
    machine: HardwareSpec,
    cost: StepCost | None = None,
    weights: WeightCount | None = None,
) -> Deployment:
    """The scenario's model on a machine; `cost` takes the place of the scenario's own choice of speed.

    Where:   weights are the scenario's, counted before; None counts them
    Raises:  RequestError, UnknownNameError
    """
    memory = _known_memory(machine)
    if scenario.traffic.total_tokens > MAX_CONTEXT_TOKENS:
        raise RequestError(
            f"prompt and output are {scenario.traffic.total_tokens} tokens; allowed: up to {MAX_CONTEXT_TOKENS}"
        )
    weights, fmt = weights or loaded_weights(model, scenario.weights), cache_format(scenario.kv)
    assumed = scenario.assumptions
    served = StatedModel(
        model.spec,
        weights,
        fmt,
        assumed.head_positions,
        weight_bytes=assumed.weight_bytes,
        cache_writes=assumed.cache_writes,
    )
    is_stated = cost is None and scenario.speed is Speed.SHARES
    at_peak = is_stated and assumed.mfu == assumed.bandwidth_share == 1
    return Deployment(
        scenario=scenario,
        machine=machine,
        memory_bytes=memory,
        served=served,
        placer=Placer(model, weights, scenario.weights, fmt, scenario.engine, scenario.devices, machine=machine),
        cost=cost or scenario_cost(scenario, served, machine),
        origin=Origin.BOUND if at_peak else Origin.PREDICTED,
    )


def _known_memory(machine: HardwareSpec) -> int:
    if machine.memory_bytes is None:
        raise RequestError(
            f"how much memory {machine.name} has is not known; describe the machine in the scenario with its memory"
        )
    return machine.memory_bytes


def scenario_cost(scenario: Scenario, served: ServedModel, machine: HardwareSpec) -> StepCost:
    """What says how long a step takes, as the scenario's `speed` asks.

    Raises:  RequestError where that is not available
    """
    if scenario.speed is Speed.FITTED and scenario.fitted is not None:
        return scenario.fitted.cost(served, machine, scenario.devices)
    if scenario.speed is Speed.EXPECTED:
        return _expected_cost(scenario, served, machine)
    ceiling = roof(machine, served.weights.linear_format, scenario.compute)
    if ceiling.peak_flops_per_s is None:
        raise RequestError(
            f"the compute rate of {machine.name} for these weights is not known, so prefill has no time; "
            "describe the machine in the scenario with its peak"
        )
    return PeakShares(served, ceiling, scenario.assumptions.bandwidth_share, scenario.assumptions.mfu, scenario.devices)


def _expected_cost(scenario: Scenario, served: ServedModel, machine: HardwareSpec) -> StepCost:
    """What real engines reach on this machine, by the efficiency model."""
    from inference_bench.predict.plan_expected import engine_cost

    return engine_cost(scenario, served, machine)
