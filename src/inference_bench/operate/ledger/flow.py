"""From folders to a ledger: read once, in bounded memory, each request into its sums.

In:   folders of recorders and of runs, prices, what to tell apart
Out:  Ledger; each Entry on the way, for whoever exports it
Leaves out: how it is said (report.ledger_report)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inference_bench.errors import RunFolderError
from inference_bench.files import shown_name
from inference_bench.operate.ledger.busy import BusyTime
from inference_bench.operate.ledger.entry import Entry
from inference_bench.operate.ledger.lines import FILES, FileTrouble, read_lines
from inference_bench.operate.ledger.money import Money, Paid, Prices, money_of, paid_capacity
from inference_bench.operate.ledger.repeats import RepeatedIds, SeenRecords
from inference_bench.operate.ledger.run_folders import RunFacts, is_run_folder, read_run
from inference_bench.operate.ledger.totals import By, Groups, Share, Sums, shares_of

EVERY: Final = 20_000  # requests between two words of progress
_NO_PLACE: Final = "neither a run folder nor a recorder's"

Sink = Callable[[Entry, "list[Share]"], None]


@dataclass(frozen=True, slots=True)
class Source:
    """One of the places that were named.

    Where:    span_s is from its first request to its last end; trouble is of a recorder's files, facts of a run
    """

    path: Path
    num_requests: int
    span_s: float
    trouble: FileTrouble | None
    facts: RunFacts | None


@dataclass(frozen=True, slots=True)
class Group:
    """Sums of one name, and its part of what was paid: that of its attempts' time in flight.

    Unit:     USD
    """

    name: str
    sums: Sums
    usd: float | None
    usd_per_successful_request: float | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was paid for, computed, completed, and of use to a user."""

    sources: tuple[Source, ...]
    sums: Sums
    paid: Paid
    money: Money | None
    groups: dict[By, tuple[Group, ...]]
    num_repeated_ids: int
    is_repeated_estimate: bool
    num_same_places: int


@dataclass(slots=True)
class _Book:
    """What is added up while reading."""

    sums: Sums
    groups: list[Groups]
    repeated: RepeatedIds
    seen: SeenRecords
    runs: set[str] = field(default_factory=set)
    timed: BusyTime = field(default_factory=BusyTime)  # on the wall clock, of all sources
    spans: BusyTime = field(default_factory=BusyTime)
    busy_s: float = 0.0  # of sources without a wall clock
    span_s: float = 0.0
    bridged_s: float = 0.0
    num_read: int = 0


def keep_ledger(
    paths: Sequence[Path],
    prices: Prices,
    by: Sequence[By] = (By.APPLICATION,),
    sinks: Sequence[Sink] = (),
    progress: Callable[[str], None] | None = None,
) -> Ledger:
    """Read all of these once.

    Raises:   RunFolderError for what is no place of records, or is of a newer version
    """
    book = _Book(Sums(), [Groups(each) for each in dict.fromkeys(by)], RepeatedIds(), SeenRecords())
    places = {path.resolve(): path for path in reversed(paths)}
    found = [_read_source(path, book, sinks, progress) for path in reversed(places.values())]
    sources = [source for source in found if source is not None]
    paid = paid_capacity(
        prices,
        book.sums,
        book.spans.seconds() + book.span_s,
        book.timed.seconds() + book.busy_s,
        book.timed.bridged_s + book.bridged_s,
    )
    money = money_of(prices, paid, book.sums)
    return Ledger(
        sources=tuple(sources),
        sums=book.sums,
        paid=paid,
        money=money,
        groups={groups.by: _priced(groups, book.sums, money) for groups in book.groups},
        num_repeated_ids=book.repeated.count(),
        is_repeated_estimate=book.repeated.is_estimate,
        num_same_places=len(paths) - len(sources),
    )


def _priced(groups: Groups, total: Sums, money: Money | None) -> tuple[Group, ...]:
    """Each name with the part of the bill that its time in flight is of all time in flight."""
    usd = None if money is None else money.usd
    found = []
    for name, sums in groups.sums().items():
        part = usd * (sums.in_flight_s / total.in_flight_s) if usd is not None and total.in_flight_s > 0 else None
        found.append(Group(name, sums, part, part / sums.num_useful if part is not None and sums.num_useful else None))
    return tuple(found)


def _read_source(
    path: Path, book: _Book, sinks: Sequence[Sink], progress: Callable[[str], None] | None
) -> Source | None:
    """Add one place; None for the copy of a run that was added already."""
    facts: RunFacts | None = None
    trouble: FileTrouble | None = None
    if is_run_folder(path):
        facts, entries = read_run(path)
        if facts.fingerprint in book.runs:
            return None
        book.runs.add(facts.fingerprint)
    else:
        _require_records(path)
        trouble = FileTrouble()
        entries = read_lines(path, book.seen, trouble)
    before, busy = book.num_read, BusyTime()
    timed, untimed = _Ends(), _Ends()
    for entry in entries:
        _add(entry, book, busy, untimed if entry.at_s is None else timed)
        shares = list(shares_of(entry))
        for group in book.groups:
            group.add(entry, shares)
        book.sums.add_request(entry)
        for share in shares:
            book.sums.add_share(entry, share)
        for sink in sinks:
            sink(entry, shares)
        if progress is not None and book.num_read % EVERY == 0:
            progress(f"{book.num_read:,} requests read")
    num_requests = book.num_read - before
    if trouble is not None and trouble.num_broken and not (num_requests or trouble.num_again or trouble.num_lost):
        raise RunFolderError(f"{shown_name(path)} is {_NO_PLACE} file: none of its lines is a record")
    book.spans.add(timed.first_s, timed.last_s)
    book.span_s += untimed.span_s
    book.busy_s += busy.seconds()
    book.bridged_s += busy.bridged_s
    return Source(path, num_requests, timed.span_s + untimed.span_s, trouble, facts)


@dataclass(slots=True)
class _Ends:
    """The first begin and the last end on one clock."""

    first_s: float = float("inf")
    last_s: float = float("-inf")

    @property
    def span_s(self) -> float:
        return max(0.0, self.last_s - self.first_s)


def _add(entry: Entry, book: _Book, busy: BusyTime, ends: _Ends) -> None:
    """When a request was in flight; on its source's own clock where no wall clock is known."""
    book.num_read += 1
    book.repeated.add(entry.request_id, entry.source)
    begin_s = entry.began_s if entry.at_s is None else entry.at_s
    ends.first_s = min(ends.first_s, begin_s)
    ends.last_s = max(ends.last_s, begin_s + entry.e2e_s)
    timed = busy if entry.at_s is None else book.timed
    for attempt in entry.attempts:
        if attempt.in_flight_s > 0:
            timed.add(begin_s + attempt.started_s, begin_s + attempt.ended_s)


def _require_records(path: Path) -> None:
    """Refuse a place that no recorder wrote.

    Raises:   RunFolderError
    """
    if path.is_dir() and next(path.glob(FILES), None) is None:
        raise RunFolderError(
            f"{shown_name(path)} is {_NO_PLACE} folder: it holds no meta.json and no {FILES}; give a run folder, the folder that a "
            "recorder writes to, or one of its files"
        )
    if not path.exists():
        raise RunFolderError(
            f"{shown_name(path)} is not there; give a run folder, or the folder that a recorder writes to"
        )
