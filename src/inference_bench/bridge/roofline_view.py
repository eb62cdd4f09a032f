"""Where does each phase and operation sit under the roof: the second view of the page.

In:   Values
Out:  the answer as JSON, HTML, charts and a command line
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.accounting.weights import WeightCount
from inference_bench.bridge.command import command_line
from inference_bench.bridge.drawings import chart_slots, chart_specs, csv_rows
from inference_bench.bridge.fields import Field, FieldError, Group, Json, Values, View, Width, at, at_what_is_said
from inference_bench.bridge.subject import (
    COMPUTE_FIELD,
    MACHINE_GROUP,
    MODEL_GROUP,
    OWN_MODEL_GROUP,
    compute_format_of,
    compute_note,
    files_of,
    has_own_peak,
    machine_of,
    model_of,
)
from inference_bench.charts.batch_panels import batch_panels_chart
from inference_bench.charts.ceilings import ceiling_chart
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.fit import FitRequest, cache_format, fit, loaded_weights
from inference_bench.predict.phases import RooflineTable, roofline_table
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.roofline_html import roofline_html, roofline_status
from inference_bench.report.roofline_report import roofline_json
from inference_bench.report.roofline_tables import bounds_table, curve_table

_MAX_OTHERS: Final = 4
_LENGTHS: Final = Group(
    "What is asked of it",
    (
        Field("batch", "Sequences decoding together", "1", "", "--batch", "1", power=10),
        Field("context", "Context", "40000", "tokens a sequence attends, such as 32k (32768)", "--context", "4096"),
        Field("prompt", "Prompt", "", "tokens in prefill; empty: the context", "--prompt"),
        Field("others", "Beside these machines", "", "up to four names, with commas between", listed="machines"),
    ),
)
_MORE: Final = Group(
    "More",
    (
        Field("chunk", "Prefill chunk", "", "adds a step that decodes and reads so many prompt tokens", "--chunk"),
        COMPUTE_FIELD,
    ),
    is_folded=True,
)

_WRONG: Final = {
    "devices is": "devices",
    "divide over": "devices",
    "ranks": "devices",
    "batch is": "batch",
    "context is": "context",
    "prompt is": "prompt",
    "prefill chunk is": "chunk",
}


def _answer(values: Values, width: Width) -> Iterator[Json]:
    model, machine = model_of(values), machine_of(values)
    if machine is None:
        raise FieldError("on", "name a machine: without one there is no roof")
    with at("weights"):
        weights = loaded_weights(model, values.optional("weights"))
    result = _table(values, model, weights, machine, compute_format_of(values, machine))
    fitting = fit(model, machine, _asked(values)).max_sequences
    others = tuple(_table(values, model, weights, each, None) for each in _others(values))
    charts = {
        "roof": Drawing(
            "Under the roof",
            "Work a second over work per byte, both on log scales. Left of the ridge memory is the limit, right of it "
            "compute. Every point is a bound: no engine on this machine can be above it.",
            lambda width_px: ceiling_chart(result, width_px, others),
        ),
        "batch": Drawing(
            "Over the batch",
            "What all sequences get together and what each of them gets. The line that the first tends to is the limit "
            "that reading the caches sets; what the memory does not hold is shaded.",
            lambda width_px: batch_panels_chart(result, width_px, fitting),
        ),
    }
    curve = curve_table(result)
    html = roofline_html(
        result, drawings=chart_slots(charts), notes=(*compute_note(values, machine, weights), *_beside_note(others))
    )
    yield {
        "answer": roofline_json(result),
        "status": roofline_status(result),
        "html": html,
        "charts": chart_specs(charts, width),
        "tables": {"operations": csv_rows(bounds_table(result)), **({"batch": csv_rows(curve)} if curve else {})},
        "command": command_line(values, without=() if has_own_peak(values, machine) else ("compute",)),
        "files": files_of(values),
    }


def _table(
    values: Values, model: LoadedModel, weights: WeightCount, machine: HardwareSpec, compute: str | None
) -> RooflineTable:
    with at("kv"):
        fmt = cache_format(values.optional("kv"))
    context = values.tokens("context")
    with at_what_is_said(_WRONG):
        return roofline_table(
            model.spec,
            weights,
            fmt,
            machine,
            context_tokens=context,
            batch=values.count("batch"),
            prompt_tokens=values.optional_tokens("prompt") or context,
            compute_format=compute,
            devices=values.count("devices"),
            prefill_chunk=values.optional_tokens("chunk"),
        )


def _asked(values: Values) -> FitRequest:
    """The same question to `fit`, which knows how many sequences the memory holds."""
    return FitRequest(
        weights=values.optional("weights"),
        cache=values.optional("kv"),
        context_tokens=values.tokens("context"),
        devices=values.count("devices"),
    )


def _beside_note(others: Sequence[RooflineTable]) -> tuple[str, ...]:
    """That only the chart knows of the machines beside."""
    names = ", ".join(each.machine for each in others)
    return (f"drawn beside in the chart alone, not in the tables or the command: {names}",) if others else ()


def _others(values: Values) -> list[HardwareSpec]:
    """The machines beside the one that is asked about."""
    names = [name.strip() for name in values.text("others").split(",") if name.strip()]
    if len(names) > _MAX_OTHERS:
        raise FieldError("others", f"{len(names)} machines were named; at most {_MAX_OTHERS} can be read in one chart")
    with at("others"):
        return [hardware(name) for name in names]


ROOFLINE: Final = View(
    "roofline",
    "Roofline",
    "Where does each phase sit, and what would turn its limit?",
    (MODEL_GROUP, OWN_MODEL_GROUP, MACHINE_GROUP, _LENGTHS, _MORE),
    _answer,
    command="roofline",
)
