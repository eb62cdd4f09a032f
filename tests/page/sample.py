"""A built page for the tests, made once a session, and what its HTML is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from shutil import which

import pytest

from inference_bench.errors import DownloadError
from inference_bench.page.build import BuiltPage, build_page
from inference_bench.page.vendor import PinnedPackage, vendored_files

_built: dict[str, BuiltPage] = {}


def built_page(factory: pytest.TempPathFactory) -> BuiltPage:
    """The page, built when first asked for, from the archives in the user's cache folder."""
    if "page" not in _built:
        folder = factory.mktemp("built") / "page"
        _built["page"] = or_skip_without_npm(lambda: build_page(folder))
    return _built["page"]


def vendored(package: PinnedPackage) -> dict[str, bytes]:
    """Files of a package, from the cache folder or npm."""
    return or_skip_without_npm(lambda: vendored_files(package))


def or_skip_without_npm(make):  # type: ignore[no-untyped-def]
    try:
        return make()
    except DownloadError as error:
        if which("npm") is None:
            pytest.skip(f"{error}")
        raise


def few_files(package: PinnedPackage) -> dict[str, bytes]:
    """A stand-in for what npm brings: every file that is wanted, a few bytes each."""
    found = {name: f"{package.name} {name}".encode() for name in package.files}
    if "build/vega-interpreter.js" in found:
        found["build/vega-interpreter.js"] = b"import { isString } from 'vega-util';\nexport const a = isString;\n"
    return found


@dataclass
class Markup(HTMLParser):
    """The tags of an HTML text with their attributes, in order."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    @staticmethod
    def of(text: str) -> Markup:
        found = Markup()
        found.feed(text)
        found.close()
        return found

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def loaded(self) -> list[str]:
        """The addresses that a browser fetches by itself."""
        kinds = ("src", "data", "poster", "srcset", "background", "xlink:href", "href")
        return [
            attributes[kind]
            for tag, attributes in self.tags
            for kind in kinds
            if kind in attributes
            and not (tag in {"a", "area"} and kind == "href")
            and not attributes[kind].startswith("#")
        ]

    def executable(self) -> list[str]:
        """Whatever a strict policy exists to stop: code and style written into the document."""
        found = []
        for tag, attributes in self.tags:
            found += [f"{tag} {name}" for name in attributes if name.startswith("on") or name == "style"]
            found += [f"{tag} {text}" for text in attributes.values() if text.strip().lower().startswith("javascript:")]
            if tag == "style" or (
                tag == "script" and "src" not in attributes and attributes.get("type") != "application/json"
            ):
                found.append(tag)
            if tag in {"iframe", "object", "embed", "base", "foreignobject"}:
                found.append(tag)
        return found


def folder_content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
