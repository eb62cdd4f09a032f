"""The whole lab on a tiny model in a folder: every part of the result is there, every check holds, nothing of a text is kept."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import RequestError
from inference_bench.labs.cache.flow import OWN_PROMPT, run_lab
from inference_bench.labs.cache.request import CacheRequest
from inference_bench.labs.cache.result import MODEL, TOY, CacheResult
from inference_bench.labs.checks import missed
from inference_bench.labs.settings import LabSettings
from inference_bench.report.lab_cache import lab_page
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import lab_text
from labs.cache.tiny import write_folder

TEXT = "Avast, quoth the parrot"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_folder(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def result(folder: str) -> CacheResult:
    settings = LabSettings(model=folder, is_quick=True, num_threads=1)
    return run_lab(CacheRequest(settings, num_tokens=6, prompt_text=TEXT, lengths=(4, 8)))


def test_every_check_holds(result: CacheResult) -> None:
    assert missed(result.checks) == ()
    assert len(result.checks) > 20


def test_each_size_is_prompt_and_emitted_less_one(result: CacheResult) -> None:
    """A token is a character; 2 · 2 layers · 2 KV heads · 8 values · 4 bytes a position."""
    toy, model = result.sizes
    assert (toy.subject, toy.num_positions, toy.measured_bytes) == (TOY, 271, 555_008)
    assert (model.subject, model.num_positions) == (MODEL, len(TEXT) + 6 - 1)
    assert model.measured_bytes == 256 * model.num_positions


def test_every_fault_is_planted_in_both_and_compared_with_the_same_run(result: CacheResult) -> None:
    for subject, sound in ((TOY, 2), (MODEL, 1)):
        found = [each for each in result.comparisons if each.subject == subject]
        assert len(found) == sound + 6
        assert len({each.fault for each in found}) == 7


def test_a_space_and_a_p_merge_across_the_boundary(result: CacheResult) -> None:
    plain, space, word = result.boundaries
    assert plain.first_difference is None
    assert word.first_difference is None
    assert space.first_difference == space.num_reusable_tokens == space.num_prefix_tokens - 1


def test_a_text_of_the_users_own_is_counted_and_not_kept(result: CacheResult) -> None:
    kept = json.dumps(lab_json("cache", result)) + lab_text(lab_page(result))
    assert "parrot" not in kept
    assert "token_ids" not in kept
    assert {each.prompt for each in result.comparisons if each.subject == MODEL} == {OWN_PROMPT}


def test_it_says_what_the_quick_mode_leaves_out_and_by_which_rule_times_are_summed(result: CacheResult) -> None:
    assert any("prefix longer than 128" in line for line in result.head.left_out)
    assert any("straight line" in line for line in result.head.assumptions)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"lengths": (4, 512)}, "528 positions are asked of tiny, which has 256"),
        ({"prompt_text": "A"}, "no two different tokens"),
        ({"prompt_text": "AAAA"}, "no two different tokens"),
    ],
)
def test_what_the_model_cannot_do_is_refused(folder: str, asked: dict[str, object], said: str) -> None:
    settings = LabSettings(model=folder, is_quick=True, num_threads=1)
    with pytest.raises(RequestError, match=said):
        run_lab(CacheRequest(settings, **asked))  # type: ignore[arg-type]
