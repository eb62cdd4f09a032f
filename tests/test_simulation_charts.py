"""Charts of simulations: what lies where, what is said, and that no chart claims what no run gave."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from inference_bench.calibrate.log import RequestLog
from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.panels import Panel, Scale, Shown, empty_frame, series_encodings, side_by_side
from inference_bench.charts.simulation import capacity_chart, rate_chart
from inference_bench.charts.simulation_runs import Present, against_chart, latency_cdf_chart, timeline_chart
from inference_bench.metrics import Objective
from inference_bench.simulate.capacity import Capacity, Limits, SearchSettings, find_capacity
from inference_bench.simulate.outcome import Outcome, Timeline
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import BATCHED, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.sweep import CaseResult, sweep
from inference_bench.stats import median, quantile
from inference_bench.workload import Fixed, OpenLoop, Poisson, generate, reference_workload
from simulate.sweep_cases import MEMORY, STEPS, reference_case
from test_charts import SIGHT, check_whole_chart, check_words_inside, lab, labels, layers, rows, walk

SETUP = ServerSetup(SchedulerSettings(), MEMORY)
WIDTHS = (WIDE_PX, 700, NARROW_PX)


@cache
def results() -> tuple[CaseResult, ...]:
    """Six policies at three rates, and one case that cannot run."""
    cases = [reference_case(rate, 60, policy=policy) for policy in Policy for rate in (0.1, 0.2, 0.4)]
    return tuple(sweep([*cases, reference_case(-1.0)], workers=1))


@cache
def outcome(policy: Policy = Policy.CHUNKED, rate: float = 0.4) -> Outcome:
    return simulate(reference_workload(rate, 60), replace(SETUP, scheduler=SchedulerSettings(policy=policy)), STEPS)


@cache
def capacity() -> Capacity:
    return find_capacity(
        lambda count, seed: reference_workload(1.0, count, seed),
        SETUP,
        STEPS,
        Limits(ttft_p99_s=3.0, itl_p99_s=0.1),
        SearchSettings(low=0.01, high=4.0, steps=8, seeds=2, longer=3),
        count=60,
    )


def log_of(run: Outcome, slower: float) -> RequestLog:
    """A log whose every time is so much longer than the simulated one."""
    asked = run.workload.requests
    waits = [(first - came) * slower for came, first in zip(run.arrival_s, run.first_token_s, strict=True)]
    stays = [(last - came) * slower for came, last in zip(run.arrival_s, run.last_token_s, strict=True)]
    return RequestLog(
        "test",
        asked.prompt_tokens,
        asked.output_tokens,
        list(run.arrival_s),
        [came + wait for came, wait in zip(run.arrival_s, waits, strict=True)],
        [came + stay for came, stay in zip(run.arrival_s, stays, strict=True)],
    )


CHARTS: dict[str, Callable[[int], Spec | None]] = {
    "rate": lambda width: rate_chart(results(), width),
    "timeline": lambda width: timeline_chart(outcome(), SETUP, width),
    "cdf": lambda width: latency_cdf_chart({policy.value: outcome(policy) for policy in Policy}, width),
    "capacity": lambda width: capacity_chart(capacity(), width),
    "against": lambda width: against_chart(log_of(outcome(), 1.2), outcome(), width),
}


def drawn(name: str, width: int = WIDE_PX) -> Spec:
    spec = CHARTS[name](width)
    assert spec is not None
    return spec


# ── every chart ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_holds_its_data_lies_inside_its_width_and_is_drawn(name: str, width: int) -> None:
    check_whole_chart(drawn(name, width), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_words_lie_inside_the_drawing_and_tick_labels_do_not_touch(name: str, width: int) -> None:
    spec = drawn(name, width)
    check_words_inside(spec)
    below = [
        layer
        for layer in layers(spec, "text")
        if layer["mark"].get("baseline") == "top" and "align" not in layer["mark"]
    ]
    ticks = sorted((row["y"], row["x"], len(row["label"])) for row in rows(below[0]))
    assert len(ticks) > 3
    for (y, x, size), (other_y, other_x, other_size) in itertools.pairwise(ticks):
        assert y != other_y or x + 3.4 * size <= other_x - 3.4 * other_size


@pytest.mark.parametrize("name", CHARTS)
def test_colours_are_roles_of_the_palette_and_letters_are_large_enough(name: str) -> None:
    spec = drawn(name, 700)
    used = set(re.findall(r'"(#[0-9a-f]+)"', json.dumps(spec)))
    assert used
    assert used <= {light for light, _ in PALETTE.values()}
    assert min(value for key, value in walk(spec) if key.lower().endswith("fontsize")) >= 11


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_what_a_capacity_chart_tells_apart_by_colour_is_told_apart_with_every_kind_of_sight(
    sight: str, theme: int
) -> None:
    for one, other in itertools.combinations(("decode", "finding", "ink"), 2):
        seen = (lab(PALETTE[role][theme], sight) for role in (one, other))
        assert sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5 > 20, (one, other)


def test_series_of_the_same_colour_differ_in_dash_and_shape() -> None:
    names = [str(index) for index in range(12)]
    looks = list(zip(*(encoding["scale"]["range"] for encoding in series_encodings(names)), strict=True))
    assert len({json.dumps(look) for look in looks}) == 12
    six = [json.dumps(look[1:]) for look in looks[:6]]
    assert len(set(six)) == 6, "without colours too"


# ── policies over rates ────────────────────────────────────────────────────────────────────────────


def test_every_row_has_its_point_in_three_panels_at_its_own_value() -> None:
    spec = drawn("rate")
    points = rows(layers(spec, "point")[0])
    assert len(points) == 3 * 6 * 3
    found = {(row["panel"].split(" (")[0], row["series"], row["rate"]): row["value"] for row in points}
    for result in results()[:-1]:
        assert result.row is not None
        key = (result.case.label, result.row.nominal_rate)
        assert found["p99 TTFT", *key] == result.row.ttft_p99_s
        assert found["p99 ITL", *key] == result.row.itl_p99_s
        assert found["goodput", *key] == result.row.goodput_requests_per_s
    for panel in ("p99 TTFT", "p99 ITL"):
        own = sorted((row["value"], -row["y"]) for row in points if row["panel"] == panel)
        assert [y for _, y in own] == sorted(y for _, y in own), "longer times lie higher"


def test_the_rate_chart_names_its_limits_its_policies_and_what_it_does_not_draw() -> None:
    spec = drawn("rate")
    assert {"objective 3 s", "objective 100 ms", "every request good"} <= set(labels(spec))
    assert layers(spec, "line")[-1]["encoding"]["color"]["scale"]["domain"] == [policy.value for policy in Policy]
    assert "from 0.100 to 0.400 requests/s; 1 cases are not drawn." in spec["description"]
    assert "p99 TTFT, log scale" in labels(spec)
    mixed = [
        replace(each, case=replace(each.case, objective=Objective(index + 1.0))) for index, each in enumerate(results())
    ]
    other = rate_chart(mixed)
    assert other is not None
    assert not [said for said in labels(other) if said.startswith("objective")]


def test_several_seeds_are_their_median_and_a_stroke_over_their_range() -> None:
    seeds = sweep([reference_case(0.4, 60, seed) for seed in range(3)], workers=1)
    spec = rate_chart(seeds)
    assert spec is not None
    waits = [result.row.ttft_p99_s for result in seeds if result.row and result.row.ttft_p99_s]
    (point,) = [row for row in rows(layers(spec, "point")[0]) if row["panel"] == "p99 TTFT"]
    assert point["value"] == median(waits)
    assert point["y3"] < point["y"] < point["y2"]
    strokes = [layer for layer in layers(spec, "rule") if layer["mark"].get("strokeWidth") == 2]
    assert len(rows(strokes[0])) >= 2


def test_nothing_that_ran_at_a_rate_is_no_chart() -> None:
    assert rate_chart([]) is None
    assert rate_chart(results()[-1:]) is None


# ── a run ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_timeline_shows_every_moment_and_the_budget() -> None:
    spec = drawn("timeline")
    (line,) = layers(spec, "line")
    seen = outcome().timeline
    by_series = {
        name: [row for row in rows(line) if row["series"] == name] for name in ("answering", "no token yet", "cache")
    }
    assert {len(found) for found in by_series.values()} == {len(seen.time_s)}
    assert line["mark"]["interpolate"] == "step-after"
    # the fullest moment lies highest, just below the budget
    highest = min(row["y"] for row in by_series["cache"])
    assert by_series["cache"][list(seen.used_bytes).index(max(seen.used_bytes))]["y"] == highest
    (budget,) = [row for layer in layers(spec, "rule")[1:] for row in rows(layer)]
    assert budget["y"] < highest
    assert "budget 16 GB" in labels(spec)
    waiting = max(Present.of(outcome()).no_token)
    assert f"up to {waiting} wait for their first token" in spec["description"]
    assert max(row["y"] for row in by_series["no token yet"]) > min(row["y"] for row in by_series["no token yet"])


@pytest.mark.parametrize("engine", [Engine.REFERENCE, Engine.PLAIN])
@pytest.mark.parametrize("policy", Policy)
def test_who_has_no_token_yet_and_who_answers_are_all_that_wait_and_run(policy: Policy, engine: Engine) -> None:
    setup = replace(SETUP, scheduler=SchedulerSettings(policy=policy))
    seen = simulate(reference_workload(0.4, 60), setup, STEPS, engine=engine)
    found, kept = Present.of(seen), seen.timeline
    shown = [a + b for a, b in zip(found.answering, found.no_token, strict=True)]
    listed = [a + b for a, b in zip(kept.waiting, kept.running, strict=True)]
    # a batch looks into its queue only when it has ended: who came meanwhile is shown all the same
    assert shown == listed or (policy in BATCHED and all(a >= b for a, b in zip(shown, listed, strict=True)))
    assert min(found.answering) >= 0
    assert any(none > queued for none, queued in zip(found.no_token, kept.waiting, strict=True))


def test_a_prompt_that_is_being_read_waits_for_its_first_token() -> None:
    # two of 600 positions come at 0 to a server that reads 256 a step: 256 + 0, 256 + 0, 88 + 168, 1 + 255, 1 + 177 and the
    # first has ended, 1, 1
    asked = generate(Poisson(1.0), Fixed(600), Fixed(3), 2)
    asked = replace(asked, arrival=OpenLoop(array("d", (0.0, 0.0)), "at once", None))
    found = simulate(asked, SETUP, STEPS, engine=Engine.REFERENCE)
    seen = Present.of(found)
    assert list(found.timeline.waiting) == [0] * 7, "both are taken in at once"
    assert list(zip(seen.answering, seen.no_token, strict=True)) == [
        (0, 2),
        (0, 2),
        (0, 2),
        (1, 1),
        (1, 1),
        (1, 0),
        (1, 0),
    ]


def test_who_fails_is_in_no_line() -> None:
    ended = outcome()
    last = max(ended.last_token_s)
    none = replace(
        ended,
        first_token_s=[0.0, *list(ended.first_token_s)[1:]],
        last_token_s=[0.0, *list(ended.last_token_s)[1:]],
        failed=(0,),
        timeline=Timeline((0.0, last), (0, 0), (0, 0), (0, 0)),
    )
    assert Present.of(none) == Present([0, 0], [0, 0])


def test_several_servers_have_their_budgets_added_up() -> None:
    spec = timeline_chart(outcome(), SETUP, num_servers=3)
    assert spec is not None
    assert "budget 48 GB" in labels(spec)


def test_a_run_without_moments_is_no_timeline() -> None:
    assert timeline_chart(replace(outcome(), timeline=Timeline()), SETUP) is None


def test_a_distribution_rises_to_all_requests_and_crosses_its_quantiles() -> None:
    run = outcome()
    spec = latency_cdf_chart({"one": run})
    assert spec is not None
    points = [row for row in rows(layers(spec, "line")[0]) if row["panel"] == "TTFT"]
    assert points[0]["y"] == pytest.approx(max(row["y"] for row in points))
    assert [row["y"] for row in points] == sorted((row["y"] for row in points), reverse=True)
    assert [row["x"] for row in points] == sorted(row["x"] for row in points)
    waits = [first - came for came, first in zip(run.arrival_s, run.first_token_s, strict=True)]
    scale = Scale.over(waits, 10)
    bottom, top = points[0]["y"], points[-1]["y"]
    width = side_by_side(empty_frame(WIDE_PX), [(Shown("", scale), scale)] * 3, "", shares_y=True)[0].width
    for share in (0.2, 0.5, 0.9):
        nearest = min(points, key=lambda row: abs((bottom - row["y"]) / (bottom - top) - share))
        assert nearest["x"] == pytest.approx(width * scale.along(quantile(waits, share)), abs=2)


def test_answers_of_one_token_have_no_tpot_panel() -> None:
    workload = generate(Poisson(1.0), Fixed(100), Fixed(1), 20)
    spec = latency_cdf_chart({"short": simulate(workload, SETUP, STEPS)})
    assert spec is not None
    assert {row["panel"] for row in rows(layers(spec, "line")[0])} == {"TTFT", "E2E"}
    assert latency_cdf_chart({}) is None


# ── a capacity ─────────────────────────────────────────────────────────────────────────────────────


def test_the_capacity_chart_has_every_rate_that_was_tried_and_says_which_keep_the_objectives() -> None:
    found = capacity()
    assert found.nominal_rate is not None
    spec = drawn("capacity")
    points = [row for row in rows(layers(spec, "point")[0]) if row["panel"] == "p99 TTFT"]
    tried = [*found.below, *found.nearby]
    kept = {found.nominal_rate, *(each.rate for each in tried if each.is_met)}
    assert {row["rate"] for row in points if row["series"] == "keeps the objectives"} == kept
    assert {row["rate"] for row in points if row["series"] == "misses them"} == {
        each.rate for each in tried if not each.is_met
    }
    assert found.longer is not None
    (longer,) = [row for row in points if row["series"] == "with 180 requests"]
    assert (longer["rate"], longer["value"]) == (found.nominal_rate, found.longer.row.ttft_p99_s)
    assert longer["is_tried"] is False
    (line,) = layers(spec, "line")
    assert len(rows(line)) == 2 * (len(tried) + 1)


def test_the_interval_is_a_band_around_the_rate_that_was_found() -> None:
    found = capacity()
    spec = drawn("capacity")
    (band,) = layers(spec, "rect")
    assert len(rows(band)) == 2
    assert found.interval is not None
    for place in rows(band):
        assert place["x"] / place["x2"] == pytest.approx(max(found.interval.low, 0.0) / found.interval.high, abs=0.001)
    upright = [row for layer in layers(spec, "rule")[1:] for row in rows(layer) if row["x"] == row["x2"]]
    assert len(upright) == 2
    assert found.nominal_rate is not None
    assert upright[0]["x"] / rows(band)[0]["x2"] == pytest.approx(found.nominal_rate / found.interval.high, abs=0.001)


def test_no_capacity_is_no_chart() -> None:
    assert capacity_chart(replace(capacity(), nominal_rate=None)) is None


# ── beside what was measured ───────────────────────────────────────────────────────────────────────


def panel_places(spec: Spec, panel: str) -> list[dict[str, Any]]:
    return [row for row in rows(layers(spec, "point")[0]) if row["panel"] == panel]


def test_a_simulation_that_is_right_lies_on_the_diagonal_and_one_that_is_fast_below_it() -> None:
    run = outcome()
    for slower in (1.0, 1.5):
        spec = against_chart(log_of(run, slower), run)
        assert spec is not None
        diagonals = rows(layers(spec, "rule")[1])
        for panel, line in zip(("TTFT", "TPOT", "E2E"), diagonals, strict=True):
            slope = (line["y"] - line["y2"]) / (line["x2"] - line["x"])
            places = panel_places(spec, panel)
            assert len(places) == 3
            below = [row["y"] - (line["y"] - slope * (row["x"] - line["x"])) for row in places]
            assert all(abs(each) < 0.3 if slower == 1.0 else each > 1 for each in below)


def test_named_quantiles_are_those_of_both_sides() -> None:
    run = outcome()
    log = log_of(run, 1.2)
    spec = drawn("against")
    for row in panel_places(spec, "TTFT"):
        assert row["measured_s"] == pytest.approx(quantile(log.ttft_s, row["quantile"]))
        assert row["simulated_s"] == pytest.approx(row["measured_s"] / 1.2)
    assert {"p50", "p99"} <= set(labels(spec))


# ── scales ─────────────────────────────────────────────────────────────────────────────────────────


def test_values_far_apart_take_a_log_scale_and_others_start_at_zero() -> None:
    near, far = Scale.over([1.0, 5.0]), Scale.over([0.001, 5.0, 0.0])
    assert (near.is_log, near.low) == (False, 0.0)
    assert far.is_log
    assert 0 < far.low < 0.001
    assert [near.along(0.0), near.along(near.high), far.along(0.0), far.along(99.0)] == [0.0, 1.0, 0.0, 1.0]
    assert Scale.over([]).along(1.0) > 0
    panel = Panel(10.0, 20.0, 100.0, 50.0, near, near, "title", None)
    assert panel.place(0.0, 0.0) == {"x": 10.0, "y": 70.0}
