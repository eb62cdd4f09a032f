"""What cannot be served is said, with the request and the sizes; nothing runs for ever."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from inference_bench.errors import InferenceBenchError, MissingExtraError, RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.autoscaling import AutoscalingSettings
from inference_bench.simulate.batches import simulate_batches
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.kernel import compiled
from inference_bench.simulate.kernel.engine import simulate_arrays
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.pool import Pool
from inference_bench.simulate.run import Engine, _compiles, needs_reference, simulate
from inference_bench.simulate.scheduler import Scheduler
from inference_bench.simulate.server import ArrivalQueue, simulate_steps
from inference_bench.simulate.settings import (
    BATCHED,
    AdmissionCheck,
    BudgetRule,
    KvMemory,
    Order,
    Policy,
    Preemption,
    SchedulerSettings,
    ServerSetup,
    Speculation,
    WindowCache,
)
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.workload import OpenLoop, Requests, Workload
from simulate.fleets import closed_workload, replica_of, steps_of, workload_of
from simulate.random_cases import random_arrival
from simulate.reference_case import COMPILED

ENGINES = [Engine.REFERENCE, Engine.PLAIN, COMPILED]
CHECKED = [policy for policy in Policy if policy is not Policy.STATIC]


def serve(workload: Workload, memory: KvMemory, engine: Engine = Engine.PLAIN, **changed: Any) -> Outcome:
    settings = SchedulerSettings(**{"max_output_tokens": 1, **changed})
    return simulate(workload, ServerSetup(settings, memory), steps_of(), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", CHECKED)
def test_a_request_larger_than_all_memory_is_named_with_what_it_needs_and_what_there_is(
    policy: Policy, engine: Engine
) -> None:
    workload = workload_of((0.0, 10, 5), (1.0, 60, 42), (2.0, 70, 31))
    with pytest.raises(
        RequestError, match=r"^request 1 can never fit: its 60 prompt and 42 output tokens need 101 .* 100$"
    ):
        serve(workload, KvMemory(100, 1), engine, policy=policy)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", Policy)
def test_a_request_as_large_as_all_memory_is_served(policy: Policy, engine: Engine) -> None:
    # where memory is kept for the longest answer, also for its last token, which is never read
    setup = SchedulerSettings(policy=policy, max_output_tokens=41, admission_share=1.0, dispatch_timeout_s=0.0)
    memory = KvMemory(101 if setup.keeps_for_longest else 100, 1)
    outcome = simulate(workload_of((0.0, 60, 41)), ServerSetup(setup, memory), steps_of(), engine=engine)
    assert outcome.peak_bytes == 100
    assert len(outcome.last_token_s) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", [Policy.RESERVE, Policy.STATIC_MEMORY, Policy.DYNAMIC])
def test_a_longest_answer_that_no_memory_keeps_free_is_refused_by_the_request_it_is_for(
    policy: Policy, engine: Engine
) -> None:
    workload = workload_of((0.0, 10, 5), (0.0, 20, 5))
    served = serve(workload, KvMemory(400, 1), engine, policy=policy, max_output_tokens=350)
    assert len(served.last_token_s) == 2
    with pytest.raises(RequestError, match=r"^request 1 .*can never be admitted: .*396"):
        serve(workload, KvMemory(400, 1), engine, policy=policy, max_output_tokens=380)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_that_gave_way_and_has_become_too_long_to_be_admitted_again_is_named(engine: Engine) -> None:
    # the second is admitted with 30 of the 60 that are allowed, gives way when it has 65, and is alone in the end
    workload = workload_of((0.0, 20, 100), (1.0, 30, 80))
    with pytest.raises(RequestError, match=r"^request 1 \(\d+ tokens to read\) can never be admitted: .* 60"):
        serve(workload, KvMemory(120, 1), engine, policy=Policy.PAGED, admission_share=0.5)


def in_arrays(workload: Workload, setup: ServerSetup, step_time: StepTime, objective: Objective) -> Outcome:
    return simulate_arrays(workload, setup, step_time, objective, is_compiled=False)


@pytest.mark.parametrize("run", [simulate_steps, in_arrays])
def test_a_lone_request_that_outgrows_memory_is_an_error_and_not_a_wait(run: Callable[..., Outcome]) -> None:
    # past the check that would have refused it before anything ran
    setup = ServerSetup(SchedulerSettings(), KvMemory(70, 1))
    said = r"^request 0 cannot fit alone: its 71 tokens need 71 bytes of cache, there are 70$"
    with pytest.raises(RequestError, match=said):
        run(workload_of((0.0, 40, 60)), setup, steps_of(), Objective())


@pytest.mark.parametrize("run", [simulate_batches, in_arrays])
def test_a_batch_that_cannot_hold_even_its_first_is_an_error_and_not_a_wait(run: Callable[..., Outcome]) -> None:
    setup = ServerSetup(SchedulerSettings(policy=Policy.DYNAMIC, max_output_tokens=60), KvMemory(70, 1))
    with pytest.raises(RequestError, match=r"^request 0 .*can never be admitted"):
        run(workload_of((0.0, 40, 60)), setup, steps_of(), Objective())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_running": 0}, "sequences that run: 0"),
        ({"max_running": True}, "sequences that run: True"),
        ({"token_budget": 0}, "positions of a step: 0"),
        ({"token_budget": 2.5}, r"positions of a step: 2\.5"),
        ({"max_batch": 0}, "largest batch: 0"),
        ({"max_output_tokens": -1}, "longest answer: -1"),
        ({"micro_batch": 0}, "micro-batch: 0"),
        ({"admission_share": 0.0}, r"admission share 0\.0"),
        ({"admission_share": 1.01}, r"admission share 1\.01"),
        ({"admission_share": math.nan}, "admission share nan"),
        ({"dispatch_timeout_s": -1.0}, r"dispatch timeout -1\.0"),
        ({"dispatch_timeout_s": math.inf}, "dispatch timeout inf"),
        ({"dispatch_timeout_s": math.nan}, "dispatch timeout nan"),
        ({"swap_bytes_per_s": 0.0}, r"swapping, 0\.0"),
        ({"new_token_ratio": 1.5}, r"new tokens, 1\.5"),
    ],
)
def test_a_scheduler_that_could_never_work_is_refused_with_the_value(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        SchedulerSettings(**changed)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, 1), "memory for the cache is 0"),
        ((1e9, 1), r"memory for the cache is 1000000000\.0"),
        ((100, -1), "bytes of a position is -1"),
        ((100, 1, 0), "block size is 0"),
        ((100, 1, 1, (WindowCache(0, 1),)), "window keeps at least 1 position"),
        ((100, 1, 1, (), -5), "state of a sequence is -5"),
        ((100, 0), "no memory at all"),
    ],
)
def test_a_cache_that_could_hold_nothing_is_refused_with_the_value(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        KvMemory(*given)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["bandwidth_bytes_per_s", "compute_flops_per_s"])
def test_a_machine_must_move_and_compute_at_some_rate(name: str, value: float) -> None:
    given = {"weight_bytes": 1.0, "read_bytes": 1.0, "flops_per_position": 1.0, "flops_per_pair": 1.0}
    rates = {"bandwidth_bytes_per_s": 1.0, "compute_flops_per_s": 1.0, name: value}
    with pytest.raises(RequestError, match=f"^{name.replace('_', ' ')} of a step is {value}; it must be above 0$"):
        Coefficients(**given, **rates)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_nothing_in_a_step_is_less_than_nothing(value: float) -> None:
    with pytest.raises(RequestError, match=r"^fixed s of a step is .*; it must be 0 or more$"):
        Coefficients(1, 1, 1, 1, 1, 1, fixed_s=value)


def test_a_workload_without_requests_is_refused() -> None:
    with pytest.raises(RequestError, match="there is no request"):
        Requests(array("q"), array("q"))
    with pytest.raises(RequestError, match="no arrival time"):
        OpenLoop(array("d"), "none")


@pytest.mark.parametrize("engine", [Engine.PLAIN, COMPILED])
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"prefix_cache": True}, "a prefix cache"),
        ({"preemption": Preemption.SWAP}, "swapping"),
        ({"order": Order.SHORTEST_PROMPT}, "admission by shortest-prompt"),
        ({"budget_rule": BudgetRule.PREFILL_FIRST}, "a budget spent prefill-first"),
        ({"speculation": Speculation(3, 0.5)}, "speculation"),
        ({"new_token_ratio": 0.5}, "room kept free for new tokens"),
        ({"token_budget": 255}, "fewer positions a step than sequences"),
    ],
)
def test_what_the_fast_engine_does_not_do_it_says_and_the_readable_loop_does(
    changed: dict[str, Any], what: str, engine: Engine
) -> None:
    workload, memory = workload_of((0.0, 10, 5), (0.0, 20, 5)), KvMemory(1000, 1)
    assert needs_reference(SchedulerSettings(**changed)) == what
    with pytest.raises(RequestError, match=f"^the {engine} engine does not do {what}; the reference engine does$"):
        serve(workload, memory, engine, **changed)
    assert serve(workload, memory, Engine.AUTO, **changed).engine == "reference"


def test_without_numba_the_compiled_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled._entries.cache_clear()
    monkeypatch.setattr(compiled, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[fast\]'"):
        serve(workload_of((0.0, 10, 5)), KvMemory(1000, 1), Engine.COMPILED)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", Policy)
def test_memory_for_hardly_one_request_ends_in_an_answer_or_an_error_and_never_in_a_loop(policy: Policy) -> None:
    ended = {Outcome: 0, RequestError: 0}
    for seed in range(300):
        draw = Random(f"tiny {policy} {seed}")
        count, block = draw.randint(2, 16), draw.choice((1, 4, 16))
        prompts = array("q", [draw.randint(1, 40) for _ in range(count)])
        outputs = array("q", [draw.randint(1, 30) for _ in range(count)])
        workload = Workload("tiny", Requests(prompts, outputs), random_arrival(draw, count))
        settings = {
            "policy": policy,
            "max_running": draw.choice((1, 2, 16)),
            "token_budget": draw.choice((16, 20)),
            "admission_share": draw.choice((0.99, 1.0)),
            "admission_check": draw.choice(tuple(AdmissionCheck)),
            "dispatch_timeout_s": draw.choice((0.0, 2.0, 1e12)),
            "max_output_tokens": draw.choice((1, 30)),
        }
        memory = KvMemory(draw.randint(20, 110), 1, block, state_bytes=draw.choice((0, 9)))
        for engine in (Engine.REFERENCE, Engine.PLAIN):
            try:
                outcome = serve(workload, memory, engine, **settings)
            except RequestError:
                ended[RequestError] += 1
            else:
                ended[Outcome] += 1
                assert min(outcome.last_token_s) > 0
                assert policy in BATCHED or outcome.peak_bytes <= memory.budget_bytes
    assert sum(ended.values()) == 600
    assert min(ended.values()) >= (0 if policy is Policy.STATIC else 60)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("engine", [Engine.REFERENCE, Engine.PLAIN])  # compiled code would not see the timeout
@pytest.mark.parametrize("policy", Policy)
def test_a_request_at_the_end_of_all_time_is_waited_for_in_one_leap(policy: Policy, engine: Engine) -> None:
    workload = workload_of((0.0, 10, 5), (1e9, 10, 5))
    outcome = serve(workload, KvMemory(1000, 1), engine, policy=policy, max_output_tokens=5)
    assert outcome.first_token_s[1] >= 1e9


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"policy": "chunked"}, r"the policy is 'chunked'; give one of Policy\.STATIC"),
        ({"order": "x"}, r"the order of admission is 'x'; give one of Order\.FCFS"),
        ({"speculation": 5}, "the speculation is '5'; give a Speculation"),
        ({"max_running": 1 << 70}, "at most 1099511627776"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_with_the_kinds(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        SchedulerSettings(**changed)


def test_an_engine_that_is_not_known_is_refused_and_a_known_name_is_taken() -> None:
    setup = ServerSetup(SchedulerSettings(), KvMemory(1000, 1))
    with pytest.raises(RequestError, match="no engine of the simulator is called 'nope'; known: auto"):
        simulate(workload_of((0.0, 10, 5)), setup, steps_of(), engine="nope")
    assert simulate(workload_of((0.0, 10, 5)), setup, steps_of(), engine="reference").engine == "reference"


def test_bytes_beyond_64_bits_are_refused() -> None:
    with pytest.raises(
        RequestError, match="memory for the cache is 1000000000000000000000000000000; it must be at most"
    ):
        KvMemory(10**30, 10**20)
    for policy in Policy:
        with pytest.raises(RequestError, match=r"too much to be added up|can never fit"):
            serve(workload_of((0.0, 1 << 20, 5)), KvMemory(1 << 62, 1 << 50), policy=policy, max_output_tokens=5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", [Policy.RESERVE, Policy.STATIC_MEMORY, Policy.DYNAMIC])
def test_an_answer_longer_than_the_longest_that_memory_is_kept_for_is_refused(policy: Policy, engine: Engine) -> None:
    with pytest.raises(
        RequestError, match=rf"^request 1 .* answers with 5 tokens, and the policy {policy} keeps memory"
    ):
        serve(workload_of((0.0, 10, 4), (0.0, 10, 5)), KvMemory(1000, 1), engine, policy=policy, max_output_tokens=4)


@pytest.mark.parametrize("policy", [Policy.RESERVE, Policy.STATIC_MEMORY, Policy.DYNAMIC, Policy.PAGED])
def test_all_engines_say_in_the_same_words_why_a_request_is_never_admitted(policy: Policy) -> None:
    said = set()
    for engine in (Engine.REFERENCE, Engine.PLAIN):
        changed = {
            "policy": policy,
            "max_output_tokens": 380,
            "admission_share": 0.05 if policy is Policy.PAGED else 0.99,
        }
        with pytest.raises(RequestError) as caught:
            serve(workload_of((0.0, 30, 5)), KvMemory(400, 1), engine, **changed)
        said.add(str(caught.value))
    (words,) = said
    if policy is Policy.PAGED:
        assert "can never be admitted: it needs 30 bytes of cache, allowed are 20" in words
    else:
        assert "the longest answer allowed (380 tokens) need 410 bytes of cache, allowed are 396" in words


def test_long_answers_are_simulated_by_the_compiled_engine_where_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_ready", lambda: True)
    few_and_long, few = workload_of((0.0, 10, 2_000_000)), workload_of((0.0, 10, 2_000))
    assert _compiles(Engine.AUTO, few_and_long, SchedulerSettings())
    assert not _compiles(Engine.AUTO, few, SchedulerSettings())


@pytest.mark.parametrize("engine", [Engine.REFERENCE, Engine.PLAIN])
def test_steps_that_outlast_the_clock_are_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="a clock cannot tell steps apart"):
        simulate(
            workload_of((0.0, 10, 5)),
            ServerSetup(SchedulerSettings(), KvMemory(1000, 1)),
            steps_of(1e12),
            engine=engine,
        )


@pytest.mark.parametrize("policy", [Policy.STATIC, Policy.DYNAMIC, Policy.CHUNKED])
def test_a_run_in_which_nothing_is_due_any_more_ends_with_the_number_of_requests_that_are_left(
    monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    monkeypatch.setattr(ArrivalQueue, "free_user", lambda *_: None)  # nobody sends a second request
    workload = closed_workload(1, [(4, 2)] * 3)
    with pytest.raises(InferenceBenchError, match="lost 2 of 3 requests"):
        serve(workload, KvMemory(1_000, 1), Engine.REFERENCE, policy=policy, max_output_tokens=8)


@pytest.mark.parametrize("scaling", [None, AutoscalingSettings(1, 2, check_interval_s=0.001, cool_down_s=0.1)])
def test_servers_that_nobody_is_sent_to_do_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, scaling: AutoscalingSettings | None
) -> None:
    monkeypatch.setattr(Pool, "choose", lambda *_: None)
    monkeypatch.setattr(Pool, "load", lambda *_: 1.0)
    with pytest.raises(InferenceBenchError, match="lost 1 of 1 requests"):
        simulate_fleet(workload_of((0.0, 4, 2)), FleetSetup((replica_of(),), autoscaling=scaling))


def test_a_step_in_which_nobody_gets_a_position_is_said_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "_wanted", lambda *_: 0)
    with pytest.raises(RequestError, match="makes no progress: 1 run and none is given a position"):
        serve(workload_of((0.0, 4, 2)), KvMemory(1_000, 1), Engine.REFERENCE)
