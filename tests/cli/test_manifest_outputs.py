"""`manifest outputs` as a person types it: of a load's folder and of a recorder's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.run import keep_manifest
from inference_bench.measure.store import RunFolder
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.report.text import MAX_COLUMNS
from operate.ledger.made import RELEASE_A, RELEASE_B, SECOND, record, whole

SERVED = Manifest((Component(Group.ENGINE, "version", "a test", value="1"),))
FIELDS = [
    "request_id", "manifest_sha256", "prompt_tokens", "output_tokens", "finish_reason", "ttft_s", "e2e_s", "answered_by",
    "is_fallback",
]  # fmt: skip


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Twelve requests, the last of which nobody answered."""
    folder = RunFolder.create(tmp_path, "load")
    folder.update_meta({"target": "http://127.0.0.1:9"})
    keep_manifest(folder, SERVED)
    with folder.open_writer() as writer:
        for number in range(11):
            writer.append(ended(f"measure-{number}\x1b[2J", RequestStatus.COMPLETED, (2.0, 3.0)))
        writer.append(ended("measure-11", RequestStatus.FAILED, ()))
    return folder.path


def ended(name: str, status: RequestStatus, times_s: tuple[float, ...]) -> RequestRecord:
    return RequestRecord(
        name, Origin.MEASURED, Stage.MEASURE, status, 1.0, 1.25, 5.0, times_s,
        prompt_tokens=7, output_tokens=len(times_s) or None, finish_reason="stop" if times_s else None,
    )  # fmt: skip


def test_each_output_is_a_line_with_what_it_came_from_and_how_it_went(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run_dir: Path
) -> None:
    out = tmp_path / "o.jsonl"
    said = run_json(capsys, "manifest", "outputs", str(run_dir), "--out", str(out))
    assert (said["schema"], said["kind"], said["path"]) == ("inference-bench/manifest-outputs/1", "run", str(out))
    assert (said["counts"], said["outputs"]) == ({"outputs": 12, "answered": 11, "fallback": 0}, None)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(line) for line in lines] == [["schema", *FIELDS]] * 12
    assert lines[0] == {
        "schema": "inference-bench/manifest-output/1",
        "request_id": "measure-0\x1b[2J",
        "manifest_sha256": SERVED.sha256,
        "prompt_tokens": 7,
        "output_tokens": 2,
        "finish_reason": "stop",
        "ttft_s": 1.0,
        "e2e_s": 4.0,
        "answered_by": "http://127.0.0.1:9",
        "is_fallback": False,
    }
    assert (lines[11]["answered_by"], lines[11]["finish_reason"], lines[11]["ttft_s"]) == (None, None, None)


def test_json_without_a_file_holds_them_all(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    said = run_json(capsys, "manifest", "outputs", str(run_dir))
    assert (said["path"], said["manifest_sha256"], len(said["outputs"])) == (None, SERVED.sha256, 12)
    assert list(said["outputs"][0]) == FIELDS


def test_text_is_short_fits_a_terminal_and_cannot_move_its_cursor(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    assert main(["manifest", "outputs", str(run_dir)]) == 0
    shown = capsys.readouterr().out
    assert f"manifest SHA-256  {SERVED.sha256}\n" in shown
    assert "records           12, of which 11 were answered, 0 by a fallback\n" in shown
    assert "answered by       http://127.0.0.1:9 11, nobody 1\n" in shown
    assert "finish reasons    stop 11, not said 1\n" in shown
    assert "4 more are in the lines of a file, and in the JSON." in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= MAX_COLUMNS


def test_the_fallback_that_answered_is_named_from_what_a_recorder_wrote(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record(tmp_path / "records", whole(1), whole(2, answered_by=SECOND, is_fallback=True))
    with next((tmp_path / "records").glob("ledger-*.jsonl")).open("a") as file:
        file.write("no record\n")
    said = run_json(capsys, "manifest", "outputs", str(tmp_path / "records"))
    assert said["counts"] == {"outputs": 2, "answered": 2, "fallback": 1}
    assert [list(each) for each in said["outputs"]] == [FIELDS] * 2
    second = said["outputs"][1]
    assert (second["request_id"], second["answered_by"], second["is_fallback"]) == ("request-2", "second", True)
    assert (second["prompt_tokens"], second["output_tokens"], second["finish_reason"]) == (500, 100, "stop")
    assert (second["ttft_s"], second["e2e_s"], second["manifest_sha256"]) == (0.2, 1.0, RELEASE_B)
    assert said["manifest_sha256"] is None, "the fallback serves another"
    (note,) = said["notes"]
    assert note.startswith("lines that are no records, and are left out, first ledger-")
    assert note.endswith(".jsonl line 4: 1")


def test_records_of_one_release_name_it_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record(tmp_path / "records", whole(1), whole(2), whole(3, answered_by=None))
    assert run_json(capsys, "manifest", "outputs", str(tmp_path / "records"))["manifest_sha256"] == RELEASE_A


def test_a_run_that_was_cut_short_says_what_is_missing(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    journal = run_dir / "requests.journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    said = run_json(capsys, "manifest", "outputs", str(run_dir))
    assert said["counts"]["outputs"] < 12
    assert "were cut off when they were written, and are left out" in said["notes"][-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{}/gone",), "is not there; give a run folder"),
        (("{}",), "holds no outputs: neither the meta.json of a run nor records in ledger-*.jsonl"),
        (("{}/text",), "holds no outputs"),
        (("{run}", "--out", "{}/no/o.jsonl"), "would lie in a folder that is not there"),
        (("{run}", "--out", "{run}/requests.journal"), "is a file of what is read"),
        (("{run}", "--out", "{run}/meta.json"), "is a file of what is read"),
    ],
)
def test_a_mistake_is_said_in_one_line_and_harms_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run_dir: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "text").write_text("neither\n")
    before = {each.name: each.read_bytes() for each in run_dir.iterdir()}
    places = (each.replace("{run}", str(run_dir)).replace("{}", str(tmp_path)) for each in arguments)
    assert message in refused(capsys, "manifest", "outputs", *places)
    assert {each.name: each.read_bytes() for each in run_dir.iterdir()} == before


def test_lines_in_the_folder_of_the_run_may_be_written_again(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    out = str(run_dir / "outputs.jsonl")
    assert main(["manifest", "outputs", str(run_dir), "--out", out]) == 0
    assert main(["manifest", "outputs", str(run_dir), "--out", out]) == 0
    assert f"written to {run_dir}" in capsys.readouterr().out


def test_a_run_whose_manifest_was_changed_is_a_no(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    path = run_dir / "manifest.json"
    path.write_text(path.read_text().replace('"1"', '"2"'))
    assert main(["manifest", "outputs", str(run_dir)]) == 1
    assert "was changed after it was made" in capsys.readouterr().err
