from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest

from inference_bench.charts import NARROW_PX, PALETTE, WIDE_PX, gap_chart, roofline_chart
from inference_bench.errors import MissingExtraError
from inference_bench.render import prepare_svg, svg, svg_or_none
from inference_bench.report.picture import picture_page, picture_svg
from report.sample import hostile_result, sample_result, with_findings

SVG = "{http://www.w3.org/2000/svg}"
EVIL = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="5" height="5"
 viewBox="0 0 5 5" onload="alert(1)"><script>alert(2)</script><style>@import url(http://evil.example/x.css)</style>
 <foreignObject><p>x</p></foreignObject><a xlink:href="javascript:alert(3)"><text>link</text></a>
 <image xlink:href="http://evil.example/x.png"/><g style="background:url(http://evil.example)" onclick="alert(4)">
 <path d="M0,0" fill="url(http://evil.example#a)" clip-path="url(#clip0)" stroke="#1d5fbf"/><text>kept</text></g>
 <defs><clipPath id="clip0"><rect width="1" height="2"/></clipPath></defs></svg>"""


@pytest.fixture(scope="module")
def drawing() -> ElementTree.Element:
    spec = roofline_chart(with_findings())
    assert spec is not None
    return ElementTree.fromstring(svg(spec))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_a_drawing_is_named_for_a_screen_reader_by_what_the_chart_says_of_itself(drawing: ElementTree.Element) -> None:
    assert drawing.get("role") == "img"
    assert drawing.get("aria-label", "").startswith("Roofline with 9 measured points. Memory 20.5 GB/s")


def test_a_drawing_shows_the_labels_of_its_chart(drawing: ElementTree.Element) -> None:
    shown = texts(drawing)
    for label in (
        "memory 20.5 GB/s",
        "compute 174 GFLOP/s (fp32)",
        "ridge 8.49",
        "B1",
        "B8",
        "intensity (FLOP/byte)",
        "100 G",
    ):
        assert label in shown


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_a_drawing_is_as_wide_as_asked_and_its_letters_have_11_pixels_or_more(width: int) -> None:
    spec = roofline_chart(sample_result(), width)
    assert spec is not None
    root = ElementTree.fromstring(svg(spec))
    assert root.get("viewBox", "").split()[2] == str(width)
    assert root.get("width") is None
    sizes = [float(element.get("font-size", "0").removesuffix("px")) for element in root.iter(f"{SVG}text")]
    assert len(sizes) > 5
    assert min(sizes) >= 11


def test_every_colour_of_the_palette_is_left_to_the_page_with_the_light_one_to_fall_back_on(
    drawing: ElementTree.Element,
) -> None:
    values = [
        value for element in drawing.iter() for name, value in element.attrib.items() if name in {"fill", "stroke"}
    ]
    light = {colours[0] for colours in PALETTE.values()}
    assert f"var(--decode, {PALETTE['decode'][0]})" in values
    assert not light & set(values)


def test_two_drawings_on_a_page_share_no_id_and_each_reference_has_its_target() -> None:
    seen: set[str] = set()
    for width in (WIDE_PX, NARROW_PX):
        spec = roofline_chart(sample_result(), width)
        assert spec is not None
        text = svg(spec)
        ids = set(re.findall(r' id="([^"]+)"', text))
        assert ids
        assert not ids & seen
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
        seen |= ids


def test_the_same_chart_is_drawn_the_same_way_each_time() -> None:
    spec = gap_chart(sample_result())
    assert spec is not None
    assert svg(spec) == svg(spec)


def test_a_label_given_by_the_caller_is_escaped() -> None:
    spec = gap_chart(hostile_result())
    assert spec is not None
    text = svg(spec, label='<script>alert("1")</script>')
    assert "<script" not in text
    assert ElementTree.fromstring(text).get("aria-label") == '<script>alert("1")</script>'


def test_scripts_links_styles_and_foreign_addresses_do_not_survive() -> None:
    text = prepare_svg(EVIL, "a drawing", "p")
    for word in ("script", "alert", "evil.example", "style", "href", "foreignObject", "image", "javascript", "onload"):
        assert word not in text
    assert texts(ElementTree.fromstring(text)) == ["kept"]
    assert 'clip-path="url(#p-clip0)"' in text
    assert 'id="p-clip0"' in text


def test_without_the_package_that_draws_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[bench\]'"):
        svg({"description": "x"})
    assert svg_or_none() is None


def test_with_the_package_that_draws_there_is_something_to_hand_to_a_report() -> None:
    assert svg_or_none() is svg


NOT_XML = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 0x7F, 0x9B, 0xD800, 0xFFFE, 0xFFFF)))


def test_a_name_with_characters_that_xml_has_not_is_drawn_with_marks_for_them() -> None:
    spec = roofline_chart(sample_result())
    assert spec is not None
    named = {**spec, "description": f"of {NOT_XML}\u6f22", "title": f"<b>{NOT_XML}</b>"}
    drawn = svg(named)
    root = ElementTree.fromstring(drawn)
    assert root.get("aria-label") == f"of {chr(0xFFFD) * len(NOT_XML)}\u6f22"
    for text in (drawn, picture_svg(named, drawn), picture_page(named, drawn)):
        assert not set(text) & set(NOT_XML)
    ElementTree.fromstring(picture_svg(named, drawn))
    assert ElementTree.fromstring(prepare_svg(EVIL, f"a{NOT_XML}", "x")).get("aria-label", "").startswith("a\ufffd")
