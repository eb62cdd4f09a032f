from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import RequestError, RunFolderError
from inference_bench.measure.store import RunFolder
from inference_bench.operate.rollout.replay import Limits, replay_run
from inference_bench.operate.rollout.same_server import require_another_server
from inference_bench.records import RequestStatus
from inference_bench.workload import OpenLoop, Workload
from operate.rollout.made import PRIMARY, TIMES_S, record, recorded_run


def times_of(workload: Workload) -> array[float]:
    assert isinstance(workload.arrival, OpenLoop)
    return workload.arrival.times_s


def test_a_run_is_replayed_at_its_times_to_the_last_bit_with_its_lengths(tmp_path: Path) -> None:
    found = replay_run(recorded_run(tmp_path), Limits())
    assert tuple(times_of(found.workload)) == TIMES_S
    assert list(found.workload.requests.prompt_tokens) == [20, 21, 22, 23]
    assert list(found.workload.requests.output_tokens) == [2, 3, 4, 5]
    assert (found.target, found.group, found.why_apart) == (PRIMARY, "measure", None)


def test_limits_cut_and_hasten_the_replay_and_another_speed_is_another_load(tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    assert len(replay_run(run, Limits(max_requests=2)).workload) == 2
    assert len(replay_run(run, Limits(for_s=0.5)).workload) == 3
    fast = replay_run(run, Limits(speed=2.0, for_s=0.25))
    assert list(times_of(fast.workload)) == pytest.approx([0.0, 0.15, 0.2])
    assert "2 times the speed" in str(fast.why_apart)
    assert len(fast.records) == 3


def test_a_closed_loop_is_replayed_as_it_was_sent_and_not_compared(tmp_path: Path) -> None:
    found = replay_run(recorded_run(tmp_path, is_closed=True), Limits())
    assert list(times_of(found.workload)) == pytest.approx(list(TIMES_S))
    assert "waited for answers" in str(found.why_apart)


def test_the_length_of_a_request_that_failed_is_guessed_and_said_to_be(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "load")
    with run.open_writer() as writer:
        for index in range(3):
            failed: dict[str, Any] = {"status": RequestStatus.FAILED, "prompt_tokens": None, "chunk_times_s": ()}
            writer.append(record(index, **(failed if index == 1 else {})))
    found = replay_run(run.path, Limits())
    assert list(found.workload.requests.prompt_tokens) == [20, 21, 22]  # the mean of 20 and 22
    assert "1 recorded requests have no prompt length" in found.workload.notes[0]


def test_turns_of_a_conversation_share_what_came_before_them(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "load")
    lengths = (20, 50, 20, 90)  # 50 = 20 + an answer of 4 + 26 new ones
    with run.open_writer() as writer:
        for index, (session, turn) in enumerate(((0, 0), (0, 1), (1, 0), (0, 2))):
            turn_of = {"session": session, "turn": turn, "requested_output_tokens": 4}
            writer.append(record(index, prompt_tokens=lengths[index], **turn_of))
    requests = replay_run(run.path, Limits()).workload.requests
    assert requests.prompts is not None
    assert requests.prompts[1][:1] == requests.prompts[0]
    assert [segment.num_tokens for segment in requests.prompts[1]] == [20, 4, 26]
    assert requests.prompts[3][:3] == requests.prompts[1]
    assert requests.prompts[2][0] not in requests.prompts[0]


def test_runs_that_cannot_be_replayed_are_refused_with_the_reason(tmp_path: Path) -> None:
    empty = RunFolder.create(tmp_path, "empty")
    with pytest.raises(RunFolderError, match="nothing to replay"):
        replay_run(empty.path, Limits())
    parts = RunFolder.create(tmp_path, "parts")
    with parts.open_writer() as writer:
        for index in range(2):
            writer.append(record(index, group=f"c{index}"))
    with pytest.raises(RequestError, match="several parts: c0, c1"):
        replay_run(parts.path, Limits())
    assert len(replay_run(parts.path, Limits(), "c1").workload) == 1
    unknown = recorded_run(tmp_path, prompt_tokens=None)
    with pytest.raises(RequestError, match="prompt length of the recorded request 0"):
        replay_run(unknown, Limits())


@pytest.mark.parametrize("limits", [{"speed": 0.0}, {"speed": float("nan")}, {"max_requests": 0}, {"for_s": -1.0}])
def test_limits_that_cannot_be_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        Limits(**limits)


@pytest.mark.parametrize(
    ("shadow", "primary"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://localhost:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://127.0.0.1:8000"),
        ("http://0.0.0.0:8000/v1/chat/completions", "http://localhost:8000"),
        ("http://MODELS.invalid:80", "http://models.invalid"),
    ],
)
def test_the_primary_is_never_shadowed_under_any_name_of_its_address(shadow: str, primary: str) -> None:
    with pytest.raises(RequestError, match="is the server that the recorded requests went to"):
        require_another_server(shadow, primary)


def test_another_port_or_host_is_another_server() -> None:
    require_another_server("http://127.0.0.1:8001", "http://127.0.0.1:8000")
    require_another_server("http://one.invalid:8000", "http://two.invalid:8000")
