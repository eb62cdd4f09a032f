"""The main job on the real engine: counts, identity and order are exact; times are only compared with each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.measure.store import read_records
from inference_bench.records import RequestStatus, Stage
from inference_bench.simulate.step_profile import load_profile

pytestmark = pytest.mark.real_engine

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
POINT_KEYS = {"phase", "batch", "context_tokens", "measured_s", "bound_s", "fraction_of_bound", "limited_by", "verdict"}


def run_verify(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> dict[str, Any]:
    code = main(["verify", "--quick", "--json", "--runs", str(folder), *arguments])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    log = tmp_path_factory.mktemp("server") / "engine.log"
    model = ensure_embedded_model()
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=2048, num_slots=4, num_threads=1)
    with LlamaCppServer.start(config, log_path=log, model_sha256=model.sha256) as running:
        yield running


def test_verify_measures_the_embedded_engine_against_this_machines_ceilings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = run_verify(capsys, tmp_path, "--threads", "1")
    points = found["points"]
    assert {(point["phase"], point["batch"]) for point in points} >= {
        ("prefill", 1),
        ("decode", 1),
        ("decode", 2),
        ("decode", 3),
        ("decode", 4),
    }
    for point in points:
        assert set(point) >= POINT_KEYS
        assert point["measured_s"] > 0
        assert point["fraction_of_bound"] == pytest.approx(point["bound_s"] / point["measured_s"])
    assert found["model"]["sha256"] == SHA256
    assert found["model"]["params_total"] == 134_515_008
    assert found["model"]["weights"]["bytes"] == 96_576_768
    assert found["cache_check"]["agrees"] is True
    assert found["cache_check"]["predicted_bytes"] == 4 * 512 * 23_040
    assert len(found["manifest_sha256"]) == 64
    run_dir = Path(found["run_dir"])
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert SHA256 in page
    assert page.count("<svg") >= 4
    assert json.loads((run_dir / "result.json").read_text(encoding="utf-8"))["points"] == points


def test_the_loop_is_closed_on_the_embedded_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "mine.json"
    found = run_verify(capsys, tmp_path, "--threads", "1", "--save-profile", str(profile))
    calibration = found["calibration"]
    kinds = {row["kind"] for row in calibration["observations"]}
    assert kinds >= {"decode", "prefill", "cached prefill"}
    assert "mixed" in kinds or any("of mixed" in note for note in found["notes"])  # a busy machine may end it before
    held = [row for row in calibration["observations"] if row["is_held_out"]]
    assert len(held) >= 4
    assert all(row["predicted_s"] > 0 and row["measured_s"] > 0 for row in held)
    assert calibration["held_out_error"] >= 0
    rows = found["load"]["rows"]
    assert {row["place"] for row in rows} >= {"below", "near"}
    assert all(row["num_completed"] == row["num_requests"] for row in rows)
    assert load_profile(profile) == load_profile(Path(found["run_dir"]) / "profile.json")
    assert found["client"]["cpu"]["engine_cpu_s"] > 0
    groups = [record.group for record in read_records(Path(found["run_dir"])).records if record.stage is Stage.MEASURE]
    assert {group.split("-")[0] for group in groups} >= {"decode", "prefill", "cached", "load"}


def test_every_request_of_a_run_is_kept_and_completed_with_the_output_length_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: LlamaCppServer
) -> None:
    found = run_verify(capsys, tmp_path, server.base_url, "--on", "a10", "--no-load")
    stored = read_records(Path(found["run_dir"]))
    measured = [record for record in stored.records if record.stage is Stage.MEASURE]
    assert len(measured) >= 2 * (1 + 2 + 3 + 4)  # two contexts, each at four batches
    assert stored.num_dropped_lines == 0
    assert {record.status for record in stored.records} == {RequestStatus.COMPLETED}
    assert all(record.output_tokens == record.requested_output_tokens for record in measured)
    decoding = [record for record in measured if record.group.startswith("decode")]
    assert decoding
    assert all(record.cached_prompt_tokens == (record.prompt_tokens or 0) - 1 for record in decoding)
    alone = [record for record in measured if record.group.startswith("prefill")]
    assert alone
    assert {record.cached_prompt_tokens for record in alone} == {0}
    assert server.is_running()
    assert found["cache_check"] is None  # a server that was attached to shows no log


def test_a_cache_format_that_the_engine_does_not_take_is_one_line_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["verify", "--quick", "--on", "here", "--runs", str(tmp_path), "--kv", "fp8"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if "cache format of llama.cpp" in line]
    assert len(said) == 1
    assert "q8_0" in said[0]
    assert not list(tmp_path.glob("*/requests.journal"))


def test_a_running_server_tells_its_own_model_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: LlamaCppServer
) -> None:
    assert (
        main(
            [
                "load",
                server.base_url,
                "--requests",
                "4",
                "--concurrency",
                "2",
                "--output-tokens",
                "8",
                "--json",
                "--runs",
                str(tmp_path),
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["requests"]["sent"] == found["requests"]["completed"] == 4
    assert found["tpot_s"]["count"] == 4
    assert found["token_sources"] == {"server_usage": 4}
    assert main(["report", found["run_dir"]]) == 0
    assert "4 completed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "qwen3-8b"], "8,190,735,360"),
        (["--model", "smollm2-360m"], "134,515,008"),
    ],
)
def test_a_model_that_is_not_the_one_served_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: LlamaCppServer, arguments: list[str], message: str
) -> None:
    assert main(["verify", server.base_url, "--on", "a10", "--runs", str(tmp_path), *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_prompt_is_left_in_a_run_folder(tmp_path: Path, server: LlamaCppServer) -> None:
    assert main(["load", server.base_url, "--requests", "2", "--output-tokens", "8", "--runs", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    from inference_bench.measure.prompts import WORDS

    said = [path.read_bytes().decode("latin-1").split() for path in folder.iterdir()]
    assert sum(map(len, said)) > 100
    assert longest_run(["a", "time", "year", "people", "b"], WORDS) == 3
    assert (
        max(longest_run(words, WORDS) for words in said) < 5
    )  # a prompt is nothing else; a sentence has other words too


def longest_run(words: list[str], known: Collection[str]) -> int:
    length = longest = 0
    for word in words:
        length = length + 1 if word in known else 0
        longest = max(longest, length)
    return longest


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process states are read from /proc")
@pytest.mark.parametrize(
    ("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["ctrl-c", "kill"]
)
def test_an_interrupted_verify_keeps_its_samples_and_leaves_no_process(
    tmp_path: Path, signal_number: signal.Signals, code: int
) -> None:
    command = [
        sys.executable,
        "-m",
        "inference_bench",
        "verify",
        "--quick",
        "--runs",
        str(tmp_path),
        "--threads",
        "1",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            files = list(tmp_path.glob("*/requests.journal"))
            if files and sum(r.stage is Stage.MEASURE for r in read_records(files[0].parent).records) >= 2:
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        engines = children_of(process.pid)
        assert engines
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == code
        assert "Traceback" not in errors
        for _ in range(100):
            if not any(map(is_alive, engines)):
                break
            time.sleep(0.05)
        assert not any(map(is_alive, engines))
        stored = read_records(next(tmp_path.iterdir()))
        assert len([record for record in stored.records if record.status is RequestStatus.COMPLETED]) >= 2
    finally:
        process.kill()
        process.wait()
