"""The article: its figures against others', every row of every table on a page, the docs page against the code."""

from __future__ import annotations

import itertools
import re
import sys
import time
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, quote
from xml.etree import ElementTree

import pytest

from inference_bench.charts.grammar import NARROW_PX, WIDE_PX, Spec
from inference_bench.charts.naive_error import factor_chart, growth_chart, tokens_name
from inference_bench.facts.load import known_model, known_models
from inference_bench.predict.fit import cache_format
from inference_bench.predict.naive_rows import LENGTHS, Order
from inference_bench.predict.naive_study import EXAMPLES, NaiveStudy, study_naive_error
from inference_bench.report.article import TITLE, article
from inference_bench.report.article_blocks import (
    Article,
    Bullets,
    Code,
    Commands,
    Heading,
    Link,
    Paragraph,
    Rows,
    Strong,
    Subject,
)
from inference_bench.report.article_html import article_html, calculator_address
from inference_bench.report.article_markdown import article_markdown, escape
from inference_bench.report.table import Column, Table

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "write_article.py"
ASKED = [
    (32768, "fp16", Order.FACTOR),
    (4096, "q8_0", Order.MODEL),
    (131072, "fp8", Order.TRUE),
    (None, "q4_0/fp16", Order.USUAL),
    (100, "fp32", Order.DATE),
    (1, "fp16", Order.FACTOR),
]
VOID = {"br", "hr", "img", "rect"}


@cache
def study(context: int | None = 32768, fmt: str = "fp16", order: Order = Order.FACTOR) -> NaiveStudy:
    return study_naive_error(context, cache_format(fmt), order)


@cache
def written(context: int | None = 32768, fmt: str = "fp16", order: Order = Order.FACTOR) -> Article:
    return article(study(context, fmt, order))


def text(parts: tuple[object, ...]) -> str:
    return "".join(part if isinstance(part, str) else str(getattr(part, "text", "")) for part in parts)


def prose(found: Article) -> str:
    said = []
    for block in found.blocks:
        if isinstance(block, Paragraph):
            said.append(text(block.parts))
        elif isinstance(block, Bullets):
            said += map(text, block.items)
    return "\n".join(said)


