"""The same sweeps as tasks of Ray, on an instance of this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from inference_bench.errors import WorldError
from inference_bench.simulate.settings import Policy
from inference_bench.simulate.sweep import CaseResult, sweep
from simulate.sweep_cases import INTERRUPTED, case_of, kills_its_process, reference_case
from simulate.test_sweep import PATIENCE_S, running_sweep

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        find_spec("ray") is None,
        reason="ray is not installed, so no sweep ran on it: pip install 'inference-bench[ray]'",
    ),
]


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Whatever happens, no instance of Ray stays."""
    yield
    import ray

    ray.shutdown()


def test_ray_gives_the_same_results_in_the_same_order() -> None:
    cases = [reference_case(rate, 100, policy=policy) for policy in Policy for rate in (0.1, 0.3)]
    cases.insert(3, reference_case(-1.0))
    addresses: set[str] = set()

    def look(_: CaseResult) -> None:
        import ray

        addresses.update(node["NodeManagerAddress"] for node in ray.nodes())

    assert sweep(cases, workers=2, backend="ray", on_result=look) == sweep(cases, workers=1)
    assert addresses == {"127.0.0.1"}
    import ray

    assert not ray.is_initialized()


def test_a_worker_that_is_killed_takes_only_its_own_case_along_and_ray_ends_on_failure_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import ray

    results = sweep([reference_case(0.1), case_of(kills_its_process), reference_case(0.2)], workers=2, backend="ray")
    assert [result.exit_code for result in results] == [0, WorldError.exit_code, 0]
    assert "Ray lost it" in str(results[1].error)

    def fail(_: CaseResult) -> None:
        raise WorldError("the disk is full")

    with pytest.raises(WorldError, match="the disk is full"):
        sweep([reference_case(0.1)], workers=2, backend="ray", on_result=fail)
    assert not ray.is_initialized()
    assert capsys.readouterr().out == ""


def test_an_instance_that_is_there_is_used_and_left_running() -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    (result,) = sweep([reference_case(0.2)], backend="ray")
    assert result.row is not None
    assert ray.is_initialized()


def others_of_session(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, of_session = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
            if int(of_session) == session and state != "Z":
                found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc, which is not here")
def test_ctrl_c_keeps_the_rows_that_had_ended_and_ends_ray() -> None:
    with running_sweep("ray") as process:
        assert len(others_of_session(process.pid)) > 3
        os.killpg(process.pid, signal.SIGINT)
        said, complaints = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said, complaints) == (INTERRUPTED, "kept [0.1, 0.2, 0.3]\n", "")
        deadline_s = time.monotonic() + PATIENCE_S
        while others_of_session(process.pid):
            assert time.monotonic() < deadline_s, "Ray is still running"
            time.sleep(0.1)
