"""Which figures stand behind a plan? Its sentences and tables, as a terminal and a page both show them.

In:   Plans
Out:  sentences, and Tables of texts: each figure with its unit and origin
Leaves out: how they look (plan_report, plan_html); money (plan_cost_report), intervals (plan_interval_report); every number was
      computed before
Read next by: plan_report, plan_html.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from inference_bench.origin import Origin
from inference_bench.predict.cost_curve import chosen_break_even
from inference_bench.predict.plan import Plan
from inference_bench.predict.plan_load import LoadPlan
from inference_bench.predict.plan_verdict import ObjectiveCheck
from inference_bench.report.plan_cost_report import break_even_volume, format_usd
from inference_bench.report.table import FIGURE_COLUMNS, Column, Table
from inference_bench.report.text import shorten
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
_COMPARED_NOTE: Final = (
    "USD/M: a million output tokens; USD/h: a replica; break-even: the first volume at which replicas, as loaded as the peak "
    "allows, cost no more than the hosted price; never: hosted costs less at every volume"
)
_DIGITS: Final = 4  # enough to recognise a figure worked out by hand


def where(answer: Plan) -> str:
    """The machine, and how many of it."""
    devices = answer.scenario.devices
    return answer.machine.name if devices == 1 else f"{devices} of {answer.machine.name}"


def traffic_words(answer: Plan) -> str:
    """What a request is."""
    traffic = answer.scenario.traffic
    return f"{format_count(traffic.prompt_tokens)} prompt and {format_count(traffic.output_tokens)} output tokens"


def verdict(answer: Plan) -> str:
    """Yes with what limits the batch, or no and why."""
    found = answer.verdict
    return (
        f"{answer.model} on {where(answer)}, {traffic_words(answer)}: {'' if found.answer else 'no, '}{found.reason}."
    )


def fixes_words(answer: Plan) -> str:
    """What introduces the changes that would help; nothing where the answer is yes."""
    if answer.verdict.answer:
        return ""
    return "what would help, each alone:" if answer.verdict.fixes else "No single change known here would help."


def _s(seconds: float | None) -> str:
    return format_seconds(seconds, _DIGITS)


def _n(value: float | None, unit: str) -> str:
    return NOT_AVAILABLE if value is None else f"{format_number(value, _DIGITS)} {unit}"


def _section(heading: str, title: str, rows: Sequence[Row], origin: Origin) -> Table:
    cells = tuple((row.name, row.value, str(row.origin or origin), row.how) for row in rows)
    return Table(heading, (Column(title, "l"), *FIGURE_COLUMNS), cells)


def objectives_table(answer: Plan) -> Table | None:
    """Every promise beside what is planned; None where nothing was promised."""
    if not answer.objectives:
        return None
    columns: list[tuple[str, ...]] = [
        ("objective", *(item.name for item in answer.objectives)),
        ("promised", *(_s(item.objective_s) for item in answer.objectives)),
        (f"planned, batch {max(1, answer.load.batch)}", *(_s(item.planned_s) for item in answer.objectives)),
        ("at full load", *(_s(item.full_load_s) for item in answer.objectives)),
        ("kept", *(kept_words(item) for item in answer.objectives)),
    ]
    if answer.interval is not None:
        columns.insert(3, ("slow end", *(_s(item.slow_s) for item in answer.objectives)))
    titles, *rows = zip(*columns, strict=True)
    broken = frozenset(index for index, item in enumerate(answer.objectives) if not item.met)
    return Table(
        "Promises",
        (Column(titles[0], "l"), *map(Column, titles[1:-1]), Column(titles[-1], "l")),
        tuple(rows),
        "",
        broken,
    )


def kept_words(item: ObjectiveCheck) -> str:
    """Whether a promise is kept, at the slow end and at full load too."""
    if not item.met:
        return "no"
    if item.met_at_slow_end is None:
        return "yes, but not at full load" if item.met_at_full_load is False else "yes"
    if item.met_at_slow_end:
        return "yes, slow end too; not full load" if item.met_at_full_load is False else "yes, at the slow end too"
    return "yes; not at slow end or full load" if item.met_at_full_load is False else "yes, not at the slow end"


def memory_table(answer: Plan) -> Table:
    """What a device holds, and how many full-length requests fit."""
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
    return _section("Memory", "fits", rows, Origin.COUNTED)


def latency_table(answer: Plan) -> Table:
    """What one request waits for when it is alone."""
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
    return _section("Latency, one request alone", "latency, one request alone", rows, answer.times_origin)


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


def loads_table(answer: Plan) -> Table:
    """A replica that is never idle, with the prompt read whole and with its prefix cached."""
    columns = [dict(_load_cells(load)) for load in answer.loads]
    names = list(dict.fromkeys(name for column in columns for name in column))
    titles = ["prefix cached" if load.prefix_cached else "prompt read whole" for load in answer.loads]
    titles = [
        f"{title} *" if load is answer.load and len(columns) > 1 else title
        for title, load in zip(titles, answer.loads, strict=True)
    ]
    rows = tuple(
        (name, *(column.get(name, NOT_AVAILABLE) for column in columns), _LOAD_HOW.get(name, "")) for name in names
    )
    first = Column(f"load, never idle ({answer.times_origin})", "l")
    note = "* what demand, cost and checks are for" if len(columns) > 1 else ""
    return Table("Load, never idle", (first, *map(Column, titles), Column("how", "l")), rows, note)


def replicas_table(answer: Plan) -> Table | None:
    """What carries the daily volume; None where none was given."""
    demand = answer.demand
    if demand is None:
        return None
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
    return _section("Replicas", "replicas", rows, answer.times_origin)


def checks_table(answer: Plan) -> Table | None:
    """Two laws that the plan is held against; None without a load."""
    rows: list[Row] = []
    if answer.little is not None:
        little = answer.little
        how = f"{_n(little.requests_per_s, '/s')} · {_s(little.residence_s)}; batch {format_count(little.batch)}"
        rows.append(Row("Little: requests inside", format_number(little.mean_requests, _DIGITS), how))
    queue = answer.queue
    if queue is None:
        return None
    rows += [
        Row(f"M/M/1 time at {format_fraction(busy, 2)} busy", _s(seconds), "S / (1 - busy)")
        for busy, seconds in queue.by_utilisation
    ]
    if queue.utilisation is not None:
        name = f"M/M/1 time at the peak, {format_fraction(queue.utilisation)} busy"
        rows.append(Row(name, _s(queue.mean_time_s), f"S {_s(queue.service_s)}, machine time a request"))
    return _section("Checks", "checks", rows, answer.times_origin)


def speculation_table(answer: Plan) -> Table | None:
    """When drafts gain; None where none are made."""
    found = answer.speculation
    if found is None:
        return None
    rows = tuple(
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
    )
    asked = found.asked
    note = (
        f"alpha {asked.acceptance:g}, gamma {asked.draft_tokens}, c {asked.draft_cost:g}: a round emits "
        f"{format_number(found.expected_tokens, _DIGITS)} tokens, E[K], and costs gamma c + v steps"
    )
    columns = (
        Column("speculation", "l"),
        *map(Column, ("v", "speed-up")),
        Column("gains", "l"),
        *map(Column, ("alpha to break even", "best gamma")),
        Column("origin of v", "l", is_tag=True),
    )
    return Table("Speculation", columns, rows, note)


def compared_table(answers: Sequence[Plan]) -> Table:
    """Several machines beside each other on one scenario: a row a figure."""
    found = [dict(_compared(answer)) for answer in answers]
    rows = [(name, *(column[name] for column in found)) for name in found[0]]
    rows = [row for row in rows if any(cell != NOT_AVAILABLE for cell in row[1:])]
    names = (shorten(where(answer), _MAX_HEADER_COLUMNS) for answer in answers)
    return Table("Machines side by side", (Column("machine", "l"), *map(Column, names)), tuple(rows), _COMPARED_NOTE)


def shared_assumptions(answers: Sequence[Plan]) -> list[str]:
    """What every one of several plans rests on."""
    return [line for line in answers[0].assumptions if all(line in answer.assumptions for answer in answers)]


def own_assumptions(answer: Plan, shared: Sequence[str]) -> list[str]:
    """What only this one rests on."""
    return [line for line in answer.assumptions if line not in shared]


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
    """The first volume at which the staircase of the chart meets the hosted price."""
    found = chosen_break_even(answer)
    return NOT_AVAILABLE if found is None else break_even_volume(found)


def status(answers: Sequence[Plan]) -> str:
    """The verdict of each machine in so few words that they can be read out at every change."""
    return "; ".join(f"{where(each)}: {'' if each.verdict.answer else 'no, '}{each.verdict.reason}" for each in answers)
