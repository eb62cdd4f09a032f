"""By default no word of a prompt, an answer or a key is in any file; where content is asked for, it ends when it was said to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from inference_bench.errors import RequestError
from inference_bench.operate.answers import AttemptEnd, EndpointIdentity
from inference_bench.operate.ledger import Content, ContentLog, Recorder, purge_content
from inference_bench.records import RequestStatus
from inference_bench.report.ledger_report import ledger_json, ledger_text
from operate.ledger.made import FIRST, attempt, lines, record, whole

SECRET = "xyzzy"


def leaky(number: int) -> object:
    """An Answer with text in every place where text could be."""
    said = f"the prompt was {SECRET}"
    at = EndpointIdentity(f"http://u:{SECRET}@host", f"http://u:{SECRET}@host", f"/home/{SECRET}/model a", f"{SECRET}")
    return whole(
        number,
        request_id=said,
        at=said,
        status=RequestStatus.FAILED,
        attempts=(attempt(AttemptEnd.GARBAGE, at, error=said), attempt(AttemptEnd.COMPLETED, at, error=said)),
        answered_by=at,
        finish_reason=said,
        idempotency_key=SECRET,
        application=said,
        team=said,
        error=said,
    )


def everything_under(folder: Path) -> str:
    return "".join(f"{path.name}\n{path.read_text()}" for path in sorted(folder.rglob("*")) if path.is_file())


def test_by_default_no_text_and_no_key_reaches_a_file_or_a_report(tmp_path: Path) -> None:
    from operate.ledger.made import kept

    with Recorder(tmp_path / "records", applications=("chat",), teams=("core",)) as recorder:
        recorder(leaky(1), Content(f"tell me {SECRET}", f"it is {SECRET}"))  # type: ignore[arg-type]
        recorder(whole(2), Content(f"tell me {SECRET}", f"it is {SECRET}"))
    assert SECRET not in everything_under(tmp_path)
    assert recorder.num_written == 2
    ledger = kept(tmp_path / "records")
    assert SECRET not in ledger_text(ledger) + json.dumps(ledger_json(ledger))


def test_a_name_that_is_not_listed_becomes_other_and_is_counted(tmp_path: Path) -> None:
    recorder = record(tmp_path, whole(1, application="mine"), whole(2, team="theirs"), whole(3, application=None))
    found = lines(tmp_path)
    assert [each.get("application") for each in found] == ["other", "chat", None]
    assert [each.get("team") for each in found] == ["core", "other", "core"]
    assert recorder.num_unlisted == 2


@pytest.mark.parametrize("more", [{"application": "mine"}, {"team": SECRET}, {"request_id": f"say {SECRET}"}])
def test_a_name_that_is_not_listed_is_refused_where_that_is_asked_for_and_not_repeated(
    tmp_path: Path, more: dict[str, str]
) -> None:
    with pytest.raises(RequestError) as refusal:
        record(tmp_path, whole(1, **more), unlisted="refuse")
    assert SECRET not in str(refusal.value)
    assert lines(tmp_path) == []


def test_a_request_that_was_refused_is_missing_from_the_sums_and_the_file_says_so(tmp_path: Path) -> None:
    with Recorder(tmp_path, applications=("chat",), teams=("core",), unlisted="refuse") as recorder:
        recorder(whole(1))
        with pytest.raises(RequestError):
            recorder(whole(2, application="mine"))
    assert [each.get("dropped") for each in lines(tmp_path)] == [None, 1]
    assert recorder.num_dropped == 1


@pytest.mark.parametrize("more", [{"application": "mine"}, {"team": SECRET}, {"request_id": f"say {SECRET}"}])
def test_a_recorder_that_drops_failures_never_raises_for_a_name_that_it_refuses(
    tmp_path: Path, more: dict[str, str]
) -> None:
    recorder = record(tmp_path, whole(1), whole(2, **more), whole(3), unlisted="refuse", on_error="drop")
    assert [each.get("dropped") for each in lines(tmp_path)] == [None, 1, None]
    assert (recorder.num_written, recorder.num_dropped, recorder.num_unlisted) == (2, 1, 1)
    assert "not one that this recorder was told of" in (recorder.last_error or "")
    assert SECRET not in (recorder.last_error or "")


@pytest.mark.parametrize(
    ("request_id", "is_kept"),
    [
        ("7f9c24e8-3b1a-4c55-9d52-0f6d2c7f8a11", True),
        ("chatcmpl-8Xk2", True),
        ("what is my diagnosis", False),
        ("diagnosis", False),
        ("a" * 40 + "1" * 40, False),
        ("id-1\nid-2", False),
        ("", False),
    ],
)
def test_a_request_id_is_kept_only_where_it_can_be_no_sentence(tmp_path: Path, request_id: str, is_kept: bool) -> None:
    record(tmp_path, whole(1, request_id=request_id))
    (found,) = lines(tmp_path)
    assert (found["request_id"] == request_id) is is_kept
    assert is_kept or found["request_id"].startswith("other-")


def test_an_error_is_one_of_a_few_words(tmp_path: Path) -> None:
    broken = (attempt(AttemptEnd.SERVER_ERROR, error="it said no"),)
    failed = whole(1, status=RequestStatus.FAILED, attempts=broken, answered_by=None, error="it said no")
    record(tmp_path, failed, whole(2, error="a remark"), whole(3, error="timed_out"))
    assert [each["error"] for each in lines(tmp_path)] == ["server_error", "other", "timed_out"]


def test_a_models_path_is_recorded_without_its_folders(tmp_path: Path) -> None:
    at = EndpointIdentity("first", FIRST.base_url, "/home/somebody/models/small-Q4_1.gguf")
    record(tmp_path, whole(1, answered_by=at))
    assert lines(tmp_path)[0]["model"] == "small-Q4_1.gguf"


# ── content, where it is asked for ─────────────────────────────────────────────────────────────────


class Clock:
    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def test_content_needs_the_flag_and_the_place_and_the_time_all_three(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="give both or neither"):
        Recorder(tmp_path / "records", log_content=True)
    with pytest.raises(RequestError, match="give both or neither"):
        Recorder(tmp_path / "records", content=ContentLog(tmp_path / "content", 3600))
    for retention_s in (0, -1, float("nan"), float("inf")):
        with pytest.raises(RequestError, match="retention time"):
            ContentLog(tmp_path / "content", retention_s)
    with pytest.raises(RequestError, match="folder of its own"):
        Recorder(tmp_path, log_content=True, content=ContentLog(tmp_path, 3600))


def test_content_that_was_asked_for_lies_in_its_own_files_that_only_the_owner_may_read(tmp_path: Path) -> None:
    log = ContentLog(tmp_path / "content", 3600)
    with Recorder(tmp_path / "records", log_content=True, content=log) as recorder:
        recorder(whole(1), Content(f"tell me {SECRET}", "no"))
    assert SECRET not in everything_under(tmp_path / "records")
    (file,) = (tmp_path / "content").iterdir()
    assert (file.stat().st_mode & 0o777, (tmp_path / "content").stat().st_mode & 0o077) == (0o600, 0)
    assert json.loads(file.read_text().splitlines()[1]) == {
        "request_id": "request-1",
        "prompt": f"tell me {SECRET}",
        "output": "no",
    }


def test_content_shows_itself_in_no_message() -> None:
    assert SECRET not in repr(Content(SECRET, SECRET))


def test_no_content_outlives_its_retention_time_once_it_is_purged(tmp_path: Path) -> None:
    clock = Clock()
    log = ContentLog(tmp_path, 100, clock)
    for _ in range(8):
        log.write("id-1", Content(SECRET, SECRET))
        clock.now_s += 30
    log.close()
    written_s = [1_000_000 + 30 * number for number in range(8)]
    purged = purge_content(tmp_path, clock)
    young = [at_s for at_s in written_s if clock.now_s - at_s < 100]
    sure = [at_s for at_s in written_s if clock.now_s - at_s < 90]  # a file holds a tenth of the time
    assert len(sure) <= everything_under(tmp_path).count('"prompt"') <= len(young)
    assert purged.num_kept == len(list(tmp_path.iterdir()))
    clock.now_s += 100
    purge_content(tmp_path, clock)
    assert list(tmp_path.iterdir()) == []


def test_opening_a_log_deletes_what_has_ended(tmp_path: Path) -> None:
    clock = Clock()
    log = ContentLog(tmp_path, 100, clock)
    log.write("id-1", Content(SECRET, SECRET))
    log.close()
    clock.now_s += 101
    ContentLog(tmp_path, 100, clock)
    assert list(tmp_path.iterdir()) == []


DAY_S = 86_400.0


def test_a_clock_that_was_ahead_for_one_write_keeps_nothing_for_longer_than_the_retention_time(tmp_path: Path) -> None:
    clock = Clock(time.time() + 115 * DAY_S)
    log = ContentLog(tmp_path, 10, clock)
    log.write("id-1", Content(SECRET, SECRET))
    clock.now_s = time.time()
    log.write("id-2", Content("later", "later"))
    log.close()
    assert purge_content(tmp_path, clock).num_kept == 2  # it was written just now, as the file system knows
    clock.now_s += 11
    assert purge_content(tmp_path, clock).num_deleted == 2
    assert list(tmp_path.iterdir()) == []


def test_what_claims_to_come_from_the_future_by_more_than_the_retention_time_is_deleted(tmp_path: Path) -> None:
    clock = Clock(time.time() + 115 * DAY_S)
    log = ContentLog(tmp_path, 10, clock)
    log.write("id-1", Content(SECRET, SECRET))
    log.close()
    (file,) = tmp_path.iterdir()
    os.utime(file, (clock.now_s, clock.now_s))  # the clock of the machine was ahead, and the file system's with it
    clock.now_s = time.time()
    assert purge_content(tmp_path, clock).num_deleted == 1


def test_a_file_whose_name_does_not_say_its_retention_time_is_kept_for_no_longer_than_any_may_be(
    tmp_path: Path,
) -> None:
    clock = Clock(time.time())
    far_s, soon_s = int(clock.now_s + 115 * 365 * DAY_S), int(clock.now_s + 100)
    for name in (f"content-until-{far_s}-2-0123abcd.jsonl", f"content-until-{soon_s}-2-0123abcd.jsonl"):
        (tmp_path / name).write_text(SECRET)
    assert purge_content(tmp_path, clock).num_kept == 2
    clock.now_s += 101
    assert purge_content(tmp_path, clock).num_deleted == 1
    clock.now_s += 3_650 * DAY_S
    assert purge_content(tmp_path, clock).num_deleted == 1


def test_a_clock_that_is_set_back_a_little_deletes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    log = ContentLog(tmp_path, 100, clock)
    log.write("id-1", Content("asked", "said"))
    clock.now_s -= 90
    log.write("id-2", Content("asked", "said"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_purge_leaves_files_that_are_not_the_logs_and_follows_no_link(tmp_path: Path) -> None:
    clock = Clock()
    kept_file = tmp_path / "notes.jsonl"
    kept_file.write_text("mine")
    link = tmp_path / "content-until-1-2-0123abcd.jsonl"
    link.symlink_to(kept_file)
    purge_content(tmp_path, clock)
    assert kept_file.read_text() == "mine"
    assert link.is_symlink()
