"""Sweeps: the order of the cases, the same answers by processes, and what is kept when something ends early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import inference_bench
from inference_bench.errors import MissingExtraError, RequestError, WorldError
from inference_bench.simulate.settings import KvMemory, Policy
from inference_bench.simulate.sweep import CaseResult, SweepInterrupted, sweep
from inference_bench.workload import reference_workload
from simulate import sweep_cases
from simulate.reference_case import is_published, published
from simulate.sweep_cases import (
    MEMORY,
    case_of,
    gives_nonsense,
    kills_its_process,
    later,
    named_by_its_process,
    reference_case,
)

PATIENCE_S = 30.0
TESTS = Path(__file__).parents[1]


# ── answers and their order ────────────────────────────────────────────────────────────────────────


def test_processes_give_what_this_process_gives_and_that_is_what_was_published() -> None:
    names = ("static@0.2", "reserve@0.2", "paged@0.2", "chunked@0.2", "chunked@0.25")
    cases = [
        reference_case(float(rate), 300, policy=Policy(policy)) for policy, _, rate in (n.partition("@") for n in names)
    ]
    here, there = sweep(cases, workers=1), sweep(cases, workers=2)
    assert here == there
    for name, result in zip(names, there, strict=True):
        assert result.row is not None
        is_published(result.row, published("scheduling")["rows"][name])
        assert result.checks is not None
        assert result.checks.are_kept
        assert result.arrivals is not None
        assert (result.arrivals.nominal_rate, result.arrivals.num_requests) == (result.row.nominal_rate, 300)
        assert (result.error, result.exit_code, result.outcome) == (None, 0, None)


def test_results_stand_in_the_order_of_the_cases_whatever_ended_first() -> None:
    cases = [case_of(partial(later, wait_s, rate)) for wait_s, rate in ((1.5, 0.1), (0.0, 0.2), (0.0, 0.3))]
    came: list[CaseResult] = []
    results = sweep(cases, workers=2, on_result=came.append)
    assert [result.row.nominal_rate for result in results if result.row] == [0.1, 0.2, 0.3]
    assert [result.case for result in results] == cases
    assert [result.row.nominal_rate for result in came if result.row] == [0.2, 0.3, 0.1]


def test_a_workload_may_be_given_itself_and_a_run_may_be_kept() -> None:
    workload = reference_workload(0.25, 20)
    (result,) = sweep([replace(reference_case(1.0), workload=workload, keeps_outcome=True)], workers=1)
    (sent,) = sweep([result.case, result.case], workers=2)[:1]
    assert result.outcome is not None
    assert result.outcome.workload is workload
    assert len(result.outcome.timeline.time_s) > 10
    assert sent.outcome == result.outcome
    assert [result] == sweep([result.case], workers=1)


def test_no_case_is_no_result() -> None:
    assert sweep([]) == sweep([], workers=2) == []


# ── where they run ─────────────────────────────────────────────────────────────────────────────────


def processes_of(results: list[CaseResult]) -> set[int]:
    return {int(result.outcome.workload.name) for result in results if result.outcome}


def test_few_small_cases_stay_in_this_process_and_many_requests_go_to_others() -> None:
    small = [case_of(named_by_its_process, keeps_outcome=True)] * 3
    assert processes_of(sweep(small)) == {os.getpid()}
    large = [case_of(named_by_its_process, count=100_000, keeps_outcome=True)] * 3
    assert processes_of(sweep(large, workers=1)) == {os.getpid()}
    others = processes_of(sweep(large))
    assert len(others) in range(1, 4)
    assert (os.getpid() in others) == (os.cpu_count() == 1)


@pytest.mark.parametrize(("workers", "backend"), [(0, "local"), (-1, "ray"), (1, "moon")])
def test_a_sweep_that_nobody_could_run_is_refused(workers: int, backend: str) -> None:
    with pytest.raises(RequestError, match=r"workers cannot run anything|no backend .* known: local, ray"):
        sweep([reference_case(0.2)], workers, backend)


def test_ray_that_is_not_installed_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[ray\]'"):
        sweep([reference_case(0.2)], backend="ray")


# ── cases that cannot run ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [1, 2])
def test_a_case_that_cannot_run_says_why_and_the_others_go_on(workers: int) -> None:
    setup = replace(reference_case(0.2).setup, memory=KvMemory(MEMORY.bytes_per_position, MEMORY.bytes_per_position))
    cases = [
        reference_case(0.2),
        reference_case(0.2, setup=setup),
        reference_case(-1.0),
        case_of(gives_nonsense),
        reference_case(0.3),
    ]
    results = sweep(cases, workers)
    assert [result.exit_code for result in results] == [0, 2, 2, 3, 0]
    assert [result.row is None for result in results] == [False, True, True, True, False]
    said = [str(result.error) for result in results]
    assert "can never fit" in said[1]
    assert "the rate is -1.0 requests/s" in said[2]
    assert "AttributeError" in said[3]
    assert "report it" in said[3]


def test_a_process_that_is_killed_takes_only_its_own_case_along() -> None:
    deadly = case_of(kills_its_process)
    cases = [deadly, reference_case(0.1), deadly, reference_case(0.2), deadly, reference_case(0.3)]
    results = sweep(cases, workers=2)
    assert [result.row.nominal_rate for result in results if result.row] == [0.1, 0.2, 0.3]
    for result in results[::2]:
        assert (result.row, result.exit_code) == (None, WorldError.exit_code)
        assert "ended by SIGKILL" in str(result.error)


def test_a_case_that_cannot_be_sent_says_so() -> None:
    results = sweep([case_of(lambda: reference_workload(0.2, 5)), reference_case(0.1), reference_case(0.2)], workers=2)
    assert "cannot be sent to another process" in str(results[0].error)
    assert [result.exit_code for result in results] == [3, 0, 0]


def test_a_script_that_starts_processes_as_it_is_imported_is_told_how_to_do_it(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from simulate.sweep_cases import reference_case\n"
        "from inference_bench.simulate.sweep import sweep\n"
        "sweep([reference_case(0.2), reference_case(0.3)], workers=2)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script], env=environment(), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert "do so under if __name__ == '__main__', or with one worker" in done.stderr.splitlines()[-1]


# ── interruptions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_sweep_carries_what_had_ended_in_the_order_of_the_cases(workers: int) -> None:
    count = 0

    def interrupt(_: CaseResult) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as caught:
        sweep([reference_case(rate) for rate in (0.1, 0.2, 0.3, 0.4)], workers, on_result=interrupt)
    rates = [result.row.nominal_rate for result in caught.value.results if result.row]
    assert len(rates) == 2
    assert rates == sorted(rates)


def environment() -> dict[str, str]:
    source = str(Path(inference_bench.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(TESTS)])}


@contextmanager
def running_sweep(backend: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep of which three cases have ended and one never will; its processes hold its standard error open."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", sweep_cases.__file__, backend],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert sorted(process.stdout.readline() for _ in range(3)) == ["got 0.1\n", "got 0.2\n", "got 0.3\n"]
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("is_for_all", [True, False], ids=["terminal", "one process"])
def test_ctrl_c_keeps_the_rows_that_had_ended_and_leaves_no_process_behind(is_for_all: bool) -> None:
    with running_sweep("local") as process:
        (os.killpg if is_for_all else os.kill)(process.pid, signal.SIGINT)
        # ends only once every process has closed standard error
        said, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said, complaints) == (sweep_cases.INTERRUPTED, "kept [0.1, 0.2, 0.3]\n", "")


def test_processes_end_when_the_one_that_started_them_is_killed() -> None:
    with running_sweep("local") as process:
        process.kill()
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (-signal.SIGKILL, "")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the list of processes as Linux gives it")
def test_a_sweep_leaves_no_process_that_its_program_would_have_to_wait_for() -> None:
    code = """
import os
from pathlib import Path
from simulate.sweep_cases import reference_case
from inference_bench.simulate.sweep import sweep
def main():
    assert all(each.row for each in sweep([reference_case(0.1)] * 2, workers=2))
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    print(sum(1 for stat in stats if stat[1] == str(os.getpid())))
if __name__ == "__main__":
    main()
"""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, str(script)], env=environment(), capture_output=True, text=True, check=True
        )
    assert done.stdout == "0\n"
