from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from inference_bench.charts import Spec
from inference_bench.render import svg
from inference_bench.report.json_result import verify_json
from inference_bench.report.verify_html import verify_html
from inference_bench.units import format_count, format_fraction, format_number, format_seconds
from inference_bench.verify.result import VerifyResult
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

MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result)


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


@pytest.mark.parametrize("make", MAKERS)
def test_there_is_a_link_to_each_of_the_nine_sections(pages: dict[str, str], make: Callable[[], VerifyResult]) -> None:
    assert [tag for tag, _ in Page(pages[make.__name__]).tags].count("a") == 9


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


def points_of(source: str) -> list[dict[str, str]]:
    header, *rows = Page(source).tables[0]
    return [dict(zip(header, row, strict=True)) for row in rows]


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
    source = pages["sample_result"].partition('id="points"')[2]
    heads = re.findall(r'<th scope="col" class="[lr]">([^<]*)(?:<span class="tag (\w+)">)?', source)[:17]
    origins = {html.unescape(name): origin for name, origin in heads}
    assert (origins["time"], origins["tokens/s"]) == ("measured", "measured")
    assert (origins["bound"], origins["at ceiling"]) == ("bound", "bound")
    assert (origins["MBU"], origins["MFU"]) == ("estimate", "estimate")
    assert origins["counted at"] == "counted"
    assert origins["engine's own"] == "reported"


def test_the_page_reads_from_the_answer_to_its_evidence(pages: dict[str, str]) -> None:
    said = Page(pages["with_findings"]).said()
    order = [
        "on AMD EPYC 7B13, 2 cores by llama.cpp",
        "62.0 % of the ceiling",
        "Findings",
        "What the numbers say",
        "Roofline",
        "Measured points and their bounds",
        "How requests ended",
        "What the cache takes",
        "The machine's ceilings",
        "Was the client the bottleneck?",
        "bytes are counted, not read from hardware counters",
        "Identity of everything",
        SHA256,
    ]
    places = [said.find(words) for words in order]
    assert -1 not in places
    assert places == sorted(places)


def test_a_whole_run_has_five_charts_each_at_two_widths_and_named_for_a_screen_reader(pages: dict[str, str]) -> None:
    found = [attributes for tag, attributes in Page(pages["sample_result"]).tags if tag == "svg"]
    drawings = [attributes for attributes in found if attributes.get("class") != "filled"]
    assert len(drawings) == 10
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 30 for attributes in drawings)
    assert len({attributes["viewbox"].split()[2] for attributes in drawings}) == 2


def test_without_what_draws_the_page_has_every_table_and_says_what_to_install() -> None:
    drawn: list[Spec] = []
    with_charts = verify_html(
        sample_result(), lambda spec: f"<svg>{len(drawn)}</svg>" if drawn.append(spec) is None else ""
    )
    without = verify_html(sample_result(), None)
    assert len(drawn) == 10
    assert Page(without).tables == Page(with_charts).tables
    assert "pip install 'inference-bench[bench]'" in Page(without).said()
    assert "<figure" not in without


def test_a_point_above_its_ceiling_is_a_finding_and_is_not_clamped(pages: dict[str, str]) -> None:
    page = Page(pages["with_findings"])
    assert "reached 134 % of its ceiling" in page.said()
    assert ("tr", {"class": "finding"}) in page.tags
    assert points_of(pages["with_findings"])[-1]["share"] == "134 %"
    assert "Findings" not in Page(pages["sample_result"]).said()


def test_requests_that_failed_are_counted_and_their_missing_times_are_n_a_and_not_zero(pages: dict[str, str]) -> None:
    requests, latency = Page(pages["with_findings"]).tables[2:4]
    assert requests[-1][:4] == ["8 at a time, 128 → 32 tokens", "3", "0", "3"]
    assert [row[2:6] for row in latency if row[0].startswith("8 at") and row[1].startswith("TTFT")] == [
        ["n/a", "n/a", "n/a", "0"]
    ]


def test_a_percentile_of_too_few_samples_carries_a_mark_that_the_page_explains(pages: dict[str, str]) -> None:
    latency = Page(pages["sample_result"]).tables[3]
    ttft = next(row for row in latency if row[1].startswith("TTFT"))
    itl = next(row for row in latency if row[1].startswith("ITL"))
    assert ttft[4].endswith("†")
    assert ttft[5] == "12"
    assert itl[5] == "372"
    assert "† Too few samples for a 95 % interval" in Page(pages["sample_result"]).said()


def test_the_true_cache_stands_beside_the_usual_formula_and_the_engine_s_own_figure(pages: dict[str, str]) -> None:
    page = Page(pages["sample_result"])
    cache = page.tables[4]
    assert [(row[0], row[5], row[7]) for row in cache[1:]] == [
        ("full attention", "94,371,840", ""),
        ("true, by layer type", "94,371,840", "1"),
        ("usual formula", "94,371,840", "1.00"),
    ]
    assert "the engine prints 90.00 MiB reported" in page.said()
    assert "The server does not say what it allocated." in Page(pages["bare_result"]).said()


def test_every_ceiling_row_says_how_it_was_measured_and_what_it_counted(pages: dict[str, str]) -> None:
    bandwidth, products = Page(pages["sample_result"]).tables[5:7]
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
