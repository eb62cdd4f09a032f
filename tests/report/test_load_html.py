"""The page of a load run: its verdicts, its figures, and what it does with texts that are not ours."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from inference_bench.arrival_proof import Verdict, prove_arrivals
from inference_bench.charts import Spec
from inference_bench.cli.load_page import write_load_page
from inference_bench.loadtest.capacity_search import Answer
from inference_bench.loadtest.settle import Settled
from inference_bench.measure.prompt_checks import CacheCheck, PromptCheck
from inference_bench.measure.server_metrics import ServerMetrics
from inference_bench.metrics import Objective
from inference_bench.records import RequestStatus
from inference_bench.referee import Cause, Flag, Measure
from inference_bench.report.html_pieces import NO_CHARTS
from inference_bench.report.load_page import load_page, sweep_page
from inference_bench.report.load_page_input import count_good
from inference_bench.units import format_number, format_seconds
from inference_bench.workload import RequestShape, closed_loop
from report.load_samples import (
    MADE,
    OUTPUT,
    PROMPT,
    SAMPLES,
    CapacitySample,
    LoadSample,
    SweepSample,
    bare,
    calm,
    capacity,
    closed,
    failing,
    hostile,
    sweep,
)
from report.pages import Page, key_figures, require_a_page_that_stands_alone
from report.sample import SCRIPT


def fake(spec: Spec) -> str:
    return f"<svg><text>{spec['width']}</text></svg>"


def specs(sample: LoadSample | SweepSample | CapacitySample) -> list[str]:
    """Every drawing's specification, each at both widths."""
    seen: list[str] = []

    def draw(spec: Spec) -> str:
        seen.append(str(spec))
        return "<svg></svg>"

    sample.page(draw)
    return seen


@cache
def drawn(name: str) -> str:
    return SAMPLES[name]().page(fake)


# ── every page ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_needs_nothing_from_anywhere(name: str) -> None:
    source = drawn(name).replace("http://", "").replace("xmlns=&quot;", "")
    require_a_page_that_stands_alone(source)


@pytest.mark.parametrize("name", SAMPLES)
def test_without_what_draws_it_has_every_table_and_says_what_to_install(name: str) -> None:
    without, whole = Page(SAMPLES[name]().page()), Page(drawn(name))
    assert without.tables == whole.tables
    assert NO_CHARTS in without.said()
    assert "<figure" in drawn(name)


@pytest.mark.parametrize("name", SAMPLES)
def test_it_opens_with_a_question_and_a_few_figures_and_ends_with_how_to_repeat_it(name: str) -> None:
    said = Page(drawn(name)).said()
    assert "What did" in said
    assert "deliver?" in said
    assert 1 <= len(key_figures(drawn(name))) <= 8
    assert MADE.line in said
    assert said.index("Assumptions") < said.index("How to repeat it")


def test_every_origin_that_a_page_shows_is_explained() -> None:
    for name in SAMPLES:
        source = drawn(name)
        shown = {tags["class"].split()[1] for tag, tags in Page(source).tags if tag == "span" and "class" in tags}
        explained = source.partition('<ul class="origins"')[2].partition("</ul>")[0]
        assert all(f'class="tag {origin}"' in explained for origin in shown), (name, shown)


def test_hostile_texts_are_shown_as_they_are_and_do_nothing() -> None:
    source = drawn("hostile")
    assert "<script" not in source
    assert "<img" not in source
    assert "<b>" not in source
    assert Page(source).said().count(SCRIPT) >= 5
    assert not {"\x1b", "\u202e"} & set(source)
    assert "/home/somebody" not in source


