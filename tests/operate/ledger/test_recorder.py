"""A recorder loses nothing that it can keep, and says what it lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.errors import RequestError, StorageError
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.content_log import Content, ContentLog
from inference_bench.operate.ledger.recorder import Recorder
from operate.ledger.made import FIRST, HEAD, RELEASE_A, attempt, entries, kept, line, lines, record, whole, write_lines

ROOT = Path(__file__).parents[3]


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record(tmp_path, whole(1))
    (found,) = entries(tmp_path)
    assert (found.request_id, found.status, found.application, found.team) == ("request-1", "completed", "chat", "core")
    assert (found.prompt_tokens, found.cached_prompt_tokens, found.output_tokens, found.reasoning_tokens) == (
        500,
        300,
        100,
        20,
    )
    assert (found.endpoint, found.model, found.finish_reason, found.ttft_s, found.e2e_s) == (
        "first",
        "model-a",
        "stop",
        0.2,
        1.0,
    )
    assert [(each.end, each.prompt_tokens, each.output_tokens) for each in found.attempts] == [("completed", 500, 100)]
    assert (found.manifest_sha256, found.attempts[0].manifest_sha256) == (RELEASE_A, RELEASE_A)


def test_a_digest_that_is_none_is_not_written(tmp_path: Path) -> None:
    said = replace(FIRST, manifest_sha256="what was said")
    record(tmp_path, whole(1, answered_by=said, attempts=(attempt(AttemptEnd.COMPLETED, said),)))
    (found,) = entries(tmp_path)
    assert (found.manifest_sha256, found.attempts[0].manifest_sha256) == (None, None)
    assert "what was said" not in "".join(each.read_text() for each in tmp_path.iterdir())


def test_a_record_of_a_time_before_manifests_is_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1))
    (found,) = entries(tmp_path)
    assert (found.manifest_sha256, found.attempts[0].manifest_sha256) == (None, None)


def test_requests_that_end_together_in_tasks_and_threads_are_each_one_whole_line(tmp_path: Path) -> None:
    with Recorder(tmp_path, applications=("chat",), teams=("core",)) as recorder:

        async def one(number: int) -> None:
            await asyncio.sleep(0)
            recorder(whole(number))

        async def many(first: int) -> None:
            await asyncio.gather(*(one(first + number) for number in range(200)))

        threads = [threading.Thread(target=lambda first=first: asyncio.run(many(first))) for first in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = lines(tmp_path)
    assert len({each["request_id"] for each in found}) == 600
    assert [each["seq"] for each in found] == list(range(1, 601))


def test_a_full_file_is_followed_by_another_and_no_line_is_torn_by_it(tmp_path: Path) -> None:
    record(tmp_path, *map(whole, range(100)), rotate_bytes=8192)
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) > 3
    assert all(file.stat().st_size <= 8192 and file.read_bytes().endswith(b"\n") for file in files)
    assert [each.sequence for each in entries(tmp_path)] == list(range(1, 101))


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    record(tmp_path, whole(1))
    assert [file.stat().st_mode & 0o777 for file in tmp_path.glob("*.jsonl")] == [0o600]


def test_a_killed_process_loses_no_request_that_had_ended(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from operate.ledger.made import whole
from inference_bench.operate.ledger import Recorder
recorder = Recorder(Path(sys.argv[1]), applications=("chat",), teams=("core",))
for number in range(50):
    recorder(whole(number))
print("written", flush=True)
time.sleep(60)
"""
    process = child(code, str(tmp_path))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "written\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(entries(tmp_path)) == 50


def test_a_last_line_that_a_kill_tore_is_left_out_and_said(tmp_path: Path) -> None:
    record(tmp_path, *map(whole, range(10)))
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-20])
    ledger = kept(tmp_path)
    assert ledger.sums.num_requests == 9
    assert ledger.sources[0].trouble is not None
    assert (ledger.sources[0].trouble.num_torn, ledger.sources[0].trouble.num_broken) == (1, 0)


