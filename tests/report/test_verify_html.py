from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from inference_bench.charts import Spec
from inference_bench.engines.base import EngineFigures
from inference_bench.render import svg
from inference_bench.report.closed_loop_tables import candidates_table
from inference_bench.report.identity_rows import file_rows
from inference_bench.report.json_result import verify_json
from inference_bench.report.result_tables import counted_cache
from inference_bench.report.verify_html import verify_html
from inference_bench.units import format_count, format_fraction, format_number, format_seconds
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import (
    LOOPS,
    MEASURED,
    whole_loop,
)
from report.pages import Page, require_a_page_that_stands_alone
from report.sample import (
    CHINESE,
    QUOTES,
    SCRIPT,
    SHA256,
    bare_result,
    hostile_result,
    no_ceiling_result,
    sample_result,
    with_findings,
)

MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result, *LOOPS)
OF_EVERY_RUN = [
    *("ceiling", "batch", "memory", "requests", "machine", "client", "assumptions", "provenance", "files"),
]
OF_THE_LOOP = [
    *("ceiling", "batch", "fit", "gap", "load", "capacity", "memory", "changes", "calibration", "requests", "machine"),
    *("client", "assumptions", "provenance", "files"),
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {make.__name__: verify_html(make(), svg) for make in MAKERS}


@pytest.mark.parametrize("make", MAKERS)
def test_the_page_is_balanced_and_needs_nothing_from_anywhere(
    pages: dict[str, str], make: Callable[[], VerifyResult]
) -> None:
    require_a_page_that_stands_alone(pages[make.__name__])


def test_the_page_forbids_scripts_and_connections(pages: dict[str, str]) -> None:
    metas = [attributes for tag, attributes in Page(pages["sample_result"]).tags if tag == "meta"]
    policy = next(meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "script-src" not in policy


def links(source: str) -> list[str]:
    return [attributes["href"] for tag, attributes in Page(source).tags if tag == "a"]


def test_there_is_a_link_to_each_section_in_the_order_of_the_page(pages: dict[str, str]) -> None:
    for name, anchors in (("sample_result", OF_EVERY_RUN), ("whole_loop", OF_THE_LOOP), ("hostile_loop", OF_THE_LOOP)):
        assert links(pages[name]) == [f"#{anchor}" for anchor in anchors]
        sections = [attributes.get("id") for tag, attributes in Page(pages[name]).tags if tag == "section"]
        assert [anchor for anchor in sections if anchor] == anchors


def test_a_part_that_was_not_run_has_no_section_and_the_verdict_says_so(pages: dict[str, str]) -> None:
    assert not {"#fit", "#gap", "#load", "#capacity", "#changes", "#calibration"} & set(links(pages["sample_result"]))
    said = Page(pages["sample_result"]).said()
    assert "What would help most? Not computed This run did not take its steps apart." in said
    assert "Was the load predicted? Not run No load was predicted and sent in this run." in said
    assert "Is the capacity confirmed? Not run" in said


def test_hostile_names_are_shown_as_they_are_and_do_nothing(pages: dict[str, str]) -> None:
    page = Page(pages["hostile_result"])
    assert "<script" not in pages["hostile_result"]
    assert "<img" not in pages["hostile_result"]
    assert page.said().count(SCRIPT) >= 8
    assert QUOTES in page.said()
    assert CHINESE in page.said()
    assert "\x1b" not in pages["hostile_result"]
    assert "\u202e" not in pages["hostile_result"]


@pytest.mark.parametrize("make", MAKERS)
def test_the_page_names_nobody(pages: dict[str, str], make: Callable[[], VerifyResult]) -> None:
    said = Page(pages[make.__name__]).said()
    assert "/home/ada" not in said
    assert "/Users/ada" not in said
    assert "secret" not in said
    assert "2026-11-29-210411" in said


def tables_of(source: str, first: str) -> list[list[list[str]]]:
    """The tables whose first column has this header."""
    return [table for table in Page(source).tables if table[0][0] == first]


def points_of(source: str) -> list[dict[str, str]]:
    return Page(source).rows("phase")


@pytest.mark.parametrize("make", MAKERS)
def test_every_number_of_the_points_table_is_the_json_s_number_written_out(
    pages: dict[str, str], make: Callable[[], VerifyResult]
) -> None:
    rows, points = points_of(pages[make.__name__]), verify_json(make())["points"]
    assert len(rows) == len(points) >= 1
    for row, point in zip(rows, points, strict=True):
        assert row["phase"] == point["phase"]
        assert row["batch"] == format_count(point["batch"])
        assert row["context"] == format_count(point["nominal_context_tokens"])
        assert row["counted at"] == format_count(point["context_tokens"])
        assert row["time"] == format_seconds(point["measured_s"])
        assert row["samples"] == format_count(point["num_samples"])
        assert row["spread"] == format_fraction(point["relative_spread"])
        assert row["bound"] == format_seconds(point["bound_s"])
        assert row["share"] == format_fraction(point["fraction_of_bound"])
        assert row["limited by"] == point["limited_by"]
        assert row["tokens/s"] == format_number(point["measured_tokens_per_s"])
        assert row["at ceiling"] == format_number(point["bound_tokens_per_s"])
        assert row["MBU"] == format_fraction(point["mbu"])
        assert row["MFU"] == format_fraction(point["mfu"])
        assert row["engine's own"] == format_seconds(point["engine_s"])
        assert row["verdict"] == point["verdict"]


def test_an_interval_prints_a_common_unit_once_and_is_n_a_where_samples_are_few(pages: dict[str, str]) -> None:
    rows = points_of(pages["sample_result"])
    assert [row["95 % interval"] for row in rows[:2]] == ["n/a", "10.3 – 10.8 ms"]


def test_a_bound_never_stands_in_a_column_that_is_tagged_measured(pages: dict[str, str]) -> None:
    source = pages["sample_result"].partition('id="ceiling"')[2]
    heads = re.findall(r'<th scope="col" class="[lr]">([^<]*)(?:<span class="tag (\w+)">)?', source)[:17]
    origins = {html.unescape(name): origin for name, origin in heads}
    assert (origins["time"], origins["tokens/s"]) == ("measured", "measured")
    assert (origins["bound"], origins["at ceiling"]) == ("bound", "bound")
    assert (origins["MBU"], origins["MFU"]) == ("estimate", "estimate")
    assert origins["counted at"] == "counted"
    assert origins["engine's own"] == "reported"


def test_the_page_reads_from_the_answer_to_its_evidence(pages: dict[str, str]) -> None:
    said = Page(pages["troubled_loop"]).said()
    order = [
        "on AMD EPYC 7B13, 2 cores by llama.cpp",
        "Does it reach its ceiling?",
        "62.0 % of the ceiling",
        "Findings",
        "How close to the ceiling?",
        "Measured points and their bounds",
        "What does a larger batch buy?",
        "Does one formula explain every step?",
        "Where does the time go?",
        "Was the load predicted before it ran?",
        "Is the capacity what was predicted?",
        "Is the memory what was counted?",
        "What would help?",
        "How was the formula found?",
        "How requests ended",
        "What can the machine do?",
        "Was the client the bottleneck?",
        "bytes are counted, not read from hardware counters",
        "Identity of everything",
        SHA256,
        "requests.journal",
    ]
    start, places = 0, []
    for words in order:
        start = said.find(words, start)
        places.append(start)
    assert -1 not in places, list(zip(order, places, strict=True))


@pytest.mark.parametrize(("name", "count"), [("sample_result", 5), ("whole_loop", 9), ("bare_result", 2)])
def test_every_chart_stands_there_at_two_widths_and_is_named_for_a_screen_reader(
    pages: dict[str, str], name: str, count: int
) -> None:
    found = [attributes for tag, attributes in Page(pages[name]).tags if tag == "svg"]
    drawings = [attributes for attributes in found if attributes.get("class") != "filled"]
    assert len(drawings) == 2 * count
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 30 for attributes in drawings)
    assert len({attributes["viewbox"].split()[2] for attributes in drawings}) == 2


def test_without_what_draws_the_page_has_every_table_and_says_what_to_install() -> None:
    drawn: list[Spec] = []
    with_charts = verify_html(
        whole_loop(), lambda spec: f"<svg>{len(drawn)}</svg>" if drawn.append(spec) is None else ""
    )
    without = verify_html(whole_loop(), None)
    assert len(drawn) == 18
    assert Page(without).tables == Page(with_charts).tables
    assert Page(without).said().count("pip install 'inference-bench[bench]'") == 1
    assert "<figure" not in without


def test_a_point_above_its_ceiling_is_a_finding_and_is_not_clamped(pages: dict[str, str]) -> None:
    page = Page(pages["with_findings"])
    assert "reached 134 % of its ceiling" in page.said()
    assert ("tr", {"class": "finding"}) in page.tags
    assert points_of(pages["with_findings"])[-1]["share"] == "134 %"
    assert "Findings" not in Page(pages["sample_result"]).said()


def test_requests_that_failed_are_counted_and_their_missing_times_are_n_a_and_not_zero(pages: dict[str, str]) -> None:
    requests, latency = tables_of(pages["with_findings"], "requests")
    assert requests[-1][:4] == ["8 at a time, 128 → 32 tokens", "3", "0", "3"]
    assert [row[2:6] for row in latency if row[0].startswith("8 at") and row[1].startswith("TTFT")] == [
        ["n/a", "n/a", "n/a", "0"]
    ]


def test_a_percentile_of_too_few_samples_carries_a_mark_that_the_page_explains(pages: dict[str, str]) -> None:
    latency = tables_of(pages["sample_result"], "requests")[1]
    ttft = next(row for row in latency if row[1].startswith("TTFT"))
    itl = next(row for row in latency if row[1].startswith("ITL"))
    assert ttft[4].endswith("†")
    assert ttft[5] == "12"
    assert itl[5] == "372"
    assert "† Too few samples for a 95 % interval" in Page(pages["sample_result"]).said()


def test_the_true_cache_stands_beside_the_usual_formula_and_the_engine_s_own_figure(pages: dict[str, str]) -> None:
    page = Page(pages["sample_result"])
    (cache,) = tables_of(pages["sample_result"], "cache")
    assert [(row[0], row[5], row[7]) for row in cache[1:]] == [
        ("full attention", "94,371,840", ""),
        ("true, by layer type", "94,371,840", "1"),
        ("usual formula", "94,371,840", "1.00"),
    ]
    assert "the engine prints 90.00 MiB reported" in page.said()
    assert "The server does not say what it allocated." in Page(pages["bare_result"]).said()


def test_every_ceiling_row_says_how_it_was_measured_and_what_it_counted(pages: dict[str, str]) -> None:
    (bandwidth,) = tables_of(pages["sample_result"], "data moved")
    products = Page(pages["sample_result"]).tables[-1]
    assert bandwidth[1] == [
        "read one array of 1 GiB",
        "1",
        "2",
        "1.07 GB",
        "32.0×",
        "52.4 ms",
        "20.5 GB/s",
        "1.00 %",
        "5",
        "the ceiling",
    ]
    assert len(products) == 11
    assert products[-1][0] == "512"
    assert products[-1][-1] == "the ceiling"
    assert "This machine was not probed" in Page(pages["bare_result"]).said()


# ── the closed loop ────────────────────────────────────────────────────────────────────────────────


def answer(source: str, question: str) -> tuple[str, str, str]:
    """How an answer of the verdict is coloured, its mark, and what it says."""
    found = re.search(
        rf'<div class="(\w+)"><dt>{re.escape(question)}</dt><dd class="mark">([^<]*)</dd><dd>([^<]*)</dd>', source
    )
    assert found, question
    state, mark, said = found.groups()
    return state, html.unescape(mark), html.unescape(said).replace("\N{NO-BREAK SPACE}", " ")


def test_the_verdict_stands_before_every_figure_and_its_marks_are_words(pages: dict[str, str]) -> None:
    source = pages["whole_loop"]
    assert source.index('class="answers"') < source.index('class="figures"') < source.index("<nav class")
    assert answer(source, "Does it reach its ceiling?")[:2] == ("open", "In part")
    assert answer(source, "What would help most?")[:2] == ("open", "8 sequences a step in place of 4")
    assert answer(source, "Was the load predicted?")[:2] == ("open", "In part, 7 of 8 targets")
    assert answer(source, "Is the capacity confirmed?")[:2] == ("good", "Yes")


def test_loads_that_miss_and_a_capacity_that_is_not_confirmed_are_said_and_marked(pages: dict[str, str]) -> None:
    page = Page(pages["troubled_loop"])
    assert answer(pages["troubled_loop"], "Is the capacity confirmed?")[:2] == ("poor", "No")
    assert "1.70 requests/s is the most up to which every run kept it" in page.said()
    assert "Load past, 3.00/s: 7 of 60 requests did not complete." in page.said()
    assert "cache is 94.00 MiB by the engine and 94,371,840 bytes by our count" in page.said()
    missed = page.rows("load")[5]
    assert (missed["figure"], missed["error"], missed["target"], missed["reached"]) == (
        "TTFT p99",
        "−31.0 %",
        "±25 %",
        "no",
    )
    assert page.tags.count(("tr", {"class": "finding"})) >= 3


def test_every_predicted_figure_stands_beside_its_measurement_and_the_error_between_them(pages: dict[str, str]) -> None:
    rows = Page(pages["whole_loop"]).rows("load")
    assert len(rows) == 3 * 4  # those with a target; the others are folded below
    first = rows[0]
    assert (first["load"], first["figure"]) == ("below, 1.20/s", "TTFT p50")
    # 0.212 s measured, predicted 6.1 % above it
    assert (first["predicted"], first["measured"], first["error"]) == ("225 ms", "212 ms", "+6.1 %")
    assert (first["target"], first["reached"], first["samples"]) == ("±15 %", "yes", "60")
    folded = tables_of(pages["whole_loop"], "load")[2]
    assert len(folded) == 1 + 3 * len(MEASURED)


def test_the_parts_of_each_step_add_up_to_it_and_an_unexplained_rest_may_be_below_zero(pages: dict[str, str]) -> None:
    rows = Page(pages["whole_loop"]).rows("step")
    shares = [float(row["of the step"].removesuffix(" %").replace("−", "-")) for row in rows if "of the step" in row]
    assert sum(shares) == pytest.approx(300, abs=0.1)
    assert min(shares) == pytest.approx(-3.0)


def test_a_change_shows_what_is_predicted_beside_what_bytes_promise_and_what_can_be_chosen_first(
    pages: dict[str, str],
) -> None:
    chosen, engine, every = (
        [(row[0], row[4], row[5], row[6]) for row in table[1:]] for table in tables_of(pages["whole_loop"], "change")
    )
    assert chosen == [
        ("8 sequences a step in place of 4", "+37.0 %", "+71.0 %", ""),
        ("a draft of 4 tokens", "+28.0 %", "+90.0 %", "assumed"),
        ("cache in q8_0", "+3.0 %", "+5.0 %", ""),
    ]
    assert engine == [("all of the bandwidth", "+118 %", "0 %", "")]
    assert len(every) == 5
    assert ("weights in f16", "−55.0 %", "−65.0 %", "") in every


def test_the_formula_s_numbers_have_intervals_or_say_why_not_and_the_chosen_one_is_named(pages: dict[str, str]) -> None:
    page = Page(pages["whole_loop"])
    numbers = {row["number"]: row for row in page.rows("number")}
    assert (numbers["bandwidth"]["value"], numbers["bandwidth"]["95 % interval"]) == ("62.0 %", "58.0 – 66.0 %")
    assert (numbers["fixed_s"]["95 % interval"], numbers["fixed_s"]["remark"]) == (
        "n/a",
        "not told apart from request_s",
    )
    formulas = page.rows("formula")
    assert [row[""] for row in formulas] == ["", "", "chosen", ""]
    assert formulas[2]["median, held out"] == "4.20 %"
    assert formulas[3]["median, held out"] == "n/a"


def test_memory_shows_the_engine_s_figure_beside_the_count_and_what_it_does_not_state(pages: dict[str, str]) -> None:
    page = Page(pages["whole_loop"])
    rows = page.rows("engine")
    assert [(row["engine says"], row["difference"]) for row in rows[:2]] == [("90.00 MiB", "0"), ("4096", "0")]
    assert (rows[-1]["engine says"], rows[-1]["difference"]) == ("not stated", "n/a")
    assert (
        "4 of 4 figures that the engine states are what was counted, exactly; 1 more it does not state." in page.said()
    )


def test_the_client_s_own_processor_time_is_stated_and_subtracted_from_nothing(pages: dict[str, str]) -> None:
    said = Page(pages["whole_loop"]).said()
    assert "processor time of this client 6.20 s, 1.72 % of 2 core(s) over 180 s" in said  # 6.2 / 360
    assert "processor time of the engine 301 s, 83.6 % of 2 core(s) over 180 s" in said
    assert "subtracted from what was measured nothing" in said


def test_parts_that_gave_nothing_say_so_and_print_no_zeros(pages: dict[str, str]) -> None:
    source = pages["nothing_came_of_it"]
    assert answer(source, "Was the load predicted?")[:2] == ("poor", "Not measured")
    assert answer(source, "Is the capacity confirmed?")[:2] == ("poor", "None")
    page = Page(source)
    assert {row["measured"] for row in page.rows("load")} == {"n/a"}
    assert {row["difference"] for row in page.rows("engine")} == {"n/a"}
    assert answer(pages["unsettled_loop"], "Is the capacity confirmed?")[:2] == ("open", "Not settled")


def test_every_origin_that_the_page_shows_is_explained(pages: dict[str, str]) -> None:
    for source in pages.values():
        tags = [
            attributes["class"].split()
            for tag, attributes in Page(source).tags
            if tag == "span" and "class" in attributes
        ]
        shown = {names[1] for names in tags if names[0] == "tag"}
        explained = source.partition('<ul class="origins"')[2].partition("</ul>")[0]
        assert shown >= {"measured"}
        assert all(f'class="tag {origin}"' in explained for origin in shown)


def test_an_objective_of_gaps_alone_is_drawn_without_a_level_for_first_tokens() -> None:
    result = whole_loop()
    assert result.capacity is not None
    source = verify_html(replace(result, capacity=replace(result.capacity, ttft_s=None)), svg)
    assert source.count("<figure") == 9


def test_many_points_are_folded_and_all_there() -> None:
    result = whole_loop()
    source = verify_html(replace(result, points=result.points * 2), None)
    assert "Measured points and their bounds: all 16" in Page(source).said()
    assert len(points_of(source)) == 16


def test_a_result_says_where_its_prediction_and_its_profile_are_and_names_no_file_that_is_not_there(
    pages: dict[str, str],
) -> None:
    files = Page(pages["whole_loop"]).said().rpartition("Raw files")[2]
    assert "prediction.json what was predicted" in files
    assert "profile.json the fitted formula" in files
    without = Page(pages["sample_result"]).said().rpartition("Raw files")[2]
    assert "prediction.json" not in without
    assert "profile.json" not in without


def test_hostile_texts_of_the_closed_loop_do_nothing_and_name_nobody(pages: dict[str, str]) -> None:
    source = pages["hostile_loop"]
    assert "<script" not in source
    assert "<img" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    page = Page(source)
    assert page.said().count(SCRIPT) >= 30
    assert "/home/ada" not in source


def test_files_and_the_cache_are_those_of_the_server_that_was_measured() -> None:
    """An engine that was not started here has no log here, and its own slots and context are counted."""
    ours, result = whole_loop(), bare_result()
    assert ("engine.log", "what the engine printed") in file_rows(ours)
    assert "engine.log" not in dict(file_rows(result))
    assert "report.html" in dict(file_rows(result))
    assert counted_cache(result).sequences == 1
    slots = replace(result, figures=EngineFigures(num_slots=4, context_tokens_per_slot=2048))
    assert (counted_cache(slots).sequences, counted_cache(slots).context_tokens) == (4, 2048)
    longest = replace(result, figures=EngineFigures(max_model_len=8192))
    assert (counted_cache(longest).sequences, counted_cache(longest).context_tokens) == (1, 8192)


def test_long_tables_of_formulas_and_latencies_are_folded_and_the_mean_that_decides_is_a_column(
    pages: dict[str, str],
) -> None:
    source = pages["whole_loop"]
    for title in ("All 4 formulas that were tried", "Latency: all "):
        assert re.search(rf"<summary>[^<]*{re.escape(title)}", source)
    result = whole_loop()
    assert result.calibration is not None
    first, *others = result.calibration.candidates
    shown = candidates_table(replace(result.calibration, candidates=(replace(first, held_out_mean=0.123), *others)))
    column = [each.title for each in shown.columns].index("mean error, held out")
    assert [row[column] for row in shown.rows] == ["12.3 %", "n/a", "n/a", "n/a"]
    assert "The choice: the least mean over held-out steps leads" in shown.note
