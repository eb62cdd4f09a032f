"""What the records show about the prompts: as long as asked, and new to every cache."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from inference_bench.measure.prompt_checks import (
    DocumentsJudged,
    check_cache,
    check_prompt_lengths,
    count_shared_tokens,
    judge_documents,
    kept_of_prompts,
)
from inference_bench.measure.prompt_files import FilePrompts
from inference_bench.measure.prompt_sources import PromptTemplate, WordSource
from inference_bench.measure.prompt_vocabulary import find_single_token_words
from inference_bench.measure.prompt_words import WORDS
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import Segment


def record(index: int | None, prompt_tokens: int | None, cached: int | None = None) -> RequestRecord:
    return RequestRecord(
        request_id=f"r{index}",
        origin=Origin.MEASURED,
        stage=Stage.MEASURE,
        status=RequestStatus.COMPLETED,
        planned_s=0.0,
        sent_s=0.0,
        end_s=1.0,
        prompt_tokens=prompt_tokens,
        cached_prompt_tokens=cached,
        index=index,
    )


def test_prompts_are_counted_against_their_place_in_the_workload() -> None:
    records = [record(1, 20), record(0, 13), record(2, 30), record(3, 10), record(4, None), record(None, 99)]
    check = check_prompt_lengths(records, [10, 20, 33])
    assert (check.num_requests, check.num_counted, check.num_equal) == (5, 4, 2)
    assert check.largest_deviation_tokens == 3
    assert check.sentence == (
        "2 of 4 prompts are as long as asked, by the server's count; the furthest off by +3 tokens."
    )
    assert check_prompt_lengths([record(0, 8)], [10]).largest_deviation_tokens == -2


def test_without_counts_nothing_is_claimed() -> None:
    check = check_prompt_lengths([record(0, None)], [10])
    assert (check.num_counted, check.largest_deviation_tokens) == (0, None)
    assert "not known" in check.sentence
    assert "does not say" in check_cache([record(0, 10)]).remark


def test_a_warm_cache_is_a_finding_with_counts() -> None:
    records = [record(0, 1000, 0), record(1, 1000, 976), record(2, 1000, 12), record(3, 1000, None)]
    check = check_cache(records, template_tokens=12.0)
    assert not check.is_clean
    assert (check.num_known, check.num_unmeant, check.unmeant_tokens, check.num_template_hits) == (3, 1, 976, 1)
    assert check.finding is not None
    assert "32.5 % of the prompt tokens (976 of 3,000, in 1 of 3 requests)" in check.finding
    assert "1 of them no more than the 15 tokens" in check.remark


@pytest.mark.parametrize(
    ("cached", "template", "is_clean"), [(15, 0.0, True), (16, 0.0, False), (38, 37.2, True), (39, 37.2, False)]
)
def test_what_begins_every_prompt_may_be_cached(cached: int, template: float, is_clean: bool) -> None:
    assert check_cache([record(0, 500, cached)], template).is_clean is is_clean


def test_what_the_workload_shares_may_be_cached_and_no_more() -> None:
    # two conversations with one system prompt of 100 tokens; the second turn holds the first
    prompts = [
        [Segment(0, 100), Segment(1, 20)],
        [Segment(0, 100), Segment(2, 20)],
        [Segment(0, 100), Segment(1, 20), Segment(3, 50), Segment(4, 10)],
        [Segment(7, 100), Segment(1, 20)],
    ]
    shared = count_shared_tokens(prompts)
    assert shared == (0, 100, 120, 0)
    meant = [record(0, 120, 0), record(1, 120, 100), record(2, 180, 112), record(3, 120, 0)]
    assert check_cache(meant, shared_tokens=shared).is_clean
    assert check_cache([record(1, 120, 119)], shared_tokens=shared).unmeant_tokens == 19
    assert check_cache([record(3, 120, 100)], shared_tokens=shared).unmeant_tokens == 100


class Vocabulary:
    """A server that counts one token a word and one a line end, but more for some words in some places."""

    def __init__(
        self, long_inside: set[str] = frozenset(), long_at_start: set[str] = frozenset(), overhead: int = 7
    ) -> None:  # type: ignore[assignment]
        self.long_inside, self.long_at_start, self.overhead = long_inside, long_at_start, overhead
        self.num_texts = self.num_rounds = 0

    def count(self, texts: list[str]) -> list[int | None]:
        self.num_texts += len(texts)
        self.num_rounds += 1
        return [self.overhead + sum(map(self._count_line, text.split("\n"))) + text.count("\n") for text in texts]

    def _count_line(self, line: str) -> int:
        first, *others = line.split(" ")
        return 1 + (first in self.long_at_start) + sum(1 + (word in self.long_inside) for word in others)


def test_words_of_one_token_are_found_in_few_questions() -> None:
    inside, at_start = {"kitchen", "zebra", WORDS[7]}, {"morning", "breakfast", WORDS[0], WORDS[-1]}
    server = Vocabulary(inside, at_start - {WORDS[0]})
    found = find_single_token_words(server.count, 400)
    assert found == WordSource(
        tuple(word for word in WORDS if word not in inside),
        tuple(word for word in WORDS if word not in inside | (at_start - {WORDS[0]})),
    )
    assert server.num_texts < 120
    assert server.num_rounds < 9


def test_a_vocabulary_that_has_all_words_is_known_after_three_texts() -> None:
    server = Vocabulary()
    assert find_single_token_words(server.count, 400) == WordSource()
    assert server.num_texts == 3


def test_a_vocabulary_without_enough_words_and_a_server_that_does_not_count_give_none() -> None:
    assert find_single_token_words(Vocabulary(set(WORDS)).count, 400) is None
    assert find_single_token_words(lambda texts: [None] * len(texts), 400) is None


def test_words_that_are_not_decided_within_the_budget_are_left_out() -> None:
    server = Vocabulary(long_at_start={WORDS[300], WORDS[-2]})
    found = find_single_token_words(server.count, 12)
    assert found is not None
    assert server.num_texts <= 12
    assert not {WORDS[300], WORDS[-2]} & set(found.starters)
    assert len(found.starters) > 200


def test_verdicts_on_documents_are_counted_over_what_was_measured() -> None:
    records = [replace(record(0, 5), document_valid=valid) for valid in (True, True, False, None)]
    warm = replace(records[2], stage=Stage.WARMUP)
    found = judge_documents([*records, warm])
    assert found == DocumentsJudged(asked=4, valid=2, invalid=1, not_judged=1)
    assert found.finding == found.remark
    assert found.remark.startswith("1 of 3 answers is no document that fits")
    good = judge_documents(records[:2])
    assert good is not None
    assert (good.finding, good.remark) == (None, "All 2 answers fit the schema they were asked to.")
    assert judge_documents([record(0, 5), warm]) is None


def test_a_run_folder_keeps_hashes_and_no_text() -> None:
    template, schema = PromptTemplate("Answer as a pirate: {prompt}"), {"type": "object", "title": "secret"}
    kept = kept_of_prompts(None, template, schema)
    assert (kept["source"], kept["file"]) == ("words", None)
    assert kept["template_sha256"] == hashlib.sha256(b"Answer as a pirate: {prompt}").hexdigest()
    assert kept["schema_sha256"] == hashlib.sha256(b'{"title":"secret","type":"object"}').hexdigest()
    assert "pirate" not in str(kept)
    file = FilePrompts("mine.jsonl", ())
    assert kept_of_prompts(file, None, None) == {
        "source": "file", "file": "mine.jsonl", "template_sha256": None, "schema_sha256": None,
    }  # fmt: skip
