"""What no server said is not nothing: n/a, null and a note, and what that makes of the figures beside it."""

from __future__ import annotations

import csv
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.ledger.export import LedgerExport
from inference_bench.operate.ledger.flow import keep_ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.totals import By
from inference_bench.predict.cost import HostedPrices
from inference_bench.records import RequestStatus
from inference_bench.report.ledger_report import ledger_html, ledger_json, ledger_text
from inference_bench.report.report_html import Provenance
from operate.ledger.made import attempt, kept, record, whole

MADE = Provenance("ledger", "inference-bench ledger records", "2026-11-30 00:00:00 UTC", {})
HOSTED = Prices(usd_per_hour=1.0, hours=1.0, hosted=HostedPrices(2.0, 10.0, 0.5))


def unsaid(number: int, **more: Any) -> Answer:
    """500 tokens in and 100 out, of a server that says no more than that."""
    return whole(number, **{"cached_prompt_tokens": None, "reasoning_tokens": None, **more})


def row_of(text: str, name: str) -> str:
    (found,) = [" ".join(line.split()) for line in text.splitlines() if line.strip().startswith(name)]
    return found


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_where_no_answer_said_it_every_way_to_say_it_says_so(tmp_path: Path) -> None:
    record(tmp_path, unsaid(1), unsaid(2))
    ledger = kept(tmp_path, prices=HOSTED)
    text, found = ledger_text(ledger), ledger_json(ledger)
    assert row_of(text, "of it cached") == "of it cached n/a no answer said it"
    assert row_of(text, "of it reasoning") == "of it reasoning n/a no answer said it"
    assert row_of(text, "chat").split()[1:7] == ["2", "2", "0", "1,000", "n/a", "200"]
    (group,) = found["by"]["application"]
    for answers in (found["answers"], group["answers"]):
        assert (answers["cached_input_tokens"], answers["reasoning_tokens"]) == (None, None)
        assert (answers["num_answers"], answers["num_without_cached"], answers["num_without_reasoning"]) == (2, 2, 2)
    page = words_of(ledger_html(ledger, MADE, None))
    for said in (words_of(text), page):
        assert "Input tokens are whole prompts: no answer said how much of its own a prefix cache held." in said
        assert "without what a prefix cache held" not in said
        assert (
            "of 2 answers 2 did not say how much of the input was cached: all input of those counts as computed" in said
        )
        assert "of 2 answers 2 did not say how much of the output was reasoning" in said
    json.dumps(found, allow_nan=False)


def test_where_some_answers_said_it_the_sum_and_the_share_are_theirs(tmp_path: Path) -> None:
    record(tmp_path, whole(1), unsaid(2), unsaid(3, cached_prompt_tokens=0))
    ledger = kept(tmp_path)
    sums, text = ledger.sums, words_of(ledger_text(ledger))
    assert (sums.cached_input_tokens, sums.num_without_cached, sums.cached_input_fraction) == (300, 1, 0.3)
    assert (sums.reasoning_tokens, sums.num_without_reasoning, sums.reasoning_fraction) == (20, 2, 0.2)
    assert sums.computed_input_tokens == 200 + 500 + 500
    assert "of it cached 300 30.0 % of the input of 2 answers that said it" in text
    assert "of it reasoning 20 20.0 % of the output of 1 answer that said it" in text
    assert "without what a prefix cache held, as far as the answers said it." in text
    assert "of 3 answers 1 did not say how much of the input was cached" in text
    assert "of 3 answers 2 did not say how much of the output was reasoning" in text


def test_where_every_answer_said_it_nothing_is_nothing_and_there_is_no_note(tmp_path: Path) -> None:
    record(tmp_path, whole(1, cached_prompt_tokens=0, reasoning_tokens=0))
    text = ledger_text(kept(tmp_path, prices=HOSTED))
    assert row_of(text, "of it cached") == "of it cached 0 0 % of input"
    assert row_of(text, "of it reasoning") == "of it reasoning 0 0 % of output"
    assert "did not say" not in text
    assert "as if none was cached" not in text


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_answers_does_not_matter(tmp_path: Path, order: tuple[int, ...]) -> None:
    answers = (whole(1), unsaid(2), whole(3, cached_prompt_tokens=0, reasoning_tokens=0))
    record(tmp_path, *(answers[index] for index in order))
    sums = kept(tmp_path).sums
    assert (sums.cached_input_tokens, sums.reasoning_tokens) == (300, 20)


def test_without_an_answer_nothing_was_left_unsaid(tmp_path: Path) -> None:
    nothing = {"answered_by": None, "ttft_s": None, "finish_reason": None, "prompt_tokens": None, "output_tokens": None}
    refused = (attempt(AttemptEnd.REFUSED, http_status=503),)
    record(tmp_path, unsaid(1, status=RequestStatus.REJECTED, attempts=refused, **nothing))
    ledger = kept(tmp_path)
    assert (ledger.sums.num_answers, ledger.sums.cached_input_tokens, ledger.sums.reasoning_tokens) == (0, 0, 0)
    assert "did not say" not in ledger_text(ledger)


def test_the_hosted_price_says_what_it_takes_for_not_cached(tmp_path: Path) -> None:
    record(tmp_path / "none", unsaid(1), unsaid(2))
    record(tmp_path / "some", whole(1), unsaid(2))
    none, some = kept(tmp_path / "none", prices=HOSTED), kept(tmp_path / "some", prices=HOSTED)
    assert "input and output; of all, input as if none was cached" in ledger_text(none)
    assert "input and output; of 1, input as if none was cached" in ledger_text(some)
    assert "at the hosted price, of 2 answers 1 did not say how much was cached" in words_of(ledger_text(some))
    hosted = ledger_json(some)["cost"]["hosted"]
    # 200 · 2 + 300 · 0.5 + 100 · 10 millionths of a dollar, and 500 · 2 + 100 · 10
    assert (hosted["num_without_cached"], hosted["usd"]) == (1, pytest.approx(0.00155 + 0.002))


def test_an_export_leaves_it_empty(tmp_path: Path) -> None:
    record(tmp_path / "records", unsaid(1))
    export = LedgerExport(tmp_path / "out.csv")
    keep_ledger([tmp_path / "records"], Prices(), sinks=(export,))
    export.finish()
    with export.path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["cached_input_tokens"], row["reasoning_tokens"], row["computed_input_tokens"]) == ("", "", "500")


def test_no_line_of_it_is_wider_than_a_terminal(tmp_path: Path) -> None:
    huge = 10**14
    many = {"prompt_tokens": huge, "output_tokens": huge}
    record(tmp_path, whole(1, cached_prompt_tokens=huge // 3, reasoning_tokens=huge // 3, **many), unsaid(2, **many))
    ledger = kept(tmp_path, prices=HOSTED, by=(By.APPLICATION, By.ENDPOINT))
    assert max(map(len, ledger_text(ledger).splitlines())) <= 100
