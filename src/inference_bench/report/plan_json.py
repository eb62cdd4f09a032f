"""The answers to `plan` as JSON with stable keys.

In:   Plans
Out:  dicts ready for JSON: raw SI numbers with the unit in the key, None for no value, an origin in each part
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inference_bench.origin import Origin
from inference_bench.predict.cost_curve import BreakEven, break_evens
from inference_bench.predict.plan import Plan
from inference_bench.predict.plan_load import LoadPlan
from inference_bench.report.plan_interval_report import intervals

if TYPE_CHECKING:
    from inference_bench.predict.plan_cost import HostedCost, PlanCost
    from inference_bench.predict.plan_expected import PlanEnd

Json = dict[str, Any]


def plan_json(answer: Plan) -> Json:
    """The stable keys of `plan --json`."""
    return {"schema": "inference-bench/plan/1", **_plan(answer)}


def comparison_json(answers: Sequence[Plan]) -> Json:
    """The same for several machines on one scenario."""
    return {"schema": "inference-bench/plan-comparison/1", "plans": [_plan(answer) for answer in answers]}


def _plan(answer: Plan) -> Json:
    return {
        "model": answer.model,
        "machine": {"name": answer.machine.name, "origin": answer.machine.origin},
        "devices": answer.scenario.devices,
        "weights_format": answer.weights_format,
        "traffic": {**dataclasses.asdict(answer.scenario.traffic), "origin": Origin.GIVEN},
        "verdict": dataclasses.asdict(answer.verdict),
        "objectives": [_objective(item, answer) for item in answer.objectives],
        "memory": _memory(answer),
        "latency": _latency(answer),
        "load": _load(answer.load, answer.times_origin),
        "loads": [_load(load, answer.times_origin) for load in answer.loads],
        "replicas": _replicas(answer),
        "cost": None if answer.cost is None else _cost(answer.cost, answer.times_origin, break_evens(answer)),
        "checks": {
            "little": None if answer.little is None else dataclasses.asdict(answer.little),
            "mm1": _queue(answer),
            "serving": _serving(answer),
            "origin": answer.times_origin,
        },
        "speculation": _speculation(answer),
        "speed": answer.scenario.speed,
        "engine": answer.scenario.served_by,
        "interval": _interval(answer),
        "assumptions": list(answer.assumptions),
    }


def _objective(item: Any, answer: Plan) -> Json:
    return {
        **dataclasses.asdict(item),
        "met": item.met,
        "met_at_full_load": item.met_at_full_load,
        "met_at_slow_end": item.met_at_slow_end,
        "origin": answer.times_origin,
    }


def _memory(answer: Plan) -> Json:
    memory = dataclasses.asdict(answer.memory)
    memory["by_cache_format"] = [
        {"cache_format": name, "max_sequences": count} for name, count in answer.memory.by_cache_format
    ]
    return {**memory, "origin": Origin.COUNTED}


def _latency(answer: Plan) -> Json:
    latency = answer.latency
    return {
        **dataclasses.asdict(latency),
        "solo_tokens_per_s": latency.solo_tokens_per_s,
        "origin": answer.times_origin,
    }


def _load(load: LoadPlan, origin: Origin) -> Json:
    full = load.full
    return {
        "prefix_cached": load.prefix_cached,
        "max_sequences": load.max_sequences,
        "batch": load.batch,
        "limited_by": load.limited_by,
        "prefill_s": full and full.prefill_s,
        "step_s": full and full.step_s,
        "step_tokens_per_s": load.step_tokens_per_s,
        "machine_s_per_request": full and full.machine_seconds_per_request,
        "requests_per_hour": full and full.requests_per_hour,
        "output_tokens_per_hour": full and full.output_tokens_per_hour,
        "output_tokens_per_s": full and full.output_tokens_per_s,
        "prefill_share_fraction": full and full.prefill_share,
        "effective_step_s": full and full.effective_step_s,
        "e2e_s": load.e2e_s,
        "users": load.users,
        "origin": origin,
    }


def _replicas(answer: Plan) -> Json | None:
    demand = answer.demand
    if demand is None:
        return None
    return {
        "requests_per_day": demand.requests_per_day,
        "peak_factor": demand.peak_factor,
        "target_utilisation_fraction": demand.target_utilisation,
        "mean_requests_per_s": demand.mean_requests_per_s,
        "peak_requests_per_s": demand.peak_requests_per_s,
        "replica_requests_per_s": demand.replica_requests_per_s,
        "replicas": demand.replicas,
        "mean_utilisation_fraction": demand.mean_utilisation,
        "peak_utilisation_fraction": demand.peak_utilisation,
        "headroom_fraction": demand.headroom_fraction,
        "busy_hours_per_day": demand.busy_hours_per_day,
        "origin": answer.times_origin,
    }


def _cost(cost: PlanCost, origin: Origin, met: Sequence[BreakEven]) -> Json:
    return {
        "rented": cost.rented and dataclasses.asdict(cost.rented),
        "always_on": cost.always_on and dataclasses.asdict(cost.always_on),
        "hosted": cost.hosted and _hosted(cost.hosted, met),
        "owned": cost.owned and {**dataclasses.asdict(cost.owned), "usd_per_hour": cost.owned.usd_per_hour},
        "origin": origin,
    }


def _hosted(hosted: HostedCost, met: Sequence[BreakEven]) -> Json:
    """Prices, what one replica's day buys, and where the staircase of the chart meets the hosted price."""
    return {
        **dataclasses.asdict(hosted),
        "break_evens": list(map(_break_even, met)),
        "break_even_is_reached": hosted.is_reached(hosted.break_even_requests_per_day),
        "break_even_cached_is_reached": hosted.is_reached(hosted.break_even_requests_per_day_cached),
    }


