"""A frozen server: latencies from the plan have the closed form; a loop that waits for each answer does not see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .frozen import QUANTILES, Freeze, from_plan, from_send, in_turn, open_loop
from .frozen_server import FrozenServer

FREEZE = Freeze(frozen_s=2.0, period_s=4.0)
RATE = 50.0
TRIES = 3  # a busy machine delays both when all answers come at once


@pytest.fixture(scope="module")
def server() -> Iterator[FrozenServer]:
    with FREEZE.server() as running:
        yield running


def test_the_closed_form_is_right_for_a_server_that_is_frozen_half_of_the_time() -> None:
    assert FREEZE.answer() == pytest.approx([0.0, 1.0, 1.6, 1.96, 0.5])
    assert Freeze(5.0, 10.0).answer() == pytest.approx([0.0, 2.5, 4.0, 4.9, 1.25])
    waits = sorted(max(0.0, 5.0 - at / 1000) for at in range(10_000))  # planned every millisecond, frozen for 5 s
    assert [waits[int(q * 10_000)] for q in QUANTILES] == pytest.approx(Freeze(5.0, 10.0).answer()[:-1], abs=0.002)


def test_latencies_from_the_plan_follow_the_closed_form_within_a_hundredth_of_the_freeze(server: FrozenServer) -> None:
    # half are frozen, so the median lies at the knee, where the few that come while both wake move it most
    allowed = [0.05 * FREEZE.frozen_s, *[0.01 * FREEZE.frozen_s] * 4]
    for _ in range(TRIES):
        found = from_plan(open_loop(FREEZE, server.url, RATE))
        errors = [abs(time_s - right_s) for time_s, right_s in zip(found, FREEZE.answer(), strict=True)]
        if all(error <= most for error, most in zip(errors, allowed, strict=True)):
            return
    pytest.fail(f"{TRIES} tries, the last: {found} where {FREEZE.answer()} is right")


def test_a_loop_that_waits_for_each_answer_does_not_see_the_freeze(server: FrozenServer) -> None:
    records = in_turn(server.url, num_requests=800)
    p50_s, p75_s, p90_s, p99_s, _ = from_send(records)
    longest_s = max(record.chunk_times_s[0] - record.sent_s for record in records)
    assert (p50_s, p75_s, p90_s) < (0.1, 0.1, 0.1)
    assert p99_s < 0.25 * FREEZE.quantile_s(0.99)  # at most one request of a freeze waited for it
    assert longest_s < FREEZE.period_s
