"""Every scenario on servers that answer in a moment, all at once; and a client that breaks a rule, which a drill has to find."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest

from inference_bench.operate.client import BreakerState, Client, Completion, Interrupted, Request
from inference_bench.operate.drill import traffic
from inference_bench.operate.drill.accounting import Books
from inference_bench.operate.drill.results import ENDS, PRIMARY, ScenarioResult, Span
from inference_bench.operate.drill.scenarios import SCENARIOS, Act, Scenario, scenarios_named
from inference_bench.operate.drill.servers import Restartable
from inference_bench.operate.drill.stage import Played, judge, play
from inference_bench.operate.drill.traffic import CallerEnd
from operate.drill.fakes import BASELINES, LIMITS, SLOW_PACE, answer, make_site, outcome


def play_all(scenarios: tuple[Scenario, ...]) -> dict[str, ScenarioResult]:
    """Side by side; the one that kills has a server of its own."""
    with ExitStack() as stack:
        sites = {True: make_site(SLOW_PACE), False: make_site()}
        for site in sites.values():
            for server in site.servers.values():
                stack.callback(server.stop)

        async def work() -> list[Played]:
            return await asyncio.gather(*(play(each, sites[each.act is Act.KILL], LIMITS) for each in scenarios))

        return {each.scenario.name: judge(each, BASELINES) for each in asyncio.run(work())}


@cache
def _played(_number_of_try: int) -> dict[str, ScenarioResult]:
    return play_all(SCENARIOS)


@pytest.fixture
def results(request: pytest.FixtureRequest) -> dict[str, ScenarioResult]:
    """All scenarios, played once; a further try of a test looks at them played anew."""
    return _played(getattr(request.node, "execution_count", 1))


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_no_request_is_lost_repeated_wrong_or_late_in_any_scenario(
    results: dict[str, ScenarioResult], name: str
) -> None:
    found = results[name]
    assert found.problems == ()
    assert found.tally.broken == ()
    assert found.tally.sent >= 12
    assert found.tally.sent == found.tally.completed + found.tally.failed + found.tally.interrupted
    assert found.has_passed


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_each_request_is_listed_with_its_times_as_it_was_counted_and_the_fault_with_its_own(
    results: dict[str, ScenarioResult], name: str
) -> None:
    found = results[name]
    listed, tally = found.requests.listed, found.tally
    assert found.requests.every == 1
    ends = Counter(each.outcome for each in listed)
    assert {end: ends[end] for end in ENDS} == {end: getattr(tally, end) for end in ENDS}
    assert Counter(each.answered_by for each in listed if each.answered_by is not None) == tally.answered_by
    took_s = [each.end_s - each.start_s for each in listed if each.end_s is not None]
    assert max(took_s) == pytest.approx(tally.longest_s)
    assert 0 <= listed[0].start_s < 0.5
    assert found.fault is not None
    assert found.fault.end_s - found.fault.begin_s == pytest.approx(found.fault_s)
    assert any(each.start_s < found.fault.begin_s for each in listed) == (name != "cold-fallback")
    assert any(found.fault.begin_s <= each.start_s <= found.fault.end_s for each in listed)
    assert found.moments_s["recovered"] <= max(each.end_s or 0.0 for each in listed) + 0.01
    assert any(each.end_s == pytest.approx(found.moments_s["recovered"], abs=0.05) for each in listed)


@pytest.mark.parametrize(
    ("name", "end", "reason"),
    [
        ("slow-first-token", "timed_out", None),
        ("stall", "interrupted", "stalled"),
        ("reset", "interrupted", "connection_lost"),
        ("rate-limited", "refused", None),
        ("server-errors", "server_error", None),
        ("garbage", "garbage", "garbage"),
        ("killed", "not_reached", "connection_lost"),
        ("both-down", "not_reached", "breaker_open"),
        ("cold-fallback", "not_reached", None),
    ],
)
def test_each_fault_is_met_as_what_it_is(
    results: dict[str, ScenarioResult], name: str, end: str, reason: str | None
) -> None:
    found = results[name]
    assert found.tally.attempt_ends.get(end, 0) > 0
    assert reason is None or found.tally.reasons.get(reason, 0) > 0
    assert found.detected_s is not None
    assert found.recovered_s is not None


def test_the_fallback_answers_while_the_first_server_fails(results: dict[str, ScenarioResult]) -> None:
    for name in ("cold-fallback", "slow-first-token", "server-errors", "killed"):
        assert results[name].tally.answered_by.get("fallback", 0) > 0, name
        assert results[name].tally.answered_by.get("primary", 0) > 0, name  # and it is used again


def test_limits_do_not_open_the_breaker_and_failures_do(results: dict[str, ScenarioResult]) -> None:
    assert results["rate-limited"].breaker_s is None
    assert results["server-errors"].breaker_s is not None


def test_a_client_that_asks_again_after_partial_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeating(Client):
        """Joins the part that came and a second answer, as a naive retry does."""

        async def complete(self, request: Request) -> Completion:
            try:
                return await super().complete(request)
            except Interrupted as failure:
                again = await super().complete(replace(request, idempotency_key=request.request_id))
                return replace(again, text=failure.text + again.text)

    monkeypatch.setattr(traffic, "Client", Repeating)
    found = play_all(scenarios_named(["reset"]))["reset"]
    assert found.tally.duplicated > 0
    assert not found.has_passed


def test_a_client_that_drops_requests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropping(Client):
        async def complete(self, request: Request) -> Completion:
            raise KeyError("an error of no known kind")

    monkeypatch.setattr(traffic, "Client", Dropping)
    assert play_all(scenarios_named(["server-errors"]))["server-errors"].tally.lost > 0


def test_a_fault_that_nobody_met_is_no_pass() -> None:
    harmless = replace(scenarios_named(["reset"])[0], fault=None)
    found = play_all((harmless,))["reset"]
    assert not found.has_passed
    assert "nothing was exercised" in found.problems[0]


def test_only_servers_that_were_started_here_can_be_killed() -> None:
    site = make_site()
    try:
        server = site.servers[PRIMARY]
        assert isinstance(server, Restartable)
        server.kill()
        assert not server.is_up
        server.begin_start()
    finally:
        for each in site.servers.values():
            each.stop()
    assert not server.is_up  # a start that was under way is ended as well


def test_a_breaker_that_opens_long_after_the_fault_is_not_put_down_to_it_and_failures_beside_a_fallback_are_said() -> (
    None
):
    failed = outcome(CallerEnd.FAILED, "", reason="timed_out", answers=[answer("one", None)])
    changes = [(9.0, PRIMARY, BreakerState.OPEN), (30.0, PRIMARY, BreakerState.OPEN)]
    (scenario,) = scenarios_named(["server-errors"])
    played = Played(scenario, Books([failed], []), frozenset({PRIMARY}), 10.0, 20.0, 21.0, changes)
    found = judge(played, BASELINES)
    assert found.breaker_s is None
    assert found.fault == Span(10.0, 20.0)
    assert "breaker opened" not in found.moments_s
    assert "1 requests failed although the fallback was up" in found.notes[0]
    seen = judge(replace(played, breaker_changes=[*changes, (12.0, PRIMARY, BreakerState.OPEN)]), BASELINES)
    assert seen.breaker_s == pytest.approx(2.0)
    assert seen.moments_s["breaker opened"] == pytest.approx(12.0)
    shifted = judge(replace(played, started_s=9.0), BASELINES)
    assert shifted.fault == Span(1.0, 11.0)
    assert [each.start_s for each in shifted.requests.listed] == [1.0]
