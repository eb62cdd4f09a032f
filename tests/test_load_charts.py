"""Charts of load runs: what lies where, what never came, and that no chart claims what no run gave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from inference_bench.charts.grammar import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.load_curve import LoadPoint, delivered_chart, throughput_latency_chart
from inference_bench.charts.load_latency import latency_pools, load_cdf_chart
from inference_bench.charts.load_timeline import load_timeline_chart, look
from inference_bench.metrics import Objective, summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from report.load_samples import failing, sweep
from test_charts import check_whole_chart, check_words_inside, labels, layers, rows, walk

WIDTHS = (WIDE_PX, 700, NARROW_PX)


def points() -> list[LoadPoint]:
    return [LoadPoint(f"{each.level:g}/s", each.level, each.metrics, each.records) for each in sweep().run.points]


CHARTS: dict[str, Callable[[int], Spec | None]] = {
    "cdf": lambda width: load_cdf_chart(latency_pools({"run": failing().run.records}), width),
    "cdf of a sweep": lambda width: load_cdf_chart(latency_pools({p.label: p.records for p in points()}), width),
    "timeline": lambda width: load_timeline_chart(look(failing().run.records, SAMPLES), width),
    "timeline without the server": lambda width: load_timeline_chart(look(failing().run.records), width),
    "curve": lambda width: throughput_latency_chart(points(), Objective(), width),
    "delivered": lambda width: delivered_chart(points(), "rate asked for (requests/s)", width),
}
SAMPLES = failing().run.server.samples if failing().run.server is not None else ()


def drawn(name: str, width: int = WIDE_PX) -> Spec:
    spec = CHARTS[name](width)
    assert spec is not None
    return spec


def record(
    at_s: float, stamps: tuple[float, ...], status: RequestStatus = RequestStatus.COMPLETED, tokens: int | None = None
) -> RequestRecord:
    end_s = stamps[-1] if stamps else at_s + 5.0
    count = len(stamps) if tokens is None else tokens
    return RequestRecord(
        f"r{at_s}", Origin.MEASURED, Stage.MEASURE, status, at_s, at_s, end_s, stamps, output_tokens=count
    )


# ── every chart ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_holds_its_data_lies_inside_its_width_and_is_drawn(name: str, width: int) -> None:
    check_whole_chart(drawn(name, width), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_words_lie_inside_the_drawing(name: str, width: int) -> None:
    spec = drawn(name, width)
    check_words_inside(spec)


@pytest.mark.parametrize("name", CHARTS)
def test_colours_are_roles_of_the_palette_and_letters_are_large_enough(name: str) -> None:
    spec = drawn(name, NARROW_PX)
    used = set(re.findall(r'"(#[0-9a-f]+)"', json.dumps(spec)))
    assert used
    assert used <= {light for light, _ in PALETTE.values()}
    assert min(value for key, value in walk(spec) if key.lower().endswith("fontsize")) >= 11


# ── how long requests took ─────────────────────────────────────────────────────────────────────────


def lines_of(spec: Spec, panel: str) -> list[tuple[float, float]]:
    found = [row for layer in layers(spec, "line") for row in rows(layer) if row["panel"] == panel]
    return [(row["x"], row["y"]) for row in sorted(found, key=lambda row: row["order"])]


def test_a_line_never_falls_and_ends_at_the_share_that_ever_came() -> None:
    spec = drawn("cdf")
    line = lines_of(spec, "TTFT")
    assert all(x <= next_x and y >= next_y for (x, y), (next_x, next_y) in pairwise(line))
    top, bottom = 24.0, 24.0 + 170.0  # of the first panel: 15 of 300 never came, so that 95 % of its height is reached
    assert line[0][1] == pytest.approx(bottom)
    assert line[-1][1] == pytest.approx(bottom - 0.95 * (bottom - top), abs=0.1)
    assert labels(spec).count("5.0 % never came") == 2 * 3  # on paper and above, of TTFT, TPOT and E2E, not of pauses
    assert "15 of 300 never came" in spec["description"]


def test_a_percentile_that_never_comes_has_no_dot() -> None:
    good = [record(float(at), (at + 1.0, at + 2.0)) for at in range(80)]
    bad = [record(float(at), (), RequestStatus.FAILED) for at in range(20)]
    spec = load_cdf_chart(latency_pools({"run": [*good, *bad]}))
    assert spec is not None
    said = [row["said"] for row in rows(layers(spec, "point")[0])]
    assert "run: p50 TTFT 1.00 s" in said
    assert not [words for words in said if "p90 TTFT" in words or "p99 E2E" in words]
    assert "run: p99 ITL 1.00 s" in said


def test_pauses_are_called_itl_only_where_each_chunk_is_a_token() -> None:
    several = [record(0.0, (1.0, 2.0, 3.0), tokens=12)]
    spec = load_cdf_chart(latency_pools({"run": several}))
    assert spec is not None
    assert "chunk gap, pauses" in labels(spec)
    assert "ITL, pauses" not in labels(spec)


def test_what_this_program_cancelled_or_warmed_up_with_is_not_there() -> None:
    good = [record(0.0, (1.0, 2.0))]
    other = [
        replace(good[0], status=RequestStatus.CANCELLED),
        replace(record(0.0, (7.0, 9.0)), stage=Stage.WARMUP),
    ]
    assert load_cdf_chart(latency_pools({"run": [*good, *other]})) == load_cdf_chart(latency_pools({"run": good}))
    assert load_cdf_chart(latency_pools({"run": other})) is None
    assert load_cdf_chart(latency_pools({})) is None


def test_of_many_loads_some_are_drawn_ends_included() -> None:
    spec = drawn("cdf of a sweep")
    names = {row["series"] for layer in layers(spec, "line") for row in rows(layer)}
    assert names == {"2/s", "6/s", "10/s", "14/s", "20/s", "30/s"}


# ── over time ──────────────────────────────────────────────────────────────────────────────────────


def series_of(spec: Spec, name: str) -> list[float]:
    found = [row for layer in layers(spec, "line") for row in rows(layer) if row["series"] == name]
    return [row["y"] for row in sorted(found, key=lambda row: row["order"])]


def test_what_was_in_flight_and_came_each_second_is_as_by_hand() -> None:
    # two requests of 20 s: 1 in flight in 0..10, 2 in 10..20, 1 in 20..30; a token a second of the first, two of the second
    one = record(0.0, tuple(float(at) + 0.5 for at in range(20)))
    two = replace(record(10.0, tuple(10.0 + at + 0.5 for at in range(20))), chunk_tokens=(2,) * 20, output_tokens=40)
    spec = load_timeline_chart(look([replace(one, end_s=20.0), replace(two, end_s=30.0)]))
    assert spec is not None
    assert spec["description"] == (
        "30.0 s of load: up to 2 requests in flight, up to 3.00 output tokens/s over 1.00 s."
    )
    said = {row["said"] for layer in layers(spec, "rect") for row in rows(layer)}
    assert "at 4.88 s: in flight 1.00, output tokens 1.00, planned sends 0, sends 0" in said
    assert "at 14.6 s: in flight 2.00, output tokens 3.00, planned sends 0, sends 0" in said
    assert "at 25.1 s: in flight 1.00, output tokens 2.00, planned sends 0, sends 0" in said


def test_tokens_that_nobody_counted_are_not_made_up() -> None:
    known = record(0.0, (1.0, 2.0))
    unknown = replace(known, output_tokens=None)
    spec = load_timeline_chart(look([known, unknown]))
    assert spec is not None
    assert "the tokens of 1 are not known" in spec["description"]
    alone = load_timeline_chart(look([unknown]))
    assert alone is not None
    assert "output tokens/s" not in labels(alone)


def test_each_failure_is_marked_where_it_ended_and_counted() -> None:
    spec = drawn("timeline")
    crosses = next(layer for layer in layers(spec, "point") if layer["mark"].get("shape") == "cross")
    assert len(rows(crosses)) == 15
    assert "15 of 300 failed" in spec["description"]


def test_what_the_server_said_is_there_where_it_was_asked() -> None:
    with_server, without = drawn("timeline"), drawn("timeline without the server")
    for name in ("server: running", "server: waiting", "server: cache"):
        assert series_of(with_server, name)
        assert not series_of(without, name)
    assert "cache in use" in labels(with_server)
    assert "cache in use" not in labels(without)


def test_a_run_without_time_is_not_drawn() -> None:
    assert load_timeline_chart(look([])) is None
    assert load_timeline_chart(look([replace(record(1.0, ()), end_s=1.0)])) is None


# ── over the loads of a sweep ──────────────────────────────────────────────────────────────────────


def test_each_load_has_both_percentiles_over_its_throughput() -> None:
    loads = points()
    shown = [row for row in rows(layers(drawn("curve"), "point")[0])]
    assert len(shown) == 2 * 2 * len(loads)
    for point in loads:
        mine = [row["said"] for row in shown if row["name"] == point.label]
        assert len(mine) == 4
        assert all(words.startswith(f"{point.label}: p") for words in mine)
    assert "objective 3 s" in labels(drawn("curve"))


def test_names_of_loads_do_not_touch_one_another() -> None:
    for width in WIDTHS:
        spec = drawn("curve", width)
        named = {(row["label"], row["x"], row["y"]) for layer in layers(spec, "text") for row in rows(layer)}
        named = {each for each in named if each[0].endswith("/s") and each[0][0].isdigit()}
        assert len(named) >= 6
        for one in named:
            for other in named - {one}:
                is_apart = abs(one[2] - other[2]) >= 14 or abs(one[1] - other[1]) >= 6 * len(one[0]) - 6
                assert is_apart, (one, other)


def test_one_load_is_no_curve() -> None:
    (point, *_) = points()
    assert throughput_latency_chart([point]) is None
    assert delivered_chart([point], "rate") is None
    assert delivered_chart([point, point], "rate") is None
    failed = LoadPoint("x", 9.0, summarise([record(0.0, (), RequestStatus.FAILED)]))
    assert throughput_latency_chart([failed, failed]) is None


def test_good_requests_lie_at_or_under_those_that_were_sent() -> None:
    dots = rows(layers(drawn("delivered"), "point")[0])
    sent = {row["said"].split(" asked")[0]: row["y"] for row in dots if row["series"] == "sent requests/s"}
    good = {row["said"].split(" asked")[0]: row["y"] for row in dots if row["series"] == "good requests/s"}
    assert len(good) == 7
    assert all(good[asked] >= sent[asked] - 0.5 for asked in good)  # lower on the screen is less
    assert good["30.0"] > sent["30.0"] + 20
