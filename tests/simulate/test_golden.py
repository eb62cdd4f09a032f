"""The published simulation figures, through every engine: golden/published/scheduling.json and slo_capacity.json."""

from __future__ import annotations

import pytest

from inference_bench.simulate.capacity import Limits, SearchSettings, find_capacity
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import check_run, summarise_run
from inference_bench.workload import reference_workload
from simulate.reference_case import COMPILED, is_published, memory_of, published, steps_of

ROWS = published("scheduling")["rows"]
CAPACITY = published("slo_capacity")
# the readable loop takes two seconds a row: the busiest row of each policy
READABLE = ("static@0.4", "reserve@0.25", "paged@0.25", "chunked@0.4")


def gives_the_published_row(name: str, engine: Engine) -> None:
    policy, rate = name.split("@")
    setup = ServerSetup(SchedulerSettings(policy=Policy(policy)), memory_of(16e9))
    outcome = simulate(reference_workload(float(rate)), setup, steps_of(1e12, 0.5 * 165e12), engine=engine)
    row = summarise_run(outcome)
    assert (row.policy, row.engine, row.nominal_rate, row.num_requests) == (policy, engine.value, float(rate), 300)
    is_published(row, ROWS[name])
    assert check_run(outcome).are_kept


def test_every_policy_of_the_published_rows_goes_through_the_readable_loop() -> None:
    assert len(ROWS) == 18
    assert {name.split("@")[0] for name in ROWS} == {name.split("@")[0] for name in READABLE}


@pytest.mark.parametrize("name", READABLE)
def test_the_readable_loop_gives_the_published_row(name: str) -> None:
    gives_the_published_row(name, Engine.REFERENCE)


@pytest.mark.parametrize("engine", [Engine.PLAIN, COMPILED])
@pytest.mark.parametrize("name", ROWS)
def test_the_fast_engine_gives_every_published_row(name: str, engine: Engine) -> None:
    gives_the_published_row(name, engine)


@pytest.mark.parametrize("engine", [Engine.PLAIN, COMPILED])
@pytest.mark.parametrize("name", CAPACITY["profiles"])
def test_ten_halvings_find_the_published_capacity(name: str, engine: Engine) -> None:
    profile, expected = CAPACITY["profiles"][name], CAPACITY["rows"][name]
    found = find_capacity(
        lambda count, seed: reference_workload(1.0, count, seed),
        ServerSetup(SchedulerSettings(policy=Policy.CHUNKED), memory_of(profile["kv_budget_bytes"])),
        steps_of(profile["bandwidth"], profile["compute"]),
        Limits(ttft_p99_s=3.0, itl_p99_s=0.1),
        SearchSettings(low=0.01, high=4.0, steps=10, seeds=0, longer=1),
        count=300,
        engine=engine,
    )
    assert found.is_bracketed
    assert found.nominal_rate == pytest.approx(expected["nominal"], rel=1e-9, abs=0)
    assert found.row is not None
    assert found.row.nominal_rate == pytest.approx(expected["nominal"], rel=1e-9, abs=0)
    is_published(found.row, expected)
