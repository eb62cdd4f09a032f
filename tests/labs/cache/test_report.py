"""What is said of a result: the answer first, with its numbers, and nothing wider than a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

from inference_bench.labs.cache.result import CacheResult
from inference_bench.report.lab_cache import lab_page
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import lab_html, lab_markdown, lab_text
from inference_bench.report.report_html import Provenance
from labs.cache.sample import TOLERANCE, comparison, sample_result


def reading(result: CacheResult) -> str:
    return "\n".join(lab_page(result).reading)


def test_the_first_sentence_says_whether_the_cached_path_is_right() -> None:
    first = lab_page(sample_result()).reading[0]
    assert first.startswith("The cached path agrees with full recomputation")
    assert "0.000050" in first
    assert "24 of 24 tokens" in first
    wrong = replace(sample_result(), comparisons=(comparison(error=1.0, over=0), *sample_result().comparisons))
    assert "DISAGREES" in lab_page(wrong).reading[0]


def test_where_sound_paths_part_it_says_after_how_many_tokens_and_how_near_the_choice_was() -> None:
    parted = replace(sample_result(), comparisons=(comparison(equal=7, gap=1e-4), *sample_result().comparisons))
    assert "part after 7 tokens, where the two best logits lie 0.00010 apart" in lab_page(parted).reading[0]


def test_it_names_the_faults_that_no_token_shows_and_how_late_the_others_are_seen() -> None:
    said = reading(sample_result())
    assert "misses 2 of 4 faulty runs: position off by one (2) change none of 24 tokens" in said
    assert "off by 2.2 to 9.5" in said
    assert "up to 4 tokens before" in said  # wrong from the third on, seen at the seventh


def test_it_says_what_a_cache_saves_in_time_and_in_flops() -> None:
    assert "512 tokens take 24 times as long (500 s against 20.5 s)" in reading(sample_result())
    assert "in FLOPs it is 51.2 and 3.20 times" in reading(sample_result())


def test_it_says_what_sharing_a_cache_does_and_warns_of_the_boundary() -> None:
    said = reading(sample_result())
    assert "finds 151 positions, not 128; its logits are off by 14" in said
    assert "3 of 8 tokens" in said
    assert "Warning: tokenised apart, 1 of 2 pairs" in said


def test_the_text_fits_a_terminal_and_the_page_and_the_document_hold_every_table() -> None:
    page = lab_page(sample_result())
    assert max(map(len, lab_text(page).splitlines())) <= 100
    markdown = lab_markdown(page)
    html = lab_html(page, Provenance("lab cache", "inference-bench lab cache", "2026-11-30", {}), None)
    for table in page.tables:
        assert table.rows
        assert table.title in markdown
        assert table.title.replace("'", "&#x27;") in html
    assert len(page.figures) == 5


def test_no_path_is_cut_however_wide_its_figures_are() -> None:
    few = (
        comparison(error=4.9e-6),
        comparison(error=6.1e-5),
        comparison(equal=12, gap=1e-4),
        comparison(equal=19, gap=1e-4),
    )
    said = lab_text(lab_page(replace(sample_result(), comparisons=(*few, *sample_result().comparisons))))
    assert "0.0000049 to " in said
    assert "13 to 20" in said
    assert "…" not in said


def test_a_fault_that_tokens_show_at_once_makes_no_shorter_answer_look_right() -> None:
    at_once = replace(sample_result().comparisons[-1], num_equal_tokens=0, first_over_tolerance=0)
    known = tuple(each for each in sample_result().comparisons if each.fault is None)
    assert "before: a shorter answer" not in reading(replace(sample_result(), comparisons=(*known, at_once)))


def test_logits_that_are_the_same_are_said_to_be() -> None:
    same = replace(sample_result(), reuse=replace(sample_result().reuse, max_logit_error=0.0))
    assert "its logits are the same to the last bit" in reading(same)


def test_a_result_is_json_as_it_is() -> None:
    found = json.loads(json.dumps(lab_json("cache", sample_result()), allow_nan=False))
    assert found["schema"] == "inference-bench/lab-cache/1"
    assert found["logit_tolerance"] == TOLERANCE
    assert found["comparisons"][0]["fault"] is None
    assert found["comparisons"][2]["fault"] == "position off by one"
