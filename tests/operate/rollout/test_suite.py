from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.errors import MeasurementError, RequestError, RunFolderError, StorageError
from inference_bench.measure.store import RunFolder
from inference_bench.operate.rollout.suite import SuiteRequest, ask_suite
from inference_bench.operate.rollout.suite_file import read_suite
from inference_bench.operate.rollout.suite_outcome import SUITE_FILE, SuiteEnd, read_outcome, write_outcome
from measure.truth_server import TruthServer

SECRET = "my grandmother's maiden name"


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def write(path: Path, *items: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def test_an_answer_is_right_when_it_is_the_expected_one_to_the_letter(server: TruthServer, tmp_path: Path) -> None:
    suite = read_suite(
        write(
            tmp_path / "s.jsonl",
            {"prompt": SECRET, "expected": "aaa", "max_tokens": 3},
            {"prompt": SECRET, "expected": "Aaa", "max_tokens": 3},
            {"prompt": SECRET, "expected": " aa\n", "max_tokens": 2},
        )
    )
    found = ask_suite(SuiteRequest(server.url("at_once"), served_model="m"), suite)
    assert [answer.end for answer in found.answers] == [SuiteEnd.RIGHT, SuiteEnd.WRONG, SuiteEnd.RIGHT]
    assert found.answers[0].answer_hash == found.answers[1].answer_hash != found.answers[2].answer_hash


def test_neither_question_nor_answer_reaches_the_file(server: TruthServer, tmp_path: Path) -> None:
    suite = read_suite(write(tmp_path / "s.jsonl", {"prompt": SECRET, "expected": "aa", "max_tokens": 2}))
    run = RunFolder.create(tmp_path, "suite")
    outcome = ask_suite(SuiteRequest(server.url("at_once"), served_model="m"), suite)
    kept = write_outcome(run.path, outcome).read_text()
    assert read_outcome(run.path) == outcome
    assert '"aa"' not in kept
    assert "grandmother" not in kept + repr(suite) + repr(outcome)
    assert hashlib.sha256(b"aa").hexdigest()[:16] not in kept  # a short answer could be found from a plain hash


def test_a_broken_stream_is_no_wrong_answer_but_none(
    server: TruthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_bench.operate.rollout.suite.preflight", lambda target, _timeout_s: target)
    suite = read_suite(write(tmp_path / "s.jsonl", {"prompt": "x", "expected": "a"}))
    with pytest.raises(MeasurementError, match="none of the suite's 1 questions got a whole answer"):
        ask_suite(SuiteRequest(server.url("error_midway"), served_model="m"), suite)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f'{{"prompt": "{SECRET}"', "line 2 .* is not JSON"),
        ("[1]", "is not a JSON object"),
        (f'{{"prompt": "{SECRET}"}}', "has no expected"),
        (f'{{"prompt": "{SECRET}", "expected": 4}}', "has no expected"),
        (f'{{"prompt": "a", "prompt": "{SECRET}", "expected": "4"}}', "line 2 .* the field 'prompt' twice"),
        (f'{{"prompt": "{SECRET}", "expected": "4", "max_tokens": 0}}', "max_tokens"),
        (f'{{"prompt": "{SECRET}", "expected": "4", "seed": 0}}', "a field 'seed'"),
    ],
)
def test_a_broken_suite_is_refused_by_its_line_and_never_quoted(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(RequestError, match=said) as refused:
        read_suite(file)
    assert "grandmother" not in str(refused.value)


def test_an_empty_suite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("\n\n")
    with pytest.raises(RequestError, match="holds no question"):
        read_suite(tmp_path / "s.jsonl")


def test_suites_differ_by_what_is_asked_and_not_by_their_names(tmp_path: Path) -> None:
    item: dict[str, object] = {"prompt": "p", "expected": "e"}
    one, two = (read_suite(write(tmp_path / name, item)) for name in ("a", "b"))
    other = read_suite(write(tmp_path / "c", {**item, "max_tokens": 5}))
    assert one.digest == two.digest != other.digest
    assert one.hash_of("x") != other.hash_of("x")


@pytest.mark.parametrize("broken", [{"schema": "x"}, {"answers": []}, {"answers": [{"end": "maybe"}]}, {"answers": 3}])
def test_an_outcome_that_somebody_broke_is_refused(tmp_path: Path, broken: dict[str, object]) -> None:
    whole = {
        "schema": "inference-bench/suite/1",
        "suite": "s",
        "suite_sha256": "ab" * 32,
        "served_model": None,
        "endpoint": "chat",
        "answers": [{"end": "right", "answer_hash": None, "output_tokens": None}],
    }
    (tmp_path / SUITE_FILE).write_text(json.dumps(whole))
    assert read_outcome(tmp_path) is not None
    (tmp_path / SUITE_FILE).write_text(json.dumps({**whole, **broken}))
    with pytest.raises(RunFolderError, match="no outcome of a suite"):
        read_outcome(tmp_path)


def questions(path: Path, count: int) -> Path:
    return write(path, *({"prompt": f"zebra {number}", "expected": "a", "max_tokens": 1} for number in range(count)))


def test_what_was_answered_before_an_interruption_is_kept_and_the_rest_said_to_be_missing(
    server: TruthServer, tmp_path: Path
) -> None:
    suite = read_suite(questions(tmp_path / "s.jsonl", 5))

    def stop_at_the_second(text: str) -> None:
        if " 2 of 5 " in text:
            signal.raise_signal(signal.SIGINT)

    found = ask_suite(SuiteRequest(server.url("at_once"), served_model="m"), suite, stop_at_the_second)
    assert [answer.end for answer in found.answers] == [SuiteEnd.RIGHT] * 2 + [SuiteEnd.NOT_ASKED] * 3
    assert (found.is_interrupted, found.num_not_asked, found.num_failed) == (True, 3, 0)
    kept = RunFolder.create(tmp_path, "suite").path
    said = json.loads(write_outcome(kept, found).read_text())
    assert (said["is_interrupted"], said["num_not_asked"], said["num_items"]) == (True, 3, 5)
    assert read_outcome(kept) == found


def test_nothing_is_asked_where_the_answers_could_not_be_kept(server: TruthServer, tmp_path: Path) -> None:
    suite = read_suite(questions(tmp_path / "s.jsonl", 2))

    def full() -> None:
        raise StorageError("no space left")

    before = len(server.requests)
    with pytest.raises(StorageError, match="no space left"):
        ask_suite(SuiteRequest(server.url("at_once"), served_model="m"), suite, ready=full)
    assert not any("zebra" in str(each.body) for each in server.requests[before:])