# ── a run ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_figures_are_the_metrics_written_out() -> None:
    metrics, figures = calm().run.metrics, key_figures(drawn("calm"))
    assert metrics.ttft_s is not None
    assert metrics.itl_s is not None
    window = calm().run.window
    assert window is not None
    assert figures["output rate"] == f"{format_number(window.output_tokens_per_s)} tokens/s"
    assert figures["TTFT, p99"] == format_seconds(metrics.ttft_s.p99)
    assert figures["ITL, p99"] == format_seconds(metrics.itl_s.p99)
    assert figures["good requests"] == f"{format_number(metrics.goodput_requests_per_s)} requests/s"
    whole = f"{format_number(metrics.output_tokens_per_s)} output tokens/s over the whole run"
    assert whole in Page(drawn("calm")).said()
    assert figures["completed"] == "300 of 300"
    assert figures["client's own error"] == "≤ 0.050 %"


def test_every_percentile_has_its_interval_and_samples() -> None:
    rows = {row["time"]: row for row in Page(drawn("calm")).rows("time")}
    metrics = calm().run.metrics
    assert metrics.ttft_s is not None
    assert metrics.ttft_s.p50_interval is not None
    assert rows["TTFT"]["p50"] == format_seconds(metrics.ttft_s.p50)
    low, high = (
        format_seconds(end).split()[0] for end in (metrics.ttft_s.p50_interval.low, metrics.ttft_s.p50_interval.high)
    )
    intervals = next(table for table in Page(drawn("calm")).tables if "95 % of p50" in table[0])
    assert next(row for row in intervals if row[0] == "TTFT")[1] == f"{low} – {high} ms"
    assert rows["TTFT"]["p99"].endswith("†")  # 300 samples cannot bound a p99
    assert rows["ITL"]["samples"] == "6,900"


def test_a_run_that_kept_up_says_so_and_has_no_findings() -> None:
    said = Page(drawn("calm")).said()
    assert "Findings" not in said
    for words in (
        "This client kept up",
        "Requests arrived as asked: poisson",
        "The server kept up with the requests",
        "Little's law holds",
        "The server's own count agrees: output tokens 7,200, by the records 7,200",
    ):
        assert words in said, words


def test_what_must_not_be_missed_stands_above_all_else_the_client_first() -> None:
    said = Page(drawn("failing")).said()
    places = [
        said.index(words)
        for words in (
            "Findings Invalid: this client may have moved the p99 of TTFT",
            "Of 300 requests, 7 rejected, 8 timed out",
            "The server fell behind",
            "A prefix cache held",
            "What the numbers say",
        )
    ]
    assert places == sorted(places)
    assert "The server's own metrics: no whole answer within 800 ms; 43 answers, 2 failures" in said


def test_failures_are_in_the_second_view_and_in_the_endings() -> None:
    page = Page(drawn("failing"))
    (never, *_) = [table for table in page.tables if table[0] == ["time", "p50", "p90", "p99", "requests"]]
    assert never[1][3:] == ["never", "300"]
    endings = {row["ending"]: row["requests"] for row in page.rows("ending")}
    assert endings == {"completed": "285", "failed": "0", "rejected": "7", "timed out": "8", "truncated": "0"}
    stood = {row["against the objective"]: row["requests"] for row in page.rows("against the objective")}
    assert stood == {"good": "65", "completed, not good": "220", "not completed": "15"}
    assert page.tags.count(("tr", {"class": "finding"})) == 2
    assert not [table for table in Page(drawn("calm")).tables if table[0][-1] == "requests" and table[0][0] == "time"]


def test_broken_arrivals_are_a_finding() -> None:
    sample = calm()
    proof = replace(sample.run.arrivals, verdict=Verdict.BROKEN, reasons=("the sends drift by 7 %",))
    said = Page(load_page(replace(sample.run, arrivals=proof), MADE, None)).said()
    assert "Findings Requests did not arrive as asked: the sends drift by 7 %" in said
    assert "Requests arrived as asked" not in said


