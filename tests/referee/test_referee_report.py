"""What the referee's report says of a run that cannot be, and of one that can."""

from __future__ import annotations

import json
from dataclasses import replace

from inference_bench.referee import referee
from inference_bench.report.referee_report import mbu_words, referee_json, referee_text
from inference_bench.report.text import MAX_COLUMNS
from referee.test_referee import llama


def test_the_text_names_the_cause_its_evidence_and_what_else_it_may_be() -> None:
    of, records = llama()
    twice = [replace(record, output_tokens=2 * (record.output_tokens or 0)) for record in records]
    text = referee_text(referee(twice, of))
    words = " ".join(text.split())
    assert "above ceiling, likely tokens counted twice" in words
    assert "two tokens are counted for every chunk that came" in words
    assert "what else would explain it: speculation" in words
    assert all(len(line) <= MAX_COLUMNS for line in text.splitlines())


def test_a_possible_run_has_its_mbu_and_no_flag() -> None:
    of, records = llama()
    text = referee_text(referee(records, of))
    assert text.startswith("physics: possible: 0 of 12 requests faster than the bound of Meta-Llama-3.1-8B")
    words = " ".join(text.split())
    assert "MBU of decoding, at least (each counted alone, and up to 4 in flight shared what was read): p50 7" in words
    assert mbu_words(None) == "MBU of decoding, one sequence alone"
    assert "likely" not in text


def test_the_json_says_what_is_a_bound_and_what_was_measured() -> None:
    of, records = llama()
    told = json.loads(json.dumps(referee_json(referee(records, of))))
    assert told["verdict"] == "possible"
    assert told["origins"]["least"] == "bound"
    assert told["classes"][0]["least_ttft_s"] < told["classes"][0]["shortest_ttft_s"]


def test_of_many_times_above_the_ceiling_the_json_lists_a_hundred_and_the_text_few_classes() -> None:
    of, records = llama()
    stored = [replace(r, chunk_times_s=(r.sent_s + 1e-4,), end_s=r.sent_s + 2e-4, output_tokens=1) for r in records]
    many = [replace(stored[0], request_id=f"r{at}", prompt_tokens=300 + 2**at, output_tokens=1) for at in range(20)] * 8
    found = referee(many, of)
    told = referee_json(found)
    assert (len(found.above), len(told["above"]), told["num_above"]) == (320, 100, 160)
    assert told["above"][0]["measured_s"] < told["above"][0]["least_s"]
    assert "more classes of lengths" in referee_text(replace(found, classes=found.classes * 20))


def test_a_run_without_requests_still_says_so() -> None:
    of, _ = llama()
    assert referee_text(referee([], of)).startswith("physics: nothing to judge: 0 of 0 requests")
