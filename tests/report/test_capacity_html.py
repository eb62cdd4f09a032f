"""The page of a capacity, of a replay, and of a log beside its simulation says what their JSON says."""

from __future__ import annotations

from inference_bench.units import format_count, format_fraction, format_number, format_seconds
from report.pages import Page, key_figures
from report.report_samples import sample


def test_the_rate_and_every_promise_are_seen_first() -> None:
    figures, found = key_figures(sample("capacity").page(None)), sample("capacity").read()
    assert figures["capacity"] == f"{format_number(found['nominal_rate'])} requests/s"
    assert figures["p99 TTFT"] == format_seconds(found["ttft_p99_s"])
    assert figures["p99 ITL"] == format_seconds(found["itl_p99_s"])
    assert figures["with more requests"] == f"{format_number(found['longer_rate'])} requests/s"
    assert figures["output rate"] == f"{format_number(found['output_tokens_per_s'])} tokens/s"


def test_what_may_be_doubted_cannot_be_missed() -> None:
    said, found = Page(sample("capacity").page(None)).said(), sample("capacity").read()
    assert found["warnings"]
    for warning in found["warnings"]:
        assert " ".join(warning.split())[1:] in said
    assert said.index("Doubts") < said.index("What the numbers say")


def test_every_rate_that_was_tried_is_a_row() -> None:
    rows, found = Page(sample("capacity").page(None)).rows("rate"), sample("capacity").read()
    tried = sorted([*found["nearby"], *found["below"]], key=lambda each: each["nominal_rate"])
    by_rate = {cells["rate"]: cells for cells in rows[:-1]}
    assert len(rows) == len(tried) + 2
    for each in tried:
        cells = by_rate[format_number(each["nominal_rate"], 4)]
        assert cells["TTFT p99"] == format_seconds(each["ttft_p99_s"])
        assert cells["kept"] == ("yes" if each["met"] else f"no: {', '.join(each['missed'])}")
    assert rows[-1]["requests"] == format_count(found["longer"]["num_requests"])


def test_where_no_rate_keeps_the_promise_that_is_the_figure() -> None:
    source = sample("no capacity").page(None)
    assert key_figures(source) == {"capacity": "none"}
    assert "chunked: no rate keeps p99 TTFT <= 1.00 ms." in Page(source).said()
    assert "Doubts" not in Page(source).said()


def test_a_replay_shows_both_forms() -> None:
    source, found = sample("replay").page(None), sample("replay").read()
    assert key_figures(source)["tail as recorded"] == f"{format_number(found['ttft_p99_ratio'])} times"
    rows = {cells["arrivals, simulated"]: cells for cells in Page(source).rows("arrivals, simulated")}
    assert rows["as recorded"]["TTFT p99"] == format_seconds(found["replayed"]["ttft_p99_s"])
    assert rows["Poisson"]["TTFT p99"] == format_seconds(found["poisson"]["ttft_p99_s"])


def test_every_error_of_a_log_is_the_json_s() -> None:
    source, found = sample("log").page(None), sample("log").read()
    rows = {cells["seconds"]: cells for cells in Page(source).rows("seconds")}
    assert len(rows) == len(found["errors"])
    for name, key in (("TTFT p50", "ttft_p50"), ("TPOT p99", "tpot_p99"), ("makespan", "makespan")):
        assert rows[name]["measured"] == format_seconds(found["measured"][key])
        assert rows[name]["simulated"] == format_seconds(found["simulated"][key])
        assert rows[name]["error"].lstrip("+") == format_fraction(found["errors"][key])
        assert key_figures(source)[f"error of {name}"] == rows[name]["error"]
    assert "What was fitted" not in Page(source).said()


def test_what_was_fitted_stands_beside_the_error_that_is_left() -> None:
    source, found = sample("fitted log").page(None), sample("fitted log").read()
    rows = {cells["fitted"]: cells for cells in Page(source).rows("fitted")}
    assert rows["share of the bandwidth"]["value"] == format_number(found["fitted"]["bandwidth"]["value"])
    errors = {cells["seconds"]: cells for cells in Page(source).rows("seconds")}
    assert errors["TPOT p50"]["error left"].lstrip("+") == format_fraction(found["errors"]["tpot_p50"])
    assert key_figures(source)["error of TPOT p50"] == errors["TPOT p50"]["error left"]
