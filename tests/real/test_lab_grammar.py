"""The grammar lab on the real model: its documents fit, those that were cut off do not, and the server is asked what it ignores."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from inference_bench.labs.grammar.builtin import BUILT_IN
from inference_bench.labs.grammar.result import GrammarResult, Outcome, Way
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> GrammarResult:
    found = run_page("grammar")
    assert isinstance(found, GrammarResult)
    return found


def of(result: GrammarResult, way: Way) -> list[str]:
    return [str(each.text) for each in result.documents if each.way is way]


def test_every_finished_constrained_document_fits_its_schema(result: GrammarResult) -> None:
    schemas = {built.name: built.schema for built in BUILT_IN}
    finished = [each for each in result.documents if each.way in (Way.CONSTRAINED, Way.NAIVE) and each.is_finished]
    assert len(finished) >= 6
    for each in finished:
        Draft202012Validator(schemas[each.schema]).validate(json.loads(str(each.text)))


def test_what_the_budget_cut_off_is_a_valid_beginning_and_counts_as_invalid(result: GrammarResult) -> None:
    short = [each for each in result.documents if each.way is Way.SHORT]
    assert short
    assert all(each.prefix_valid and each.is_truncated and not each.is_valid for each in short)
    whole = {
        (each.schema, each.prompt): each.text
        for each in result.documents
        if each.way is Way.CONSTRAINED and each.seed is None
    }
    assert all(str(whole[each.schema, each.prompt]).startswith(str(each.text)) for each in short)


def test_without_masks_fewer_documents_are_valid(result: GrammarResult) -> None:
    rates = {rate.way: rate.valid_fraction for rate in result.rates}
    assert rates[Way.CONSTRAINED] > rates[Way.FREE]


def test_masks_know_tokens_across_parts_and_steps_without_a_choice(result: GrammarResult) -> None:
    assert result.naive is not None
    assert result.naive.num_naive_tokens > result.naive.num_tokens
    assert sum(each.num_spanning for each in result.documents if each.way is Way.NAIVE) == 0
    assert result.example is not None
    assert len({step.is_forced for step in result.example.steps}) == 2
    assert result.example.num_vocabulary == 49_152


def test_both_planted_faults_were_caught(result: GrammarResult) -> None:
    assert [fault.is_caught for fault in result.faults] == [True, True]


def test_the_server_wrote_valid_documents_and_said_nothing_of_a_keyword_it_ignores(result: GrammarResult) -> None:
    assert result.server is not None, result.head.left_out
    masked, free = result.server.ways
    assert masked.is_constrained
    assert masked.num_valid > free.num_valid
    assert masked.num_valid + masked.num_truncated == masked.num_documents
    outcomes = {each.keyword: each.outcome for each in result.server.keywords}
    assert outcomes["uniqueItems"] is Outcome.IGNORED
