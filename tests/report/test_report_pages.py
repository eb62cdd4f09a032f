"""What holds of the page of every answer: it stands alone, escapes what comes from outside, and has its tables without charts."""

from __future__ import annotations

from functools import cache

import pytest

from inference_bench.charts import Spec
from inference_bench.report.html_pieces import NO_CHARTS
from inference_bench.report.report_html import value_and_unit
from report.pages import Page, key_figures, require_a_page_that_stands_alone
from report.report_samples import HOSTILE, MADE, MAKERS, WITHOUT_CHARTS, sample
from report.sample import SCRIPT


def fake(spec: Spec) -> str:
    return f"<svg><text>{spec['width']}</text></svg>"


@cache
def drawn(name: str) -> str:
    return sample(name).page(fake)


@cache
def bare(name: str) -> str:
    return sample(name).page(None)


@pytest.mark.parametrize("name", MAKERS)
def test_the_page_needs_nothing_from_anywhere(name: str) -> None:
    require_a_page_that_stands_alone(drawn(name))


@pytest.mark.parametrize("name", MAKERS)
def test_without_what_draws_it_has_every_table_and_says_what_to_install(name: str) -> None:
    without, whole = Page(bare(name)), Page(drawn(name))
    assert "<figure" not in bare(name)
    assert without.tables == whole.tables
    assert whole.tables or name == "no capacity"
    if name in WITHOUT_CHARTS:
        assert "<figure" not in drawn(name)
        assert NO_CHARTS not in without.said()
    else:
        assert "<figure" in drawn(name)
        assert NO_CHARTS in without.said()


@pytest.mark.parametrize("name", MAKERS)
def test_it_opens_with_a_question_and_a_few_figures_and_ends_with_how_to_repeat_it(name: str) -> None:
    page = Page(drawn(name))
    said = page.said()
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert said.partition("?")[1] == "?"
    assert 1 <= len(key_figures(drawn(name))) <= 8
    for words in (MADE.line, MADE.made_at, "0.1.0", "3.11.7"):
        assert words in said
    assert said.index("Assumptions") < said.index("How to repeat it")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_as_they_are_and_do_nothing(name: str) -> None:
    source = drawn(name)
    assert "<script" not in source
    assert "<img" not in source
    assert Page(source).said().count(SCRIPT) >= 4
    assert not {"\x1b", "\u202e"} & set(source)


@pytest.mark.parametrize("name", MAKERS)
def test_it_names_nobody(name: str) -> None:
    assert "/home/ada" not in drawn(name)


def test_every_origin_that_a_page_shows_is_explained() -> None:
    for name in MAKERS:
        source = drawn(name)
        shown = {tags["class"].split()[1] for tag, tags in Page(source).tags if tag == "span" and "class" in tags}
        explained = source.partition('<ul class="origins"')[2].partition("</ul>")[0]
        if explained:
            assert all(f'class="tag {origin}"' in explained for origin in shown), (name, shown)


def test_a_number_is_taken_apart_from_its_unit() -> None:
    assert value_and_unit("3.21 – 4.5 s") == ("3.21 – 4.5", "s")
    assert value_and_unit("+12.5 %") == ("+12.5", "%")
    assert value_and_unit("n/a") == ("n/a", "")
