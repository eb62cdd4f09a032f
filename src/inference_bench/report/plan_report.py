"""The answers to `plan` as text for a terminal; plan_json holds the same for programs.

In:   Plans
Out:  text of at most 100 columns: each figure with its unit and origin
Leaves out: arithmetic; every number was computed before
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from inference_bench.origin import Origin
from inference_bench.predict.plan import Plan
from inference_bench.predict.plan_load import LoadPlan
from inference_bench.predict.plan_verdict import ObjectiveCheck
from inference_bench.report.plan_cost_report import cost_text, format_usd
from inference_bench.report.plan_interval_report import interval_text, serving_text
from inference_bench.report.text import shorten, table, wrap
from inference_bench.units import (
    MEGA,
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)


class Row(NamedTuple):
    """One figure; an origin of its own where it has another than its section."""

    name: str
    value: str
    how: str
    origin: Origin | None = None


_MAX_HEADER_COLUMNS: Final = 36
_COMPARED_NOTE = "USD/M: a million output tokens; USD/h: a replica; break-even: against the hosted price"
_DIGITS = 4  # enough to recognise a figure worked out by hand


def plan_text(answer: Plan) -> str:
    """The verdict, then memory, latency, load, replicas, cost, how far they may be off, checks, speculation, assumptions."""
    sections = [
        _verdict(answer),
        _objectives(answer),
        _memory(answer),
        _latency(answer),
        _loads(answer),
        _replicas(answer),
        cost_text(answer),
        interval_text(answer),
        _checks(answer),
        serving_text(answer),
        _speculation(answer),
        "\n".join(["assumptions", *(wrap(line, indent="  - ") for line in answer.assumptions)]),
    ]
    return "\n\n".join(section for section in sections if section)


def _where(answer: Plan) -> str:
    devices = answer.scenario.devices
    return answer.machine.name if devices == 1 else f"{devices} of {answer.machine.name}"


def _verdict(answer: Plan) -> str:
    traffic, verdict = answer.scenario.traffic, answer.verdict
    what = (
        f"{answer.model} on {_where(answer)}, {format_count(traffic.prompt_tokens)} prompt and "
        f"{format_count(traffic.output_tokens)} output tokens"
    )
    lines = [wrap(f"{what}: {'' if verdict.answer else 'no, '}{verdict.reason}.")]
    if not verdict.answer:
        lines.append("what would help, each alone:" if verdict.fixes else "No single change known here would help.")
        lines += [wrap(fix, indent="  - ") for fix in verdict.fixes]
    return "\n".join(lines)


def _s(seconds: float | None) -> str:
    return format_seconds(seconds, _DIGITS)


def _n(value: float | None, unit: str) -> str:
    return NOT_AVAILABLE if value is None else f"{format_number(value, _DIGITS)} {unit}"


def _section(title: str, rows: Sequence[Row], origin: Origin) -> str:
    return table(
        (title, "value", "origin", "how"),
        [(row.name, row.value, row.origin or origin, row.how) for row in rows],
        "lrll",
    )


def _objectives(answer: Plan) -> str:
    if not answer.objectives:
        return ""
    columns: list[tuple[str, ...]] = [
        ("objective", *(item.name for item in answer.objectives)),
        ("promised", *(_s(item.objective_s) for item in answer.objectives)),
        (f"planned, batch {max(1, answer.load.batch)}", *(_s(item.planned_s) for item in answer.objectives)),
        ("at full load", *(_s(item.full_load_s) for item in answer.objectives)),
        ("kept", *(_kept(item) for item in answer.objectives)),
    ]
    if answer.interval is not None:
        columns.insert(3, ("slow end", *(_s(item.slow_s) for item in answer.objectives)))
    headers, *rows = zip(*columns, strict=True)
    return table(headers, rows, f"l{'r' * (len(columns) - 2)}l")


def _kept(item: ObjectiveCheck) -> str:
    if not item.met:
        return "no"
    if item.met_at_slow_end is None:
        return "yes, but not at full load" if item.met_at_full_load is False else "yes"
    if item.met_at_slow_end:
        return "yes, slow end too; not full load" if item.met_at_full_load is False else "yes, at the slow end too"
    return "yes; not at slow end or full load" if item.met_at_full_load is False else "yes, not at the slow end"


def _memory(answer: Plan) -> str:
    memory, prefix = answer.memory, answer.scenario.traffic.prefix_tokens
    length = f"{format_count(memory.sequence_tokens)} tokens"
    free = (
        format_bytes(memory.free_bytes, _DIGITS) if memory.free_bytes >= 0 else f"-{format_bytes(-memory.free_bytes)}"
    )
    stated = None if answer.scenario.assumptions.weight_bytes is None else Origin.GIVEN
    rows: list[Row] = [
        Row(
            f"memory of {answer.machine.name}",
            format_bytes(memory.memory_bytes, _DIGITS),
            "one device",
            answer.machine.origin,
        ),
        Row("weights", format_bytes(memory.weight_bytes, _DIGITS), answer.weights_format, stated),
        Row("runtime overhead", format_bytes(memory.overhead_bytes, _DIGITS), "each device", Origin.GIVEN),
        Row("free for the cache", free, "memory - weights - overhead"),
        Row(f"cache of {length}", format_bytes(memory.bytes_per_sequence, _DIGITS), memory.cache_format),
        Row("full-length requests", format_count(memory.max_sequences), f"{memory.cache_format} cache"),
    ]
    rows += [
        Row("full-length requests", format_count(count), f"{name} cache instead")
        for name, count in memory.by_cache_format
    ]
    if memory.max_sequences_shared_prefix is not None:
        how = f"{format_count(prefix)} tokens of prefix paid once"
        rows.append(Row("full-length requests", format_count(memory.max_sequences_shared_prefix), how))
    return _section("fits", rows, Origin.COUNTED)


def _latency(answer: Plan) -> str:
    latency, traffic = answer.latency, answer.scenario.traffic
    how = f"{format_count(traffic.output_tokens - 1)} steps after the first token"
    rows = _first_token("", latency.ttft_s, latency.prefill_s, traffic.prompt_tokens)
    if latency.ttft_cached_s is not None and latency.prefill_cached_s is not None:
        fresh = traffic.prompt_tokens - traffic.prefix_tokens
        rows += _first_token(", prefix cached", latency.ttft_cached_s, latency.prefill_cached_s, fresh)
    rows += [
        Row("solo step", _s(latency.solo_step_s), f"at {format_count(latency.mean_context_tokens)} tokens"),
        Row("solo pace", _n(latency.solo_tokens_per_s, "tokens/s"), "1 / solo step"),
        Row("E2E", _s(latency.e2e_s), how),
    ]
    if latency.e2e_cached_s is not None:
        rows.append(Row("E2E, prefix cached", _s(latency.e2e_cached_s), how))
    return _section("latency, one request alone", rows, answer.times_origin)


def _first_token(which: str, ttft_s: float, prefill_s: float, tokens: int) -> list[Row]:
    """The first token, and the prompt's own time where that is another."""
    read = f"{format_count(tokens)} {'of them' if which else 'tokens'} read"
    if ttft_s == prefill_s:
        return [Row(f"TTFT{which}", _s(ttft_s), read)]
    return [
        Row(f"TTFT{which}", _s(ttft_s), f"{read}: prompt and first steps"),
        Row(f"prompt{which}", _s(prefill_s), "the prompt's own time"),
    ]


