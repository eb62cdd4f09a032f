"""Who gets a request: in turn, by known work, by what is known of its prompt; never by how long its answer will be."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.routing import PrefixMemory, ReplicaView, RouterSettings, Routing, router_of
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import KvMemory, SchedulerSettings, ServerSetup
from inference_bench.workload import Constant, Fixed, OpenLoop, Requests, Segment, Workload, generate_conversations
from simulate.fleets import replica_of, steps_of, workload_of


def sequence(prompt: int = 10, *content: Segment, salt: tuple[int, int] = (0, 0), filled: int = 0) -> Sequence:
    return Sequence(0, 0.0, prompt, content=content, salt=salt, filled=filled)


def view(index: int, *owed: int, cached: Callable[[Sequence], int] = lambda _: 0) -> ReplicaView:
    return ReplicaView(index, [sequence(each) for each in owed[1:]], [sequence(each) for each in owed[:1]], cached)


def test_a_router_is_given_nothing_that_tells_how_long_an_answer_will_be() -> None:
    known = {each.name for each in fields(Sequence)} | {each.name for each in fields(ReplicaView)}
    assert not [name for name in known if "output" in name or "remaining" in name]


def test_in_turn_passes_over_those_that_take_no_requests() -> None:
    router = router_of(RouterSettings(Routing.ROUND_ROBIN))
    everyone, without_one = [view(0), view(1), view(2)], [view(0), view(2)]
    assert [router.choose(sequence(), everyone) for _ in range(4)] == [0, 1, 2, 0]
    assert [router.choose(sequence(), without_one) for _ in range(3)] == [2, 0, 2]
    assert router.choose(sequence(), everyone) == 0


def test_least_work_counts_positions_still_to_be_read_and_not_requests() -> None:
    views = [view(0, 100, 1), view(1, 1, 1, 1, 1), view(2, 60)]
    assert router_of(RouterSettings(Routing.LEAST_WORK)).choose(sequence(), views) == 1
    assert router_of(RouterSettings(Routing.LEAST_REQUESTS)).choose(sequence(), views) == 2
    half_read = ReplicaView(0, [], [sequence(100, filled=98)])
    assert half_read.outstanding_tokens == 2


@given(st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=5))
def test_ties_go_to_the_lowest_index(owed: list[list[int]]) -> None:
    views = [view(index, *each) for index, each in enumerate(owed)]
    work = [sum(each) for each in owed]
    for routing in (Routing.LEAST_WORK, Routing.PREFIX_AWARE):
        assert router_of(RouterSettings(routing)).choose(sequence(), views) == work.index(min(work))
    counts = [len(each) for each in owed]
    assert router_of(RouterSettings(Routing.LEAST_REQUESTS)).choose(sequence(), views) == counts.index(min(counts))


def test_least_work_spares_short_prompts_the_long_ones_that_take_turns() -> None:
    # every other prompt is long: in turn, one replica gets them all
    requests = [(2.0 * at, 5000 if at % 2 == 0 else 10, 1) for at in range(20)]
    replicas = (replica_of(step_time=steps_of(0.01, 0.001)),) * 2
    waits = {}
    for routing in (Routing.ROUND_ROBIN, Routing.LEAST_WORK):
        outcome = simulate_fleet(workload_of(*requests), FleetSetup(replicas, RouterSettings(routing))).outcome
        waits[routing] = [first - came for first, came in zip(outcome.first_token_s, outcome.arrival_s, strict=True)]
    in_turn, least = waits[Routing.ROUND_ROBIN], waits[Routing.LEAST_WORK]
    assert max(least) < max(in_turn) / 2
    assert sum(least) < sum(in_turn) / 2


def test_a_prompt_goes_where_most_of_it_is_known_from_cache_or_from_what_was_sent() -> None:
    router = router_of(RouterSettings(Routing.PREFIX_AWARE))
    first, longer = Segment(7, 50), Segment(8, 50)
    assert router.choose(sequence(50, first), [view(0, 5), view(1, 1)]) == 1
    assert router.choose(sequence(100, first, longer), [view(0), view(1, 30)]) == 1
    assert router.choose(sequence(60, Segment(9, 10), first), [view(0), view(1, 30)]) == 0  # not its beginning
    assert router.choose(sequence(50, first), [view(0, cached=lambda _: 49), view(1)]) == 1
    assert router.choose(sequence(50, first), [view(0, cached=lambda _: 51), view(1)]) == 0


def test_a_favourite_that_is_much_busier_than_others_is_passed_over() -> None:
    first = Segment(7, 50)
    settings = RouterSettings(Routing.PREFIX_AWARE, max_load_factor=2.0, load_slack_tokens=100)
    for work, chosen in ((120, 0), (121, 1)):  # 2 · 10 + 100
        router = router_of(settings)
        assert router.choose(sequence(50, first), [view(0), view(1, 10)]) == 0
        assert router.choose(sequence(50, first), [view(0, work), view(1, 10)]) == chosen


def test_a_replica_that_has_lost_its_cache_is_no_favourite() -> None:
    router, first = router_of(RouterSettings(Routing.PREFIX_AWARE)), Segment(7, 50)
    assert router.choose(sequence(50, first), [view(0, 5), view(1)]) == 1
    router.forget(1)
    assert router.choose(sequence(50, first), [view(0), view(1, 5)]) == 0


def test_prompts_of_other_tenants_and_adapters_have_nothing_in_common() -> None:
    memory = PrefixMemory(10)
    memory.add(0, memory.path_of(sequence(50, Segment(7, 50), salt=(1, 0))))
    known = [
        memory.known(0, memory.path_of(sequence(50, Segment(7, 50), salt=salt))) for salt in ((1, 0), (1, 1), (2, 0))
    ]
    assert known == [50, 0, 0]


def test_the_prefix_that_was_sent_least_recently_is_forgotten_first_and_its_beginning_last() -> None:
    memory = PrefixMemory(3)
    long, other = [Segment(1, 10), Segment(2, 10)], [Segment(3, 10), Segment(4, 10)]
    memory.add(0, memory.path_of(sequence(20, *long)))
    memory.add(0, memory.path_of(sequence(20, *other)))
    assert memory.known(0, memory.path_of(sequence(20, *long))) == 10
    assert memory.known(0, memory.path_of(sequence(20, *other))) == 20


def test_every_turn_of_a_conversation_goes_to_its_replica_and_finds_its_cache_there() -> None:
    workload = generate_conversations(Constant(1.0), Fixed(64), Fixed(16), 60, num_turns=6, think_s=20.0)
    assert workload.requests.prompts is not None
    server = ServerSetup(SchedulerSettings(prefix_cache=True), KvMemory(1_000_000, 1, block_size=16))
    replica = replica_of(step_time=steps_of(0.01))
    replicas = (type(replica)(server, replica.step_time),) * 3
    cached = {}
    for routing in (Routing.PREFIX_AWARE, Routing.ROUND_ROBIN):
        fleet = simulate_fleet(workload, FleetSetup(replicas, RouterSettings(routing)))
        cached[routing] = fleet.outcome.cached_prompt_tokens
    # each turn finds the turn before it whole, answer included, but for its last token and what fills no block
    best = 0
    for prompt, length in zip(workload.requests.prompts, workload.requests.prompt_tokens, strict=True):
        best += 0 if len(prompt) == 1 else (length - 64 - 1) // 16 * 16
    assert cached[Routing.PREFIX_AWARE] == best
    assert cached[Routing.ROUND_ROBIN] < 0.7 * best


def test_the_lengths_of_answers_to_come_do_not_move_a_request() -> None:
    # all are there at once, and none has ended when the last is placed
    prompts, times = array("q", [7, 90, 12, 33, 60, 4]), array("d", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    placed = []
    for outputs in ([9, 9, 9, 9, 9, 9], [2, 50, 3, 40, 5, 30]):
        workload = Workload("by hand", Requests(prompts, array("q", outputs)), OpenLoop(times, "by hand"))
        fleet = simulate_fleet(workload, FleetSetup((replica_of(),) * 3, RouterSettings(Routing.LEAST_WORK)))
        placed.append([each.num_requests for each in fleet.replicas])
    assert placed[0] == placed[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_load_factor": 0.5}, "load factor of the router is 0.5"),
        ({"max_load_factor": float("nan")}, "load factor of the router is nan"),
        ({"load_slack_tokens": -1}, "load slack of the router is -1"),
        ({"remembered_prefixes": 0}, "remembers 0 prefixes"),
    ],
)
def test_router_settings_that_cannot_be_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RouterSettings(Routing.PREFIX_AWARE, **changes)  # type: ignore[arg-type]
