"""The page of a plan says what its JSON says."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.report.plan_html import plan_html
from inference_bench.units import format_count, format_number, format_seconds
from report.pages import Page, key_figures
from report.report_samples import MADE, plan_with_a_price, sample


def test_batch_waits_replicas_and_cost_are_seen_first() -> None:
    figures, found = key_figures(sample("plan").page(None)), sample("plan").read()
    assert figures["sequences at once"] == format_count(found["load"]["batch"])
    assert figures["TTFT, one request alone"] == format_seconds(found["latency"]["ttft_cached_s"])
    assert figures["TPOT, prompts in between"] == format_seconds(found["load"]["effective_step_s"])
    assert figures["output rate of a replica"] == f"{format_number(found['load']['output_tokens_per_s'])} tokens/s"
    assert figures["replicas"] == format_count(found["replicas"]["replicas"])
    assert figures["a million output tokens"] == f"{format_number(found['cost']['rented']['usd_per_million_busy'])} USD"
    even = found["cost"]["hosted"]["break_even_requests_per_day_cached"]
    assert figures["break-even"] == f"{format_number(even)} requests a day"


def test_a_promise_that_holds_only_in_part_is_a_finding() -> None:
    source, found = sample("plan").page(None), sample("plan").read()
    tpot = next(item for item in found["objectives"] if item["name"] == "TPOT")
    assert (tpot["met"], tpot["met_at_full_load"]) == (True, False)
    assert "Findings TPOT within 30.0 ms: yes; not at slow end or full load" in Page(source).said()
    loose = replace(plan_with_a_price(), objectives=())
    assert "Findings" not in Page(plan_html(loose, MADE, None)).said()


def test_the_published_figures_of_the_reference_case_stand_in_their_tables() -> None:
    page = Page(sample("reference plan").page(None))
    fits = [cells["value"] for cells in page.rows("fits") if cells["fits"] == "full-length requests"]
    assert fits == ["18", "36", "34", "64", "35"]
    latency = {cells["latency, one request alone"]: cells["value"] for cells in page.rows("latency, one request alone")}
    assert (latency["TTFT"], latency["solo step"], latency["E2E"]) == ("922.9 ms", "6.237 ms", "13.39 s")
    cost = [cells["value"] for cells in page.rows("cost, at the prices given")]
    assert {"0.418 USD/M output tokens", "10,000 requests/day", "0.677 J/output token"} <= set(cost)


def test_a_no_says_why_and_what_would_help_before_anything_else() -> None:
    source, found = sample("no plan").page(None), sample("no plan").read()
    said = Page(source).said()
    assert found["verdict"]["answer"] is False
    assert key_figures(source)["sequences at once"] == "0"
    assert f"The answer is no {found['verdict']['reason']}" in said
    assert f"What would help, each alone {found['verdict']['fixes'][0]}" in said
    assert said.index("The answer is no") < said.index("What the numbers say")
    helpless = replace(plan_with_a_price(), verdict=replace(plan_with_a_price().verdict, answer=False, fixes=()))
    assert "No single change known here would help." in Page(plan_html(helpless, MADE, None)).said()


def test_machines_stand_side_by_side_each_at_its_price() -> None:
    page, found = Page(sample("machines").page(None)), sample("machines").read()["plans"]
    rows = {cells["machine"]: cells for cells in page.rows("machine")}
    for answer in found:
        assert rows["batch"][answer["machine"]["name"]] == format_count(answer["load"]["batch"])
    works = sum(answer["verdict"]["answer"] for answer in found)
    figures = key_figures(sample("machines").page(None))
    assert figures["it works on"] == f"{works} of 3 machines"
    cheapest = min(answer["cost"]["rented"]["usd_per_million_busy"] for answer in found if answer["cost"])
    assert figures["cheapest million tokens"] == f"{format_number(cheapest)} USD"
    assert "a replica 2.50 USD/h" not in page.said()


def test_what_was_asked_is_there_without_its_file() -> None:
    said = Page(sample("plan").page(None)).said()
    for words in (
        "prompt 4,000 tokens",
        "prefix 1,000 tokens, cached",
        "promised TPOT <= 30.0 ms",
        "think time 20.0 s",
    ):
        assert words in said
    own = Page(sample("reference plan").page(None)).said()
    assert "a device of one's own 2,000 USD over 3.00 years" in own
