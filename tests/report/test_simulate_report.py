"""What a simulation says in a terminal: reasons, spreads, and books that do not balance."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.metrics import Objective
from inference_bench.report.simulate_json import study_json
from inference_bench.report.simulate_report import study_text
from inference_bench.report.simulate_tables import rate_words
from inference_bench.report.text import display_columns
from inference_bench.simulate.candidates import candidates_named
from inference_bench.simulate.capacity import Limits
from inference_bench.simulate.served import MemoryChoice, serve_reference
from inference_bench.simulate.study import Draw, Study, StudyReport, run_study
from inference_bench.workload import reference_workload


def report_of(*names: str, rates: tuple[float, ...] = (0.2,), seeds: int = 1) -> StudyReport:
    served = serve_reference("24GB-bf16", candidates_named(names), MemoryChoice())
    draws = tuple(Draw(rate, seed, reference_workload(rate, 10, seed)) for rate in rates for seed in range(seeds))
    return run_study(Study(served, draws, Objective(max_ttft_s=2.0)), workers=1)


def test_a_single_run_shows_every_percentile_and_what_it_cost() -> None:
    shown = study_text(report_of("chunked"))
    assert [line.split()[0] for line in shown.split("\n\n")[1].splitlines()[2:]] == ["TTFT", "ITL", "TPOT", "E2E"]
    assert all(
        words in " ".join(shown.split()) for words in ("USD a million", "busy", "TTFT <= 2.00 s", "plain engine")
    )


def test_a_sweep_is_one_table_in_the_order_that_was_asked_for() -> None:
    shown = study_text(report_of("paged", "chunked", rates=(0.3, 0.1)))
    rows = [line.split()[:2] for line in shown.split("\n\n")[1].splitlines()[2:6]]
    assert rows == [["paged", "0.3"], ["paged", "0.1"], ["chunked", "0.3"], ["chunked", "0.1"]]


def test_seeds_are_spread_and_never_averaged() -> None:
    shown = study_text(report_of("paged", seeds=3))
    assert "over 3 seeds" in shown
    assert "percentiles are not averaged" in shown
    assert max(map(display_columns, shown.splitlines())) <= 100


def test_books_that_do_not_balance_are_named() -> None:
    report = report_of("paged", "chunked")
    last = report.rows[-1]
    checks = last.result.checks
    assert checks is not None
    broken = replace(last, result=replace(last.result, checks=replace(checks, little_error=0.1)))
    wrong = replace(report, rows=(*report.rows[:-1], broken))
    assert "do not balance for chunked at 0.2" in " ".join(study_text(wrong).split())
    assert study_json(wrong)["books_balance"] is False


def test_a_run_that_was_cut_short_says_so() -> None:
    report = report_of("paged", "chunked")
    cut = replace(report, rows=report.rows[:1])
    assert "interrupted: 1 of 2 runs" in study_text(cut)
    assert study_json(cut)["complete"] is False


def test_notes_of_a_workload_cannot_move_the_cursor() -> None:
    shown = study_text(report_of("paged"), notes=("dropped \x1b[2J\u202e 3 rows",))
    assert not {"\x1b", "\u202e"} & set(shown)


def test_rates_and_promises_are_said_as_they_were_asked() -> None:
    assert (rate_words(0.25), rate_words(None), rate_words(0.2437890625)) == ("0.25", "n/a", "0.243789")
    assert Limits(ttft_p99_s=3.0, itl_p99_s=0.1).text == "p99 TTFT <= 3.00 s, p99 ITL <= 100 ms"