def test_the_server_s_figures_and_the_cards_are_tables() -> None:
    page = Page(drawn("failing"))
    figures = {row["figure"]: row["vLLM"] for row in page.rows("figure")}
    assert figures["output tokens"] == "6,840"
    assert figures["cache in use, most"] == "80.0 %"
    assert "found in its prefix cache" not in figures  # the server did not say
    (card,) = page.rows("card")
    assert list(card.values()) == ["0", "320", "1,980", "70.0 GiB", "97.0 %"]
    assert "What the server says of itself" not in Page(drawn("bare")).said()


def test_a_server_that_disagrees_is_a_finding() -> None:
    sample = calm()
    server = sample.run.server or ServerMetrics(None, ())
    halved = tuple(
        replace(each, output_tokens_total=5e5 + ((each.output_tokens_total or 0) - 5e5) / 2) for each in server.samples
    )
    run = replace(sample.run, server=replace(server, samples=halved))
    said = Page(load_page(run, MADE, None)).said()
    assert "Findings The server counted 3,600 output tokens during the run, the replies say 7,200" in said


def test_the_bounds_of_each_class_stand_beside_what_was_measured() -> None:
    page, refereed = Page(drawn("failing")), failing().run.refereed
    assert refereed is not None
    rows = page.rows("prompt tokens")
    assert len(rows) == len(refereed.classes) > 0
    (first, *_), (row, *_) = refereed.classes, rows
    assert row["least TTFT"] == format_seconds(first.least_ttft_s)
    assert row["prompt tokens"] == "128"
    assert "What physics allows" in page.said()
    assert "What physics allows" not in Page(drawn("calm")).said()


def test_of_nothing_there_are_no_figures_and_no_promises() -> None:
    figures = key_figures(drawn("bare"))
    assert figures["output rate"] == "n/a tokens/s"
    assert figures["completed"] == "0 of 4"
    said = Page(drawn("bare")).said()
    assert "No request completed over" in said
    assert "Of 4 requests, 4 rejected: none completed" in said
    assert "kept up" not in said.partition("Assumptions")[0]


def test_the_same_run_stands_there_under_every_definition() -> None:
    tables = [table for table in Page(drawn("calm")).tables if table[0][:2] == ["tool", "its word"]]
    assert len(tables) >= 6
    assert [row[0] for row in tables[0][1:4]] == ["inference-bench", "vLLM", "SGLang"]


# ── a sweep ────────────────────────────────────────────────────────────────────────────────────────


def test_a_sweep_shows_a_row_a_load_and_the_one_with_the_most_good_requests_in_full() -> None:
    page, figures = Page(drawn("sweep")), key_figures(drawn("sweep"))
    points = sweep().run.points
    rows = page.rows("load")
    assert [row["load"] for row in rows] == [f"{point.level:g}/s" for point in points]
    for row, point in zip(rows, points, strict=True):
        assert row["tok/s"] == format_number(point.metrics.output_tokens_per_s)
        assert row["good/s"] == format_number(point.metrics.goodput_requests_per_s)
    best = max(points, key=lambda point: point.metrics.goodput_requests_per_s or 0.0)
    assert figures["most good requests"] == f"{format_number(best.metrics.goodput_requests_per_s)} requests/s"
    assert figures["completed"] == "1,680 of 1,680"
    assert f"Completed requests at {best.level:g}/s" in page.said()
    assert "the server fell behind at 20/s, 30/s" in page.said()
    assert [row["the server"] for row in rows if row["load"] in {"2/s", "30/s"}] == ["kept up", "fell behind"]


def test_a_closed_loop_is_not_said_to_keep_up_or_fall_behind() -> None:
    workload = closed_loop("closed", [RequestShape(PROMPT, OUTPUT)], 2, 240)
    points = tuple(replace(point, workload=workload) for point in sweep().run.points)
    page = Page(sweep_page(replace(sweep().run, points=points), MADE, None))
    assert "the server" not in page.rows("load")[0]
    assert page.rows("load")[0]["load"] == "2 at once"
    assert "fell behind" not in page.said()


