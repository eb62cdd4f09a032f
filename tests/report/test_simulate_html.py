"""The page of a simulation says what its JSON says."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.charts import Spec
from inference_bench.report.simulate_html import study_html
from inference_bench.units import format_count, format_number, format_seconds
from report.pages import Page, key_figures
from report.report_samples import MADE, sample, study


def test_every_percentile_of_one_run_is_the_json_s_number_written_out() -> None:
    page, (row,) = Page(sample("one run").page(None)), sample("one run").read()["rows"]
    latency = {cells["chunked, simulated"]: cells for cells in page.rows("chunked, simulated")}
    for name in ("ttft", "itl", "tpot"):
        for point in ("p50", "p90", "p99"):
            assert latency[name.upper()][point] == format_seconds(row[f"{name}_{point}_s"])
    assert latency["ITL"]["max"] == format_seconds(row["itl_max_s"])
    figures = key_figures(sample("one run").page(None))
    assert figures["good requests"] == f"{format_number(row['goodput_requests_per_s'])} requests/s"
    assert figures["TTFT, p99"] == format_seconds(row["ttft_p99_s"])
    assert figures["output rate"] == f"{format_number(row['output_tokens_per_s'])} tokens/s"
    assert figures["a million output tokens"] == f"{format_number(row['usd_per_million_output_tokens'])} USD"


def test_a_sweep_has_a_row_for_each_run_of_the_json() -> None:
    rows = Page(sample("sweep").page(None)).rows("policy")
    found = sample("sweep").read()["rows"]
    assert [(cells["policy"], cells["rate"]) for cells in rows] == [
        (row["policy"], f"{row['nominal_rate']:g}") for row in found
    ]
    for cells, row in zip(rows, found, strict=True):
        assert cells["p99"] == format_seconds(row["ttft_p99_s"])
        assert cells["ITL p99"] == format_seconds(row["itl_p99_s"])
        assert cells["tok/s"] == format_number(row["output_tokens_per_s"])
        assert cells["good/s"] == format_number(row["goodput_requests_per_s"])
        assert cells["gave way"] == format_count(row["preemptions"])


def test_the_figures_are_those_of_the_run_with_the_most_good_requests() -> None:
    source, found = sample("sweep").page(None), sample("sweep").read()["rows"]
    best = max(found, key=lambda row: row["goodput_requests_per_s"])
    assert key_figures(source)["most good requests"] == f"{format_number(best['goodput_requests_per_s'])} requests/s"
    assert f"{best['policy']} at {best['nominal_rate']:g}" in Page(source).said()


def test_of_several_seeds_no_lucky_one_is_shown_but_both_ends() -> None:
    source, spreads = sample("seeds").page(None), sample("seeds").read()["spread"]
    best = max(spreads, key=lambda each: each["goodput_requests_per_s"][0])
    low, high = map(format_number, best["goodput_requests_per_s"])
    assert key_figures(source)["most good requests"] == f"{low} – {high} requests/s"
    assert "lowest to highest of 3 seeds" in Page(source).said()


def test_an_overload_is_a_finding_and_its_rows_are_marked() -> None:
    page = Page(sample("overload").page(None))
    assert "Findings Overloaded: the queue for a first token still grew" in page.said()
    assert key_figures(sample("overload").page(None))["overloaded"] == "1 of 1 run"
    marked = Page(sample("schedulers").page(None)).tags.count(("tr", {"class": "finding"}))
    assert marked == sum(row["queue_grew"] for row in sample("schedulers").read()["rows"])
    calm = study("chunked", rates=(0.02,))
    assert "Findings" not in Page(study_html(calm, MADE, None)).said()


def test_runs_that_are_missing_are_findings() -> None:
    report = study("paged", "chunked")
    cut = replace(report, rows=report.rows[:1])
    assert "Findings Interrupted: 1 of 2 runs" in Page(study_html(cut, MADE, None)).said()
    lost = replace(report.rows[1], result=replace(report.rows[1].result, row=None, error="it can never fit"))
    assert "chunked at 0.2: it can never fit" in Page(study_html(replace(report, rows=(lost,)), MADE, None)).said()
    wrong = replace(report, rows=(replace(lost, result=replace(lost.result, checks=None)),))
    assert key_figures(study_html(wrong, MADE, None)) == {"runs with figures": "0 of 2"}


def test_one_draw_shows_each_server_over_time_and_several_show_the_rates() -> None:
    def titles(name: str) -> list[str]:
        seen: list[str] = []

        def draw(spec: Spec) -> str:
            seen.append(str(spec["description"]))
            return "<svg></svg>"

        sample(name).page(draw)
        return seen[::2]

    assert len(titles("one run")) == 2
    assert len(titles("schedulers")) == 4
    assert len(titles("sweep")) == 1
    assert titles("sweep")[0].startswith("p99 TTFT, p99 ITL and goodput of paged, chunked at 2 rates")


def test_the_servers_of_a_fleet_are_each_there() -> None:
    rows = Page(sample("fleet").page(None)).rows("replica")
    (row,) = sample("fleet").read()["rows"]
    assert [cells["requests"] for cells in rows] == [
        format_count(each["num_requests"]) for each in row["fleet"]["replicas"]
    ]


def test_what_each_scheduler_may_do_is_there() -> None:
    rows = {cells["setting"]: cells for cells in Page(sample("schedulers").page(None)).rows("setting")}
    assert rows["positions a step"] == {
        "setting": "positions a step",
        "static": "n/a",
        "paged": "no limit",
        "chunked": "256",
    }
    assert rows["largest batch"]["static"] == "16"
    assert "positions a step 256" in Page(sample("one run").page(None)).said()
