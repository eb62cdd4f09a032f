"""What a search for a server's capacity found, as text and under stable keys, whichever run it was part of.

In:   CapacityFound and the objectives
Out:  text of at most 100 columns; a dict ready for JSON
Leaves out: the run around it: server, machine, folder (load_capacity_report, load_html_capacity)
Read next by: load_capacity_report, load_html_capacity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from inference_bench.loadtest.capacity_search import Answer, CapacityFound, Judgement, RateTried, Stop
from inference_bench.report.simulate_report import listed
from inference_bench.report.table import Column, Table
from inference_bench.report.text import printable, table_text, wrap
from inference_bench.simulate.rate_search import Limits
from inference_bench.units import format_count, format_fraction, format_number

_DIGITS: Final = 4
_ENDED: Final = {
    Stop.REQUESTS: "the requests that may be sent were used up; more would tell more (--max-requests)",
    Stop.TIME: "the time was used up, and a run that would last longer than what was left was not begun; more would tell "
    "more (--max-time)",
    Stop.RATES: "no rate that may be asked would tell more",
}


def capacity_found_json(found: CapacityFound, limits: Limits) -> dict[str, Any]:
    """The stable keys of an answer; an end of the interval that is not known is null."""
    plan = found.plan
    return {
        "answer": found.answer.value,
        "interval": {
            "low_rate": found.low_rate,
            "high_rate": found.high_rate,
            "half_width": found.half_width,
            "confidence": plan.confidence,
        },
        "objectives": {**dataclasses.asdict(limits), "good_share": plan.share},
        "trials": [_trial(each) for each in found.trials],
        "requests_sent": found.num_sent,
        "dispersion": found.dispersion,
        "is_dispersion_assumed": found.is_dispersion_assumed,
        "stopped_by": None if found.stopped_by is None else found.stopped_by.value,
        "client_limit": found.client_limit,
        "is_consistent": found.is_consistent,
        "is_interrupted": found.is_interrupted,
        "trouble": found.trouble,
    }


def _trial(each: RateTried) -> dict[str, Any]:
    return {
        "rate": each.rate,
        "num_requests": each.num_requests,
        "num_good": each.num_good,
        "verdict": each.verdict.value,
        "num_runs": len(each.runs),
        "is_growing": each.is_growing,
    }


def capacity_found_text(found: CapacityFound, limits: Limits) -> str:
    """The answer, what may be doubted of it, every rate that was tried, and how it was judged."""
    sections = [
        wrap(answer_words(found, limits)),
        listed("doubts", tuple(doubts_of(found))),
        table_text(tried_table(found)),
        wrap(method_words(found)),
    ]
    return "\n\n".join(section for section in sections if section)


def answer_words(found: CapacityFound, limits: Limits) -> str:
    """The interval and what it is of, in a sentence."""
    plan = found.plan
    promise = f"{format_fraction(plan.share, 2)} of the requests within {limits.text.replace('p99 ', '')}"
    low, high = (None if rate is None else format_number(rate, _DIGITS) for rate in (found.low_rate, found.high_rate))
    sure = f"{format_fraction(plan.confidence, 2)} confidence"
    match found.answer:
        case Answer.INTERVAL:
            return f"The highest rate with {promise} lies between {low} and {high} requests/s ({sure})."
        case Answer.ALL_PASS:
            return f"Every rate up to {low} requests/s keeps {promise} ({sure}); none above it was judged."
        case Answer.NONE_PASSES:
            return f"No rate keeps {promise}: not even {high} requests/s ({sure})."
    known = [f"{low} requests/s keep it" if low else "", f"{high} do not" if high else ""]
    said = " and ".join(filter(None, known)) or "no rate is known to keep or to break it"
    return f"The highest rate with {promise} was not found in {format_count(found.num_sent)} requests: {said}."


def doubts_of(found: CapacityFound) -> Iterator[str]:
    """What the answer must not be read without."""
    if found.is_interrupted:
        yield "the search was stopped before its end"
    if found.trouble is not None:
        yield f"the search could not go on: {printable(found.trouble)}"
    if found.client_limit is not None:
        yield f"{found.client_limit}: what the server does above that is not known"
    if found.stopped_by in _ENDED:
        yield f"{_wide_words(found)}{_ENDED[found.stopped_by]}"
    if not found.is_consistent:
        yield "a rate failed below one that passed: the server changed meanwhile, or does better at a higher rate"


def _wide_words(found: CapacityFound) -> str:
    width = found.half_width
    if width is None:
        return ""
    asked = format_fraction(found.plan.half_width, 2)
    return f"the interval is wider than asked (± {format_fraction(width, 2)}, not {asked}): "


def tried_table(found: CapacityFound) -> Table:
    """A row for each rate that was run."""
    columns = (*map(Column, ("rate", "requests", "good", "runs")), Column("verdict", "l"))
    rows = tuple(
        (
            format_number(each.rate, _DIGITS),
            format_count(each.num_requests),
            format_fraction(each.num_good / each.num_requests, 4) if each.num_requests else "n/a",
            format_count(len(each.runs)),
            _verdict_words(each),
        )
        for each in found.trials
    )
    return Table("Rates that were tried", columns, rows, f"{format_count(found.num_sent)} requests were sent in all")


def _verdict_words(each: RateTried) -> str:
    if each.is_growing:
        return "fail: ever more requests wait"
    return "not decided" if each.verdict is Judgement.UNDECIDED else each.verdict.value


def method_words(found: CapacityFound) -> str:
    """How a rate was judged."""
    weight = format_number(found.dispersion, 2)
    if found.is_dispersion_assumed:
        cluster = f"Too few missed to see how misses cluster; that {weight} requests say as much as one alone would is assumed"
    else:
        cluster = f"Misses cluster: {weight} of these requests say as much as one alone would, as measured"
    return f"A request that failed, was cut off or came late is a miss. {cluster}. Requests at both ends of a run are sent and not judged."