def test_the_rates_of_a_sweep_are_those_of_each_steady_window_and_say_so() -> None:
    page, figures, points = Page(drawn("closed")), key_figures(drawn("closed")), closed().run.points
    rows = page.rows("load")
    assert len(rows) == len(points) == 5
    for row, point in zip(rows, points, strict=True):
        assert point.window is not None
        assert row["tok/s"] == format_number(point.window.output_tokens_per_s)
        assert row["completed/s"] == format_number(point.window.requests_per_s)
        assert row["tok/s"] != format_number(point.metrics.output_tokens_per_s)  # which has ramp and drain
    assert figures["output rate"] in {f"{row['tok/s']} tokens/s" for row in rows}
    assert "Completed/s, tok/s and good/s are of the steady window of each load." in page.said()
    drawings = specs(closed())
    assert f"at {rows[0]['tok/s']} output tokens/s" in drawings[0]
    short = (replace(points[0], window=None), *points[1:])
    said = Page(sweep_page(replace(closed().run, points=short), MADE, None)).said()
    assert "steady window of each load, but of the whole run at 2 at once, too short for one." in said


def test_a_closed_loop_is_never_said_to_send_at_a_rate() -> None:
    drawings = specs(closed())
    said = Page(drawn("closed")).said()
    assert len(drawings) == 8
    assert "requests/s completed" in said
    assert "requests/s sent" not in said
    assert not [spec for spec in drawings if "sent requests/s" in spec]
    assert "sent/s" not in Page(drawn("closed")).rows("load")[0]
    assert "8.01 requests/s sent" in Page(drawn("calm")).said()


def test_what_holds_of_one_load_says_at_which_and_counts_what_was_measured() -> None:
    said = Page(drawn("closed")).said()
    best = key_figures(drawn("closed"))
    level = next(p for p in closed().run.points if f"At {p.level:g} at once: steady window" in said)
    for words in ("this client kept up", "requests arrived as asked: closed loop of"):
        assert f"At {level.level:g} at once: {words}" in said
    assert f"{level.metrics.requests.sent} measured requests of 128 prompt" in said
    assert level.metrics.requests.sent == len(level.workload.requests) - 3
    assert best["most good requests"].endswith("requests/s")


def test_a_load_that_was_not_reached_is_a_finding_and_never_said_to_be_as_asked() -> None:
    *others, last = closed().run.points
    asked = closed_loop("closed", [RequestShape(PROMPT, OUTPUT)], 48, len(last.workload.requests))
    proof = prove_arrivals(last.records, asked.arrival)
    assert proof.verdict is Verdict.NOT_REACHED
    short = replace(last, workload=asked, arrivals=proof)
    said = Page(sweep_page(replace(closed().run, points=(*others, short)), MADE, None)).said()
    assert f"Findings At 24 at once: {proof.reasons[0]}" in said
    assert "closed loop of 48, " not in said.partition("Charts")[2].partition("What users")[0]
    alone = replace(calm().run, arrivals=proof)
    said = Page(load_page(alone, MADE, None)).said()
    assert f"Findings Fewer were in flight than asked: {proof.reasons[0]}" in said
    assert "arrived as asked" not in said


def test_requests_that_this_program_stopped_are_no_failures() -> None:
    page, figures = Page(drawn("closed")), key_figures(drawn("closed"))
    assert figures["completed"] == "322 of 322"
    assert "2 more stopped by this program" in page.said()
    assert (
        "2 requests were stopped by this program before they ended: they count neither as good nor as failed"
        in page.said()
    )
    assert "Findings" not in page.said().partition("documents valid")[0].replace(_WRONG_DOCUMENTS, "")
    last = closed().run.points[-1]
    alone = replace(
        calm().run, records=last.records, metrics=last.metrics, workload=last.workload, arrivals=last.arrivals
    )
    endings = {row["ending"]: row for row in Page(load_page(alone, MADE, None)).rows("ending")}
    assert list(endings) == ["completed", "failed", "rejected", "timed out", "truncated", "stopped by this program"]
    assert endings["stopped by this program"]["requests"] == "2"
    assert sum(float(row["share"].split()[0]) for row in endings.values()) == pytest.approx(100, abs=0.1)


