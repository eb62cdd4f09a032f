"""`report RUN` of a load run: one that was cut short says so, and its raw samples go where they are asked to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.conform.truth_process import TruthProcess
from inference_bench.errors import RunFolderError
from inference_bench.loadtest.workload_memory import asked_of, asked_to_json
from inference_bench.measure.server_metrics import SERVER_METRICS_FILE, ServerSample, sample_to_json
from inference_bench.measure.store import RunFolder
from inference_bench.notebook import show
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.workload import Fixed, OpenLoop, Poisson, Workload, generate

WORKLOAD = generate(Poisson(20.0), Fixed(64), Fixed(3), 40, seed=3)


def records_of(workload: Workload, group: str, count: int) -> list[RequestRecord]:
    assert isinstance(workload.arrival, OpenLoop)
    return [
        RequestRecord(
            request_id=f"{group}-{index}",
            origin=Origin.MEASURED,
            stage=Stage.MEASURE,
            status=RequestStatus.COMPLETED,
            planned_s=time_s,
            sent_s=time_s,
            end_s=time_s + 0.5,
            chunk_times_s=(time_s + 0.125, time_s + 0.25, time_s + 0.375),
            output_tokens=3,
            token_count_source=TokenCountSource.SERVER_USAGE,
            group=group,
            index=index,
        )
        for index, time_s in enumerate(workload.arrival.times_s[:count])
    ]


def a_run(tmp_path: Path, records: Sequence[RequestRecord], groups: Sequence[str] = ("measure",)) -> Path:
    run = RunFolder.create(tmp_path, "load")
    run.update_meta({"asked": {group: asked_to_json(asked_of(WORKLOAD)) for group in groups}, "served_model": "m"})
    with run.open_writer() as writer:
        for record in records:
            writer.append(record)
        writer.started("late", 9.0, 9.0, group=groups[-1], index=len(records))
        writer.chunks("late", [9.25])
    return run.path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["report", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_that_was_cut_short_says_what_it_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    assert main(["report", str(folder)]) == 0
    shown_text = capsys.readouterr().out
    assert max(map(len, shown_text.splitlines())) <= 100 or str(folder) in shown_text
    text = " ".join(shown_text.split())
    assert "did not come to its end: 30 requests had ended and 1 was in flight" in text
    assert "31 sent, 30 completed, 1 cancelled" in text
    assert "poisson, 31 requests" in text
    assert "as other tools define it" not in text


def test_its_json_has_the_proof_and_every_definition(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    os.truncate(folder / "requests.journal", (folder / "requests.journal").stat().st_size - 1)
    found = shown(capsys, str(folder))
    assert (found["finished"], found["in_flight_at_the_end"], found["dropped_lines"]) == (False, 1, 1)
    assert found["dropped_bytes"] > 0
    assert (found["workload"], found["lengths"]["prompt"]["mean"]) == ("generated", 64.0)
    assert found["arrivals_proof"]["num_requests"] == 31
    assert found["definitions"]["vLLM"]["ttft"]["p50_s"] == pytest.approx(0.125, abs=1e-7)
    assert (found["requests"]["sent"], found["run_dir"]) == (31, str(folder))


def test_what_the_server_said_of_itself_is_shown_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    assert shown(capsys, str(folder))["server"] is None
    samples = [ServerSample(at_s, 0.001, running=2.0, output_tokens_total=total) for at_s, total in ((-1, 0), (99, 7))]
    lines = (sample_to_json("vLLM", sample) for sample in samples)
    (folder / SERVER_METRICS_FILE).write_text("".join(f"{line}\n" for line in lines))
    assert shown(capsys, str(folder))["server"]["output_tokens"] == 7
    assert main(["report", str(folder)]) == 0
    assert "the server counted 7 output tokens" in " ".join(capsys.readouterr().out.split())


def test_definitions_are_shown_where_they_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    assert main(["report", str(folder), "--definitions"]) == 0
    assert "as other tools define it" in capsys.readouterr().out


def test_a_run_that_came_to_its_end_shows_no_such_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    (folder / "result.json").write_text('{"schema": "inference-bench/load/1", "run_dir": "x"}')
    (folder / "report.html").write_text("<html></html>")
    assert main(["report", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "did not come to its end" not in text
    assert "30 completed" in text
    assert text.rstrip().endswith(f"report: {folder / 'report.html'}")
    assert shown(capsys, str(folder)) == {"schema": "inference-bench/load/1", "run_dir": "x"}


def test_the_parts_of_a_sweep_are_not_poured_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    records = [*records_of(WORKLOAD, "5/s", 20), *records_of(WORKLOAD, "10/s", 10)]
    folder = a_run(tmp_path, records, ("5/s", "10/s"))
    parts = shown(capsys, str(folder))["parts"]
    assert [(part["group"], part["requests"]["sent"]) for part in parts] == [("5/s", 20), ("10/s", 11)]
    assert main(["report", str(folder)]) == 0
    assert "part 5/s" in capsys.readouterr().out


def test_a_run_that_remembers_nothing_is_shown_without_a_proof(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path, "verify")
    with run.open_writer() as writer:
        for record in [*records_of(WORKLOAD, "a", 4), *records_of(WORKLOAD, "b", 4)]:
            writer.append(record)
    found = shown(capsys, str(run.path))
    assert (found["requests"]["sent"], found["arrivals_proof"], found["workload"]) == (8, None, None)


def test_exports_are_written_into_the_run_or_where_they_are_asked_to(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 5))
    assert main(["report", str(folder), "--export", "csv"]) == 0
    assert capsys.readouterr().out == f"csv: {folder / 'requests.csv'}\n"
    assert (folder / "requests.csv").read_text().count("\n") == 7
    found = shown(capsys, str(folder), "--export", "vllm", "--out", str(tmp_path / "v.json"))
    assert (found["form"], found["path"]) == ("vllm", str(tmp_path / "v.json"))
    assert json.loads((tmp_path / "v.json").read_text())["model_id"] == "m"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--export", "xlsx"], "no export is called 'xlsx'"),
        (["--out", "x.csv"], "say which"),
        (["--export", "csv", "--out", ""], "an empty text is given for out"),
        (["--export", "csv", "--out", "/"], "is a folder"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str], message: str
) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 5))
    assert main(["report", str(folder), *more]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_a_damaged_journal_is_one_line_with_the_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 5))
    file = folder / "requests.journal"
    content = bytearray(file.read_bytes())
    content[100] ^= 255
    file.write_bytes(content)
    assert main(["report", str(folder)]) == 2
    assert "damaged at byte 26" in capsys.readouterr().err


def test_a_run_of_warm_up_alone_has_nothing_to_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "load")
    with run.open_writer() as writer:
        writer.append(replace(records_of(WORKLOAD, "", 1)[0], stage=Stage.WARMUP))
    assert main(["report", str(run.path)]) == 2
    assert "no measured request" in capsys.readouterr().err


def test_a_finished_run_prints_again_what_was_printed_then(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    (folder / "result.json").write_text('{"schema": "inference-bench/load-capacity/1", "is_interrupted": false}')
    (folder / "report.txt").write_text("The highest rate lies between 4 and 5.\n\nraw samples: x\n")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == "The highest rate lies between 4 and 5.\n\nraw samples: x\n"
    (folder / "report.html").write_text("<html></html>")
    assert main(["report", str(folder), "--definitions"]) == 0
    text = capsys.readouterr().out
    assert "this run as other tools define it" in text
    assert text.endswith(f"\nreport: {folder / 'report.html'}\n")


def test_an_interrupted_run_says_so_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    (folder / "result.json").write_text('{"schema": "inference-bench/load/1", "is_interrupted": true}')
    (folder / "report.txt").write_text("some text \x1b[2Jof a run\n")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == (
        "this run was interrupted: this is what was measured by then\n\nsome text \N{REPLACEMENT CHARACTER}[2Jof a run\n"
    )


def test_a_text_without_a_result_is_not_that_of_a_finished_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = a_run(tmp_path, records_of(WORKLOAD, "measure", 30))
    (folder / "report.txt").write_text("all is well\n")
    assert main(["report", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "all is well" not in text
    assert "did not come to its end" in text
    assert text.endswith("\n")


@pytest.mark.parametrize(
    "asked",
    [
        ["--concurrency", "2", "--requests", "8"],
        ["--concurrency", "1,2", "--requests", "4"],
        ["--find-capacity", "--ttft-p99", "40ms", "--share", "0.5", "--rate", "10", "--max-requests", "90"],
    ],
    ids=("one", "sweep", "capacity"),
)
def test_a_run_is_printed_again_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, asked: Sequence[str]
) -> None:
    with TruthProcess() as server:
        url = server.url("lockstep,first=0.01,gap=0.002")
        lengths = ["--prompt-tokens", "8", "--output-tokens", "4"]
        assert main(["load", url, *asked, *lengths, "--runs", str(tmp_path / "runs"), "--no-report"]) in (0, 1)
    printed = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == printed
    assert printed.endswith(f"raw samples: {folder}\n")


def test_a_verification_is_shown_as_it_was_printed_and_without_that_by_its_reading(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path, "verify")
    (run.path / "result.json").write_text(
        json.dumps({"schema": "inference-bench/verify/1", "reading": ["Decode reached 62 %."]}), encoding="utf-8"
    )
    (run.path / "report.html").write_text("<p>page</p>", encoding="utf-8")
    assert main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out == f"Decode reached 62 %.\n\nreport: {run.path / 'report.html'}\n"
    (run.path / "report.txt").write_text("Does it reach its ceiling? No.\n  Decode \x1b[31m 62 %.\n", encoding="utf-8")
    assert main(["report", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Does it reach its ceiling? No.\n  Decode ")
    assert "\x1b" not in shown
    assert shown.endswith(f"\n\nreport: {run.path / 'report.html'}\n")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_result_with_a_number_that_json_has_not_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, number: str
) -> None:
    run = a_run(tmp_path, records_of(WORKLOAD, "measure", 3))
    (run / "result.json").write_text('{"schema": "inference-bench/verify/2", "elapsed_s": ' + number + "}")
    assert main(["report", str(run), "--json"]) == 2
    said = capsys.readouterr().err
    assert "result.json is not JSON" in said
    assert said.count("\n") == 1


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")
@pytest.mark.parametrize("make", [make_pipe, make_link_to_a_device])
@pytest.mark.parametrize("command", ["report", "compare", "show"])
def test_a_result_that_is_no_file_is_refused_by_name_and_never_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Callable[[Path], None], command: str
) -> None:
    run = a_run(tmp_path, records_of(WORKLOAD, "measure", 3))
    make(run / "result.json")
    if command == "show":
        with pytest.raises(RunFolderError, match="not a regular file"):
            show(run)
        return
    assert main([command, str(run), *([str(run)] if command == "compare" else [])]) == 2
    said = capsys.readouterr().err
    assert "result.json is not a regular file" in said
    assert said.count("\n") == 1
