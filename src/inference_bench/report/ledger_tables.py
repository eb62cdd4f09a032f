"""What does a ledger say? Tables and sentences that the terminal and the page share.

In:   Ledger
Out:  Tables and sentences
Leaves out: how they look (text, html_pieces); notes (ledger_notes)
Read next by: ledger_report, ledger_json.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from inference_bench.operate.ledger.flow import Group, Ledger
from inference_bench.operate.ledger.money import HostedMoney
from inference_bench.operate.ledger.totals import By, Sums
from inference_bench.report.ledger_notes import many
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
    "computed are the tokens of every attempt, failed ones too; input from a prefix cache was not computed. Where nobody said how much "
    "was cached, as of attempts that failed, all of it counts as computed",
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
        ("computed", many(sums.num_computed_attempts, "attempt", "attempts"), sums.computed_input_tokens, computed),
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
    return Table("Paid for, computed, completed, of use", tuple(columns), tuple(rows), note=_input_note(sums))


def _input_note(sums: Sums) -> str:
    """What the input tokens are, and what that takes for granted."""
    if sums.num_answers and sums.num_without_cached == sums.num_answers:
        return "Input tokens are whole prompts: no answer said how much of its own a prefix cache held."
    known = ", as far as the answers said it" if sums.num_without_cached else ""
    return f"Input tokens are those that were computed: without what a prefix cache held{known}."


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


def _cheaper(own: float | None, hosted: float | None) -> str:
    if own is None or own <= 0 or hosted is None or hosted <= 0:
        return ""
    ratio = max(own / hosted, hosted / own)
    if not math.isfinite(ratio):
        return ""
    factor = format_number(ratio)
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
            _part_words(sums.cached_input_fraction, "input", sums.num_without_cached, sums.num_answers),
        ),
        ("output", format_count(sums.output_tokens), "reasoning included"),
        (
            "of it reasoning",
            format_count(sums.reasoning_tokens),
            _part_words(sums.reasoning_fraction, "output", sums.num_without_reasoning, sums.num_answers),
        ),
    )
    return Table(
        "Tokens of the answers that callers got",
        (Column("of answers", "l"), Column("tokens"), Column("which", "l")),
        rows,
    )


def _part_words(fraction: float | None, whole: str, num_without: int, num_answers: int) -> str:
    """Which share of what a part is: of the answers that said it, where not all did."""
    if not num_without:
        return f"{format_fraction(fraction)} of {whole}"
    if num_without == num_answers:
        return "no answer said it"
    said = many(num_answers - num_without, "answer", "answers")
    return f"{format_fraction(fraction)} of the {whole} of {said} that said it"


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
            _charged(hosted),
        )
        if hosted.break_even_requests_per_day is not None:
            yield (
                "requests a day to break even",
                format_number(hosted.break_even_requests_per_day),
                f"{format_number(hosted.completed_requests_per_day)} a day were completed",
            )
    if not sums.num_useful:
        yield "requests of use", NOT_AVAILABLE, "there were none"


def _charged(hosted: HostedMoney) -> str:
    """What the hosted price is made of, and what it takes for granted."""
    if not hosted.num_without_cached:
        return "input, cached input and output"
    whose = "all" if hosted.num_without_cached == hosted.num_requests else format_count(hosted.num_without_cached)
    return f"input and output; of {whose}, input as if none was cached"


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
    return None if usd is None or not math.isfinite(usd * KILO) else usd * KILO
