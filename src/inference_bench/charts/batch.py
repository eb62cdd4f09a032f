"""What does a larger batch buy? Decode over batch beside its ceiling, and this machine's products over batch.

In:   VerifyResult
Out:  two Specs
Read next by: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    axis,
    batch_axis,
    chart,
    context_label,
    is_narrow,
    layer,
    linear_ticks,
    log_scale,
    log_ticks,
    nominal,
    place_legends,
    plain_label,
    series_colours,
    series_shapes,
    text,
    vertical,
)
from inference_bench.compare import ComparedPoint, Phase
from inference_bench.measure.ceilings import ProbeResult, ProductRow
from inference_bench.roofline import Roof
from inference_bench.simulate.step_time import StepPart
from inference_bench.units import format_count, format_si
from inference_bench.verify.result import VerifyResult

_LOG_RATIO: Final = 50
_RATES: Final = ("tokens_per_s", "low_tokens_per_s", "high_tokens_per_s")
_DASHED: Final = [5, 4]
_DOTTED: Final = [1.5, 3]
_DASH_LEGEND: Final[Spec] = {"symbolStrokeColor": LIGHT["muted"], "symbolType": "stroke", "symbolSize": 300}


def batch_curve_chart(result: VerifyResult, width_px: int = WIDE_PX) -> Spec | None:
    """Tokens a second over all sequences as the batch grows: measured, the ceiling dashed, the fitted formula dotted.

    Unit:  tokens/s over sequences
    """
    measured = [_measured_row(point) for point in result.points if point.measured.phase is Phase.DECODE]
    ceiling = [_row("ceiling", item.batch, item.context_tokens, item.tokens_per_s) for item in result.curve]
    fitted = _fitted_rows(result)
    lines = [*measured, *ceiling, *fitted]
    kinds = {"measured": [1, 0], "ceiling": _DASHED, "fitted": _DOTTED}
    shown = [kind for kind in kinds if any(row["kind"] == kind for row in lines)]
    if not measured or len({row["batch"] for row in lines}) < 2:
        return None
    contexts = [context_label(tokens) for tokens in sorted({row["context_tokens"] for row in lines})]
    frame, (colour, dash) = place_legends(
        Frame(width_px, 240 if is_narrow(width_px) else 300, left=52),
        nominal("context", contexts, series_colours(contexts)),
        nominal("kind", shown, [kinds[kind] for kind in shown], **_DASH_LEGEND),
    )
    shape = {**nominal("context", contexts, series_shapes(contexts)), "legend": colour["legend"]}
    bars = [row for row in measured if row["low_tokens_per_s"] is not None]
    low: Spec = {"field": "low_tokens_per_s", "type": "quantitative"}
    return chart(
        frame,
        f"Decode tokens a second over batch: {len(measured)} measured points, the ceiling dashed beside them"
        f"{', the fitted formula dotted' if fitted else ''}.",
        {
            "x": batch_axis(frame, (row["batch"] for row in lines), "batch (sequences decoding together)"),
            "y": vertical(frame, _tokens_axis(lines)),
        },
        [
            layer({"type": "line"}, lines, color=colour, strokeDash=dash),
            layer({"type": "rule", "strokeWidth": 2}, bars, color=colour, y=low, y2={"field": "high_tokens_per_s"}),
            layer({"type": "point", "filled": True, "size": 70}, measured, color=colour, shape=shape),
        ],
    )


def _row(kind: str, batch: int, context_tokens: int, tokens_per_s: float) -> Row:
    return {
        "kind": kind,
        "batch": batch,
        "context_tokens": context_tokens,
        "context": context_label(context_tokens),
        "tokens_per_s": tokens_per_s,
    }


def _fitted_rows(result: VerifyResult) -> list[Row]:
    """What the fitted formula says at the batches of the ceiling's curve, at the contexts that were measured; none without one."""
    if result.calibration is None:
        return []
    step_time, contexts = result.calibration.step_time, _contexts(result.points)
    return [
        _row("fitted", item.batch, item.context_tokens, item.batch / step_time.step_s(item.batch * [part]))
        for item in result.curve
        if (part := contexts.get(item.context_tokens)) is not None
    ]


def _contexts(points: Sequence[ComparedPoint]) -> dict[int, StepPart]:
    """A sequence that decodes, by the nominal context: at the mean of the contexts that were measured there."""
    measured: dict[int, list[int]] = {}
    for point in points:
        if point.measured.phase is Phase.DECODE:
            measured.setdefault(point.measured.nominal_context_tokens, []).append(point.measured.context_tokens)
    return {nominal: StepPart(round(sum(each) / len(each)), 1, True) for nominal, each in measured.items()}


