"""The same question put to several schedulers at several rates; fleets said in a few numbers."""

from __future__ import annotations

import pytest

from inference_bench.errors import QuantityError, RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate import study as studies
from inference_bench.simulate.autoscaling import AutoscalingSettings
from inference_bench.simulate.candidates import candidates_named
from inference_bench.simulate.fleet_plan import FleetPlan, fleet_usd_per_million_tokens, run_fleet
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.served import MemoryChoice, serve_reference
from inference_bench.simulate.study import Draw, Study, parse_rates, run_study
from inference_bench.simulate.summary import summarise_run
from inference_bench.simulate.sweep import SweepInterrupted
from inference_bench.workload import reference_workload


def small(
    *names: str, rates: tuple[float, ...] = (0.2,), seeds: tuple[int, ...] = (0,), fleet: FleetPlan | None = None
) -> Study:
    served = serve_reference("24GB-bf16", candidates_named(names), MemoryChoice())
    draws = tuple(Draw(rate, seed, reference_workload(rate, 20, seed)) for rate in rates for seed in seeds)
    return Study(served, draws, Objective(), fleet=fleet)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("0.25", (0.25,)),
        ("1,0.5", (1.0, 0.5)),
        ("0.1:0.4:0.1", (0.1, 0.2, 0.3, 0.4)),
        ("0.1:0.35:0.1", (0.1, 0.2, 0.3)),
        ("2:2:1, 2 ,3", (2.0, 3.0)),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, rates: tuple[float, ...]) -> None:
    assert parse_rates(text) == rates


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1:2:0", "2:1:1", "1e30", "0.001:9:0.001"])
def test_rates_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_rates(text)


@pytest.mark.parametrize("text", ["", "a", "1:2", "1,,2", "1:2:3:4"])
def test_rates_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_rates(text)


def test_each_scheduler_gets_each_draw() -> None:
    report = run_study(small("paged", "chunked", rates=(0.2, 0.3), seeds=(0, 1)), workers=1)
    asked = [(row.name, row.draw.rate, row.draw.seed) for row in report.rows]
    assert asked == [(name, rate, seed) for name in ("paged", "chunked") for rate in (0.2, 0.3) for seed in (0, 1)]
    assert (report.is_complete, report.num_ran, report.keeps_its_books) == (True, 8, True)
    assert [(each.name, each.rate, each.num_seeds) for each in report.spreads] == [
        ("paged", 0.2, 2), ("paged", 0.3, 2), ("chunked", 0.2, 2), ("chunked", 0.3, 2),
    ]  # fmt: skip
    both = [row.row.ttft_p99_s for row in report.rows[:2] if row.row is not None]
    assert report.spreads[0].values["ttft_p99_s"] == (min(x for x in both if x), max(x for x in both if x))


def test_a_row_has_its_price_by_the_million_tokens() -> None:
    (row,) = run_study(small("paged")).rows
    assert row.row is not None
    assert row.usd_per_million_output_tokens == pytest.approx(1.0 / (row.row.output_tokens_per_s * 3600) * 1e6)


def test_an_interrupted_study_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = studies.sweep

    def interrupted(cases: object, *args: object, **more: object) -> object:
        raise SweepInterrupted(whole(cases[1:2]))  # type: ignore[index]

    monkeypatch.setattr(studies, "sweep", interrupted)
    report = run_study(small("paged", "chunked"))
    assert ([row.name for row in report.rows], report.is_complete) == (["chunked"], False)


def test_a_study_of_which_nothing_runs_says_why() -> None:
    served = serve_reference("24GB-bf16", candidates_named(["paged", "chunked"]), MemoryChoice(num_blocks=1))
    report = run_study(Study(served, (Draw(1.0, 0, reference_workload(1.0, 4)),), Objective()))
    assert report.num_ran == 0
    with pytest.raises(RequestError, match=r"paged cannot run: .*can never fit.* \(and so for 1 more runs\)"):
        report.require_any()


def test_token_times_need_the_readable_engine() -> None:
    assert small("paged").keeping_token_times().engine is Engine.REFERENCE
    fast = Study(small("paged").served, small("paged").draws, Objective(), Engine.PLAIN)
    with pytest.raises(RequestError, match="keeps no token times"):
        fast.keeping_token_times()


def test_a_fleet_of_one_is_one_server() -> None:
    (row,) = run_study(small("chunked", fleet=FleetPlan())).rows
    study = small("chunked")
    alone = summarise_run(
        simulate(reference_workload(0.2, 20), study.served.contenders[0].setup, study.served.step_time)
    )
    assert row.row is not None
    assert (row.row.ttft_p99_s, row.row.makespan_s) == (alone.ttft_p99_s, alone.makespan_s)
    fleet = row.result.fleet
    assert fleet is not None
    assert fleet.replica_seconds == alone.makespan_s
    assert row.usd_per_million_output_tokens == pytest.approx(1.0 / (alone.output_tokens_per_s * 3600) * 1e6)


def test_what_several_servers_cost_is_by_the_hours_they_are_there() -> None:
    assert fleet_usd_per_million_tokens(2.0, 7_200.0, 3_600.0, 1_000.0) == pytest.approx(4.0 / 3.6)
    assert fleet_usd_per_million_tokens(None, 1.0, 1.0, 1.0) is None
    assert fleet_usd_per_million_tokens(1.0, 1.0, 1.0, 0.0) is None


def test_decoding_servers_share_no_prefixes() -> None:
    served = serve_reference("24GB-bf16", candidates_named(["chunked"]), MemoryChoice())
    (one,) = served.contenders
    plan = FleetPlan(replicas=2, decode_replicas=3)
    setup = plan.setup(one.setup, served.step_time)
    assert (plan.num_servers, len(setup.replicas), len(setup.all_replicas)) == (5, 2, 5)
    outcome = run_fleet(reference_workload(0.5, 10), one.setup, served.step_time, plan)
    assert outcome.transfers.count == 10
    assert outcome.transfers.mean_s == pytest.approx(outcome.transfers.seconds / 10)


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_number_of_servers_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(RequestError, match="cannot be simulated"):
        FleetPlan(replicas=count)


def test_a_fleet_says_how_it_is_run() -> None:
    notes = " ".join(FleetPlan(2, autoscaling=AutoscalingSettings(2, 6), decode_replicas=1).notes)
    assert "2 servers at the start" in notes
    assert "from 2 to 6" in notes
    assert "1 server more only for decoding" in notes
