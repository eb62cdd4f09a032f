from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import RequestError, RunFolderError
from inference_bench.measure.store import RunFolder
from inference_bench.notebook import show
from inference_bench.report.json_result import verify_json
from inference_bench.report.lab_page import lab_text
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.verify.saved import save_json, save_page, save_text
from labs.made_page import MadeResult, made
from report.closed_loop_sample import hostile_loop, whole_loop
from report.pages import Page, require_a_page_that_stands_alone

FRAME = re.compile(r'<iframe title="([^"]*)" sandbox="" srcdoc="([^"]*)" style="([^"]*)"></iframe>')


GUARD = re.compile(
    r"""<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none';[^">]*">"""
)


def framed(cell: str) -> tuple[str, str, str]:
    """Title, document and style of the one element that a cell is; before the document stands a policy that loads nothing."""
    found = FRAME.fullmatch(cell)
    assert found, cell[:200]
    title, document, style = found.groups()
    guard = GUARD.match(html.unescape(document))
    assert guard
    return html.unescape(title), html.unescape(document)[guard.end() :], style


def a_verify_run(folder: Path) -> Path:
    run, result = RunFolder.create(folder, "verify"), whole_loop()
    save_json(run.path, verify_json(result))
    save_text(run.path, verify_text(result))
    save_page(run.path, verify_html(result, None))
    return run.path


def test_a_result_is_its_page_in_a_frame_that_runs_and_loads_nothing() -> None:
    shown = show(whole_loop(), height_px=640)
    title, document, style = framed(shown._repr_html_())
    assert title == "SmolLM2-135M-Instruct.Q4_1 on AMD EPYC 7B13, 2 cores"
    assert "height:640px" in style
    assert "<svg" in document
    require_a_page_that_stands_alone(document.replace('href="about:srcdoc#', 'href="#'))


def test_without_a_cell_it_is_the_text_of_a_terminal() -> None:
    assert repr(show(whole_loop())) == verify_text(whole_loop())


def test_links_lead_to_the_page_s_own_sections_and_not_out_of_the_frame() -> None:
    _, document, _ = framed(show(whole_loop())._repr_html_())
    page = Page(document)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(links) == 15
    assert {link.removeprefix("about:srcdoc#") for link in links} <= ids


def test_hostile_names_stay_inside_the_frame_and_do_nothing_there() -> None:
    cell = show(hostile_loop())._repr_html_()
    framed(cell)  # one element: nothing closed the attribute
    assert Page(cell).open == []
    assert [tag for tag, _ in Page(cell).tags] == ["iframe"]
    _, document, _ = framed(cell)
    assert "<script" not in document
    assert "<img" not in document


@pytest.mark.parametrize("as_text", [False, True])
def test_the_folder_of_a_verification_shows_the_page_and_the_text_that_it_holds(tmp_path: Path, as_text: bool) -> None:
    folder = a_verify_run(tmp_path)
    shown = show(str(folder) if as_text else folder)
    _, document, _ = framed(shown._repr_html_())
    assert document.replace('href="about:srcdoc#', 'href="#') == (folder / "report.html").read_text(encoding="utf-8")
    assert repr(shown) == verify_text(whole_loop())


def test_a_load_run_without_a_page_shows_its_text(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "load")
    save_json(run.path, {"schema": "inference-bench/load/1"})
    save_text(run.path, "12 sent & <b>12 completed</b>")
    shown = show(run.path)
    assert repr(shown) == "12 sent & <b>12 completed</b>"
    assert shown._repr_html_() == "<pre>12 sent &amp; &lt;b&gt;12 completed&lt;/b&gt;</pre>"


def test_a_verification_without_its_text_shows_what_its_points_say(tmp_path: Path) -> None:
    folder = a_verify_run(tmp_path)
    (folder / "report.txt").unlink()
    assert "Decode is limited in theory by" in repr(show(folder))


def test_a_folder_that_holds_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError) as told:
        show(tmp_path / "none")
    assert "\n" not in str(told.value)


def test_a_page_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = a_verify_run(tmp_path)
    (folder / "report.html").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RunFolderError, match="cannot be read"):
        show(folder)


@pytest.mark.parametrize("height_px", [0, -1, 50_000, "640", None, 1.5, float("nan"), True])
def test_a_height_that_no_cell_has_is_refused(height_px: Any) -> None:
    with pytest.raises(RequestError, match="height"):
        show(whole_loop(), height_px=height_px)


@pytest.mark.parametrize("run", [None, 7, 1.5, ["a"], b"runs", "", "a\0b", "n" * 5000])
def test_what_names_no_run_is_refused_in_one_line(run: Any) -> None:
    with pytest.raises(RequestError) as told:
        show(run)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 400


def test_a_page_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder, elsewhere = a_verify_run(tmp_path), tmp_path / "elsewhere.html"
    elsewhere.write_text("somebody's letters")
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match="leads out of the folder"):
        show(folder)


def test_a_lab_s_result_is_its_page_and_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    page = made()
    monkeypatch.setattr("inference_bench.report.lab_cache.lab_page", lambda _result: page)
    shown = show(MadeResult(page.head, page.checks), height_px=500)
    title, document, style = framed(shown._repr_html_())
    assert (title, repr(shown)) == ("lab cache", lab_text(page))
    assert "height:500px" in style
    assert "inference-bench lab cache --quick" in document.replace("</span> <span>", " ")
    require_a_page_that_stands_alone(document.replace('href="about:srcdoc#', 'href="#'))


def test_a_result_with_a_hostile_model_stays_inside_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    page = made('"><script>alert(1)</script><img src=x>')
    monkeypatch.setattr("inference_bench.report.lab_cache.lab_page", lambda _result: page)
    cell = show(MadeResult(page.head, page.checks))._repr_html_()
    assert [tag for tag, _ in Page(cell).tags] == ["iframe"]
    assert "<script" not in framed(cell)[1]
