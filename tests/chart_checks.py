"""What holds of every chart, whatever it shows."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from inference_bench.charts import NARROW_PX, PALETTE, WIDE_PX, Spec
from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import text_px
from inference_bench.render import svg

WIDTHS = (WIDE_PX, NARROW_PX)


def rows(spec: Spec, mark: str) -> list[dict[str, Any]]:
    """What is drawn as one kind of mark, over all layers."""
    return [row for layer in spec["layer"] if layer["mark"]["type"] == mark for row in layer["data"]["values"]]


def labels(spec: Spec) -> list[str]:
    """Every word in the drawing."""
    return [row["label"] for row in rows(spec, "text")]


def check_whole(spec: Spec, width: int, spoken: tuple[str, ...] = ("point",)) -> None:
    """It holds all its data, names no address, is as wide as asked, and says in words what it shows and what each mark is."""
    text = json.dumps(spec, allow_nan=False)
    assert "http" not in text
    assert "url" not in text
    assert spec["width"] + spec["padding"]["left"] + spec["padding"]["right"] == width
    assert all(layer["data"]["values"] for layer in spec["layer"])
    assert len(spec["description"]) > 80
    said = [row for mark in spoken for row in rows(spec, mark)]
    assert said
    assert all(row["said"] for row in said)


def check_colours(spec: Spec) -> None:
    """It can be drawn, and each of its colours is one that a page can replace."""
    pytest.importorskip("vl_convert")
    drawn = svg(spec)
    assert drawn.startswith("<svg")
    assert all(light not in drawn.replace(f"var(--{role}, {light})", "") for role, (light, _) in PALETTE.items())


def check_words_apart(spec: Spec, more_than: int) -> None:
    """More than so many words, none of which lies over another or beyond the edge, by the width of their letters."""
    left, right = spec["padding"]["left"], spec["padding"]["right"]
    boxes = []
    for layer in spec["layer"]:
        mark = layer["mark"]
        if mark["type"] != "text" or "stroke" in mark:
            continue
        for row in layer["data"]["values"]:
            size = text_px(row["label"]) * 0.85
            start = row["x"] - {"left": 0.0, "center": size / 2, "right": size}[mark.get("align", "center")]
            top = row["y"] - {"bottom": 11.0, "middle": 5.5, "top": 0.0}[mark["baseline"]]
            boxes.append((row["label"], Box(start + 2, top + 3, start + size - 2, top + 8)))
    assert len(boxes) > more_than
    assert all(box.left >= -left and box.right <= spec["width"] + right for _, box in boxes)
    assert not [(one[0], other[0]) for one, other in itertools.combinations(boxes, 2) if one[1].meets(other[1])]
