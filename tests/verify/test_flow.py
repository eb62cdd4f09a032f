"""The whole flow against a server that speaks and computes nothing: what is there at the end, and what goes wrong in one line."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.compare import Phase, Verdict
from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.engines.startup import StartedServer
from inference_bench.errors import InferenceBenchError, MeasurementError, RequestError, ServerError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.source import Source
from inference_bench.measure.store import read_records
from inference_bench.measure.target import Address
from inference_bench.origin import Origin
from inference_bench.records import RequestStatus, Stage
from inference_bench.simulate.step_profile import load_profile
from inference_bench.verify.flow import Progress, VerifyInterrupted, _named_ends, verify_server
from inference_bench.verify.load_workload import LoadBudget
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.session import VerifyRequest
from verify.fake_server import Fake, running
from verify.test_calibration_sweep import PLAN

MACHINE = HardwareSpec(
    "a fixed machine",
    16_000_000_000,
    100e9,
    {"fp32": 5e12},
    Source("chosen for this test", "2026-11-30"),
    Origin.MEASURED,
)
SHORT_LOAD = LoadBudget(seconds=2.0, fewest=8, finds_capacity=False, has_past=False, other_seeds=0)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake()) as server:
        yield server


def request(fake: Fake, folder: Path) -> VerifyRequest:
    return VerifyRequest(
        url=fake.url, machine=MACHINE, plan=replace(PLAN, load_budget=SHORT_LOAD), runs=folder, runs_load=False
    )


def test_the_loop_goes_from_a_sweep_to_a_load_that_was_predicted(fake: Fake, tmp_path: Path) -> None:
    result = verify_server(replace(request(fake, tmp_path), runs_load=True))
    assert {point.measured.phase for point in result.points} == {Phase.PREFILL, Phase.DECODE}
    assert {each.num_waves > 0 for each in (point.measured for point in result.points)} == {True}
    assert result.calibration is not None
    kinds = {each.observation.kind for each in result.calibration.observations}
    assert kinds == set(StepKind) - {StepKind.MIXED}  # this server does not say whether its slots share one cache
    assert any(each.observation.is_held_out for each in result.calibration.observations)
    assert result.calibration.held_out_error is not None
    assert result.gap is not None
    assert result.gap.steps
    assert result.profile_path is not None
    assert load_profile(result.profile_path).machine == MACHINE.name
    assert result.load is not None
    assert [row.place for row in result.load.rows] == ["below", "near"]
    assert all(row.num_completed == row.num_requests >= 8 for row in result.load.rows)
    stored = read_records(result.run_dir).records
    assert len(stored) == len(fake.asked)
    assert {record.status for record in stored} == {RequestStatus.COMPLETED}
    predicted = json.loads((result.run_dir / "prediction.json").read_text(encoding="utf-8"))
    assert predicted
    rested = [body["id_slot"] for body in fake.asked if body["max_tokens"] == 1][-fake.num_slots :]
    assert rested == [3, 2, 1, 0]  # each load finds the slots as a fresh server has them


def test_the_processor_time_of_the_client_is_stated(fake: Fake, tmp_path: Path) -> None:
    cpu = verify_server(request(fake, tmp_path)).client.cpu
    assert cpu is not None
    assert 0 < cpu.client_cpu_s < cpu.wall_s * cpu.num_cores
    assert cpu.engine_cpu_s is None  # somebody else's process
    assert cpu.engine_share is None


def test_without_a_load_the_rest_is_there_and_the_notes_say_so(fake: Fake, tmp_path: Path) -> None:
    result = verify_server(request(fake, tmp_path))
    assert (result.load, result.capacity) == (None, None)
    assert result.calibration is not None
    assert any("no load was predicted or run" in note for note in result.notes)


def test_a_model_that_changes_during_the_run_ends_it_with_both_names_and_what_was_measured(
    fake: Fake, tmp_path: Path
) -> None:
    fake.renamed_after = 15
    with pytest.raises(MeasurementError) as error:
        verify_server(request(fake, tmp_path))
    assert "'smollm2-135m'" in str(error.value)
    assert "'another-model'" in str(error.value)
    assert "\n" not in str(error.value)
    (folder,) = tmp_path.iterdir()
    stored = read_records(folder).records
    assert len([record for record in stored if record.stage is Stage.MEASURE]) > 15


def test_a_server_that_dies_on_its_first_request_is_one_line(fake: Fake, tmp_path: Path) -> None:
    fake.dead_after = 0
    with pytest.raises(MeasurementError) as error:
        verify_server(request(fake, tmp_path))
    assert "the server closed the connection without a single token" in str(error.value)
    assert "\n" not in str(error.value)


def when(beginning: str, act: Callable[[], object]) -> Progress:
    """Progress that does something when a line begins so."""

    def say(line: str) -> None:
        if line.startswith(beginning):
            act()

    return say


def require_a_fit_and_the_first_load(result: VerifyResult) -> None:
    assert result.calibration is not None
    assert result.points
    assert result.load is not None
    below, near = result.load.rows
    assert below.num_completed == below.num_requests > 0
    assert near.num_completed < near.num_requests


def test_a_server_that_dies_in_a_load_leaves_the_fit_the_loads_before_it_and_the_trouble(
    fake: Fake, tmp_path: Path
) -> None:
    result = verify_server(
        replace(request(fake, tmp_path), runs_load=True),
        when("sending the load near", lambda: setattr(fake, "is_gone", True)),
    )
    require_a_fit_and_the_first_load(result)
    assert result.trouble is not None
    assert fake.url.removeprefix("http://") in result.trouble
    assert not result.is_interrupted
    assert any(note.startswith("load-near") for note in result.notes)


def test_a_model_that_changes_in_a_load_leaves_everything_and_the_trouble(fake: Fake, tmp_path: Path) -> None:
    result = verify_server(
        replace(request(fake, tmp_path), runs_load=True),
        when("sending the load near", lambda: setattr(fake, "name", "another-model")),
    )
    assert result.load is not None
    assert all(row.num_completed == row.num_requests for row in result.load.rows)
    assert result.trouble is not None
    assert "'smollm2-135m'" in result.trouble
    assert "'another-model'" in result.trouble


def test_an_interrupted_load_leaves_the_fit_and_the_loads_before_it(fake: Fake, tmp_path: Path) -> None:
    stop = Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        result = verify_server(
            replace(request(fake, tmp_path), runs_load=True), when("sending the load near", stop.start)
        )
    finally:
        stop.cancel()
    require_a_fit_and_the_first_load(result)
    assert result.is_interrupted
    assert result.trouble == "it was interrupted"


def test_an_interrupted_sweep_says_where_its_samples_are(fake: Fake, tmp_path: Path) -> None:
    def stop() -> None:
        if len(fake.asked) > 8:
            raise KeyboardInterrupt

    with pytest.raises(VerifyInterrupted) as interrupted:
        verify_server(request(fake, tmp_path), when("measuring", stop))
    assert read_records(interrupted.value.run_dir).records


def test_a_load_that_is_refused_throughout_says_the_servers_words(fake: Fake, tmp_path: Path) -> None:
    result = verify_server(
        replace(request(fake, tmp_path), runs_load=True),
        when("sending the load", lambda: setattr(fake, "refuses_all", "come back tomorrow")),
    )
    said = [note for note in result.notes if note.startswith("load-below")]
    assert len(said) == 1
    assert "429" in said[0]
    assert "come back tomorrow" in said[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt_factor": 7}, r"prompt tokens.*figure per token"),
        ({"answer_factor": 3}, r"output tokens where \d+ were asked for and \d+ pieces came.*figure per token"),
    ],
)
def test_counts_that_cannot_be_right_are_doubted(tmp_path: Path, changed: dict[str, int], said: str) -> None:
    with running(Fake(**changed)) as odd:  # type: ignore[arg-type]
        result = verify_server(request(odd, tmp_path))
    assert len(result.count_doubts) == 1
    assert re.search(said, result.count_doubts[0])


def test_counts_that_are_right_are_not_doubted(fake: Fake, tmp_path: Path) -> None:
    assert verify_server(request(fake, tmp_path)).count_doubts == ()


def test_steps_that_are_not_known_say_why(tmp_path: Path) -> None:
    with running(Fake(answer_factor=3)) as odd:
        result = verify_server(request(odd, tmp_path))
    assert any("a chunk is not one token" in note for note in result.notes)


def test_replies_without_content_are_named_with_the_folder_of_what_was_measured(tmp_path: Path) -> None:
    with running(Fake(is_silent=True)) as silent, pytest.raises(MeasurementError) as error:
        verify_server(request(silent, tmp_path))
    assert "replies ended without any content" in str(error.value)
    (folder,) = tmp_path.iterdir()
    assert str(error.value).endswith(f"what was measured is in {folder}")


class EndedServer(StartedServer):
    """A server of ours whose process is gone."""

    def __init__(self) -> None:
        self.base_url, self.identity, self.figures = "", EngineIdentity("llama.cpp", "started"), EngineFigures()

    def is_running(self) -> bool:
        return False

    def describe_end(self) -> str:
        return "was ended by SIGSEGV"


@pytest.mark.parametrize("error", [MeasurementError("no warm-up request completed"), ServerError("refused")])
def test_when_a_server_of_ours_ended_that_is_what_is_said(error: InferenceBenchError) -> None:
    with pytest.raises(ServerError, match=r"was ended by SIGSEGV.*engine\.log"), _named_ends(EndedServer()):
        raise error


def test_a_cache_too_small_for_the_sweep_is_one_line(tmp_path: Path) -> None:
    with (
        running(Fake(context_tokens=16)) as small,
        pytest.raises(MeasurementError, match=r"holds 16 positions.*longer context"),
    ):
        verify_server(request(small, tmp_path))


def test_a_short_cache_is_measured_as_far_as_it_goes(tmp_path: Path) -> None:
    with running(Fake(context_tokens=64)) as small:
        result = verify_server(request(small, tmp_path))
    assert any("are cut to" in note and "64 positions" in note for note in result.notes)
    assert max(point.measured.context_tokens for point in result.points) <= 64


def test_a_model_that_cannot_be_identified_is_asked_for(tmp_path: Path) -> None:
    with running(Fake(name="somebodys-own-model")) as unknown:
        with pytest.raises(RequestError, match=r"somebodys-own-model.*name the model"):
            verify_server(request(unknown, tmp_path))
        assert list(tmp_path.iterdir()) == []
        named = verify_server(replace(request(unknown, tmp_path), model="smollm2-135m"))
    assert named.model.spec.name.casefold().startswith("smollm2-135m")


def test_another_machine_that_was_not_named_is_measured_without_bounds(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "is_this_machine", False)
    result = verify_server(replace(request(fake, tmp_path), machine=None))
    assert {point.verdict for point in result.points} == {Verdict.UNKNOWN}
    assert all(point.measured.seconds > 0 for point in result.points)
    assert any("another machine, which was not named" in note for note in result.notes)
    assert any("no step time was fitted" in note for note in result.notes)
    assert (result.calibration, result.profile_path) == (None, None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_threads": 0}, "0 threads"),
        ({"num_slots": -1}, "-1 slots"),
        ({"context_tokens": 0}, "0 positions"),
        ({"engine": "no-engine"}, "llama.cpp, vllm, sglang"),
        ({"engine": "vllm", "model": "nowhere"}, "serves folders as Transformers writes them, or .gguf files"),
        ({"model": "model.safetensors"}, "serves .gguf files"),
        ({"cache": "nope"}, "'nope'"),
        ({"cache": "q4_0/f16/x"}, "'f16/x'"),
        ({"timeout_s": 0.0}, "within 0 s"),
    ],
)
def test_what_cannot_be_started_is_said_before_anything_runs(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    with pytest.raises((RequestError, UnknownNameError)) as error:
        verify_server(replace(VerifyRequest(runs=tmp_path), **changed))  # type: ignore[arg-type]
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_started_here_is_not_measured_against_another_machine(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="runs on this machine"):
        verify_server(VerifyRequest(machine=hardware("rtx-4090"), runs=tmp_path))