_WRONG_DOCUMENTS = "Findings 5 of 324 answers are no documents that fit the schema they were asked to."


def test_documents_that_do_not_fit_are_a_finding_and_counted() -> None:
    said = Page(drawn("closed")).said()
    assert _WRONG_DOCUMENTS in said
    assert "319 of 324 documents valid" in said
    assert "documents valid" not in Page(drawn("calm")).said()


def test_an_error_bound_of_nothing_is_said_in_words() -> None:
    said, figures = Page(drawn("closed")).said(), key_figures(drawn("closed"))
    assert figures["client's own error"] == "none"
    assert said.count("no receive stamp is in doubt") == 3
    assert "by at most" not in said
    assert "≤" not in figures["client's own error"]


def test_every_version_stands_there_once_and_lookups_are_folded_away() -> None:
    source = drawn("calm")
    page = Page(source)
    assert page.said().count("3.11.7") == 1
    assert sum(tag == "details" for tag, _ in page.tags) == 3
    assert not [attributes for tag, attributes in page.tags if tag == "details" and "open" in attributes]


def test_what_physics_holds_against_a_run_is_whole_sentences() -> None:
    refereed = failing().run.refereed
    assert refereed is not None
    flag = Flag(
        Cause.WARM_PREFIX_CACHE,
        "a cache held the prompts",
        (Measure.TTFT,),
        3,
        9,
        2.0,
        ("one is odd", "two is too"),
        (),
        (),
    )
    run = replace(calm().run, refereed=replace(refereed, flags=(flag,)))
    assert "A cache held the prompts. One is odd. Two is too." in Page(load_page(run, MADE, None)).said()


def test_a_load_whose_client_or_arrivals_cannot_be_trusted_is_a_finding() -> None:
    first, second, *others = sweep().run.points
    wrong = replace(first, client={**first.client, "valid": False, "invalid_because": "invalid: slow"})
    late = replace(second, arrivals=replace(second.arrivals, reasons=("the sends drift by 7 %",)))
    said = Page(sweep_page(replace(sweep().run, points=(wrong, late, *others)), MADE, None)).said()
    assert "Findings At 2/s: invalid: slow At 6/s: the sends drift by 7 %" in said
    assert "Findings" not in Page(drawn("sweep")).said()


# ── a search for the capacity ──────────────────────────────────────────────────────────────────────


def test_a_search_shows_its_interval_every_rate_and_what_may_be_doubted_of_it() -> None:
    source = capacity().page(fake)
    page, figures = require_a_page_that_stands_alone(source.replace("http://", "")), key_figures(source)
    assert figures["capacity"] == "20.00 – 22.00 requests/s"
    assert figures["half of the interval"] == "± 4.8 %"
    assert [row["verdict"] for row in page.rows("rate")] == [
        "pass", "pass", "not decided", "fail", "fail: ever more requests wait",
    ]  # fmt: skip
    assert "99 % of the requests within TTFT <= 500 ms" in page.said()
    assert "the interval is wider than asked (± 4.8 %, not 3.0 %)" in page.said().lower()
    assert "Doubts The interval is wider than asked" in page.said()
    assert [row["good"] for row in page.rows("rate")][2] == "98.95 %"
    assert NO_CHARTS in Page(capacity().page()).said()
    unknown = replace(capacity().run.found, answer=Answer.UNKNOWN, low_rate=None, high_rate=None)
    nothing = CapacitySample(replace(capacity().run, found=replace(unknown, trials=())))
    assert key_figures(nothing.page(fake))["capacity"] == "n/a requests/s"
    assert "<figure" not in nothing.page(fake)