def test_processes_of_one_folder_have_a_file_each_also_after_a_fork(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from operate.ledger.made import whole
from inference_bench.operate.ledger import Recorder
recorder = Recorder(Path(sys.argv[1]), applications=("chat",), teams=("core",))
recorder(whole(1))
if (pid := os.fork()) == 0:
    recorder(whole(2))
    recorder.close()
    os._exit(0)
os.waitpid(pid, 0)
recorder(whole(3))
recorder.close()
"""
    process = child(code, str(tmp_path))
    assert process.communicate(timeout=60)[1] == ""
    files = {file.name: len(file.read_text().splitlines()) - 1 for file in tmp_path.glob("*.jsonl")}
    assert sorted(files.values()) == [1, 2]
    assert kept(tmp_path).sums.num_requests == 3


FULL_DISK = """
import resource, sys
from pathlib import Path
from operate.ledger.made import whole
from inference_bench.errors import StorageError
from inference_bench.operate.ledger import Recorder
recorder = Recorder(Path(sys.argv[1]), applications=("chat",), teams=("core",), on_error=sys.argv[2])
said = []
def write(numbers):
    for number in numbers:
        try:
            recorder(whole(number))
        except StorageError as error:
            said.append(str(error))
write(range(5))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
(file,) = Path(sys.argv[1]).glob("*.jsonl")
resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, hard))  # room for a part of a line
write(range(5, 12))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
write(range(12, 15))
recorder.close()
print(len(said), recorder.num_written, recorder.num_dropped, bool(recorder.last_error))
"""


@pytest.mark.parametrize(("on_error", "num_said"), [("raise", 1), ("drop", 0)])
def test_a_disk_that_fills_is_said_once_or_never_and_what_was_lost_is_counted_in_the_file(
    tmp_path: Path, on_error: str, num_said: int
) -> None:
    process = child(FULL_DISK, str(tmp_path), on_error)
    out, err = process.communicate(timeout=60)
    assert (out, err) == (f"{num_said} 8 7 True\n", "")
    ledger = kept(tmp_path)
    assert ledger.sums.num_requests == 8
    assert ledger.sources[0].trouble is not None
    assert (ledger.sources[0].trouble.num_lost, ledger.sources[0].trouble.num_broken) == (7, 0)


@pytest.mark.parametrize(("fsync_s", "num_waits"), [(None, 0), (0.0, 3), (3600.0, 0)])
def test_the_disk_is_waited_for_as_often_as_was_asked_and_when_a_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync_s: float | None, num_waits: int
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    recorder = Recorder(tmp_path, fsync_s=fsync_s)
    for number in range(3):
        recorder(whole(number))
    assert len(waits) == num_waits
    recorder.flush()
    recorder.close()
    assert len(waits) == num_waits + 2


def test_a_disk_that_cannot_be_waited_for_is_said_and_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    recorder = Recorder(tmp_path, fsync_s=0.0)
    with pytest.raises(StorageError, match="input/output error"):
        recorder(whole(1))
    recorder(whole(2))
    recorder.close()
    assert (recorder.num_written, recorder.num_dropped, kept(tmp_path).sums.num_requests) == (2, 0, 2)


def test_a_folder_that_cannot_be_made_is_said_when_the_recorder_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not record"):
        Recorder(tmp_path / "file" / "folder")


def test_a_number_that_is_none_is_left_out_of_a_line(tmp_path: Path) -> None:
    record(tmp_path, whole(1, ttft_s=float("nan")))
    assert "ttft_s" not in lines(tmp_path)[0]


UNHOLDABLE: list[dict[str, object]] = [
    {"request_id": None},
    {"request_id": 7},
    {"at": None},
    {"e2e_s": None},
    {"e2e_s": 1e300},
    {"output_tokens": 1 << 53},
    {"output_tokens": 10**5_000},
    {"application": ["chat"]},
    {"attempts": None},
    {"user_success": object()},
]


@pytest.mark.parametrize("more", UNHOLDABLE, ids=lambda more: next(iter(more)))
def test_an_answer_that_no_line_can_hold_is_dropped_counted_and_costs_no_other(
    tmp_path: Path, more: dict[str, object]
) -> None:
    odd = whole(1, **more)
    recorder = record(tmp_path, odd, whole(2), on_error="drop")
    assert (recorder.num_written, recorder.num_dropped) == (1, 1)
    assert (recorder.last_error or "").startswith("an answer holds what no record can")
    ledger = kept(tmp_path)
    assert ledger.sums.num_requests == 1
    assert ledger.sources[0].trouble is not None
    assert (ledger.sources[0].trouble.num_lost, ledger.sources[0].trouble.num_broken) == (1, 0)
    with pytest.raises(RequestError, match="what no record can"):
        record(tmp_path, odd)


def test_a_time_that_is_before_the_first_year_elsewhere_is_left_out(tmp_path: Path) -> None:
    recorder = record(tmp_path, whole(1, at="0001-01-01T00:00:00+14:00"), on_error="drop")
    assert (recorder.num_written, recorder.num_dropped) == (1, 0)
    assert "at" not in lines(tmp_path)[0]


def test_content_that_is_no_text_costs_no_record(tmp_path: Path) -> None:
    log = ContentLog(tmp_path / "content", 3600)
    with Recorder(tmp_path / "records", on_error="drop", log_content=True, content=log) as recorder:
        recorder(whole(1), Content(b"asked", "said"))  # type: ignore[arg-type]
    assert (recorder.num_written, recorder.last_error) == (1, "could not record the content of a request: TypeError")


def test_a_file_that_goes_on_after_close_is_another_one(tmp_path: Path) -> None:
    recorder = record(tmp_path, whole(1))
    recorder(whole(2, application="chat"))
    recorder.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert [json.loads(file.read_text().splitlines()[1])["seq"] for file in sorted(tmp_path.glob("*.jsonl"))] == [1, 2]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"rotate_bytes": 10}, "holds no records"),
        ({"fsync_s": -1.0}, "cannot be waited for"),
        ({"on_error": "ignore"}, "rule for failures"),
        ({"unlisted": "keep"}, "rule for names"),
        ({"applications": ["my application"]}, "no name"),
        ({"request_id_pattern": "["}, "no pattern"),
    ],
)
def test_a_recorder_that_cannot_be_is_refused(tmp_path: Path, more: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Recorder(tmp_path, **more)  # type: ignore[arg-type]
