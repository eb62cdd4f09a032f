"""Where does a roof lie on the screen? The ranges of both axes, the lines of a roof, and the names of its parts.

In:   Roofs, and points that have to fit beside them
Out:  RoofPlot: places in pixels and in the units of the axes, layers
Leaves out: points (roofline, ceilings)
Read next by: roofline, ceilings, other_roofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import (
    LIGHT,
    Frame,
    Row,
    Spec,
    axis,
    is_narrow,
    layer,
    log_scale,
    log_ticks,
    short_label,
    text,
    text_px,
    vertical,
)
from inference_bench.roofline import Roof
from inference_bench.units import format_number, format_si

_INSET_PX: Final = 12
_WIDENING: Final = 1.25
_MAX_WIDENINGS: Final = 12


@dataclass(frozen=True, slots=True)
class RoofPlot:
    """The ranges of both axes in a frame, from which the slope of the roof on the screen follows.

    Where:  says_compute is whether the flat part is named with the word, or by its rate alone
    """

    frame: Frame
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    says_compute: bool = True

    @classmethod
    def around(cls, rows: Sequence[Row], ceiling: Roof, width_px: int, others: Sequence[Roof] = ()) -> RoofPlot:
        """Ranges that hold every point, every ceiling and the ridge, of other roofs too, with room for their labels."""
        xs = [row["intensity_flops_per_byte"] for row in rows]
        xs += [roof.ridge_flops_per_byte for roof in (ceiling, *others) if roof.ridge_flops_per_byte]
        ys = [row["flops_per_s"] for row in rows]
        ys += [row["ceiling_flops_per_s"] for row in rows if row["ceiling_flops_per_s"] is not None]
        ys += [roof.peak_flops_per_s for roof in (ceiling, *others) if roof.peak_flops_per_s]
        frame = Frame(width_px, 300 if is_narrow(width_px) else 360, left=48)
        plot = cls(frame, min(xs) / 4, max(xs) * 2, min(ys) / 3, max(ys) * 2)
        return plot._with_room_for_label(ceiling)

    def _with_room_for_label(self, ceiling: Roof) -> RoofPlot:
        """The same, begun further to the left where the memory roof is shorter than its label."""
        plot = self
        for _ in range(_MAX_WIDENINGS):
            if plot._slope_px(ceiling) >= sum(text_px(row["label"]) + _INSET_PX for row in plot._slope_labels(ceiling)):
                break
            plot = replace(plot, low_x=plot.low_x / _WIDENING)
        return plot

    def _slope_px(self, ceiling: Roof) -> float:
        """How long the memory roof is on the screen, from where its label begins."""
        roof = self.roof_rows(ceiling)
        if ceiling.bandwidth_bytes_per_s is None:
            return 0.0
        start, end = self._slope_start(ceiling.bandwidth_bytes_per_s), float(roof[1]["intensity_flops_per_byte"])
        rise = max(math.log(end / start), 0.0)
        along = self.frame.plot_width * rise / math.log(self.high_x / self.low_x)
        return math.hypot(along, self.frame.height * rise / math.log(self.high_y / self.low_y))

    def _slope_start(self, bandwidth_bytes_per_s: float) -> float:
        """The intensity at which the label of the memory roof begins."""
        inset: float = (self.high_x / self.low_x) ** (_INSET_PX / self.frame.plot_width)
        return max(self.low_x, self.low_y / bandwidth_bytes_per_s) * inset

    def x_px(self, intensity: float) -> float:
        """How far right of the plot's left edge an intensity is."""
        return self.frame.plot_width * math.log(intensity / self.low_x) / math.log(self.high_x / self.low_x)

    def y_px(self, flops_per_s: float) -> float:
        """How far below the plot's top edge a rate is."""
        return self.frame.height * math.log(self.high_y / flops_per_s) / math.log(self.high_y / self.low_y)

    def rate_at_px(self, y_px: float) -> float:
        """The rate so far below the plot's top edge."""
        rate: float = self.high_y * (self.low_y / self.high_y) ** (y_px / self.frame.height)
        return rate

    def intensity_at(self, x_px: float) -> float:
        """The intensity so far right of the plot's left edge."""
        intensity: float = self.low_x * (self.high_x / self.low_x) ** (x_px / self.frame.plot_width)
        return intensity

    def at_px(self, x_px: float, y_px: float) -> Row:
        """The point of the axes at a place on the screen."""
        return roof_point(self.intensity_at(x_px), self.rate_at_px(y_px))

    def place_px(self, row: Row) -> Row:
        """The place on the screen of a point of the axes."""
        return {"x": self.x_px(row["intensity_flops_per_byte"]), "y": self.y_px(row["flops_per_s"])}

    def encoding(self) -> Spec:
        """Both axes."""
        xs = log_ticks(self.low_x, self.high_x, 5 if is_narrow(self.frame.width) else 9)
        ys = log_ticks(self.low_y, self.high_y, 6)
        x_labels, y_labels = [short_label(tick) for tick in xs], [format_si(tick, "", 1) for tick in ys]
        x_scale, y_scale = log_scale(self.low_x, self.high_x), log_scale(self.low_y, self.high_y)
        return {
            "x": axis("intensity_flops_per_byte", "intensity (FLOP/byte)", xs, x_labels, x_scale),
            "y": vertical(self.frame, axis("flops_per_s", "rate (FLOP/s)", ys, y_labels, y_scale)),
        }

    def roof_layers(self, ceiling: Roof) -> list[Spec]:
        """The roof, its ridge, and what each part is; only the parts whose rates are known."""
        roof, *labels = self.named_roof_layers(ceiling)
        return [roof, *self._ridge_layers(ceiling), *labels]

    def named_roof_layers(self, ceiling: Roof) -> list[Spec]:
        """The roof, and what its parts are."""
        line = {"type": "line", "stroke": LIGHT["ink"], "strokeWidth": 2, "clip": True}
        slope: Spec = {"align": "left", "baseline": "bottom", "dy": -6, "angle": self._slope_degrees()}
        return [
            layer(line, self.roof_rows(ceiling)),
            text(self._flat_labels(ceiling), align="right", baseline="bottom", dy=-6),
            text(self._slope_labels(ceiling), **slope),
        ]

    def roof_rows(self, ceiling: Roof) -> list[Row]:
        """The corners of a roof."""
        ridge = ceiling.ridge_flops_per_byte
        corners = [self.low_x, *([ridge] if ridge else []), self.high_x]
        heights = [ceiling.attainable_flops_per_s(x) for x in corners]
        return [roof_point(x, y) for x, y in zip(corners, heights, strict=True) if y is not None]

    def _ridge_layers(self, ceiling: Roof) -> list[Spec]:
        ridge, peak = ceiling.ridge_flops_per_byte, ceiling.peak_flops_per_s
        if ridge is None or peak is None:
            return []
        rows = [roof_point(ridge, self.low_y, top=peak, label=f"ridge {format_number(ridge)}")]
        is_right = ridge > math.sqrt(self.low_x * self.high_x)
        side: Spec = {"align": "right", "dx": -6} if is_right else {"align": "left", "dx": 6}
        return [
            layer({"type": "rule", "stroke": LIGHT["muted"], "strokeDash": [2, 3]}, rows, y2={"field": "top"}),
            text(rows, **side, baseline="bottom", dy=-5, color=LIGHT["muted"]),
        ]

    def _flat_labels(self, ceiling: Roof) -> list[Row]:
        if ceiling.peak_flops_per_s is None:
            return []
        what = "compute " if self.says_compute else ""
        label = f"{what}{format_si(ceiling.peak_flops_per_s, 'FLOP/s')} ({ceiling.compute_format or 'format unknown'})"
        return [roof_point(self.high_x, ceiling.peak_flops_per_s, label=label)]

    def flat_label_px(self, ceiling: Roof) -> float:
        """How wide the name of the flat part is, with the gap before it."""
        return sum(text_px(row["label"]) + _INSET_PX for row in self._flat_labels(ceiling))

    def flat_label_boxes(self, ceiling: Roof) -> list[Box]:
        """What the name of the flat part covers on the screen."""
        right, half = float(self.frame.plot_width), _INSET_PX / 2
        return [
            Box(right - text_px(row["label"]), y - _INSET_PX - half, right, y - half)
            for row in self._flat_labels(ceiling)
            for y in (self.y_px(row["flops_per_s"]),)
        ]

    def _slope_labels(self, ceiling: Roof) -> list[Row]:
        if ceiling.bandwidth_bytes_per_s is None:
            return []
        start = self._slope_start(ceiling.bandwidth_bytes_per_s)
        label = f"memory {format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}"
        return [roof_point(start, start * ceiling.bandwidth_bytes_per_s, label=label)]

    def _slope_degrees(self) -> float:
        """The angle of the memory roof on the screen: a slope of 1 in the logarithms."""
        up = self.frame.height / math.log(self.high_y / self.low_y)
        along = self.frame.plot_width / math.log(self.high_x / self.low_x)
        return -math.degrees(math.atan2(up, along))


def roof_point(intensity: float, flops_per_s: float, **more: Any) -> Row:
    """A point of the axes."""
    return {"intensity_flops_per_byte": intensity, "flops_per_s": flops_per_s, **more}
