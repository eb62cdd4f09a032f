"""What a plan rests on, in words: counts, then traffic, then speeds, then what is left out.

In:   Deployment, LoadedModel
Out:  lines
Read next by: plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference_bench.accounting.params import count_params
from inference_bench.accounting.work import HeadPositions
from inference_bench.facts.models import LoadedModel
from inference_bench.origin import Origin
from inference_bench.predict.deployment import Deployment
from inference_bench.predict.engine_choice import NO_ENGINE, no_rule
from inference_bench.predict.queueing import LITTLE_ASSUMPTIONS, MM1_ASSUMPTIONS
from inference_bench.predict.scenario import JudgedBy
from inference_bench.units import format_bytes, format_count, format_fraction


def plan_assumptions(
    deployment: Deployment, model: LoadedModel, is_stated: bool, is_expected: bool, has_load: bool
) -> tuple[str, ...]:
    """Every assumption of a plan.

    Where:  is_stated says that times are stated shares of the peaks, is_expected that they are those of an engine, has_load
            that some batch works
    """
    return (
        *_memory(deployment),
        *_traffic(deployment, model),
        *_machine(deployment),
        *(_shares(deployment) if is_stated else ()),
        *(_expected(deployment) if is_expected else ()),
        *_fitted(deployment),
        *_rates(deployment, is_expected),
        *_rest(deployment, has_load),
        *deployment.weights.notes,
        *model.spec.assumptions,
    )


def _memory(deployment: Deployment) -> Iterator[str]:
    assumed, weights = deployment.scenario.assumptions, deployment.weights
    yield f"weights stored as {weights.format_name}, {weights.bits_per_weight:.4g} bits a weight, scales included"
    if assumed.weight_bytes is not None:
        yield (
            f"weights taken as {format_bytes(assumed.weight_bytes, 4)} in memory and in each step, as stated; "
            f"counted they are {format_bytes(weights.total, 4)}, of which a step reads "
            f"{format_bytes(weights.read_per_step, 4)}"
        )
    default = " (not given)" if "overhead" in assumed.defaults else ""
    yield f"overhead of the runtime{default}: {format_bytes(deployment.overhead_bytes)} on each device"
    if deployment.free_bytes < 0:
        yield "latency is as if everything were in this memory, which it is not"
    if deployment.scenario.engine == NO_ENGINE and deployment.scenario.served_by is not None:
        yield no_rule(deployment.scenario.served_by)
    elif deployment.scenario.engine == NO_ENGINE:
        yield "the cache is the logical count; an engine's blocks round it up: name one to count its rule"
    elif deployment.scenario.engine == "vllm":
        from inference_bench.accounting.allocation.vllm_limits import in_flight_words

        yield from in_flight_words(deployment.served.model, deployment.machine)


def _traffic(deployment: Deployment, model: LoadedModel) -> Iterator[str]:
    traffic, longest = deployment.scenario.traffic, model.spec.max_position_embeddings
    yield (
        f"every request has {format_count(traffic.prompt_tokens)} prompt and {format_count(traffic.output_tokens)} output "
        "tokens; memory is for the full length of each"
    )
    if longest is not None and traffic.total_tokens > longest:
        yield f"{traffic.total_tokens} tokens are more than the {longest} this model says it can attend"
    if traffic.prefix_tokens:
        planned = "is" if traffic.prefix_cache else "is not"
        yield (
            f"the {format_count(traffic.prefix_tokens)} tokens that every prompt begins with are held once where the prefix "
            f"is cached; each step still reads them for every sequence; demand and cost are planned as if it {planned} cached"
        )
    yield (
        f"a step is taken at the mean context, {format_count(traffic.mean_context_tokens)} tokens: the prompt and half the output"
    )


def _machine(deployment: Deployment) -> Iterator[str]:
    machine, params = deployment.machine, count_params(deployment.served.model)
    yield f"what {machine.name} can do: {machine.source}"
    if machine.note and machine.origin is Origin.MEASURED:
        yield f"when {machine.name} was measured: {machine.note}"
    if machine.is_unified:
        yield f"the memory of {machine.name} is shared with the operating system, which needs some of it"
    if params.active != params.total:
        yield "experts read in a step: those expected when tokens choose uniformly and independently"


def _shares(deployment: Deployment) -> Iterator[str]:
    assumed, machine = deployment.scenario.assumptions, deployment.machine
    chosen = deployment.scenario.compute or machine.compute_format(deployment.weights.linear_format)
    given = [name for name in ("mfu", "bandwidth_share") if name not in assumed.defaults]
    origin = "as stated" if len(given) == 2 else "planning factors; nothing was measured for them"
    yield (
        f"steps run at {format_fraction(assumed.bandwidth_share)} of the bandwidth and {format_fraction(assumed.mfu)} of the "
        f"dense {chosen or 'unknown'} peak of {machine.name}, whichever takes longer ({origin})"
    )
    if assumed.head_positions is HeadPositions.ALL:
        yield "the output head is computed for every prompt position, as stated"
    if not assumed.cache_writes:
        yield "a step's writes to the cache are left out of its traffic, as stated"


def _expected(deployment: Deployment) -> Iterator[str]:
    from inference_bench.predict.plan_expected import describe_plan

    assumed = deployment.scenario.assumptions
    yield from describe_plan(deployment)
    if stated := [name for name in ("mfu", "bandwidth_share") if name not in assumed.defaults]:
        yield f"{' and '.join(stated)} of the scenario are not used: times are those expected of the engine"
    if deployment.scenario.compute is not None:
        yield "the compute format of the scenario is not used: engines were measured in their own"


def _fitted(deployment: Deployment) -> tuple[str, ...]:
    from inference_bench.predict.fitted_cost import FittedCost

    cost, scenario = deployment.cost, deployment.scenario
    if not isinstance(cost, FittedCost):
        return ()
    return cost.lines_at(scenario.traffic.total_tokens, scenario.assumptions.max_batch or 1)


def _rates(deployment: Deployment, is_expected: bool) -> Iterator[str]:
    yield (
        "full load: the batch is always full, and each prompt is read in a step of its own while the others wait; "
        "queueing and partial batches are not counted"
    )
    if deployment.scenario.objectives.judged_by is JudgedBy.STEP:
        yield "TPOT and E2E objectives choose the batch by its step alone; full load puts prefills in between"
    else:
        yield "TPOT and E2E objectives choose the batch with the prefills of a replica that is never idle in between"
    if deployment.scenario.devices > 1:
        shared = (
            "what they send one another is part of what is expected"
            if is_expected
            else "work divides evenly, and what they send one another is not counted"
        )
        yield f"{deployment.scenario.devices} devices split every layer; {shared}; prices are of one device"
        rule = deployment.placement(deployment.scenario.traffic.total_tokens, 1).rule
        more = "" if is_expected else "; what is held more than once makes a step slower than said here"
        yield f"memory on the fullest device: {rule}{more}"


def _rest(deployment: Deployment, has_load: bool) -> Iterator[str]:
    if has_load:
        yield f"Little's law: {LITTLE_ASSUMPTIONS}"
        yield f"M/M/1: {MM1_ASSUMPTIONS}"
    if deployment.scenario.owned is not None:
        yield "owned: the price is spread evenly over every hour of its years; power is drawn while busy, idle power is not counted"
    if deployment.scenario.speculation is not None:
        yield (
            "speculation: each drafted token is accepted independently with probability alpha; it gains only while E[K] is above "
            "gamma c + v, and v grows with the batch as verifying meets the compute limit; c is taken as the same at every batch"
        )
        if deployment.scenario.speculation.verify_cost is not None:
            yield "speculation: for other draft lengths the given v is a line from 1 at no draft"
