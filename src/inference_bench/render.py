"""How does a chart become a picture that a page can hold? One SVG, drawn here without any network.

In:   a Vega-Lite specification from charts
Out:  SVG text to be put into a page: named for a screen reader, coloured through the page's own CSS variables,
      with ids that no other drawing on the page has
Leaves out: what is drawn
Read next by: cli, which hands `svg` to the report.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any, Final
from xml.etree import ElementTree

from inference_bench.charts import PALETTE, Spec
from inference_bench.errors import MissingExtraError

_VEGA_LITE_VERSION: Final = "6.4"
_SVG_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_ELEMENTS: Final = frozenset({"svg", "g", "path", "line", "rect", "circle", "text", "tspan", "defs", "clipPath"})
_DROPPED_ATTRIBUTES: Final = frozenset(
    {"font-family", "pointer-events", "aria-hidden", "aria-roledescription", "role", "width", "height", "version"}
)
_KEPT_SIZE: Final = frozenset({"rect"})
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VARIABLES: Final = {light: f"var(--{role}, {light})" for role, (light, _) in PALETTE.items()}


def svg(spec: Spec, label: str | None = None) -> str:
    """The drawing of a specification; `label` says what it shows, or else the spec's own description does.

    Raises:  MissingExtraError without vl-convert-python
    """
    try:
        vl_convert = importlib.import_module("vl_convert")
    except ImportError:
        raise MissingExtraError(
            "charts need the package vl-convert-python; install it with: pip install 'inference-bench[bench]'"
        ) from None
    spec = _writable(spec)
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE_VERSION, allowed_base_urls=[])
    prefix = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
    return prepare_svg(drawn, label or str(spec.get("description", "chart")), prefix)


def svg_or_none() -> Callable[[Spec], str] | None:
    """`svg` where it can draw, None where the package it needs is not installed: a report has its tables either way."""
    return None if importlib.util.find_spec("vl_convert") is None else svg


def prepare_svg(drawn: str, label: str, id_prefix: str) -> str:
    """A drawing made fit for a page: only shapes and text, no links, no scripts, no fonts of its own.

    Where:  an element or attribute that is not known to be harmless is left out
    """
    root = ElementTree.fromstring(drawn)
    _clean(root, id_prefix)
    root.attrib.update({"xmlns": _SVG_NAMESPACE, "role": "img", "aria-label": xml_text(label)})
    return ElementTree.tostring(root, encoding="unicode")


def xml_text(text: str) -> str:
    """The text with a mark in place of every character that XML does not allow, such as a control character."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _writable(value: Any) -> Any:
    """A specification whose every text XML can hold."""
    if isinstance(value, str):
        return xml_text(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list | tuple) else value


def _clean(element: ElementTree.Element, id_prefix: str) -> None:
    """Keep what draws, in the page's colours, here and below."""
    element.tag = _local(element.tag)
    element.attrib = {
        name: _value(value, id_prefix, is_id=name == "id")
        for name, value in element.attrib.items()
        if _is_harmless(element.tag, name, value)
    }
    if "aria-label" in element.attrib:
        element.set("role", "img")  # a name needs a role that may have one
    for child in list(element):
        if _local(child.tag) not in _ELEMENTS or child.get("display") == "none" or _is_empty_text(child):
            element.remove(child)
        else:
            _clean(child, id_prefix)


def _local(tag: str) -> str:
    return tag.removeprefix(f"{{{_SVG_NAMESPACE}}}")


def _is_harmless(tag: str, name: str, value: str) -> bool:
    if name.startswith(("on", "{")) or name in {"href", "style"} or "url(" in value.replace("url(#", ""):
        return False
    return name not in _DROPPED_ATTRIBUTES or (tag in _KEPT_SIZE and name in {"width", "height"})


def _is_empty_text(element: ElementTree.Element) -> bool:
    return _local(element.tag) == "text" and len(element) == 0 and not element.text


def _value(value: str, id_prefix: str, *, is_id: bool) -> str:
    if is_id:
        return f"{id_prefix}-{value}"
    return _VARIABLES.get(value) or re.sub(r"url\(#([\w-]+)\)", rf"url(#{id_prefix}-\1)", value)
