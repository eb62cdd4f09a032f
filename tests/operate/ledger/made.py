"""Answers of a service, as its client would give them, and what a recorder's folder then holds."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference_bench.operate.answers import Answer, Attempt, AttemptEnd, EndpointIdentity
from inference_bench.operate.ledger.entry import Entry
from inference_bench.operate.ledger.flow import Ledger, keep_ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.recorder import Recorder
from inference_bench.operate.ledger.totals import By, Share
from inference_bench.records import RequestStatus

RELEASE_A, RELEASE_B = "a1" * 32, "b2" * 32
FIRST = EndpointIdentity("first", "http://127.0.0.1:8000", "model-a", RELEASE_A)
SECOND = EndpointIdentity("second", "http://127.0.0.1:8001", "model-b", RELEASE_B)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def attempt(end: AttemptEnd, at: EndpointIdentity = FIRST, **more: Any) -> Attempt:
    values: dict[str, Any] = {"number": 1, "started_s": 0.0, "ended_s": 1.0, **more}
    return Attempt(endpoint=at, end=end, **values)


def whole(number: int, **more: Any) -> Answer:
    """500 tokens in, of which 300 from a prefix cache; 100 out, of which 20 reasoning."""
    plain = Answer(
        request_id=f"request-{number}",
        at=now(),
        status=RequestStatus.COMPLETED,
        attempts=(attempt(AttemptEnd.COMPLETED, http_status=200, prompt_tokens=500, output_tokens=100),),
        answered_by=FIRST,
        is_fallback=False,
        budget_s=30.0,
        e2e_s=1.0,
        ttft_s=0.2,
        finish_reason="stop",
        prompt_tokens=500,
        cached_prompt_tokens=300,
        output_tokens=100,
        reasoning_tokens=20,
        application="chat",
        team="core",
    )
    return replace(plain, **more)


def record(folder: Path, *answers: Answer, **more: Any) -> Recorder:
    with Recorder(folder, applications=("chat", "search"), teams=("core",), **more) as recorder:
        for answer in answers:
            recorder(answer)
    return recorder


def lines(folder: Path) -> list[dict[str, Any]]:
    """What stands in all files of a folder, but for the lines that begin them."""
    found = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [each for each in found if "schema" not in each]


def write_lines(path: Path, *values: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in values))
    return path


def line(sequence: int, **more: Any) -> dict[str, Any]:
    """A line as a recorder writes it: one completed request of 10 tokens in and 5 out, at one a second."""
    plain = {
        "v": 1, "process": "p1", "seq": sequence, "request_id": f"id-{sequence}", "began_s": float(sequence), "status": "completed",
        "e2e_s": 0.5, "prompt_tokens": 10, "output_tokens": 5, "endpoint": "first",
        "attempts": [{"endpoint": "first", "end": "completed", "started_s": 0.0, "ended_s": 0.5, "output_tokens": 5}],
    }  # fmt: skip
    return {**plain, **more}


HEAD = {"schema": "inference-bench/ledger-record/1", "process": "p1", "begun": "2026-11-30T12:00:00+00:00"}


def kept(*paths: Path, prices: Prices | None = None, by: tuple[By, ...] = (By.APPLICATION,)) -> Ledger:
    return keep_ledger(paths, prices or Prices(), by)


def entries(path: Path) -> list[Entry]:
    found: list[Entry] = []

    def keep(entry: Entry, _: list[Share]) -> None:
        found.append(entry)

    keep_ledger([path], Prices(), sinks=(keep,))
    return found