def _measured_row(point: ComparedPoint) -> Row:
    """A decode point; its interval of seconds turned over into one of tokens a second."""
    measured, interval = point.measured, point.measured.interval
    row = _row("measured", measured.batch, measured.nominal_context_tokens, point.measured_tokens_per_s)
    return row | {
        "low_tokens_per_s": point.tokens_per_step / interval.high if interval else None,
        "high_tokens_per_s": point.tokens_per_step / interval.low if interval and interval.low > 0 else None,
    }


def _tokens_axis(rows: Sequence[Row]) -> Spec:
    rates = [row[key] for row in rows for key in _RATES if row.get(key) is not None]
    low, high = min(rates) / 1.5, max(rates) * 1.08
    if high / low > _LOG_RATIO:
        ticks, scale, kind = log_ticks(low, high, 6), log_scale(low, high), ", log scale"
    else:
        ticks, scale, kind = linear_ticks(high, 6), {"domain": [0, high]}, ""
    return axis("tokens_per_s", f"decode (tokens/s, whole batch{kind})", ticks, [plain_label(t) for t in ticks], scale)


def probe_chart(result: VerifyResult, width_px: int = WIDE_PX) -> Spec | None:
    """The rate of this machine's matrix products over batch, under the roof that the same probe found.

    Unit:  FLOP/s over the columns of the product
    """
    probe = result.probe
    if probe is None or not probe.rows:
        return None
    ceiling = Roof(probe.bandwidth_bytes_per_s, probe.peak_flops_per_s, probe.compute_format)
    rows = [_product_row(row, ceiling) for row in probe.rows]
    frame = Frame(width_px, 220 if is_narrow(width_px) else 260, left=52)
    lows = [row["low_flops_per_s"] for row in rows]
    highs = [value for row in rows for value in (row["high_flops_per_s"], row["roof_flops_per_s"])]
    low, high = min(lows) / 1.5, max(highs) * 1.8
    ticks = log_ticks(low, high, 6)
    labels = [format_si(tick, "", 1) for tick in ticks]
    roof_y: Spec = {"field": "roof_flops_per_s", "type": "quantitative"}
    low_y: Spec = {"field": "low_flops_per_s", "type": "quantitative"}
    ink = LIGHT["ink"]
    return chart(
        frame,
        _probe_words(probe),
        {
            "x": batch_axis(frame, (row["batch"] for row in rows), "columns of the product (batch)"),
            "y": vertical(frame, axis("flops_per_s", "product rate (FLOP/s)", ticks, labels, log_scale(low, high))),
        },
        [
            layer({"type": "line", "stroke": LIGHT["muted"], "strokeDash": _DASHED}, rows, y=roof_y),
            layer({"type": "line", "stroke": ink}, rows),
            layer({"type": "rule", "stroke": ink, "strokeWidth": 2}, rows, y=low_y, y2={"field": "high_flops_per_s"}),
            layer({"type": "point", "filled": True, "color": ink, "size": 60}, rows),
            text(_peak_labels(probe), align="right", baseline="bottom", dy=-8),
        ],
    )


def _product_row(row: ProductRow, ceiling: Roof) -> Row:
    return {
        "batch": row.batch,
        "intensity_flops_per_byte": row.intensity_flops_per_byte,
        "flops_per_s": row.flops_per_s,
        "low_flops_per_s": row.counted_flops / max(row.timing.values_s),
        "high_flops_per_s": row.counted_flops / min(row.timing.values_s),
        "roof_flops_per_s": ceiling.attainable_flops_per_s(row.intensity_flops_per_byte),
    }


def _peak_labels(probe: ProbeResult) -> list[Row]:
    label = f"{format_si(probe.peak_flops_per_s, 'FLOP/s')} {probe.compute_format}"
    return [{"label": label, "batch": probe.rows[-1].batch, "flops_per_s": probe.peak_flops_per_s}]


def _probe_words(probe: ProbeResult) -> str:
    return (
        f"Rate of matrix products over batch, up to {format_si(probe.peak_flops_per_s, 'FLOP/s')} at batch "
        f"{format_count(probe.peak_batch)}, under the roof of {format_si(probe.bandwidth_bytes_per_s, 'B/s')}."
    )
