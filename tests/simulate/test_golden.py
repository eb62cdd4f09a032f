"""The published simulation figures, through every engine: golden/published/scheduling.json."""

from __future__ import annotations

import pytest

from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import check_run, summarise_run
from inference_bench.workload import reference_workload
from simulate.reference_case import COMPILED, is_published, memory_of, published, steps_of

ROWS = published("scheduling")["rows"]
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