def test_a_search_is_written_as_a_page_like_any_run(tmp_path: Path) -> None:
    file = tmp_path / "found.html"
    options = Namespace(no_report=False, report=str(file), typed=("load", "--find-capacity"), command="load")
    assert write_load_page(options, capacity().run) == file
    assert key_figures(file.read_text(encoding="utf-8"))["capacity"] == "20.00 – 22.00 requests/s"


def test_the_rates_that_were_tried_are_drawn_by_their_verdict_with_the_promise() -> None:
    wide, _ = specs(capacity())
    for words in ("kept the promise", "broke it", "not decided", "99.0 % promised", "1.00 % allowed"):
        assert words in wide
    assert "20.0 requests/s: 99.70 % good, kept the promise" in wide
    assert wide.count("'series': 'not decided'") == 2  # once a panel


def test_an_interrupted_run_and_what_could_not_be_measured_say_so_first() -> None:
    said = Page(load_page(replace(calm().run, is_interrupted=True), MADE, None)).said()
    assert "Findings The run was interrupted: this is what was measured by then." in said
    run = replace(sweep().run, notes=("rate 60: too many in flight",), is_interrupted=True)
    assert "Findings rate 60: too many in flight The run was interrupted" in Page(sweep_page(run, MADE, None)).said()
    waited = Settled(0.01, is_idle=True).said("rate 6")
    said = Page(sweep_page(replace(sweep().run, remarks=(waited,)), MADE, None)).said()
    assert "Findings" not in said
    assert "Waited 10.0 ms before rate 6" in said.partition("Assumptions")[2]


def test_prompts_that_were_cached_or_of_another_length_are_findings() -> None:
    lengths = PromptCheck(300, 300, 299, 5)
    cache = CacheCheck(300, 300, 38_400, 9_000, 0, 70, 9_000, 16)
    said = Page(load_page(replace(calm().run, prompts=lengths, cache=cache), MADE, None)).said()
    assert lengths.sentence in said
    assert (cache.finding or "never") in said
    fine = replace(calm().run, prompts=replace(lengths, num_equal=300), cache=replace(cache, num_unmeant=0))
    assert "Findings" not in Page(load_page(fine, MADE, None)).said()


def test_a_run_has_its_own_charts_and_a_sweep_its_curve_first() -> None:
    def described(sample: LoadSample | SweepSample) -> list[str]:
        seen: list[str] = []

        def draw(spec: Spec) -> str:
            seen.append(str(spec["description"]))
            return "<svg></svg>"

        sample.page(draw)
        return seen[::2]

    assert [words.split(" ")[0] for words in described(calm())] == ["Cumulative", "37.7"]
    assert [words.split(" ")[0] for words in described(sweep())] == ["TTFT", "Output", "Cumulative", "256"]
    assert len(described(bare())) == 1
    assert len(described(failing())) == len(described(hostile())) == 2


def test_good_missed_and_lost_requests_add_up_and_cancelled_ones_are_left_out() -> None:
    records = failing().run.records
    found = count_good(records, Objective())
    in_time = [
        r for r in records if r.chunk_times_s and r.chunk_times_s[0] - r.planned_s <= 3.0
    ]  # no gap is over 100 ms
    assert 0 < len(in_time) < 285
    assert (found.good, found.missed, found.not_completed) == (len(in_time), 285 - len(in_time), 15)
    assert found.num_requests == 300
    cancelled = [*records, replace(records[0], status=RequestStatus.CANCELLED)]
    assert count_good(cancelled, Objective()) == found
    strict = count_good(records, Objective(max_ttft_s=0.1))
    assert strict.good < found.good
    assert strict.rule == "TTFT <= 100 ms and every gap <= 100 ms"


def test_a_page_needs_neither_server_nor_window() -> None:
    page = Page(load_page(replace(calm().run, server=None, window=None), MADE, None))
    assert "The server kept up with the requests" in page.said()
    assert "Steady window" not in page.said()
    assert "Steady window of 10.0 s" in Page(drawn("calm")).said()
