"""The drill on the embedded engine: kill -9 of the real process, its prefix cache, and Ctrl-C on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import inference_bench
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.keeper import descendants
from inference_bench.operate.drill.flow import DrillRequest, run_drill
from inference_bench.operate.drill.isolation import IsolationRequest, Verdict, probe_isolation
from inference_bench.operate.drill.scenarios import scenarios_named
from inference_bench.operate.drill.servers import embedded

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")

PATIENCE_S = 60.0


def test_a_killed_engine_costs_what_was_under_way_and_is_used_again() -> None:
    found = run_drill(DrillRequest(scenarios_named(["killed"]), least_requests=8, max_tokens=12), lambda line: None)
    (killed,) = found.scenarios
    assert killed.problems == ()
    assert killed.tally.broken == ()
    assert killed.tally.answered_by.get("fallback", 0) > 0
    assert killed.recovered_s is not None
    assert found.has_passed


def test_the_embedded_engine_shares_its_prefix_cache_and_says_so(tmp_path: Path) -> None:
    with embedded(ensure_embedded_model(), tmp_path / "engine.log", caches=True) as server:
        found = probe_isolation(IsolationRequest(server.base_url, rounds=6, words=8), lambda line: None)
    assert found.option is None
    shared, without = found.arms
    assert shared.verdict is Verdict.SHARED
    assert shared.other is not None
    assert shared.other.is_told
    assert without.other is not None
    assert without.other.known_cached_tokens in (0, None)


def test_ctrl_c_ends_a_drill_and_both_engines() -> None:
    source = str(Path(inference_bench.__file__).parents[1])
    command = [sys.executable, "-m", "inference_bench", "drill", "--json", "--requests", "8", "--max-tokens", "8"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            until_s = time.monotonic() + PATIENCE_S
            while len(started := descendants(process.pid)) < 2:
                assert time.monotonic() < until_s
                time.sleep(0.1)
            time.sleep(2.0)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"interrupted" in err
    assert json.loads(out)["is_interrupted"] is True
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
