"""Does a server do under load what the simulator said it would? Rates below, near and past the knee, predicted first, then sent.

In:   ServerModel (the engine's rules and the fitted steps), a way to send a workload, a run folder, LoadBudget
Out:  LoadChecked: LoadCheck and CapacityCheck; prediction.json in the folder from before the first request on
Leaves out: fitting (calibrate), what the figures are called (load_rows)
Read next by: flow.

What is sent is the very object that was simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.errors import MeasurementError
from inference_bench.loadtest.workload_memory import META_KEY as ASKED_KEY
from inference_bench.loadtest.workload_memory import asked_of, asked_to_json
from inference_bench.measure.client_health import health_values
from inference_bench.measure.load import LoadOptions, LoadResult, run_load
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.simulate.rate_search import Limits
from inference_bench.units import format_number, format_seconds
from inference_bench.verify.capacity_check import PredictedCapacity, check_capacity, predict_capacity
from inference_bench.verify.closed_loop import CapacityCheck, LoadCheck, LoadRow
from inference_bench.verify.engine_rules import EngineRules, ServerModel
from inference_bench.verify.load_prediction import PredictedLoad, predict_load, write_prediction
from inference_bench.verify.load_rows import ABOVE_PLACE, BELOW_PLACE, NEAR_PLACE, PAST_PLACE, row_of
from inference_bench.verify.load_workload import (
    ABOVE,
    BELOW,
    NEAR,
    PAST,
    USUAL,
    ChosenWorkload,
    LoadBudget,
    choose_workload,
)
from inference_bench.workload import Workload

AT_PLACE: Final = "at capacity"

# of the rate that is just sustained: a capacity there is the rate of that load too
_SPANS: Final = {BELOW_PLACE: (0.35, 0.6), NEAR_PLACE: (0.6, 1.0)}
_OVERRUN: Final = 2.0  # of the budget: no load is begun that would end later
_META_KEY: Final = "load_check"

Say = Callable[[str], None]
Send = Callable[[Workload, str], LoadResult]
"""Sends a workload as one group of the run, and keeps its records."""


@dataclass(frozen=True, slots=True)
class LoadChecked:
    """What was predicted and what came of it; capacity is None where it was not looked for."""

    load: LoadCheck
    capacity: CapacityCheck | None


def server_model(calibration: StepCalibration, rules: EngineRules) -> ServerModel:
    """The server as it was fitted."""
    return ServerModel(rules, calibration.step_time, calibration.request_s, calibration.held_out_error)


def sending(target: Target, options: LoadOptions) -> Send:
    """A way to send: every load with the same clock, writer and prompts, so that no prompt comes twice.

    Where:  the options' prompts were fitted to the server's own counts before (measure.warmup)
    """
    return lambda workload, group: run_load(target, workload, replace(options, group=group))


def check_load(
    model: ServerModel,
    send: Send,
    folder: RunFolder | None = None,
    budget: LoadBudget = USUAL,
    *,
    limits: Limits | None = None,
    seed: int = 0,
    say: Say | None = None,
) -> LoadChecked:
    """Predict loads at three rates and the capacity, write that down, then send them.

    Where:   limits are the objectives of the capacity, which is looked for wherever they are given
    Raises:  RequestError for a server on which no request can run; StorageError; LoadInterrupted, with what was measured kept
    """
    say = say or (lambda _text: None)
    say("simulating the loads that will be sent")
    plan = _plan(model, budget, limits, seed)
    if folder is not None:
        write_prediction(folder, model, plan.loads, _about(plan))
        folder.update_meta({ASKED_KEY: {_group(load): asked_to_json(asked_of(load.workload)) for load in plan.loads}})
    rows, notes, health = _send_all(plan.loads, send, budget, say)
    if folder is not None:
        folder.update_meta({_META_KEY: {"client": health}})
    by_place = {row.place: row for row in rows}
    check = LoadCheck(
        workload=plan.chosen.words,
        saturation_rate=plan.chosen.saturation_rate,
        rules=model.rules.words,
        rows=tuple(row for row in rows if row.place in (BELOW_PLACE, NEAR_PLACE, PAST_PLACE)),
        notes=(*plan.chosen.notes, *notes),
    )
    if plan.capacity is None:
        return LoadChecked(check, None)
    at_rate = next((row for row in rows if row.rate == plan.capacity.rate), None)
    return LoadChecked(check, check_capacity(plan.capacity, at_rate, by_place.get(ABOVE_PLACE), rows))


# ── before the first request ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _LoadPlan:
    chosen: ChosenWorkload
    capacity: PredictedCapacity | None
    loads: tuple[PredictedLoad, ...]


def _plan(model: ServerModel, budget: LoadBudget, limits: Limits | None, seed: int) -> _LoadPlan:
    chosen = choose_workload(model, budget, seed)
    finds_capacity = budget.finds_capacity or limits is not None
    capacity = predict_capacity(model, chosen, limits, budget.other_seeds) if finds_capacity else None
    rates = load_rates(chosen.saturation_rate, capacity)
    if not budget.has_past:
        del rates[PAST_PLACE]
    loads = tuple(predict_load(model, chosen.at_rate(rate), place) for place, rate in rates.items())
    return _LoadPlan(chosen, capacity, loads)


def load_rates(saturation_rate: float, capacity: PredictedCapacity | None) -> dict[str, float]:
    """Which rates are sent, by place, in the order in which they are.

    Where:  a capacity that lies where a load is sent anyway takes its place, else it is a rate of its own
    Unit:   requests/s
    """
    rates = {BELOW_PLACE: BELOW * saturation_rate, NEAR_PLACE: NEAR * saturation_rate}
    capacity_rate = None if capacity is None else capacity.rate
    if capacity is not None and capacity_rate is not None:
        place = next(
            (place for place, span in _SPANS.items() if _lies_in(capacity_rate / saturation_rate, span)), AT_PLACE
        )
        rates |= {place: capacity_rate, ABOVE_PLACE: capacity.above_rate or ABOVE * capacity_rate}
    rates[PAST_PLACE] = PAST * max(saturation_rate, capacity_rate or 0.0)
    return rates


def _lies_in(share: float, span: tuple[float, float]) -> bool:
    return span[0] <= share <= span[1]


def _about(plan: _LoadPlan) -> dict[str, Any]:
    capacity = plan.capacity
    return {
        "workload": plan.chosen.words,
        "saturation_rate": plan.chosen.saturation_rate,
        "capacity": None
        if capacity is None
        else {
            "objective": capacity.words,
            "ttft_p99_s": capacity.limits.ttft_p99_s,
            "itl_p99_s": capacity.limits.itl_p99_s,
            "rate": capacity.rate,
            "above_rate": capacity.above_rate,
        },
    }


# ── the loads ──────────────────────────────────────────────────────────────────────────────────────


def _group(load: PredictedLoad) -> str:
    """What the load is called in the run's records."""
    return f"load-{load.place.replace(' ', '-')}"


def _send_all(
    loads: Sequence[PredictedLoad], send: Send, budget: LoadBudget, say: Say
) -> tuple[list[LoadRow], list[str], Mapping[str, Any]]:
    """One load after the other, each to its end, as long as the budget lasts and the server answers."""
    began_s = time.monotonic()
    rows: list[LoadRow] = []
    notes: list[str] = []
    health: dict[str, Any] = {}
    for load in loads:
        passed_s = time.monotonic() - began_s
        if passed_s + load.metrics.span_s > _OVERRUN * budget.seconds:
            notes.append(f"the load {load.place} was not sent: it would have ended beyond the time there is")
            continue
        say(
            f"sending the load {load.place}: {format_number(load.rate)} requests/s, about {format_seconds(load.metrics.span_s, 2)}"
        )
        try:
            result = send(load.workload, _group(load))
        except MeasurementError as error:
            rows.append(row_of(load, None, [str(error)]))
            notes.append(f"the load {load.place} failed, and no more were sent")
            break
        rows.append(row_of(load, result))
        health[load.place] = health_values(result.health)
    return rows, notes, health