def _break_even(found: BreakEven) -> Json:
    return {
        "machine": found.machine.name,
        "is_owned": found.machine.is_owned,
        "is_prefix_cached": found.hosted.is_cached,
        "requests_per_day": found.requests_per_day,
        "for_good_requests_per_day": found.for_good_requests_per_day,
        "replica_buys_requests_per_day": found.replica_buys_per_day,
        "replica_carries_requests_per_day": found.replica_carries_per_day,
    }


def _queue(answer: Plan) -> Json | None:
    queue = answer.queue
    if queue is None:
        return None
    rows = [{"utilisation_fraction": busy, "mean_time_s": seconds} for busy, seconds in queue.by_utilisation]
    return {
        "service_s": queue.service_s,
        "utilisation_fraction": queue.utilisation,
        "mean_time_s": queue.mean_time_s,
        "by_utilisation": rows,
    }


def _speculation(answer: Plan) -> Json | None:
    found = answer.speculation
    if found is None:
        return None
    return {
        "alpha": found.asked.acceptance,
        "gamma": found.asked.draft_tokens,
        "c": found.asked.draft_cost,
        "expected_tokens": found.expected_tokens,
        "rows": [{**dataclasses.asdict(row), "gains": row.gains} for row in found.rows],
    }


def _interval(answer: Plan) -> Json | None:
    """Both ends of the 80 % interval: the same parts as the plan itself, at the batch that was planned."""
    found = answer.interval
    if found is None:
        return None
    ends = {name: _end(end, answer) for name, end in (("fast", found.fast), ("slow", found.slow))}
    return {
        "share_fraction": 0.8,
        "decode_factor": found.decode_factor,
        "prefill_factor": found.prefill_factor,
        "ttft_factor": found.ttft_factor,
        **{row.key: [row.low, row.high] for row in intervals(answer)},
        **ends,
    }


def _end(end: PlanEnd, answer: Plan) -> Json:
    origin, at_end = answer.times_origin, dataclasses.replace(answer, load=end.load, cost=end.cost)
    latency = {**dataclasses.asdict(end.latency), "solo_tokens_per_s": end.latency.solo_tokens_per_s, "origin": origin}
    return {
        "latency": latency,
        "load": _load(end.load, origin),
        "replicas": end.demand and end.demand.replicas,
        "cost": None if end.cost is None else _cost(end.cost, origin, break_evens(at_end)),
    }


def _serving(answer: Plan) -> Json | None:
    check = answer.serving
    if check is None:
        return None
    return {
        "concurrency": check.concurrency,
        **{
            name: found and {"expected_s": found.seconds, "interval_s": [found.low_s, found.high_s]}
            for name, found in (("tpot", check.tpot), ("ttft", check.ttft))
        },
    }
