"""Both sides of each comparison are those that were made, and a sentence comes only where they do not agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inference_bench.measure.server_metrics import ServerMetrics, ServerSample
from inference_bench.measure.server_metrics_checks import check_in_flight, check_output_tokens, check_server
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage


def record(sent_s: float, end_s: float, tokens: int | None, requested: int | None = None) -> RequestRecord:
    status = RequestStatus.COMPLETED if tokens is not None else RequestStatus.TIMED_OUT
    return RequestRecord(
        f"r{sent_s}", Origin.MEASURED, Stage.MEASURE, status, sent_s, sent_s, end_s,
        output_tokens=tokens, requested_output_tokens=requested,
    )  # fmt: skip


def counted(*totals: float) -> list[ServerSample]:
    return [ServerSample(float(at_s), 0.0, output_tokens_total=total) for at_s, total in enumerate(totals)]


TEN = [record(0.1 + 0.1 * index, 1.5, 100) for index in range(10)]


def test_the_same_number_of_tokens_on_both_sides_is_no_finding() -> None:
    check = check_output_tokens(counted(5000, 5400, 6000), TEN)
    assert check is not None
    assert (check.server, check.client_low, check.client_high, check.finding) == (1000, 1000, 1000, None)


def test_how_near_both_counts_are_is_said() -> None:
    same = check_output_tokens(counted(5000, 5400, 6000), TEN)
    assert same is not None
    assert same.agreement == "the server's own count agrees: output tokens 1,000, by the records 1,000"
    early = check_output_tokens(counted(5000, 5400, 6000), [replace(TEN[0], sent_s=-0.1), *TEN[1:]])
    assert early is not None
    assert (early.num_open, early.client_low, early.client_high) == (1, 900, 1000)
    assert early.agreement == (
        "the server's own count is possible: output tokens 1,000, by the records 900 to 1,000, as 1 request was under way "
        "when it was first or last asked, or not counted"
    )
    wrong = check_output_tokens(counted(5000, 5400, 5500), TEN)
    assert wrong is not None
    assert wrong.agreement is None


def test_tokens_that_no_server_generated_are_found() -> None:
    check = check_output_tokens(counted(5000, 5400, 5500), TEN)
    assert check is not None
    assert check.finding == (
        "the server counted 500 output tokens during the run, the replies say 1,000: tokens are reported that were not generated"
    )


def test_tokens_for_somebody_else_are_found() -> None:
    check = check_output_tokens(counted(0, 400, 3000), TEN)
    assert check is not None
    assert check.finding is not None
    assert "at most 1,000: somebody else used it" in check.finding


def test_a_request_without_a_count_may_have_had_any_number_of_tokens() -> None:
    some = [*TEN, record(0.5, 1.9, None, requested=300)]
    for generated, is_found in ((989, True), (1000, False), (1300, False), (1320, True)):
        check = check_output_tokens(counted(0, 0, generated), some)
        assert check is not None
        assert (check.client_low, check.client_high) == (1000, 1300)
        assert (check.finding is not None) == is_found, generated


def test_a_request_that_began_before_the_first_sample_or_ended_after_the_last_may_count_or_not() -> None:
    some = [*TEN, record(-0.5, 0.5, 40), record(1.8, 2.5, 60), record(-3.0, -1.0, 500)]
    check = check_output_tokens(counted(0, 0, 1050), some)
    assert check is not None
    assert (check.client_low, check.client_high, check.finding) == (1000, 1100, None)


def test_without_two_samples_or_after_a_restart_nothing_is_compared() -> None:
    assert check_output_tokens(counted(5), TEN) is None
    assert check_output_tokens([], TEN) is None
    assert check_output_tokens(counted(5000, 20, 6000), TEN) is None


# ── requests in flight ─────────────────────────────────────────────────────────────────────────────


def present(running: float, waiting: float | None = 0.0) -> list[ServerSample]:
    return [ServerSample(0.5 + at_s, 0.0, running=running, waiting=waiting) for at_s in range(8)]


def four_at_once() -> Sequence[RequestRecord]:
    return [record(float(start), start + 1.0, 10) for start in range(8) for _ in range(4)]


def test_running_and_waiting_together_are_held_against_what_was_in_flight() -> None:
    check = check_in_flight(present(1.0, 3.0), four_at_once())
    assert check is not None
    assert (check.server, check.client_low, check.finding) == (4.0, 4.0, None)


@pytest.mark.parametrize(
    ("running", "says"), [(9.0, "somebody else used it"), (1.0, "before its scheduler or behind it")]
)
def test_more_or_fewer_at_the_server_are_found(running: float, says: str) -> None:
    check = check_in_flight(present(running, None), four_at_once())
    assert check is not None
    assert check.finding is not None
    assert says in check.finding
    assert check_in_flight(present(4.9, None), four_at_once()) == replace(
        check, server=pytest.approx(4.9), finding=None
    )


def test_samples_outside_the_run_do_not_count_and_few_are_too_few() -> None:
    idle = [ServerSample(100.0 + at_s, 0.0, running=0.0) for at_s in range(20)]
    assert check_in_flight(idle, four_at_once()) is None
    assert check_in_flight([*present(4.0), *idle], four_at_once()) == check_in_flight(present(4.0), four_at_once())
    assert check_in_flight(present(4.0)[:4], four_at_once()) is None
    assert check_in_flight(present(4.0), []) is None


# ── all of it ──────────────────────────────────────────────────────────────────────────────────────


def test_findings_are_those_of_every_comparison() -> None:
    samples = [
        replace(
            sample, output_tokens_total=10.0 * index, prompt_tokens_total=100.0 * index, prefix_hit_tokens=49.0 * index
        )
        for index, sample in enumerate(present(9.0))
    ]
    checks = check_server(ServerMetrics("vLLM", tuple(samples)), four_at_once())
    assert len(checks.findings) == 3
    assert checks.findings[2].startswith("the server found 49.0 % of prompt tokens in its prefix cache")


def test_without_metrics_there_is_nothing_to_find() -> None:
    checks = check_server(None, four_at_once())
    assert (checks.output_tokens, checks.in_flight, checks.prefix_hits, checks.findings) == (None, None, None, ())