def _load_cells(load: LoadPlan) -> list[tuple[str, str]]:
    full = load.full
    cells = [
        ("sequences that fit", format_count(load.max_sequences)),
        ("batch", format_count(load.batch)),
        ("limited by", str(load.limited_by)),
    ]
    if full is None:
        return cells
    cells += [
        ("prefill", _s(full.prefill_s)),
        ("step", _s(full.step_s)),
        ("decode rate, B / step", _n(load.step_tokens_per_s, "tokens/s")),
        ("machine time a request", f"{format_number(full.machine_seconds_per_request, 5)} s"),
        ("requests", _n(full.requests_per_hour, "/h")),
        ("output tokens", _n(full.output_tokens_per_hour / MEGA, "million/h")),
        ("output rate", _n(full.output_tokens_per_s, "tokens/s")),
        ("share of time in prefill", format_fraction(full.prefill_share, _DIGITS)),
        ("effective step", _s(full.effective_step_s)),
        ("E2E, prefills in between", _s(load.e2e_s)),
    ]
    return cells if load.users is None else [*cells, ("users with the think time", _n(load.users, "people"))]


_LOAD_HOW = {
    "sequences that fit": "memory alone",
    "batch": "within memory and objectives",
    "machine time a request": "prefill + (n - 1) step / B",
    "requests": "1 / machine time",
    "share of time in prefill": "prefill / machine time",
    "effective step": "step / (1 - prefill share)",
    "users with the think time": "rate · (E2E + think time)",
}


