"""A report's page as a browser would take it apart, and what has to hold of every one."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}
FIGURE = re.compile(r'<dt>([^<]*)</dt><dd class="value">([^<]*) <span>([^<]*)</span></dd>')


class Page(HTMLParser):
    """Tags in balance, attributes, text, tables."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)
        if {"td", "th"} & set(self.open) and "span" not in self.open:
            self.tables[-1][-1][-1] += data

    def said(self) -> str:
        return " ".join(" ".join(self.text).split())

    def rows(self, first: str) -> list[dict[str, str]]:
        """The rows of the table whose first column has this header, by the headers of the others."""
        head, *body = next(table for table in self.tables if table[0][0] == first)
        return [dict(zip(head, row, strict=True)) for row in body]


def key_figures(source: str) -> dict[str, str]:
    """What is seen in five seconds: number and unit by name."""
    return {
        html.unescape(name): html.unescape(f"{value} {unit}".rstrip()) for name, value, unit in FIGURE.findall(source)
    }


def require_a_page_that_stands_alone(source: str) -> Page:
    """Nothing is loaded from anywhere, nothing runs, and every link leads to a section."""
    page = Page(source)
    assert page.open == []
    assert not {"script", "link", "iframe", "object", "embed", "img", "base", "form"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert all("url(" not in value.replace("url(#", "") for value in attributes.values())
    style = source.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    outside_text = re.sub(r">[^<]*<", "><", source)
    assert "http" not in outside_text.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http-equiv", "")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    links = [attributes["href"].removeprefix("#") for tag, attributes in page.tags if tag == "a"]
    assert len(set(ids)) == len(ids)
    assert set(links) <= set(ids)
    return page
