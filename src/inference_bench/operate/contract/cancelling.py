"""Does the work end when its reader goes away?

In:   an opened Server that says how many requests it is working on
Out:  the row of the group cancellation
Leaves out: servers that give no such number: from outside, a request that goes on looks like any other load
Read next by: flow.

A long stream is begun, seen in the server's own count, and closed. The count then falls at once, or when the stream would have
ended anyway; the pace of its first tokens says when that is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from inference_bench.errors import ServerError
from inference_bench.measure.server_metrics import read_page
from inference_bench.operate.contract.rows import Row, Verdict
from inference_bench.operate.contract.server import COUNTING, Server
from inference_bench.units import format_seconds

_TOKENS: Final = 400
_FIRST_PIECES: Final = 4
_POLL_S: Final = 0.02
_LONGEST_S: Final = 10.0
_EARLY, _LATE = 0.5, 0.8  # shares of the rest of the stream
_ROW: Final = "cancellation.stops"
_ACTION: Final = "bound outputs: what a client gives up is computed to its end"


def cancelling(server: Server) -> Iterator[Row]:
    """A stream that is closed after its first tokens."""
    before = running(server)
    if before is None:
        seen = "the server does not say how many requests it works on"
        yield Row(_ROW, Verdict.UNKNOWN, seen, "turn the server's metrics on, and check again")
        return
    during, rest_s = _begin(server)
    if during is None:
        yield Row(_ROW, Verdict.UNKNOWN, "no long stream came, so there was nothing to close")
    elif during <= before:
        yield Row(_ROW, Verdict.UNKNOWN, "the stream did not show in the server's count of running requests")
    else:
        yield _judged(_fallen_after(server, before, min(rest_s, _LONGEST_S)), rest_s)


def running(server: Server) -> float | None:
    """How many requests the server says it works on: by its metrics, else by its slots."""
    with suppress(ServerError):
        page = server.wire.ask("GET", "/metrics", most_s=_LONGEST_S)
        found = read_page(page.text, 0.0, 0.0) if page.status == 200 else None
        if found is not None and found[1].running is not None:
            return found[1].running
    with suppress(ServerError):
        slots = server.wire.ask("GET", "/slots", most_s=_LONGEST_S).value
        if isinstance(slots, list) and slots:
            return float(sum(bool(slot.get("is_processing")) for slot in slots if isinstance(slot, dict)))
    return None


def _begin(server: Server) -> tuple[float | None, float]:
    """The count while a stream runs, and how long the stream would go on; leaving closes it."""
    most = _TOKENS if server.context_tokens is None else min(_TOKENS, server.context_tokens // 2)
    for extra in ({"ignore_eos": True}, {}):
        fields: dict[str, Any] = {"stream": True, **extra}
        body = json.dumps(server.body(COUNTING, most, fields)).encode()
        with server.wire.stream(server.path, body) as (found, payloads):
            found.was_cut = True
            times_s = [time.monotonic() for _ in zip(range(_FIRST_PIECES), payloads, strict=False)]
            if len(times_s) < _FIRST_PIECES:
                continue
            gap_s = (times_s[-1] - times_s[1]) / (_FIRST_PIECES - 2)
            return running(server), gap_s * most
    return None, 0.0


def _fallen_after(server: Server, before: float, within_s: float) -> float | None:
    closed_s = time.monotonic()
    while (after_s := time.monotonic() - closed_s) <= within_s:
        now = running(server)
        if now is not None and now <= before:
            return after_s
        time.sleep(_POLL_S)
    return None


def _judged(after_s: float | None, rest_s: float) -> Row:
    whole = f"it would have gone on for about {format_seconds(rest_s)}"
    if after_s is None:
        return Row(_ROW, Verdict.NO, f"still running when the check went on; {whole}", _ACTION)
    seen = f"stopped within {format_seconds(max(after_s, _POLL_S), 2)}; {whole}"
    figures = {"stopped_after_s": after_s, "would_take_s": rest_s}
    if after_s < _EARLY * rest_s:
        return Row(_ROW, Verdict.YES, seen, figures=figures)
    if after_s > _LATE * rest_s:
        return Row(_ROW, Verdict.NO, f"{seen}: it ran to its end", _ACTION, figures)
    return Row(_ROW, Verdict.UNKNOWN, f"{seen}: it may have come to its end", figures=figures)
