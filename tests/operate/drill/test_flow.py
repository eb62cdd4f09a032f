"""A whole drill, and what may go wrong around it: nothing stays running, and what was found out is kept."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import inference_bench
from inference_bench.errors import RequestError, ServerError, ServerStartError
from inference_bench.operate.drill.flow import AnswerFile, DrillRequest, check_drill, run_drill
from inference_bench.operate.drill.scenarios import scenarios_named
from inference_bench.report.drill_report import drill_json, drill_text
from operate.drill.fakes import TruthEngine, answer, is_alive, start

PATIENCE_S = 30.0


def say_nothing(_line: str) -> None:
    pass


def drilled(*names: str, **more: Any) -> DrillRequest:
    settings = {"least_requests": 8, "max_tokens": 8, "start": start, **more}
    return DrillRequest(scenarios_named(names), **settings)


class Starts:
    """Remembers every process that was started; fails from the n-th start on."""

    def __init__(self, num_good: int = 1000) -> None:
        self.pids: list[int] = []
        self._num_good = num_good

    def __call__(self, name: str) -> TruthEngine:
        if len(self.pids) >= self._num_good:
            raise ServerStartError("the engine ended before it answered")
        engine = TruthEngine()
        self.pids.append(engine.pid)
        return engine


def test_an_engine_that_will_not_start_ends_the_drill_and_the_other_engine() -> None:
    starts = Starts(1)
    with pytest.raises(ServerStartError):
        run_drill(drilled("reset", start=starts), say_nothing)
    assert len(starts.pids) == 1
    assert not is_alive(starts.pids[0])


def test_a_killed_engine_that_does_not_start_again_is_a_finding_and_what_came_before_is_kept() -> None:
    starts, record = Starts(2), io.StringIO()
    found = run_drill(drilled("reset", "killed", "both-down", start=starts, record=record), say_nothing)
    assert [each.name for each in found.scenarios] == ["reset", "killed"]
    assert found.scenarios[0].has_passed
    assert "ended before it answered" in found.scenarios[1].problems[0]
    assert not found.has_passed
    assert len(starts.pids) == 2
    assert not any(map(is_alive, starts.pids))
    lines = [json.loads(line) for line in record.getvalue().splitlines()]
    assert len(lines) >= found.scenarios[0].tally.sent
    assert "Count from one" not in record.getvalue()
    assert " a a" not in record.getvalue()  # of neither question nor answer is anything on record


def test_a_full_disk_ends_the_record_and_not_the_drill() -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    answers = AnswerFile(Full())
    for _ in range(3):
        answers.add(answer())
    assert (answers.unrecorded, answers.why) == (3, "No space left on device")
    found = run_drill(drilled(record=Full(), soak_s=0.3, kill_every_s=1000.0), say_nothing)
    assert found.soak is not None
    assert found.unrecorded == found.soak.tally.sent > 0
    assert "No space left on device" in drill_text(found)
    assert not found.has_passed  # nothing was killed


def test_somebody_elses_server_is_drilled_and_not_killed() -> None:
    first, second = TruthEngine(), TruthEngine()
    try:
        request = drilled("server-errors", "killed", url=first.base_url, fallback_url=second.base_url, start=None)
        found = run_drill(request, say_nothing)
        assert is_alive(first.pid)
        assert [each.skipped is None for each in found.scenarios] == [True, False]
        assert "not killed" in drill_text(found)
        assert drill_json(found)["scenarios"][1]["passed"] is None
        assert found.has_passed
    finally:
        first.stop()
        second.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "http://192.0.2.1:8000"}, "not on this machine"),
        ({"url": "http://127.0.0.1:1", "fallback_url": "http://192.0.2.1"}, "not on this machine"),
        ({"fallback_url": "http://127.0.0.1:1"}, "without the server"),
        ({"least_requests": 3}, "too few"),
        ({"url": "http://127.0.0.1:1", "soak_s": 5.0}, "random kills"),
    ],
)
def test_what_must_not_be_drilled_is_refused_before_anything_is_sent(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        check_drill(drilled(**settings))


def test_another_machine_is_drilled_where_that_is_allowed() -> None:
    check_drill(drilled(url="http://192.0.2.1:8000", allows_remote=True))


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ServerError):
        run_drill(drilled("reset", url="http://127.0.0.1:1", start=None), say_nothing)


def test_a_soak_of_seconds_accounts_for_every_request_while_servers_die() -> None:
    starts = Starts()
    found = run_drill(drilled(soak_s=3.0, kill_every_s=0.4, start=starts, seed=3), say_nothing)
    assert found.soak is not None
    tally = found.soak.tally
    assert found.soak.kills >= 2
    assert tally.broken == ()
    assert tally.sent == tally.completed + tally.failed + tally.interrupted
    assert tally.answered_by.get("fallback", 0) > 0
    assert found.has_passed
    assert not any(map(is_alive, starts.pids))
    assert "accounted for" in drill_text(found)
    said = drill_json(found)["soak"]
    assert (said["kills"], said["interrupted"], said["is_interrupted"]) == (found.soak.kills, tally.interrupted, False)
    assert len(said["requests"]) == tally.sent
    assert len(said["down"]) == found.soak.kills
    assert sum(each["end_s"] - each["begin_s"] for each in said["down"]) == pytest.approx(found.soak.down_s)
    assert all(0 < each["begin_s"] < each["end_s"] < found.soak.duration_s + 0.1 for each in said["down"])


_INTERRUPTED = """
import json, sys
from inference_bench.operate.drill.flow import DrillRequest, run_drill
from inference_bench.operate.drill.scenarios import scenarios_named
from operate.drill.fakes import TruthEngine

def start(name):
    engine = TruthEngine()
    print(json.dumps({"pid": engine.pid}), flush=True)
    return engine

found = run_drill(
    DrillRequest(scenarios_named(["stall", "reset"]), least_requests=8, max_tokens=8, start=start),
    lambda line: print(json.dumps({"said": line}), flush=True),
)
print(json.dumps({"interrupted": found.is_interrupted, "kept": [each.name for each in found.scenarios]}), flush=True)
"""


@pytest.mark.parametrize(("number", "during"), [(signal.SIGINT, "reset"), (signal.SIGKILL, "stall")])
def test_an_interrupted_drill_leaves_nothing_running_and_keeps_what_was_found(
    number: signal.Signals, during: str
) -> None:
    paths = os.pathsep.join([str(Path(inference_bench.__file__).parents[1]), str(Path(__file__).parents[2])])
    command = [sys.executable, "-W", "error", "-c", _INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}) as process:
        try:
            pids, kept = _follow(process, number, during)
        finally:
            process.kill()
    until_s = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < until_s, "a server outlived the drill"
        time.sleep(0.05)
    assert len(pids) == 2
    if number is signal.SIGINT:
        assert kept == {"interrupted": True, "kept": ["stall"]}


def _follow(process: subprocess.Popen[bytes], number: signal.Signals, during: str) -> tuple[list[int], object]:
    """Interrupt it in a scenario; the servers it had started, and the last it said."""
    pids, last = [], None
    assert process.stdout is not None
    for line in process.stdout:
        last = json.loads(line)
        if "pid" in last:
            pids.append(last["pid"])
        if last.get("said", "").startswith(during):
            time.sleep(0.3)
            process.send_signal(number)
    return pids, last
