"""Our own client against every case; what the suite does with names, busy machines and clients that are not here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import inference_bench
from inference_bench.cli.main import main
from inference_bench.conform import suite
from inference_bench.conform.oracle import Observed
from inference_bench.conform.script import Case
from inference_bench.conform.suite import MAX_TRIES, Row, SuiteReport, run_suite
from inference_bench.conform.table import ALL_CASES
from inference_bench.errors import MeasurementError, UnknownNameError

OWN = "inference-bench"


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> dict[str, Row]:
    """Every case, run once; a further try of a test looks at them run anew."""
    return _run(getattr(request.node, "execution_count", 1))


@cache
def _run(_number_of_try: int) -> dict[str, Row]:
    found = run_suite([OWN])
    assert found.score(OWN)[1] == len(ALL_CASES)
    return {row.case.name: row for row in found.rows}


def test_there_are_the_cases_that_were_promised() -> None:
    assert len(ALL_CASES) >= 40
    assert all(case.summary.endswith(".") for case in ALL_CASES)


@pytest.mark.parametrize("name", [case.name for case in ALL_CASES])
def test_our_own_client_is_right(rows: dict[str, Row], name: str) -> None:
    row = rows[name]
    assert row.problem is None
    assert row.wrong == (), (row.expected, row.got)


def test_truth_is_what_the_scripts_say(rows: dict[str, Row]) -> None:
    """Worked by hand: the first token after 60 ms, the others every 20 ms."""
    control, late, tail = (rows[name].expected for name in ("control", "role_then_late_token", "long_tail"))
    assert control.ttft_s == pytest.approx(0.06, abs=0.02)
    assert control.gap_mean_s == pytest.approx(0.02, abs=0.003)
    assert late.ttft_s == pytest.approx(0.3, abs=0.03)
    assert tail.close_s is not None
    assert tail.e2e_s is not None
    assert tail.close_s - tail.e2e_s == pytest.approx(0.5, abs=0.03)


class Stub:
    """A client that says what it is told to, without asking the server unless it is honest."""

    def __init__(self, observed: Observed | None, asks: bool = True) -> None:
        self.name = "stub"
        self.num_runs = 0
        self._observed, self._asks = observed, asks

    def why_absent(self) -> str | None:
        return None

    def run(self, case: Case, url: str) -> Observed:
        self.num_runs += 1
        if self._observed is None:
            raise MeasurementError("it broke")
        seen = suite.OwnClient().run(case, url) if self._asks else self._observed
        return replace(seen, status=self._observed.status, tokens=self._observed.tokens, ttft_s=self._observed.ttft_s)


def run_stub(monkeypatch: pytest.MonkeyPatch, stub: Stub, case: str = "control") -> SuiteReport:
    monkeypatch.setattr(suite, "ADAPTERS", (stub,))
    return run_suite(["stub"], [case])


@pytest.mark.parametrize(
    ("observed", "case", "wrong"),
    [
        (Observed("completed", 8), "control", ()),
        (Observed("completed", 9), "control", ("tokens",)),
        (Observed("completed", None), "control", ("tokens",)),
        (Observed("completed", None), "usage_missing", ()),
        (Observed("completed", 8), "stops_early", ("tokens",)),
        (Observed("completed", 4), "error_midway", ("status",)),
        (Observed("failed", 4), "ends_midway", ("status",)),
    ],
)
def test_a_client_that_says_something_else_is_wrong(
    monkeypatch: pytest.MonkeyPatch, observed: Observed, case: str, wrong: tuple[str, ...]
) -> None:
    found = run_stub(monkeypatch, Stub(observed), case)
    assert found.rows[0].wrong == wrong
    assert found.rows[0].tries == 1
    assert found.passed(["stub"]) is not bool(wrong)


def test_times_alone_get_more_tries_and_stay_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Stub(Observed("completed", 8, ttft_s=0.2))
    row = run_stub(monkeypatch, stub).rows[0]
    assert (row.wrong, row.tries, stub.num_runs) == (("ttft_s",), MAX_TRIES, MAX_TRIES)


def test_a_client_that_never_asks_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_stub(monkeypatch, Stub(Observed("completed", 8), asks=False)).rows[0].wrong == ("requests",)


def test_a_client_that_breaks_is_not_right_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run_stub(monkeypatch, Stub(None)).rows[0]
    assert not row.passed
    assert row.problem == "it broke"


@pytest.mark.parametrize("names", [(["curl"], ()), ((), ["nothing_like_this"])])
def test_unknown_names_are_refused(names: tuple[list[str], list[str]]) -> None:
    with pytest.raises(UnknownNameError, match=r"is called .(curl|nothing_like_this)"):
        run_suite(*names)


def test_the_command_prints_the_matrix_and_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", OWN, "--case", "control", "--case", "html"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith(("control", "html"))] == [
        ["control", "ok"],
        ["html", "ok"],
    ]
    assert lines[-1].split() == [OWN, "2", "of", "2"]
    assert max(map(len, lines)) <= 100


@pytest.mark.skipif(sys.platform != "linux", reason="reads the children of a process from /proc")
def test_ctrl_c_ends_the_truth_server_too() -> None:
    source = str(Path(inference_bench.__file__).parents[1])
    command = [sys.executable, "-m", "inference_bench", "conform", OWN, "--json"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        deadline_s = time.monotonic() + 20
        while not (pids := children.read_text().split()):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
        assert running.stderr is not None
        assert running.stderr.read() == b"inference-bench: interrupted\n"
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_json_has_what_was_expected_beside_what_came(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", OWN, "--case", "several_tokens_a_chunk", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "inference-bench/conform/1"
    assert found["score"] == {OWN: {"passed": 1, "cases": 1}}
    (row,) = found["cases"]
    assert (row["name"], row["adapter"], row["passed"]) == ("several_tokens_a_chunk", OWN, True)
    assert row["expected"]["tokens"] == row["got"]["tokens"] == 9


def test_a_named_client_that_is_not_here_is_said_and_is_no_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("INFERENCE_BENCH_GUIDELLM", raising=False)
    assert main(["conform", "guidellm", "--case", "control"]) == 1
    assert "not installed" in capsys.readouterr().out


def test_what_is_wrong_is_said_in_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "ADAPTERS", (Stub(Observed("completed", 9, ttft_s=0.2)),))
    assert main(["conform", "stub", "--case", "control"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "stub, control: tokens 9 instead of 8; ttft 0.2000 s instead of 0.06" in said
    assert "stub 0 of 1" in said


def test_the_page_has_every_case_and_what_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert [case.name for case in ALL_CASES if f"| `{case.name}` | {case.summary} |" not in page] == []
    assert f"**{len(ALL_CASES)} of {len(ALL_CASES)}**" in page
