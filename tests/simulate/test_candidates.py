"""Schedulers by name, and what is changed of them."""

from __future__ import annotations

import pytest

from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import hardware
from inference_bench.simulate.candidates import (
    Changes,
    candidates_named,
    describe_changes,
    engine_scheduler,
    scheduler_names,
)
from inference_bench.simulate.settings import Order, Policy, Preemption, Speculation


def test_all_is_every_policy_and_no_engine() -> None:
    assert [each.name for each in candidates_named(["all"])] == [policy.value for policy in Policy]
    assert [each.name for each in candidates_named(["vllm", "all", "vllm", "paged"])] == ["vllm", *Policy]
    assert set(scheduler_names()) > set(Policy)


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="nearest: static"):
        candidates_named(["statc"])
    with pytest.raises(RequestError, match="no scheduler is named"):
        candidates_named([])


def test_a_change_reaches_only_those_whom_it_concerns() -> None:
    changes = Changes(
        max_running=8, token_budget=64, max_batch=4, order=Order.PRIORITY, speculation=Speculation(2, 0.5)
    )
    found = {each.name: each.scheduler for each in candidates_named(["static", "paged", "chunked", "sglang"], changes)}
    assert (found["static"].max_batch, found["static"].max_running) == (4, 256)
    assert (found["paged"].max_running, found["paged"].token_budget, found["paged"].max_batch) == (8, None, 16)
    assert (found["chunked"].token_budget, found["sglang"].token_budget) == (64, 64)
    assert found["paged"].order is Order.PRIORITY
    assert found["static"].speculation is None


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (["static", "dynamic"], Changes(max_running=4)),
        (["paged"], Changes(token_budget=64)),
        (["chunked"], Changes(dispatch_timeout_s=1.0)),
        (["static"], Changes(preemption=Preemption.SWAP)),
    ],
)
def test_a_change_that_concerns_nobody_is_refused(names: list[str], changes: Changes) -> None:
    with pytest.raises(RequestError, match="concerns none of"):
        candidates_named(names, changes)


def test_what_concerns_only_some_is_said() -> None:
    changes = Changes(token_budget=64)
    said = describe_changes(candidates_named(["paged", "chunked"], changes), changes)
    assert said == ("a budget of positions a step does not concern paged",)


def test_an_engine_says_what_it_mirrors_and_what_was_changed_of_it() -> None:
    (plain,) = candidates_named(["vllm"])
    (changed,) = candidates_named(["vllm"], Changes(max_running=32, prefix_cache=True))
    assert any("vLLM 0.19.0" in note for note in plain.notes)
    assert "here 32 sequences and 2048 positions a step, as stated" in changed.notes
    assert any("prefix caching" in note for note in plain.notes)
    assert not any("prefix caching" in note for note in changed.notes)


@pytest.mark.parametrize(
    ("engine", "machine", "scheduler"),
    [
        ("vllm", "H100", "vllm-large"),
        ("vLLM", "RTX 4090", "vllm"),
        ("vllm", "A100 80GB", "vllm"),
        ("sglang", "H100", "sglang"),
        ("llama.cpp", "RTX 4090", "llama.cpp"),
        ("tensorrt-llm", "H100", None),
    ],
)
def test_an_engine_sets_its_scheduler_by_the_machine(engine: str, machine: str, scheduler: str | None) -> None:
    assert engine_scheduler(engine, hardware(machine)) == scheduler
