"""What does a ledger say? Tables, sentences and notes that the terminal and the page share.

In:   Ledger
Out:  Tables and sentences
Leaves out: how they look (text, html_pieces)
Read next by: ledger_report, ledger_json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.operate.ledger.flow import Group, Ledger
from inference_bench.operate.ledger.lines import FileTrouble
from inference_bench.operate.ledger.totals import By
from inference_bench.report.plan_cost_report import format_usd
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import clean, shorten
from inference_bench.units import (
    KILO,
    NOT_AVAILABLE,
    SECONDS_PER_HOUR,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

RULES: Final = (
    "computed are the tokens of every attempt, failed ones too; input from a prefix cache was not computed",
    "completed are whole answers; of use are those of them that somebody waited for and that the application did not refuse afterwards: "
    "a completed answer that nobody judged is taken for one of use",
    "a million tokens cost what was paid over what was made: the utilisation is the one that was bought, not an assumed one",
    "the bill is shared by the time that attempts were in flight, which is what they held of a server",
    "without hours given, what was paid for is the span from the first request to the last end of each place, overlaps once: idle "
    "hours before and after are then not in it",
    "a hosted price is of completed answers whose tokens are known; what a host charges for failed ones is not in it",
    "tokens of rejected speculation stand in no record: they are in none of the sums",
)
_MOST_ROWS: Final = 24
_NAME_CHARS: Final = 28


def paid_words(ledger: Ledger) -> str:
    """What was bought, in words."""
    paid = ledger.paid
    whose = "given" if paid.are_hours_given else "the span of the records"
    devices = f"{format_count(paid.devices)} device{'' if paid.devices == 1 else 's'}"
    return f"{devices} for {_hours(paid.hours)} ({whose})"


def _hours(hours: float) -> str:
    return format_seconds(hours * SECONDS_PER_HOUR) if hours < 1 else f"{format_number(hours)} h"


def apart_table(ledger: Ledger) -> Table:
    """The three that must not be confused: capacity, work and success."""
    sums, paid, money = ledger.sums, ledger.paid, ledger.money
    capacity = None if paid.capacity_output_tokens is None else round(paid.capacity_output_tokens)
    computed = sums.computed_output_tokens
    work = (
        ("computed", f"{format_count(sums.num_attempts)} attempts", sums.computed_input_tokens, computed),
        (
            "completed",
            f"{format_count(sums.num_completed)} requests",
            sums.completed_input_tokens,
            sums.completed_output_tokens,
        ),
        ("of use", f"{format_count(sums.num_useful)} requests", sums.useful_input_tokens, sums.useful_output_tokens),
    )
    bought = f"{format_number(paid.device_hours)} device-hours"
    rows: list[Cells] = [
        ("paid for", bought, NOT_AVAILABLE, format_count(capacity), NOT_AVAILABLE),
        *(
            (what, many, format_count(inputs), format_count(outputs), _of(outputs, computed))
            for what, many, inputs, outputs in work
        ),
    ]
    columns = [
        Column("what", "l"),
        Column("how many"),
        Column("input tokens"),
        Column("output tokens"),
        Column("of computed"),
    ]
    if money is not None and money.usd is not None:
        columns.append(Column("USD/M output"))
        usd = (
            money.usd_per_million_at_capacity,
            money.usd_per_million_computed,
            money.usd_per_million_completed,
            money.usd_per_million_useful,
        )
        rows = [(*row, format_usd(each)) for row, each in zip(rows, usd, strict=True)]
    note = "Input tokens are those that were computed: without what a prefix cache held."
    return Table("Paid for, computed, completed, of use", tuple(columns), tuple(rows), note=note)


def _of(part: int, whole: int) -> str:
    return format_fraction(part / whole) if whole else NOT_AVAILABLE


def reading(ledger: Ledger) -> Iterator[str]:
    """The answer in words."""
    sums, paid, money = ledger.sums, ledger.paid, ledger.money
    if not sums.num_requests:
        yield "no request was recorded"
        return
    served = sums.num_requests - sums.num_warm_up
    share = sums.num_useful / served if served else None
    yield (
        f"{format_fraction(share)} of {format_count(served)} requests were of use to their users, and "
        f"{format_fraction(sums.wasted_output_fraction)} of the output tokens computed were not"
    )
    busy = f"a request or more was in flight in {format_fraction(paid.busy_fraction)} of the time paid for"
    if paid.mean_in_flight is not None:
        busy += f", {format_number(paid.mean_in_flight)} on average"
    if paid.capacity_fraction is not None:
        busy += f"; {format_fraction(paid.capacity_fraction)} of the capacity stated was used"
    yield busy
    if money is not None and money.hosted is not None and money.usd is not None:
        own = money.usd / sums.num_completed if sums.num_completed else None
        yield (
            f"a completed request cost {format_usd(own, 'USD')} here and {format_usd(money.hosted.usd_per_request, 'USD')} at the "
            f"hosted price{_cheaper(own, money.hosted.usd_per_request)}"
        )


def _cheaper(own: float | None, hosted: float) -> str:
    if own is None or own <= 0 or hosted <= 0:
        return ""
    factor = format_number(max(own / hosted, hosted / own))
    return f": hosted is {factor} times {'cheaper' if own > hosted else 'dearer'} at this utilisation"


def detail_tables(ledger: Ledger) -> Iterator[Table]:
    """Answers, waste, money, and each way the sums are told apart."""
    yield _answers_table(ledger)
    yield _waste_table(ledger)
    yield _money_table(ledger)
    for by, groups in ledger.groups.items():
        yield _group_table(by, groups, has_money=ledger.money is not None and ledger.money.usd is not None)


def _answers_table(ledger: Ledger) -> Table:
    sums = ledger.sums
    rows = (
        ("input", format_count(sums.input_tokens), "whole prompts"),
        (
            "of it cached",
            format_count(sums.cached_input_tokens),
            f"{_of(sums.cached_input_tokens, sums.input_tokens)} of input",
        ),
        ("output", format_count(sums.output_tokens), "reasoning included"),
        (
            "of it reasoning",
            format_count(sums.reasoning_tokens),
            f"{_of(sums.reasoning_tokens, sums.output_tokens)} of output",
        ),
    )
    return Table(
        "Tokens of the answers that callers got",
        (Column("of answers", "l"), Column("tokens"), Column("which", "l")),
        rows,
    )


def _waste_table(ledger: Ledger) -> Table:
    columns = (
        Column("why", "l"),
        Column("attempts"),
        Column("input tokens"),
        Column("output tokens"),
        Column("of computed"),
    )
    computed = ledger.sums.computed_output_tokens
    rows = tuple(
        (
            str(each.waste),
            format_count(each.num_attempts),
            format_count(each.input_tokens),
            format_count(each.output_tokens),
            _of(each.output_tokens, computed),
        )
        for each in ledger.sums.wastes()
    )
    return Table("Computed and of no use", columns, rows)


def _money_table(ledger: Ledger) -> Table:
    rows = tuple(_money_rows(ledger))
    return Table("Money", (Column("cost", "l"), Column("USD"), Column("how", "l")), rows)


def _money_rows(ledger: Ledger) -> Iterator[tuple[str, str, str]]:
    money, sums = ledger.money, ledger.sums
    if money is None:
        return
    if money.usd is not None:
        yield "paid", format_usd(money.usd), paid_words(ledger)
        yield (
            "a thousand successful requests",
            format_usd(_thousand(money.usd_per_successful_request)),
            "paid over requests of use",
        )
        yield "M output tokens computed", format_usd(money.usd_per_million_computed), "at the utilisation bought"
        yield "M output tokens of use", format_usd(money.usd_per_million_useful), "the same, without what was wasted"
        yield (
            "M output tokens, if always busy",
            format_usd(money.usd_per_million_if_always_busy),
            "at the pace of the busy time",
        )
    if money.usd_per_million_at_capacity is not None:
        yield "M output tokens at capacity", format_usd(money.usd_per_million_at_capacity), "at the capacity stated"
    if (hosted := money.hosted) is not None:
        yield (
            "hosted, all completed",
            format_usd(hosted.usd),
            f"{format_count(hosted.num_requests)} requests by the token",
        )
        yield (
            "hosted, a thousand requests",
            format_usd(_thousand(hosted.usd_per_request)),
            "input, cached input and output",
        )
        if hosted.break_even_requests_per_day is not None:
            yield (
                "requests a day to break even",
                format_number(hosted.break_even_requests_per_day),
                f"{format_number(hosted.completed_requests_per_day)} a day were completed",
            )
    if not sums.num_useful:
        yield "requests of use", NOT_AVAILABLE, "there were none"


def _group_table(by: By, groups: tuple[Group, ...], *, has_money: bool) -> Table:
    columns = [
        Column(str(by), "l"),
        Column("requests"),
        Column("of use"),
        Column("failed att."),
        Column("input"),
        Column("cached"),
        Column("output"),
        Column("wasted"),
    ]
    columns += [Column("USD"), Column("USD/1k", note="USD/1k: for a thousand requests of use.")] if has_money else []
    rows = []
    for group in groups[:_MOST_ROWS]:
        sums = group.sums
        row = [
            shorten(clean(group.name), _NAME_CHARS),
            format_count(sums.num_requests),
            format_count(sums.num_useful),
            format_count(sums.num_failed_attempts),
            format_count(sums.input_tokens),
            format_count(sums.cached_input_tokens),
            format_count(sums.output_tokens),
            format_fraction(sums.wasted_output_fraction),
        ]
        row += [format_usd(group.usd), format_usd(_thousand(group.usd_per_successful_request))] if has_money else []
        rows.append(tuple(row))
    left = len(groups) - _MOST_ROWS
    note = f"{format_count(left)} more are in the JSON." if left > 0 else ""
    return Table(f"By {by}", tuple(columns), tuple(rows), note=note)


def _thousand(usd: float | None) -> float | None:
    return None if usd is None else usd * KILO


# ── notes ──────────────────────────────────────────────────────────────────────────────────────────


def ledger_notes(ledger: Ledger) -> tuple[str, ...]:
    """What there is to know of the records before the sums are believed."""
    return tuple(
        [
            *(
                f"{clean(source.path.name)}: {line}"
                for source in ledger.sources
                if source.trouble
                for line in _trouble(source.trouble)
            ),
            *_run_notes(ledger),
            *_sum_notes(ledger),
            *_paid_notes(ledger),
        ]
    )


def _trouble(trouble: FileTrouble) -> Iterator[str]:
    if trouble.num_torn:
        yield f"{_many(trouble.num_torn, 'file ends', 'files end')} in a line that was cut short, which is left out"
    if trouble.num_broken:
        yield f"{_many(trouble.num_broken, 'line is', 'lines are')} no record and left out, the first {clean(trouble.first_broken)}"
    if trouble.num_lost:
        yield f"{_many(trouble.num_lost, 'record was', 'records were')} lost while recording: the sums are at least these"
    if trouble.num_again:
        yield f"{_many(trouble.num_again, 'record was', 'records were')} read before, in a copy of the file, and counted once"
    if trouble.num_empty_files:
        yield f"{_many(trouble.num_empty_files, 'file is', 'files are')} empty"
    if trouble.num_clock_steps:
        yield (
            f"the wall clock was set while requests were recorded: {_many(trouble.num_clock_steps, 'time was', 'times were')} taken from "
            "the monotonic clock"
        )


def _run_notes(ledger: Ledger) -> Iterator[str]:
    for source in ledger.sources:
        if source.facts is not None and source.facts.num_unfinished:
            said = _many(source.facts.num_unfinished, "request was", "requests were")
            yield f"{clean(source.facts.name)}: {said} in flight when the run was cut short, and count as cancelled"
    if any(source.facts is not None for source in ledger.sources):
        yield "requests of a run had no users: of use are whole answers of the measured stage, valid documents where some were asked for"
    if ledger.num_same_places:
        yield f"{_many(ledger.num_same_places, 'place was', 'places were')} given twice, or is a copy, and counted once"


def _sum_notes(ledger: Ledger) -> Iterator[str]:
    sums = ledger.sums
    if ledger.num_repeated_ids:
        about = "about " if ledger.is_repeated_estimate else ""
        yield (
            f"{about}{_many(ledger.num_repeated_ids, 'request id stands', 'request ids stand')} in more than one run or process, and each "
            "is counted as a request of its own"
        )
    if sums.num_uncounted:
        yield (
            f"nobody counted the tokens of {_many(sums.num_uncounted, 'attempt', 'attempts')} that failed or ended early: computed and "
            "wasted are at least these"
        )
    if sums.num_lower_bounds:
        yield (
            f"of {_many(sums.num_lower_bounds, 'answer', 'answers')} the pieces that came were counted, for want of tokens: output is at "
            "least this"
        )
    if sums.num_without_input:
        yield (
            f"{_many(sums.num_without_input, 'attempt gave', 'attempts gave')} tokens and no count of input: input is at least this"
        )
    if (unjudged := sums.num_completed - sums.num_judged - sums.num_warm_up) > 0:
        yield f"of {_many(unjudged, 'completed answer', 'completed answers')} nobody said whether it was of use: taken for yes"


def _paid_notes(ledger: Ledger) -> Iterator[str]:
    paid = ledger.paid
    if (busy := paid.busy_fraction) is not None and busy > 1:
        yield "requests were in flight for longer than the hours given: more was used than was paid for, or the hours are wrong"
    if (used := paid.capacity_fraction) is not None and used > 1:
        yield "more output tokens were computed than the capacity stated could make: it is too low"
    if paid.bridged_s > 0:
        yield f"pauses of {format_seconds(paid.bridged_s)} in all were too many to keep apart, and count as busy"


def _many(count: int, one: str, more: str) -> str:
    return f"{format_count(count)} {one if count == 1 else more}"