def _loads(answer: Plan) -> str:
    columns = [dict(_load_cells(load)) for load in answer.loads]
    names = list(dict.fromkeys(name for column in columns for name in column))
    titles = ["prefix cached" if load.prefix_cached else "prompt read whole" for load in answer.loads]
    titles = [
        f"{title} *" if load is answer.load and len(columns) > 1 else title
        for title, load in zip(titles, answer.loads, strict=True)
    ]
    rows = [(name, *(column.get(name, NOT_AVAILABLE) for column in columns), _LOAD_HOW.get(name, "")) for name in names]
    text = table((f"load, never idle ({answer.times_origin})", *titles, "how"), rows, f"l{'r' * len(columns)}l")
    return f"{text}\n* what demand, cost and checks are for" if len(columns) > 1 else text


def _replicas(answer: Plan) -> str:
    demand = answer.demand
    if demand is None:
        return ""
    target = format_fraction(demand.target_utilisation)
    rows: list[Row] = [
        Row("requests a day", format_number(demand.requests_per_day, _DIGITS), "", Origin.GIVEN),
        Row("peak rate", _n(demand.peak_requests_per_s, "/s"), f"mean rate · {demand.peak_factor:g}", Origin.COUNTED),
        Row("rate of one replica", _n(demand.replica_requests_per_s, "/s"), "at full load"),
        Row("replicas", format_count(demand.replicas), f"peak rate over {target} of a replica, rounded up"),
        Row("headroom at the peak", format_fraction(demand.headroom_fraction), "1 - peak rate / rate of the replicas"),
        Row("busy over a day", format_fraction(demand.mean_utilisation), "share of the machine hours"),
        Row("busy machine hours a day", _n(demand.busy_hours_per_day, "h"), "requests · machine time"),
    ]
    return _section("replicas", rows, answer.times_origin)


def _checks(answer: Plan) -> str:
    rows: list[Row] = []
    if answer.little is not None:
        little = answer.little
        how = f"{_n(little.requests_per_s, '/s')} · {_s(little.residence_s)}; batch {format_count(little.batch)}"
        rows.append(Row("Little: requests inside", format_number(little.mean_requests, _DIGITS), how))
    queue = answer.queue
    if queue is None:
        return ""
    rows += [
        Row(f"M/M/1 time at {format_fraction(busy, 2)} busy", _s(seconds), "S / (1 - busy)")
        for busy, seconds in queue.by_utilisation
    ]
    if queue.utilisation is not None:
        name = f"M/M/1 time at the peak, {format_fraction(queue.utilisation)} busy"
        rows.append(Row(name, _s(queue.mean_time_s), f"S {_s(queue.service_s)}, machine time a request"))
    return _section("checks", rows, answer.times_origin)


def _speculation(answer: Plan) -> str:
    found = answer.speculation
    if found is None:
        return ""
    rows = [
        (
            "as given" if row.batch is None else f"batch {format_count(row.batch)}",
            format_number(row.verify_cost, _DIGITS),
            f"{format_number(row.speed_up, _DIGITS)} x",
            "yes" if row.gains else "no",
            format_number(row.break_even_acceptance),
            f"{row.best_draft_tokens}: {format_number(row.best_speed_up, _DIGITS)} x",
            str(row.origin),
        )
        for row in found.rows
    ]
    headers = ("speculation", "v", "speed-up", "gains", "alpha to break even", "best gamma", "origin of v")
    asked = found.asked
    note = (
        f"alpha {asked.acceptance:g}, gamma {asked.draft_tokens}, c {asked.draft_cost:g}: a round emits "
        f"{format_number(found.expected_tokens, _DIGITS)} tokens, E[K], and costs gamma c + v steps"
    )
    return f"{table(headers, rows, 'lrrlrrl')}\n{wrap(note)}"


