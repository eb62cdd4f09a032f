"""The chart of a drill: it shows the result's requests, each as it ended, and the fault and its moments where the result says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chart_checks import WIDTHS, check_colours, check_whole, check_words_apart, labels, rows
from inference_bench.charts import NARROW_PX, WIDE_PX, Spec
from inference_bench.charts.drill import drill_chart, soak_chart
from inference_bench.operate.drill.accounting import Books, list_requests, tally
from inference_bench.operate.drill.results import (
    ENDS,
    FALLBACK,
    PRIMARY,
    DrillResult,
    Requests,
    RequestSpan,
    ScenarioResult,
    SoakResult,
    Span,
    Tally,
)
from inference_bench.operate.drill.traffic import CallerEnd, Outcome
from inference_bench.render import svg
from inference_bench.report.drill_report import drill_html, drill_json
from inference_bench.report.html_pieces import NO_CHARTS
from inference_bench.report.report_html import Provenance
from operate.drill.fakes import BASELINES, answer, outcome

MADE = Provenance("drill", "inference-bench drill", "2026-11-30 12:00:00 UTC", {})
STARTED_S = 100.0
BAR, SHADE = "outcome", "span"


def sent(at_s: float, took_s: float | None, end: CallerEnd, who: str | None) -> Outcome:
    ended_s = None if took_s is None else STARTED_S + at_s + took_s
    return outcome(end, began_s=STARTED_S + at_s, ended_s=ended_s, answers=[answer("one", who)])


OUTCOMES = [
    *(sent(at, 0.3, CallerEnd.COMPLETED, PRIMARY) for at in (0.0, 0.4, 0.8, 7.0, 7.4)),
    sent(1.2, 0.5, CallerEnd.INTERRUPTED, PRIMARY),
    *(sent(at, 0.9, CallerEnd.COMPLETED, FALLBACK) for at in (1.6, 2.0, 2.4)),
    *(sent(at, 3.0, CallerEnd.FAILED, None) for at in (2.8, 3.2)),
    sent(3.6, None, CallerEnd.OPEN, None),
]
COUNTS = {"completed": 8, "failed": 2, "interrupted": 1, "lost": 1}
FAULT = Span(1.5, 4.0)


def scenario(name: str = "reset", outcomes: list[Outcome] = OUTCOMES, **more: Any) -> ScenarioResult:
    settings = {"fault": FAULT, "requests": list_requests(outcomes, STARTED_S), **more}
    return ScenarioResult(name, "?", tally(Books(outcomes, []), BASELINES), 0.2, 0.6, 3.3, 2.5, **settings)


def whole() -> ScenarioResult:
    return scenario("killed", [each for each in OUTCOMES if each.end is CallerEnd.COMPLETED])


def drill(*scenarios: ScenarioResult) -> DrillResult:
    return DrillResult({}, None, scenarios or (scenario(), whole()))


def soak() -> SoakResult:
    listed = list_requests(OUTCOMES, STARTED_S)
    down = (Span(1.0, 1.7), Span(5.0, 5.4))
    return SoakResult(Tally(**{"sent": 12, **COUNTS}), 2, 2, 8.0, 1.1, 7, down=down, requests=listed)


CHARTS: dict[str, Callable[[int], Spec | None]] = {
    "scenarios": lambda width: drill_chart(drill(), width),
    "all completed": lambda width: drill_chart(drill(whole()), width),
    "soak": lambda width: soak_chart(soak(), width),
}


def drawn(name: str = "scenarios", width: int = WIDE_PX) -> Spec:
    spec = CHARTS[name](width)
    assert spec is not None
    return spec


def bars(spec: Spec) -> list[dict[str, Any]]:
    return [row for row in rows(spec, "rect") if BAR in row]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_holds_its_data_and_its_words_lie_apart(name: str, width: int) -> None:
    spec = drawn(name, width)
    check_whole(spec, width, ("rect",) if name == "all completed" else ("rect", "point"))
    check_words_apart(spec, more_than=6)
    check_colours(spec)


# ── what is drawn is what was found ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
def test_there_is_a_bar_for_each_request_in_the_lane_of_who_answered(width: int) -> None:
    found = scenario()
    shown = [row for row in bars(drawn(width=width)) if row["scenario"] == "reset"]
    assert Counter(row["outcome"] for row in shown) == COUNTS
    assert {end: getattr(found.tally, end) for end in ENDS} == COUNTS
    who = Counter(row["lane"] for row in shown)
    assert who.pop("nobody") == found.tally.sent - sum(found.tally.answered_by.values())
    assert dict(who) == dict(found.tally.answered_by) == {"primary": 6, "fallback": 3}


def test_bars_begin_and_end_when_requests_did_and_none_lies_on_another() -> None:
    spec = drawn()
    shown = [row for row in bars(spec) if row["scenario"] == "reset"]
    (shade, _) = [row for row in rows(spec, "rect") if SHADE in row]
    px_per_s = (shade["x2"] - shade["x"]) / (FAULT.end_s - FAULT.begin_s)
    left = shade["x"] - FAULT.begin_s * px_per_s
    expected = sorted((each.start_s, each.end_s or 7.7) for each in scenario().requests.listed)
    assert sorted((row["x"], row["x2"]) for row in shown) == [
        (pytest.approx(left + start_s * px_per_s, abs=0.2), pytest.approx(left + end_s * px_per_s, abs=0.2))
        for start_s, end_s in expected
    ]
    for index, one in enumerate(shown):
        for other in shown[index + 1 :]:
            is_beside = one["x2"] <= other["x"] or other["x2"] <= one["x"]
            assert is_beside or one["y2"] <= other["y"] or other["y2"] <= one["y"]


def test_how_a_request_ended_can_be_read_without_colours() -> None:
    spec = drawn()
    marks = rows(spec, "point")
    assert Counter(row["outcome"] for row in marks) == {"failed": 2, "interrupted": 1, "lost": 1}
    at_end = {(row["x2"], row["outcome"]) for row in bars(spec)}
    assert {(row["x"], row["outcome"]) for row in marks} <= at_end
    (layer, *_) = [each for each in spec["layer"] if each["mark"]["type"] == "point"]
    shape = layer["encoding"]["shape"]["scale"]
    assert shape["domain"] == list(COUNTS)
    assert len(set(shape["range"])) == len(shape["domain"])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_fault_is_shaded_and_each_moment_has_its_rule_where_the_result_says(width: int) -> None:
    spec = drawn(width=width)
    shade = [row for row in rows(spec, "rect") if SHADE in row]
    assert [(row["begin_s"], row["end_s"]) for row in shade] == [(1.5, 4.0)] * 2
    px_per_s = (shade[0]["x2"] - shade[0]["x"]) / 2.5
    moments = {row["moment"]: row for row in rows(spec, "rule") if row.get("said", "").startswith("reset")}
    expected = {"detected": 1.5 + 0.2, "breaker opened": 1.5 + 0.6, "recovered": 4.0 + 3.3}
    assert {name: row["at_s"] for name, row in moments.items()} == pytest.approx(expected)
    for name, at_s in expected.items():
        assert moments[name]["x"] == pytest.approx(shade[0]["x"] + (at_s - 1.5) * px_per_s, abs=0.3)
        assert name in labels(spec)


def test_a_moment_that_never_came_has_no_rule_and_a_scenario_that_was_not_played_no_panel() -> None:
    unseen = replace(scenario(), breaker_s=None, recovered_s=None)
    spec = drill_chart(drill(unseen, ScenarioResult("killed", "?", skipped="not ours")))
    assert spec is not None
    assert {row["moment"] for row in rows(spec, "rule") if "moment" in row} == {"detected"}
    assert {row["scenario"] for row in bars(spec)} == {"reset"}
    assert drill_chart(drill(ScenarioResult("killed", "?", skipped="not ours"))) is None


def test_a_soak_is_one_panel_with_each_time_that_the_server_was_down() -> None:
    spec = drawn("soak")
    assert Counter(row["outcome"] for row in bars(spec)) == COUNTS
    assert [(row["begin_s"], row["end_s"]) for row in rows(spec, "rect") if SHADE in row] == [(1.0, 1.7), (5.0, 5.4)]
    assert not [row for row in rows(spec, "rule") if "moment" in row]


def test_requests_that_all_ran_at_once_still_fit_into_a_panel() -> None:
    burst = Requests(tuple(RequestSpan(1.0 + n / 1000, 4.0 + n / 1000, "failed", None) for n in range(400)))
    spec = drill_chart(drill(replace(scenario(), requests=burst)))
    assert spec is not None
    shown = bars(spec)
    assert len(shown) == 400
    assert max(row["y2"] for row in shown) - min(row["y"] for row in shown) < 130
    assert spec["height"] < 300


def test_a_title_that_is_too_long_for_one_line_takes_two() -> None:
    spec = drill_chart(drill(scenario("a-name-of-some-length")), NARROW_PX)
    assert spec is not None
    assert {"a-name-of-some-length", "8 completed, 2 failed, 1 interrupted, 1 lost"} <= set(labels(spec))
    check_words_apart(spec, more_than=6)


# ── many requests ──────────────────────────────────────────────────────────────────────────────────


def test_of_many_requests_every_nth_of_an_end_is_listed_and_of_a_rare_end_each() -> None:
    good = [sent(n / 10, 0.1, CallerEnd.COMPLETED, PRIMARY) for n in range(1000)]
    bad = [sent(n, 0.1, CallerEnd.FAILED, None) for n in range(50)]
    few = list_requests([*good, *bad], STARTED_S, most=2000)
    assert (few.every, len(few.listed)) == (1, 1050)
    many = list_requests([*good, *bad], STARTED_S, most=550)
    assert many.every == 2
    assert Counter(each.outcome for each in many.listed) == {"completed": 500, "failed": 50}
    starts = [each.start_s for each in many.listed if each.outcome == "completed"]
    assert starts == pytest.approx([n / 10 for n in range(0, 1000, 2)])
    assert (dict(few.left_out), dict(many.left_out)) == ({}, {"completed": 500})


def test_many_failed_requests_are_thinned_and_no_end_vanishes() -> None:
    ends = {CallerEnd.COMPLETED: 3_000, CallerEnd.FAILED: 30_000, CallerEnd.INTERRUPTED: 7, CallerEnd.OPEN: 1}
    outcomes = [sent(n / 10, 0.1, end, None) for end, number in ends.items() for n in range(number)]
    found = list_requests(outcomes, STARTED_S)
    shown = Counter(each.outcome for each in found.listed)
    assert len(found.listed) <= 4_000
    assert (shown["interrupted"], shown["lost"]) == (7, 1)
    assert min(shown["completed"], shown["failed"]) >= 1_000
    assert shown + Counter(found.left_out) == {"completed": 3_000, "failed": 30_000, "interrupted": 7, "lost": 1}
    assert "interrupted" not in found.left_out


def test_what_is_not_drawn_is_said_in_the_picture_in_the_page_and_in_the_json() -> None:
    outcomes = [sent(n / 100, 0.1, CallerEnd.FAILED, None) for n in range(9_000)]
    found = scenario("overload", [*outcomes, *OUTCOMES])
    spec = drill_chart(drill(found))
    assert spec is not None
    left_out = found.requests.left_out
    assert set(left_out) == {"failed"}
    drawn = 9_002 - left_out["failed"]
    (title,) = [each for each in labels(spec) if each.startswith("overload:")]
    assert title.endswith(f"({left_out['failed']:,} not drawn)")
    page = drill_html(drill(found), MADE, lambda *_: "<svg></svg>")
    assert f"Drawn are of 9,002 failed requests {drawn:,}, and all others." in page
    assert drill_json(drill(found))["scenarios"][0]["left_out"] == left_out


def test_a_soak_of_hours_makes_a_page_of_a_few_megabytes_that_says_what_is_left_out() -> None:
    pytest.importorskip("vl_convert")
    outcomes = [sent(n / 3, 0.3, CallerEnd.COMPLETED, PRIMARY) for n in range(50_000)]
    listed = list_requests(outcomes, STARTED_S)
    assert len(listed.listed) <= 4_000
    found = DrillResult({}, None, soak=replace(soak(), requests=listed))
    page = drill_html(found, MADE, svg)
    assert f"Drawn are of 50,000 completed requests {len(listed.listed):,}, and all others." in page
    assert len(page) < 4_000_000
    assert len(json.dumps(drill_json(found))) < 1_000_000


# ── JSON and page ──────────────────────────────────────────────────────────────────────────────────


def test_json_lists_the_requests_and_when_the_fault_lasted() -> None:
    found = drill_json(drill(scenario()))["scenarios"][0]
    assert json.loads(json.dumps(found)) == found
    assert Counter(each["outcome"] for each in found["requests"]) == COUNTS
    assert all(each.keys() == {"start_s", "end_s", "outcome", "answered_by"} for each in found["requests"])
    assert (found["fault"]["begin_s"], found["fault"]["end_s"], found["completed_every"]) == (1.5, 4.0, 1)
    assert found["fault"]["moments_s"] == pytest.approx({"detected": 1.7, "breaker opened": 2.1, "recovered": 7.3})
    said = drill_json(DrillResult({}, None, soak=soak()))["soak"]
    assert said["down"] == [{"begin_s": 1.0, "end_s": 1.7}, {"begin_s": 5.0, "end_s": 5.4}]
    assert len(said["requests"]) == 12


def test_a_page_has_its_charts_or_says_why_not_and_a_name_cannot_write_into_it() -> None:
    pytest.importorskip("vl_convert")
    hostile = replace(scenario(), name="<script>alert(1)</script>&\x1b")
    page = drill_html(replace(drill(hostile), soak=soak()), MADE, svg)
    assert page.count("<figure>") == 2
    assert "Shaded: from the begin of the fault to its end" in page
    assert "Shaded: from a kill of the first server" in page
    assert "<script" not in page
    assert "\x1b" not in page
    without = drill_html(drill(hostile), MADE, None)
    assert "vl-convert-python" in without
    assert NO_CHARTS.split(":")[0] in without
    assert "<figure>" not in without
    assert without.count("<table") == 4
    nothing = drill_html(drill(ScenarioResult("killed", "?", skipped="not ours")), MADE, svg)
    assert "Charts" not in nothing