class Page(HTMLParser):
    """A page as a browser takes it apart: tags in balance, and what each table holds."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.links: dict[str, list[str]] = {}
        self.name = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.name = given["data-table"]
            self.tables[self.name], self.links[self.name] = [], []
        elif tag == "tr":
            self.tables[self.name].append([])
        elif tag in {"td", "th"}:
            self.tables[self.name][-1].append("")
        elif tag == "a" and "th" in self.open:
            self.links[self.name].append(given["href"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.tables[self.name][-1][-1] += data


# ── what is said ───────────────────────────────────────────────────────────────────────────────────


def test_the_sentences_hold_the_figures_that_others_counted() -> None:
    said = prose(written())
    for expected in (
        "52 of 62 layers of gemma-3-27b-it look back 1,024 tokens and keep no more: 2.91 GiB where the formula says 15.5 GiB",
        "10.4 GiB instead of 62.0 GiB at 131,072",
        "gpt-oss-20b windows 12 of 24 layers",
        "keeps one compressed vector and one rotary key for all heads, 1,152 bytes a token and layer",
        "128 heads that the configuration lists, 56 values each, and charges 28,672: 24.9 times",
        "36 of 48 layers of Qwen3-Next-80B-A3B-Instruct",
        "15 of 35 layers of gemma-3n-E4B-it",
        "6.73 GiB of free blocks before it admits gemma-3-27b-it",
        "It then keeps 2.98 GiB",
        "3.11 GiB for gemma-3-27b-it",
        "4.00 GiB instead of 512 MiB",
        "the formula promises 1 sequence. There is room for 9 sequences",
        "10 layers × 32,768 tokens × 8,192 bytes",
        "52 layers × 1,024 tokens × 8,192 bytes",
        "3,120,562,176 bytes",
    ):
        assert expected in said
    rows = {row[0]: row for row in next(each for each in written().tables if each.name == "examples").table.rows}
    assert rows["gpt-oss-20b"][5] == "3.00 GiB"
    assert rows["Qwen3-Next-80B-A3B-Instruct"][3] == "842 MiB"  # 0.822 GiB
    assert rows["DeepSeek-V3"][3] == "2.14 GiB"
    assert rows["DeepSeek-V3.2"][3] == "2.62 GiB"


@pytest.mark.parametrize(("context", "fmt", "order"), ASKED)
def test_the_totals_in_the_sentences_are_those_of_the_table(context: int | None, fmt: str, order: Order) -> None:
    found, said = study(context, fmt, order), prose(written(context, fmt, order))
    registry = written(context, fmt, order).tables[-1]
    assert registry.name == "registry"
    assert len(registry.table.rows) == len(known_models())
    assert f"all {len(registry.table.rows)} models" in said
    assert f"It is exact for {found.num_right} of them and wrong for {found.num_wrong}" in said
    wrong = [row for row in registry.table.rows if row[2] != row[3] or row[1] != "1.00"]
    assert len(wrong) <= found.here.num_wrong <= len(wrong) + 5  # a difference may be too small to be printed
    assert "n/a" not in said
    assert "None" not in said
    assert "nan" not in said


def test_another_length_and_format_change_the_sentences() -> None:
    base, other = prose(written()), prose(written(4096, "q8_0", Order.MODEL))
    assert "at 4,096 tokens it then gives" in other
    assert "cache in q8_0" in other
    assert base != other
    assert "each model's own limit" in prose(written(None, "q4_0/fp16", Order.USUAL))


def test_the_article_is_as_long_as_an_article() -> None:
    assert 1200 <= len(prose(written()).split()) <= 1600
    headings = [block.title for block in written().blocks if isinstance(block, Heading)]
    assert len(headings) == len(set(headings)) == 9


def test_the_commands_run_and_the_figure_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    from inference_bench.cli.main import main

    commands = [line for block in written().blocks if isinstance(block, Commands) for line in block.lines]
    assert len(commands) == 5
    for line in commands:
        program, *words = line.partition("#")[0].split()
        assert program == "inference-bench"
        assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "15.5GiB comes from a mistake: every layer was charged for the whole context" in said


# ── on a page ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("context", "fmt", "order"), ASKED)
def test_every_row_about_a_model_leads_to_the_calculator(context: int | None, fmt: str, order: Order) -> None:
    found = written(context, fmt, order)
    page = Page(article_html(found))
    assert set(page.tables) == {"lengths", "examples", "cards", "short", "engines", "registry"}
    for block in found.tables:
        assert [tuple(row) for row in page.tables[block.name][1:]] == [tuple(row) for row in block.table.rows]
        subjects = [subject for subject in block.subjects if subject is not None]
        assert len(page.links[block.name]) == len(subjects)
        for link, subject, row in zip(page.links[block.name], subjects, block.table.rows, strict=False):
            view, _, question = link.partition("?")
            asked = parse_qs(question, strict_parsing=True)
            assert view == "#fit"
            assert asked == {"model": [subject.model], "context": [str(subject.context_tokens)]}
            assert known_model(asked["model"][0]).name == row[0]
            limit = known_model(subject.model).max_position_embeddings
            assert 1 <= subject.context_tokens <= (limit or LENGTHS[2])
    assert len(page.links["registry"]) == len(known_models())


@pytest.mark.parametrize(("context", "fmt", "order"), ASKED)
def test_a_strict_policy_has_nothing_to_forbid(context: int | None, fmt: str, order: Order) -> None:
    source = article_html(written(context, fmt, order))
    page = Page(source)
    assert not [name for tag, given in page.tags for name in given if name == "style" or name.startswith("on")]
    assert not {"script", "style", "iframe", "form", "img"} & {tag for tag, _ in page.tags}
    addresses = [given["href"] for tag, given in page.tags if tag == "a"]
    assert all(address.startswith(("#fit?", "https://")) for address in addresses)
    assert source.count("<h1>") == 1
    assert "<h1>" not in article_html(written(), has_title=False)


@pytest.mark.parametrize(("context", "fmt", "order"), ASKED)
def test_the_column_sorted_by_says_so(context: int | None, fmt: str, order: Order) -> None:
    page = Page(article_html(written(context, fmt, order)))
    heads = [given for tag, given in page.tags if tag == "th" and "data-sort" in given]
    assert [head["data-sort"] for head in heads] == ["model", "factor", "usual", "true", "date"]
    assert [head["data-sort"] for head in heads if "aria-sort" in head] == [str(order)]
    expected = "ascending" if order is Order.MODEL else "descending"
    assert [head["aria-sort"] for head in heads if "aria-sort" in head] == [expected]


def test_charts_are_places_to_be_drawn_in_or_drawn() -> None:
    places = re.findall(r'<div class="drawing" data-chart="([\w-]+)"></div>', article_html(written()))
    assert places == ["factors-wide", "factors-narrow", "growth-wide", "growth-narrow"]
    drawn: list[Spec] = []

    def draw(spec: Spec) -> str:
        drawn.append(spec)
        return "<svg></svg>"

    assert article_html(written(), draw).count("<svg></svg>") == 4
    assert len({spec["width"] for spec in drawn}) >= 2


def test_no_name_can_break_out_of_a_page_or_a_markdown_table() -> None:
    name = '<img src=x onerror="alert(1)">&`|*[a](javascript:b)\u202e'
    rows = Rows(
        "x",
        Table(name, (Column("m", "l"), Column("n")), ((name, name),), note=name),
        (Subject(name, 7),),
        ("a", None),
        "a",
    )
    hostile = Article(name, (Paragraph((name, Strong(name), Code(name), Link(name, "https://x.example/?a=1&b"))), rows))
    source = article_html(hostile)
    page = Page(source)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert page.tables["x"][1] == [name.replace("\u202e", "\ufffd")] * 2
    assert page.links["x"] == [f"#fit?model={quote(name, safe='')}&context=7"] == [calculator_address(Subject(name, 7))]
    assert '"https://x.example/?a=1&amp;b"' in source
    assert "\u202e" not in source
    lines = article_markdown(hostile, {}).splitlines()
    row = next(line for line in lines if line.startswith("| ") and "onerror" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert not re.search(r"(?<!\\)<img", "\n".join(line for line in lines if "`" not in line))
    assert escape("a|b") == "a\\|b"


def test_the_whole_article_is_written_fast_enough_to_follow_a_reader() -> None:
    study_naive_error()  # the table is read once
    times = []
    for _ in range(3):
        started = time.perf_counter()
        article_html(article(study_naive_error(4096, cache_format("q8_0"))))
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5  # 0.05 s on the machine it was written on


# ── charts ─────────────────────────────────────────────────────────────────────────────────────────


def points(spec: Spec) -> list[dict[str, object]]:
    return [row for layer in spec["layer"] if layer["mark"]["type"] == "point" for row in layer["data"]["values"]]


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("context", [32768, 4096, 100, None])
def test_every_wrong_model_is_a_point_that_says_its_figures(context: int | None, width: int) -> None:
    found = study(context)
    spec = factor_chart(found.rows, tuple(EXAMPLES.values()), width)
    assert spec is not None
    shown = {row["model"]: row for row in points(spec)}
    wrong = {row.model: row for row in found.rows if row.factor is not None and not row.is_right}
    assert set(shown) == set(wrong)
    for name, row in shown.items():
        assert row["factor"] == wrong[name].factor
        assert str(row["said"]).startswith(f"{name}: ")
        assert str(wrong[name].cause) in str(row["said"])
        assert 0 <= float(str(row["x"])) <= spec["width"]
    ys = [float(str(row["y"])) for row in points(spec)]
    assert ys == sorted(ys)
    assert f"{len(wrong)} of {len(found.rows)} models" in spec["description"]


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("context", [32768, 4096, 100, None])
def test_drawings_have_no_warning_words_on_every_point_and_no_name_over_another(
    context: int | None, width: int, capfd: pytest.CaptureFixture[str]
) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    found = study(context)
    for spec in (factor_chart(found.rows, tuple(EXAMPLES.values()), width), growth_chart(found.curves, width)):
        assert spec is not None
        drawing = vl_convert.vegalite_to_svg(spec, vl_version="6.4", show_warnings=True)
        assert drawing.count("aria-label=") == len(points(spec)) > 10
        root = ElementTree.fromstring(drawing)
        assert root.get("width") == str(width)
        assert not [element for element in root.iter() if element.get("aria-label") == ""]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_names_stand_apart_and_inside_the_drawing(width: int) -> None:
    from inference_bench.charts.grammar import text_px

    spec = factor_chart(study().rows, tuple(EXAMPLES.values()), width)
    assert spec is not None
    names = [
        row
        for layer in spec["layer"]
        if layer["mark"]["type"] == "text" and layer["mark"].get("align") == "left"
        for row in layer["data"]["values"]
    ]
    names = names[: len(names) // 2]  # each is written twice, once as paper
    assert len(names) > 20
    assert all(other["y"] - one["y"] >= 15 for one, other in itertools.pairwise(names))
    assert all(row["x"] + text_px(row["label"]) <= spec["width"] + 1 for row in names)
    assert names[0]["label"].startswith("DeepSeek-V3 24.9")


def test_the_curves_show_both_figures_and_where_they_cross() -> None:
    spec = growth_chart(study().curves)
    assert spec is not None
    mamba = next(curve for curve in study().curves if "Nemotron" in curve.model)
    assert mamba.points[0][1] < mamba.points[0][2]
    assert mamba.points[-1][1] > mamba.points[-1][2]
    uniform = next(curve for curve in study().curves if curve.model == "Qwen3-8B")
    assert all(usual == true for _, usual, true in uniform.points)
    assert "gemma-3-27b-it 62.0 GiB and 10.4 GiB at 131,072" in spec["description"]


def test_nothing_is_drawn_of_models_that_are_all_right() -> None:
    right = [row for row in study().rows if row.is_right]
    assert factor_chart(right) is None
    assert growth_chart(()) is None
    all_right = replace(study(), rows=tuple(right))
    assert "factors-wide" not in article_html(article(all_right))


def test_a_length_is_named_as_the_field_writes_it() -> None:
    assert [tokens_name(tokens) for tokens in (448, 1024, 32768, 131072, 1048576, 100000)] == [
        "448",
        "1k",
        "32k",
        "128k",
        "1M",
        "100,000",
    ]


# ── in the docs ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("write_article", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_docs_page_is_what_the_code_writes_today(script: ModuleType) -> None:
    """If this fails: make article."""
    assert (ROOT / "docs" / "kv-cache-formula.md").read_text(encoding="utf-8") == script.page(written())


def test_the_pictures_of_the_docs_page_are_there_and_show_its_models() -> None:
    page = (ROOT / "docs" / "kv-cache-formula.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {TITLE}\n")
    files = re.findall(r"!\[[^\]]+\]\(([\w.-]+)\)", page)
    assert files == ["kv-cache-formula-factors.svg", "kv-cache-formula-growth.svg"]
    factors, growth = ((ROOT / "docs" / file).read_text(encoding="utf-8") for file in files)
    assert factors.startswith("<svg")
    assert growth.startswith("<svg")
    for row in study().rows:
        if row.factor is not None and not row.is_right:
            assert f"{row.model}: " in factors
    assert all(curve.model in growth for curve in study().curves)


def test_every_table_of_the_docs_page_has_as_many_cells_in_every_row() -> None:
    page = (ROOT / "docs" / "kv-cache-formula.md").read_text(encoding="utf-8")
    tables = [part for part in page.split("\n\n") if part.startswith("| ")]
    assert len(tables) == 6
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert len(tables[-1].splitlines()) == len(known_models()) + 2