def comparison_text(answers: Sequence[Plan]) -> str:
    """Several machines beside each other on one scenario: a row a figure."""
    first = answers[0]
    traffic = first.scenario.traffic
    head = wrap(
        f"{first.model}, {format_count(traffic.prompt_tokens)} prompt and {format_count(traffic.output_tokens)} output tokens"
    )
    columns = [dict(_compared(answer)) for answer in answers]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    rows = [row for row in rows if any(cell != NOT_AVAILABLE for cell in row[1:])]
    headers = ("machine", *(shorten(_where(answer), _MAX_HEADER_COLUMNS) for answer in answers))
    align = f"l{'r' * len(answers)}"
    lines = [head, f"{table(headers, rows, align)}\n{_COMPARED_NOTE}"]
    lines += [_no(answer) for answer in answers if not answer.verdict.answer]
    shared = [line for line in first.assumptions if all(line in answer.assumptions for answer in answers)]
    lines.append(_listed("assumptions of all", shared))
    for answer in answers:
        own = [line for line in answer.assumptions if line not in shared]
        lines += [_listed(wrap(f"and of {_where(answer)}"), own)] if own else []
    return "\n\n".join(lines)


def _listed(title: str, said: Sequence[str]) -> str:
    return "\n".join([title, *(wrap(line, indent="  - ") for line in said)])


def _no(answer: Plan) -> str:
    fixes = [wrap(fix, indent="  - ") for fix in answer.verdict.fixes]
    return "\n".join([wrap(f"{_where(answer)}: no, {answer.verdict.reason}"), *fixes])


def _compared(answer: Plan) -> list[tuple[str, str]]:
    load, full, demand, cost = answer.load, answer.load.full, answer.demand, answer.cost
    rented = cost.rented if cost else None
    always_on = cost.always_on if cost else None
    latency = answer.latency
    return [
        ("works", "yes" if answer.verdict.answer else "no"),
        ("fit in memory", format_count(load.max_sequences)),
        ("batch", format_count(load.batch)),
        ("limited by", str(load.limited_by)),
        ("TTFT", format_seconds(latency.ttft_cached_s if load.prefix_cached else latency.ttft_s)),
        ("solo tokens/s", format_number(latency.solo_tokens_per_s)),
        ("step", format_seconds(full.step_s if full else None)),
        ("effective step", format_seconds(full.effective_step_s if full else None)),
        ("output tokens/s", format_number(full.output_tokens_per_s if full else None)),
        ("the same, slow end", format_number(_slow_rate(answer))),
        ("requests/h", format_number(full.requests_per_hour if full else None)),
        ("replicas", format_count(demand.replicas if demand else None)),
        ("busy over a day", format_fraction(demand.mean_utilisation if demand else None)),
        ("USD/h", format_usd(rented.usd_per_hour if rented else None)),
        ("USD/M busy", format_usd(rented.usd_per_million_busy if rented else None)),
        ("USD/M always on", format_usd(always_on.usd_per_million_output_tokens if always_on else None)),
        ("USD/day", format_usd(always_on.usd_per_day if always_on else None)),
        ("break-even/day", _break_even(answer)),
    ]


def _slow_rate(answer: Plan) -> float | None:
    slow = answer.interval.slow.load.full if answer.interval else None
    return slow.output_tokens_per_s if slow else None


def _break_even(answer: Plan) -> str:
    """The volume that breaks even with a hosted model at the cached price where a prefix is cached."""
    hosted = answer.cost.hosted if answer.cost else None
    if hosted is None:
        return NOT_AVAILABLE
    cached = hosted.break_even_requests_per_day_cached
    volume = cached if answer.load.prefix_cached and cached is not None else hosted.break_even_requests_per_day
    return "never" if hosted.is_reached(volume) is False else format_number(volume)
