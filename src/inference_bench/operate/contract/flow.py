"""The whole check, in order, of a server that may go away at any moment.

In:   an address and Wish
Out:  Contract: a row for every question of the groups that were asked, whatever happened
Leaves out: printing
Read next by: cli.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from inference_bench.errors import ServerError, StreamError
from inference_bench.measure.target import ApiKey
from inference_bench.operate.contract.cancelling import cancelling
from inference_bench.operate.contract.catalog import GROUPS, QUESTIONS, group_of
from inference_bench.operate.contract.characters import characters
from inference_bench.operate.contract.context import context
from inference_bench.operate.contract.features import logprobs, parallel, sampling, tools
from inference_bench.operate.contract.greedy import greedy
from inference_bench.operate.contract.limits import limits
from inference_bench.operate.contract.mistakes import mistakes
from inference_bench.operate.contract.routes import keys, routes
from inference_bench.operate.contract.rows import Contract, Row, Verdict, groups_named
from inference_bench.operate.contract.server import Server, open_server, target_of
from inference_bench.operate.contract.stops import stops
from inference_bench.operate.contract.streaming import streaming
from inference_bench.operate.contract.structured import structured
from inference_bench.operate.contract.template import template
from inference_bench.operate.contract.wire import NoReplyError, OutOfTimeError, Wire

TIMEOUT_S: Final = 30.0
BUDGET_S: Final = 300.0

Probe = Callable[[Server], Iterator[Row]]
Progress = Callable[[str], None]
_PROBES: Final[dict[str, tuple[Probe, ...]]] = {
    "routes": (routes, keys),
    "limits": (limits,),
    "streaming": (streaming,),
    "stops": (stops,),
    "structured": (structured,),
    "tools": (tools,),
    "logprobs": (logprobs,),
    "sampling": (sampling,),
    "context": (context,),
    "text": (characters,),
    "cancellation": (cancelling,),
    "template": (template,),
    "errors": (mistakes,),
    "parallel": (parallel,),
    "greedy": (greedy,),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ask, and for how long.

    Where:  timeout_s bounds a request, budget_s the whole check; context_tokens is for a server that does not state its own
    """

    model: str | None = None
    only: tuple[str, ...] = ()
    is_quick: bool = False
    timeout_s: float = TIMEOUT_S
    budget_s: float = BUDGET_S
    context_tokens: int | None = None


def check_contract(
    url: str, wish: Wish | None = None, key: ApiKey | None = None, progress: Progress | None = None
) -> Contract:
    """Ask everything; a server that goes away, a deadline and Ctrl-C leave what was found.

    Raises:   RequestError for an address, group or model that cannot be; ServerError where nothing usable answers at first
    """
    wish = wish or Wish()
    groups = groups_named(wish.only)
    wire = Wire(target_of(url, wish.model, key), wish.timeout_s, wish.budget_s)
    server = Server(wire, wish.is_quick, wish.context_tokens)
    return _Check(server, groups, progress or (lambda _: None)).run()


class _Check:
    """One run: the rows so far, and why those that are missing are missing."""

    def __init__(self, server: Server, groups: tuple[str, ...], progress: Progress) -> None:
        self._server = server
        self._groups = groups
        self._progress = progress
        self._rows: dict[str, Row] = {}
        self._lost: str | None = None
        self._stopped: str | None = None

    def run(self) -> Contract:
        """Everything, from the first question to the last that could be asked."""
        began_s, started_at = time.monotonic(), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._progress("finding out what answers")
        open_server(self._server)
        is_interrupted = False
        try:
            for group in self._groups:
                self._ask(group)
        except KeyboardInterrupt:
            is_interrupted, self._stopped = True, "not asked: interrupted"
            self._fill("")
        server = self._server
        return Contract(
            base_url=str(server.target.address),
            model=server.target.model,
            route=server.path,
            started_at=started_at,
            elapsed_s=time.monotonic() - began_s,
            num_requests=server.wire.num_requests,
            is_quick=server.is_quick,
            groups=self._groups,
            rows=tuple(self._rows[row_id] for row_id in QUESTIONS if row_id in self._rows),
            lost=self._lost,
            is_interrupted=is_interrupted,
        )

    def _ask(self, group: str) -> None:
        """Every question of a group; those without an answer say why."""
        why = ""
        for probe in _PROBES[group] if self._stopped is None else ():
            self._progress(GROUPS[group].lower())
            try:
                for row in probe(self._server):
                    self._rows[row.id] = row
            except OutOfTimeError as error:
                self._stopped = f"not asked: {error}"
            except (NoReplyError, StreamError) as error:
                why = str(error)
                self._look_whether_it_is_gone(group, error)
        self._fill(why, group)

    def _look_whether_it_is_gone(self, group: str, error: ServerError) -> None:
        try:
            is_alive = self._server.is_alive()
        except OutOfTimeError:
            return
        if not is_alive:
            self._lost = f"the server stopped answering at {GROUPS[group].lower()}: {error}"
            self._stopped = "not asked: the server had stopped answering"

    def _fill(self, why: str, group: str | None = None) -> None:
        usual = (
            "left out of a quick check"
            if self._server.is_quick
            else "not asked: something that it rests on did not work"
        )
        for row_id in QUESTIONS:
            if row_id not in self._rows and group_of(row_id) in ((group,) if group else self._groups):
                self._rows[row_id] = Row(row_id, Verdict.UNKNOWN, why or self._stopped or usual)
