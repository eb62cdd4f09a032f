"""The whole lab on a random model in a folder: everything it promises, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.checks import missed
from inference_bench.labs.grammar.flow import run_lab
from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import GrammarResult, Way
from inference_bench.labs.settings import LabSettings
from inference_bench.report.lab_grammar import lab_page
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import lab_text
from labs.grammar.tiny import network, tokenizer, vocabulary

for package in ("torch", "transformers", "llguidance", "jsonschema"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    network().save_pretrained(made)
    tokenizer().save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> GrammarResult:
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    return run_lab(GrammarRequest(settings, num_tokens=190, uses_server=False))


def test_every_check_holds_and_what_is_left_out_is_said(found: GrammarResult) -> None:
    assert len(found.checks) == 7
    assert missed(found.checks) == ()
    assert any("real server" in line for line in found.head.left_out)
    assert any("five schemas" in line for line in found.head.left_out)
    assert found.server is None


def test_constrained_documents_are_valid_and_unconstrained_ones_are_not(found: GrammarResult) -> None:
    rates = {rate.way: rate for rate in found.rates}
    assert set(rates) == set(Way)
    assert rates[Way.CONSTRAINED].num_valid == rates[Way.CONSTRAINED].num_documents == 6
    assert rates[Way.FREE].num_valid == 0
    assert rates[Way.SHORT].num_truncated == rates[Way.SHORT].num_documents == 2


def test_a_token_of_text_that_the_models_settings_call_an_end_ends_no_document(found: GrammarResult) -> None:
    named = network().generation_config.eos_token_id
    assert vocabulary().token_bytes[named]
    assert named not in tokenizer().all_special_ids
    assert all(
        each.is_valid for each in found.documents if each.way in (Way.CONSTRAINED, Way.NAIVE) and each.is_finished
    )


def test_the_parts_of_a_step_share_out_the_whole(found: GrammarResult) -> None:
    for kind in (True, False):
        assert sum(part.share_fraction for part in found.step_parts if part.is_constrained is kind) == pytest.approx(1)


def test_what_the_grammar_takes_and_the_schema_forbids_is_a_finding(folder: Path) -> None:
    """Three items of two values can never differ, and the grammar does not know it."""
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 3, "uniqueItems": True}
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    own = {"schema": schema, "prompt": "a secret of mine", "num_tokens": 50, "uses_server": False}
    with pytest.raises(RequestError, match="uniqueItems at #/uniqueItems"):
        run_lab(GrammarRequest(settings, **own))
    found = run_lab(GrammarRequest(settings, **own, allows_unenforced=True))
    finished = [each for each in found.documents if each.way is Way.CONSTRAINED]
    assert all(each.is_finished and each.num_outside == 0 and not each.is_valid for each in finished)
    (table,) = [each for each in lab_page(found).tables if each.title.startswith("Keywords that the grammar")]
    assert table.note.startswith(f"{len(finished) + 1} of {len(finished) + 1} finished documents")
    written = json.dumps(lab_json("grammar", found))
    assert "secret" not in written
    assert all(each.text is None for each in found.documents)


@pytest.mark.parametrize(("schema", "num_tokens"), [({"const": 1}, 50), ({"enum": ["Oslo"]}, 1)])
def test_a_document_too_short_to_show_a_wrong_mask_misses_no_check(
    folder: Path, schema: dict[str, object], num_tokens: int
) -> None:
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    found = run_lab(GrammarRequest(settings, schema=schema, num_tokens=num_tokens, uses_server=False))
    assert missed(found.checks) == ()
    assert all(each.is_caught for each in found.faults)
    assert lab_text(lab_page(found))


def test_no_token_of_what_a_users_own_prompt_led_to_is_kept(folder: Path) -> None:
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    request = GrammarRequest(
        settings, schema={"enum": ["Oslo", "Zürich"]}, prompt="x", num_tokens=50, uses_server=False
    )
    found = run_lab(request)
    assert found.example is not None
    assert len(found.example.steps) > 1
    assert all(step.token is None for step in found.example.steps)
    assert not any(name in json.dumps(lab_json("grammar", found), ensure_ascii=False) for name in ("Oslo", "Zürich"))


def test_a_prompt_that_leaves_no_room_is_refused(folder: Path) -> None:
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    request = GrammarRequest(settings, schema={"const": 1}, prompt="x" * 4000, num_tokens=4000, uses_server=False)
    with pytest.raises(RequestError, match="together they must be at most 4,096"):
        run_lab(request)
