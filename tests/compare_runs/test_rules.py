from __future__ import annotations

from pathlib import Path

import pytest

from inference_bench.compare_runs.proportions import difference_interval, share_interval
from inference_bench.compare_runs.rules import FIGURES, Rule, RuleSet, read_rules
from inference_bench.errors import QuantityError, RequestError


def test_the_usual_rules_judge_time_goodput_failures_and_quality() -> None:
    names = {rule.figure for rule in RuleSet().rules}
    assert {"ttft_p99_s", "tpot_p50_s", "goodput_requests_per_s", "failed_fraction"} <= names
    assert {"document_valid_fraction", "suite_regressions", "truncated_fraction"} <= names


def test_all_rules_and_all_looks_share_the_error_of_rolling_back_and_looks_that_of_promoting() -> None:
    rules = RuleSet((Rule("ttft_p50_s", 0.1), Rule("ttft_p99_s", 0.1)), looks=5)
    assert rules.each_confidence == pytest.approx(1 - 0.05 / 5)
    assert rules.family_confidence == pytest.approx(1 - 0.05 / 10)


def test_a_file_of_rules_takes_their_place_and_single_limits_change_it(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('least_requests = 40\nlooks = 2\n[limits]\nttft_p50_s = 0.3\nfailed_fraction = "2%"\n')
    rules = read_rules(file).with_limits(["ttft_p50_s=15%", "suite_regressions=2"])
    assert rules.rules == (
        Rule("ttft_p50_s", 0.15),
        Rule("failed_fraction", 0.02),
        Rule("suite_regressions", 2.0),
    )
    assert (rules.least_requests, rules.looks) == (40, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits = {ttft_p98_s = 0.1}", "nearest: ttft_p99_s"),
        ("limits = {}", "no table 'limits'"),
        ("limits = {ttft_p99_s = true}", "is no number"),
        ("limits = {ttft_p99_s = -0.1}", "it must be a number from 0"),
        ("limits = {ttft_p99_s = inf}", "it must be a number from 0"),
        (f"limits = {{ttft_p99_s = 1{'0' * 400}}}", "it must be a number from 0"),
        ("limits = {suite_regressions = '²'}", "limit of suite_regressions"),
        (f"confidence = 1{'0' * 400}\n[limits]\nttft_p99_s = 0.1", "confidence is 1000"),
        ("[limits]\nttft_p99_s = 0.1\n[other]", "a field 'other'"),
        ("looks = 0\n[limits]\nttft_p99_s = 0.1", "number of looks is 0"),
        ("looks = true\n[limits]\nttft_p99_s = 0.1", "number of looks is True"),
        ("confidence = 1.0\n[limits]\nttft_p99_s = 0.1", "confidence is 1.0"),
        ("not toml", "are not TOML"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(RequestError, match=said):
        read_rules(file)


@pytest.mark.parametrize("text", ["ttft_p99_s", "nothing=3%", "ttft_p99_s=much"])
def test_a_limit_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises((RequestError, QuantityError)):
        RuleSet().with_limits([text])


def test_every_figure_of_a_percentile_says_which() -> None:
    assert FIGURES["ttft_p90_s"].quantile == 0.9
    assert FIGURES["failed_fraction"].quantile is None


def test_none_of_many_is_no_proof_of_none() -> None:
    # Wilson's upper limit of 0 of n is z² / (n + z²), z = 1.959964
    assert share_interval(0, 400, 0.95).high == pytest.approx(3.841459 / 403.841459)
    assert share_interval(0, 400, 0.95).low == 0


def test_the_difference_of_two_shares_is_as_published() -> None:
    # Newcombe 1998, table II, example (a): 56/70 - 48/80, method 10: 0.0524 to 0.3339
    found = difference_interval((48, 80), (56, 70), 0.95)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))
    # example (g): 10/10 - 0/10: 0.6075 to 1
    sure = difference_interval((0, 10), (10, 10), 0.95)
    assert (sure.low, sure.high) == (pytest.approx(0.6075, abs=5e-5), pytest.approx(1.0))
