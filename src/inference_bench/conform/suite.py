"""Which cases does each client get right? Runs them all and keeps the score.

In:   names of adapters and cases, none for all
Out:  SuiteReport: a Row for each client and case, and which clients are not here
Leaves out: how it is printed (report/conform_report)
Read next by: cli.

A case whose times alone differ is run again, up to three times in all, since a busy machine can delay either side of a
socket; what a client says of kind and count has to be right at once. The row says how many tries it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.conform.adapters import OWN, Adapter, OwnClient
from inference_bench.conform.oracle import Answer, Observed, compare, is_timing_alone, right_answer
from inference_bench.conform.script import Case
from inference_bench.conform.table import ALL_CASES, case_named
from inference_bench.conform.tools import TOOLS
from inference_bench.conform.truth_process import TruthProcess
from inference_bench.errors import MeasurementError, UnknownNameError

MAX_TRIES: Final = 3
ADAPTERS: Final[tuple[Adapter, ...]] = (OwnClient(), *TOOLS)

_SETTLE_S: Final = 0.01
_SETTLES_WITHIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One client on one case.

    Where:    wrong names the figures that differ; got is None, and problem says why, when the client did not work
    """

    case: Case
    adapter: str
    expected: Answer
    got: Observed | None
    wrong: tuple[str, ...]
    tries: int
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the client said what is right."""
        return self.got is not None and not self.wrong


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """Every row; absent has the clients that could not run, and why."""

    rows: tuple[Row, ...]
    adapters: tuple[str, ...]
    absent: dict[str, str]
    cases: tuple[Case, ...]

    def score(self, adapter: str) -> tuple[int, int]:
        """Cases that a client got right, and all it was asked."""
        rows = [row for row in self.rows if row.adapter == adapter]
        return sum(row.passed for row in rows), len(rows)

    def passed(self, named: Sequence[str] = ()) -> bool:
        """Whether our own client, if it ran, and every client named got every case right; one not here did not."""
        held = {*named, *({OWN} & set(self.adapters))}
        return not held & set(self.absent) and all(row.passed for row in self.rows if row.adapter in held)


def run_suite(
    adapters: Sequence[str] = (), cases: Sequence[str] = (), progress: Callable[[str], None] | None = None
) -> SuiteReport:
    """Run clients through cases against a truth server in a process of its own, which ends with this call.

    Raises:   UnknownNameError; ServerStartError, ServerError
    """
    chosen = [_adapter_named(name) for name in dict.fromkeys(adapters)] or list(ADAPTERS)
    wanted = tuple(case_named(name) for name in dict.fromkeys(cases)) or ALL_CASES
    absent = {each.name: reason for each in chosen if (reason := each.why_absent()) is not None}
    present = [each for each in chosen if each.name not in absent]
    rows: list[Row] = []
    if present:
        with TruthProcess() as server:
            for each in present:
                for number, case in enumerate(wanted, 1):
                    if progress is not None:
                        progress(f"{each.name}: {number} of {len(wanted)}, {case.name}")
                    rows.append(_run_case(server, each, case))
    return SuiteReport(tuple(rows), tuple(each.name for each in present), absent, wanted)


def _adapter_named(name: str) -> Adapter:
    for each in ADAPTERS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in ADAPTERS)
    raise UnknownNameError(f"no client is called {name!r}; known are {known}")


def _run_case(server: TruthProcess, adapter: Adapter, case: Case) -> Row:
    tries = 0
    while True:
        tries += 1
        row = _run_once(server, adapter, case, tries)
        if tries == MAX_TRIES or not is_timing_alone(row.wrong):
            return row


def _run_once(server: TruthProcess, adapter: Adapter, case: Case, tries: int) -> Row:
    server.clear()
    got, problem = None, None
    try:
        got = adapter.run(case, server.url(case.name))
    except MeasurementError as error:
        problem = str(error)
    answer = right_answer(case.name, _settled_log(server, case))
    wrong = () if got is None else compare(answer, got)
    return Row(case, adapter.name, answer, got, wrong, tries, problem)


def _settled_log(server: TruthProcess, case: Case) -> list[dict[str, object]]:
    """The log once every reply in it is over: a client may know of the end before the server wrote it down."""
    deadline_s = time.monotonic() + _SETTLES_WITHIN_S
    while True:
        log = server.log(case.name)
        if all(entry["ended_ns"] is not None for entry in log) or time.monotonic() > deadline_s:
            return log
        time.sleep(_SETTLE_S)
