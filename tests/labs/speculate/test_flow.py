"""The lab from its request to its result, on a random model of two layers with a random draft."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.cli import lab_speculate
from inference_bench.errors import RequestError, ServerStartError
from inference_bench.labs.checks import missed
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.speculate import flow
from inference_bench.labs.speculate.flow import run_lab
from inference_bench.labs.speculate.request import SpeculateRequest
from inference_bench.labs.speculate.result import SpeculateResult
from inference_bench.report.lab_page import lab_text
from inference_bench.report.lab_speculate import lab_page
from labs.tiny import write


def settings(folder: Path, *, is_quick: bool = True) -> LabSettings:
    return LabSettings(model=str(folder), num_threads=1, is_quick=is_quick)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def result(folder: Path) -> SpeculateResult:
    target, draft = write(folder / "target", seed=0), write(folder / "draft", seed=1)
    return run_lab(SpeculateRequest(settings(target), draft=str(draft), gammas=(2, 3), num_tokens=8))


def test_all_checks_hold_for_a_lookup_an_early_exit_and_a_model_of_its_own(result: SpeculateResult) -> None:
    assert [each.kind for each in result.drafts] == ["lookup", "early exit", "draft model"]
    assert missed(result.checks) == ()
    assert {each.num_equal_prompts for each in result.runs} == {5}


def test_it_says_what_it_left_out_and_that_a_folder_cannot_be_served(result: SpeculateResult) -> None:
    assert result.server is None
    said = "; ".join(result.head.left_out)
    assert "the embedded engine serves .gguf files, and this model is none" in said
    assert "three of the eight prompts" in said


def test_the_draft_model_is_known_by_its_own_hash(result: SpeculateResult) -> None:
    identity = result.drafts[2].identity
    assert identity is not None
    assert result.head.subject is not None
    assert identity.sha256 != result.head.subject.sha256
    assert result.head.subject.name == "target"


def test_the_whole_of_it_can_be_printed(result: SpeculateResult) -> None:
    assert "Yes, the output stays" in lab_text(lab_page(result))


def test_an_early_exit_of_all_layers_is_the_target_and_misses_no_check(folder: Path) -> None:
    target = write(folder / "all", seed=3)
    request = SpeculateRequest(settings(target), exit_layer=2, gammas=(2,), num_tokens=8, has_server=False)
    whole = run_lab(request)
    assert missed(whole.checks) == ()
    assert whole.planted_rollbacks == ()
    assert any("nothing was taken back" in line for line in whole.head.left_out)
    assert lab_text(lab_page(whole))


def test_a_draft_with_fewer_rows_than_the_target_is_taken_where_every_token_is_the_same(folder: Path) -> None:
    target, draft = write(folder / "padded", num_rows=72, seed=0), write(folder / "bare", seed=1)
    request = SpeculateRequest(settings(target), draft=str(draft), gammas=(2,), num_tokens=8, has_server=False)
    assert missed(run_lab(request).checks) == ()


def test_an_answer_that_the_model_has_no_room_for_is_refused_before_anything_is_decoded(folder: Path) -> None:
    target = write(folder / "room", seed=0)
    with pytest.raises(RequestError, match="the answer up to 120; together they must be at most 128"):
        run_lab(SpeculateRequest(settings(target), num_tokens=120, has_server=False))


def test_a_full_run_tries_slow_drafts_at_fewer_lengths_and_says_so(folder: Path) -> None:
    target = write(folder / "full", seed=0)
    whole = run_lab(SpeculateRequest(settings(target, is_quick=False), num_tokens=6, has_server=False))
    tried = {each.name: [run.gamma for run in whole.runs if run.draft == each.name] for each in whole.drafts}
    assert tried == {"lookup": [1, 2, 4, 8], "early exit 1/2": [1, 2, 4], "target itself": [4]}
    assert any("the early exit beyond γ = 4" in line for line in whole.head.left_out)
    assert missed(whole.checks) == ()


def test_a_server_that_fails_costs_its_own_part_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise ServerStartError("the server ended")

    monkeypatch.setattr(flow, "measure_server", fails)
    target = write(folder / "served", seed=0)
    request = SpeculateRequest(settings(target), gammas=(2,), num_tokens=4)
    session = LabSession("speculate", "?", request.settings)
    subject = SimpleNamespace(gguf=tmp_path / "m.gguf")
    model = SimpleNamespace(subject=subject, decode=str, chat_ids=list)
    assert flow._server(SimpleNamespace(request=request, session=session, model=model)) is None  # type: ignore[arg-type]
    assert session.left_out[-1] == "the real server: the server ended"


def test_the_target_as_its_own_draft_is_always_right(folder: Path) -> None:
    target = write(folder / "own", seed=2)
    request = SpeculateRequest(settings(target, is_quick=False), gammas=(3,), num_tokens=9, has_server=False)
    whole = run_lab(request)
    (own,) = [each for each in whole.runs if each.draft == "target itself"]
    assert (own.acceptance, own.tokens_per_full_round, own.expected_tokens_per_round) == (1.0, 4.0, 4.0)


def test_a_draft_of_the_same_size_with_two_words_exchanged_is_refused(folder: Path) -> None:
    target, draft = write(folder / "one", seed=0), write(folder / "exchanged", seed=1)
    path = draft / "tokenizer.json"
    said = json.loads(path.read_text())
    words = said["model"]["vocab"]
    words["whale"], words["ship"] = words["ship"], words["whale"]
    path.write_text(json.dumps(said))
    with pytest.raises(RequestError, match=r"exchanged cannot draft.*token 2 is 'whale' here and 'ship' there"):
        run_lab(SpeculateRequest(settings(target), draft=str(draft), num_tokens=4, has_server=False))


def test_an_exit_behind_the_last_layer_is_refused(folder: Path) -> None:
    target = write(folder / "short", seed=0)
    with pytest.raises(RequestError, match="the model has 2 layers, so a draft cannot stop after 3"):
        run_lab(SpeculateRequest(settings(target), exit_layer=3, num_tokens=4, has_server=False))


# ── options ────────────────────────────────────────────────────────────────────────────────────────


def parsed(*typed: str) -> SpeculateRequest:
    parser = ArgumentParser()
    lab_speculate.add_options(parser)
    return lab_speculate.request(parser.parse_args(typed), LabSettings())


def test_what_is_typed_is_what_is_asked() -> None:
    asked = parsed(
        "--draft", "d", "--gamma", "4,2", "--exit-layer", "12", "--temperature", "1", "--top-p", "90%", "--no-server"
    )
    assert asked == SpeculateRequest(
        draft="d", gammas=(4, 2), exit_layer=12, temperature=1.0, top_p=0.9, has_server=False
    )
    assert parsed("--tokens", "64").num_tokens == 64
    assert parsed() == SpeculateRequest()


def test_a_temperature_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="the temperature is 'warm'"):
        parsed("--temperature", "warm")
