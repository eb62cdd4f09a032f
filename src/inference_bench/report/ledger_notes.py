"""What is there to know of a ledger's records before its sums are believed?

In:   Ledger
Out:  sentences
Leaves out: the sums (ledger_tables)
Read next by: ledger_tables, ledger_report, ledger_json.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference_bench.operate.ledger.flow import Ledger
from inference_bench.operate.ledger.lines import FileTrouble
from inference_bench.report.text import clean
from inference_bench.units import format_count, format_seconds


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
        yield f"{many(trouble.num_torn, 'file ends', 'files end')} in a line that was cut short, which is left out"
    if trouble.num_broken:
        yield f"{many(trouble.num_broken, 'line is', 'lines are')} no record and left out, the first {clean(trouble.first_broken)}"
    if trouble.num_lost:
        yield f"{many(trouble.num_lost, 'record was', 'records were')} lost while recording: the sums are at least these"
    if trouble.num_again:
        yield f"{many(trouble.num_again, 'record was', 'records were')} read before, in a copy of the file, and counted once"
    if trouble.num_empty_files:
        yield f"{many(trouble.num_empty_files, 'file is', 'files are')} empty"
    if trouble.num_clock_steps:
        yield (
            f"the wall clock was set while requests were recorded: {many(trouble.num_clock_steps, 'time was', 'times were')} taken from "
            "the monotonic clock"
        )


def _run_notes(ledger: Ledger) -> Iterator[str]:
    for source in ledger.sources:
        if source.facts is not None and source.facts.num_unfinished:
            said = many(source.facts.num_unfinished, "request was", "requests were")
            yield f"{clean(source.facts.name)}: {said} in flight when the run was cut short, and count as cancelled"
    if any(source.facts is not None for source in ledger.sources):
        yield "requests of a run had no users: of use are whole answers of the measured stage, valid documents where some were asked for"
    if ledger.num_same_places:
        yield f"{many(ledger.num_same_places, 'place was', 'places were')} given twice, or is a copy, and counted once"


def _sum_notes(ledger: Ledger) -> Iterator[str]:
    sums = ledger.sums
    if ledger.num_repeated_ids:
        about = "about " if ledger.is_repeated_estimate else ""
        yield (
            f"{about}{many(ledger.num_repeated_ids, 'request id stands', 'request ids stand')} in more than one run or process, and each "
            "is counted as a request of its own"
        )
    yield from _unsaid_notes(ledger)
    if sums.num_refused_attempts:
        yield (
            f"of {many(sums.num_attempts, 'attempt', 'attempts')} sent, {format_count(sums.num_refused_attempts)} "
            f"{'was' if sums.num_refused_attempts == 1 else 'were'} refused or reached no server and computed nothing, and "
            f"{format_count(sums.num_computed_attempts)} had tokens"
        )
    if sums.num_uncounted:
        yield (
            f"nobody counted the tokens of {many(sums.num_uncounted, 'attempt', 'attempts')} that failed or ended early: computed and "
            "wasted are at least these"
        )
    if sums.num_lower_bounds:
        yield (
            f"of {many(sums.num_lower_bounds, 'answer', 'answers')} the pieces that came were counted, for want of tokens: output is at "
            "least this"
        )
    if sums.num_without_input:
        yield (
            f"{many(sums.num_without_input, 'attempt gave', 'attempts gave')} tokens and no count of input: input is at least this"
        )
    if (unjudged := sums.num_completed - sums.num_judged - sums.num_warm_up) > 0:
        yield f"of {many(unjudged, 'completed answer', 'completed answers')} nobody said whether it was of use: taken for yes"


def _unsaid_notes(ledger: Ledger) -> Iterator[str]:
    """Parts of the tokens that servers did not tell apart."""
    sums, hosted = ledger.sums, None if ledger.money is None else ledger.money.hosted
    if sums.num_without_cached:
        unsaid = _unsaid(sums.num_without_cached, sums.num_answers)
        yield f"{unsaid} how much of the input was cached: all input of those counts as computed"
    if hosted is not None and hosted.num_without_cached:
        unsaid = _unsaid(hosted.num_without_cached, hosted.num_requests)
        yield f"at the hosted price, {unsaid} how much was cached: all input of those has the price of input that was not"
    if sums.num_without_reasoning:
        yield f"{_unsaid(sums.num_without_reasoning, sums.num_answers)} how much of the output was reasoning"


def _unsaid(num_without: int, num_answers: int) -> str:
    return f"of {many(num_answers, 'answer', 'answers')} {format_count(num_without)} did not say"


def _paid_notes(ledger: Ledger) -> Iterator[str]:
    paid = ledger.paid
    if (busy := paid.busy_fraction) is not None and busy > 1:
        yield "requests were in flight for longer than the hours given: more was used than was paid for, or the hours are wrong"
    if (used := paid.capacity_fraction) is not None and used > 1:
        yield "more output tokens were computed than the capacity stated could make: it is too low"
    if paid.bridged_s > 0:
        yield f"pauses of {format_seconds(paid.bridged_s)} in all were too many to keep apart, and count as busy"


def many(count: int, one: str, more: str) -> str:
    """So many of something."""
    return f"{format_count(count)} {one if count == 1 else more}"
