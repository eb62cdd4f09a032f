"""What should be seen of a plan in five seconds? The few figures that answer it, what is odd about it, and what was asked.

In:   Plans
Out:  KeyFigures with their origin, findings as sentences, names and values
Leaves out: everything behind them (plan_tables)
Read next by: plan_html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from inference_bench.predict.cost_curve import chosen_break_even
from inference_bench.predict.plan import Plan
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.plan_cost_report import break_even_volume, break_even_words, format_usd, replica_day_words
from inference_bench.report.plan_interval_report import intervals
from inference_bench.report.plan_tables import fixes_words, kept_words, where
from inference_bench.report.report_html import sentence, value_and_unit
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

Rows = Iterator[tuple[str, str]]
Odd = Iterator[tuple[str, Sequence[str]]]


# ── one machine ────────────────────────────────────────────────────────────────────────────────────


def plan_figures(answer: Plan) -> Iterator[KeyFigure]:
    """The batch, what users wait for, what is delivered, on how many replicas, at what cost."""
    yield _batch(answer)
    yield from _waits(answer)
    yield from _delivered(answer)
    yield from _money(answer)


def _batch(answer: Plan) -> KeyFigure:
    load = answer.load
    beside = f"limited by {load.limited_by}"
    fits = f"{format_count(load.max_sequences)} fit in memory"
    return KeyFigure(
        "sequences at once",
        format_count(load.batch),
        "",
        answer.times_origin,
        beside,
        fits,
        is_finding=not answer.verdict.answer,
    )


def _waits(answer: Plan) -> Iterator[KeyFigure]:
    """The first token, and the pace at full load: each beside what was promised."""
    promised = {item.name: item for item in answer.objectives}
    latency, full = answer.latency, answer.load.full
    ttft_s = latency.ttft_cached_s if answer.load.prefix_cached else latency.ttft_s
    tpot_s = None if full is None else full.effective_step_s
    alone = "" if full is None else f"a step alone {format_seconds(full.step_s)}"
    for name, promise, seconds, detail in (
        ("TTFT, one request alone", "TTFT", ttft_s, "prefix cached" if answer.load.prefix_cached else ""),
        ("TPOT, prompts in between", "TPOT", tpot_s, alone),
    ):
        if seconds is not None:
            item = promised.get(promise)
            beside = "nothing promised" if item is None else f"promised <= {format_seconds(item.objective_s)}"
            late = item is not None and not (item.met and item.met_at_full_load is not False)
            value, unit = value_and_unit(format_seconds(seconds))
            yield KeyFigure(name, value, unit, answer.times_origin, beside, detail, is_finding=late)


def _delivered(answer: Plan) -> Iterator[KeyFigure]:
    full, demand = answer.load.full, answer.demand
    ranges = {row.key: f"{row.show(row.low)} .. {row.show(row.high)}" for row in intervals(answer)}
    if full is not None:
        within = ranges.get("output_tokens_per_s", "")
        detail = f"4 of 5 measurements within {within}" if within else "never idle"
        requests = f"{format_number(full.requests_per_hour)} requests/h"
        rate = format_number(full.output_tokens_per_s)
        yield KeyFigure("output rate of a replica", rate, "tokens/s", answer.times_origin, requests, detail)
    if demand is not None:
        volume = f"{format_number(demand.requests_per_day)} requests a day"
        detail = f"busy {format_fraction(demand.mean_utilisation)} over a day"
        yield KeyFigure("replicas", format_count(demand.replicas), "", answer.times_origin, f"for {volume}", detail)


def _money(answer: Plan) -> Iterator[KeyFigure]:
    cost = answer.cost
    rented, always_on = (None, None) if cost is None else (cost.rented, cost.always_on)
    if rented is not None:
        beside = f"always busy, at {format_usd(rented.usd_per_hour, 'USD/h')}"
        detail = "" if always_on is None else f"always on: {format_usd(always_on.usd_per_million_output_tokens)}"
        usd = format_usd(rented.usd_per_million_busy)
        yield KeyFigure("a million output tokens", usd, "USD", answer.times_origin, beside, detail)
    found = chosen_break_even(answer)
    if found is not None:
        volume, said = break_even_volume(found), break_even_words(found)
        unit = "requests a day" if found.requests_per_day else ""
        yield KeyFigure("break-even", volume, unit, answer.times_origin, said, replica_day_words(found))


def plan_odd(answer: Plan) -> Odd:
    """Why the answer is no and what would help; promises that are kept only in part."""
    if not answer.verdict.answer:
        reason, fixes, said = answer.verdict.reason, answer.verdict.fixes, sentence(fixes_words(answer))
        yield "The answer is no", (reason,) if fixes else (reason, said)
        yield said.rstrip(":"), fixes
        return
    yield (
        "Findings",
        tuple(
            f"{item.name} within {format_seconds(item.objective_s)}: {kept_words(item)}"
            for item in answer.objectives
            if item.met_at_full_load is False or item.met_at_slow_end is False
        ),
    )


# ── several machines ───────────────────────────────────────────────────────────────────────────────

_Value = Callable[[Plan], float | None]


def _output_rate(answer: Plan) -> float | None:
    return None if answer.load.full is None else answer.load.full.output_tokens_per_s


def _usd_busy(answer: Plan) -> float | None:
    rented = None if answer.cost is None else answer.cost.rented
    return None if rented is None else rented.usd_per_million_busy


def _usd_per_day(answer: Plan) -> float | None:
    always_on = None if answer.cost is None else answer.cost.always_on
    return None if always_on is None else always_on.usd_per_day


def comparison_figures(answers: Sequence[Plan]) -> Iterator[KeyFigure]:
    """On how many machines it works, and which is best at what."""
    works = [answer for answer in answers if answer.verdict.answer]
    said = f"{format_count(len(works))} of {format_count(len(answers))}"
    names = ", ".join(map(where, works)) or "on none"
    yield KeyFigure("it works on", said, "machines", answers[0].times_origin, names, "", is_finding=not works)
    yield from _best("most output tokens", works, _output_rate, max, "tokens/s", "a replica, never idle")
    yield from _best("cheapest million tokens", works, _usd_busy, min, "USD", "always busy, at the prices given")
    yield from _best("cheapest day", works, _usd_per_day, min, "USD", "always on, for the daily volume")


def _best(
    name: str,
    works: Sequence[Plan],
    value: _Value,
    better: Callable[[list[tuple[float, int]]], tuple[float, int]],
    unit: str,
    detail: str,
) -> Iterator[KeyFigure]:
    """The best machine by one figure; nothing where no machine has it."""
    known = [(found, index) for index, answer in enumerate(works) if (found := value(answer)) is not None]
    if known:
        best, index = better(known)
        answer = works[index]
        yield KeyFigure(name, format_number(best), unit, answer.times_origin, where(answer), detail)


def comparison_odd(answers: Sequence[Plan]) -> Odd:
    """The machines on which it does not work, each with why and what would help."""
    for answer in answers:
        if not answer.verdict.answer:
            fixes = (f"would help: {fix}" for fix in answer.verdict.fixes)
            yield f"{where(answer)}: no", (answer.verdict.reason, *fixes)


# ── what was asked ─────────────────────────────────────────────────────────────────────────────────


def asked_rows(answers: Sequence[Plan]) -> Rows:
    """The scenario as it was read, its defaults included; what a machine costs where there is one."""
    yield from _traffic_rows(answers[0])
    yield from _promise_rows(answers[0])
    rented = None if len(answers) > 1 or answers[0].cost is None else answers[0].cost.rented
    if rented is not None:
        yield "a replica", format_usd(rented.usd_per_hour, "USD/h")
    yield from _price_rows(answers[0])


def _traffic_rows(answer: Plan) -> Rows:
    scenario, traffic = answer.scenario, answer.scenario.traffic
    yield "model", f"{answer.model}, {answer.weights_format}"
    yield "cache", answer.memory.cache_format
    yield "engine", scenario.served_by or "none named"
    yield "speed", str(scenario.speed)
    yield "prompt", f"{format_count(traffic.prompt_tokens)} tokens"
    yield "output", f"{format_count(traffic.output_tokens)} tokens"
    if traffic.prefix_tokens:
        kept = "cached" if traffic.prefix_cache else "not cached"
        yield "prefix", f"{format_count(traffic.prefix_tokens)} tokens, {kept}"
    if traffic.requests_per_day is not None:
        yield "requests a day", format_number(traffic.requests_per_day)
        yield "peak over mean rate", format_number(traffic.peak_factor)
        yield "a replica at the peak", f"{format_fraction(traffic.target_utilisation)} busy at most"
    if traffic.think_s is not None:
        yield "think time", format_seconds(traffic.think_s)


def _promise_rows(answer: Plan) -> Rows:
    promised = answer.scenario.objectives
    for name, seconds in (("TTFT", promised.ttft_s), ("TPOT", promised.tpot_s), ("E2E", promised.e2e_s)):
        if seconds is not None:
            yield f"promised {name}", f"<= {format_seconds(seconds)}"
    if promised.tpot_s is not None or promised.e2e_s is not None:
        yield "TPOT and E2E judged by", str(promised.judged_by).replace("_", " ")


def _price_rows(answer: Plan) -> Rows:
    prices, owned = answer.scenario.prices, answer.scenario.owned
    if prices.utilisation is not None:
        yield "bought hours that are busy", format_fraction(prices.utilisation)
    if prices.hosted is not None:
        for name, usd in (
            ("input", prices.hosted.input_usd),
            ("output", prices.hosted.output_usd),
            ("cached input", prices.hosted.cached_usd),
        ):
            if usd is not None:
                yield f"hosted, {name}", format_usd(usd, "USD a million tokens")
    if owned is not None:
        yield "a device of one's own", f"{format_usd(owned.price_usd, 'USD')} over {format_number(owned.years)} years"
        power = f"{format_number(owned.watts)} W at {format_usd(owned.usd_per_kwh, 'USD/kWh')}"
        yield "its power", f"{power}, busy {format_fraction(owned.utilisation)}"
