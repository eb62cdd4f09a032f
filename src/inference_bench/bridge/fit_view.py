"""Does it fit, how fast could it be, and what would the usual formula have said: the first view of the page.

In:   Values
Out:  the answer as JSON, HTML, charts and a command line; twice where nothing fits, the second time with what would
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.bridge.command import command_line
from inference_bench.bridge.drawings import chart_slots, chart_specs, csv_rows
from inference_bench.bridge.fields import Field, Group, Json, Values, View, Width, at, at_what_is_said
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
    served_as,
)
from inference_bench.charts.context import context_chart
from inference_bench.charts.memory import memory_chart
from inference_bench.predict.context_curve import context_curve
from inference_bench.predict.engine_choice import choose_engine
from inference_bench.predict.engine_command import engine_commands
from inference_bench.predict.fit import FitAnswer, FitRequest, cache_format, fit
from inference_bench.predict.placement import Split
from inference_bench.predict.suggest import suggest
from inference_bench.report.fit_html import fit_html, fit_status
from inference_bench.report.fit_json import fit_json
from inference_bench.report.fit_tables import memory_table
from inference_bench.report.html_pieces import Drawing

if TYPE_CHECKING:
    from inference_bench.facts.hardware import HardwareSpec
    from inference_bench.facts.models import LoadedModel
    from inference_bench.predict.suggest import Suggestion

ENGINES: Final = (
    ("none", "none: logical counts"),
    ("vllm", "vLLM"),
    ("llama.cpp", "llama.cpp"),
    ("sglang", "SGLang (speeds alone)"),
    ("tensorrt-llm", "TensorRT-LLM (speeds alone)"),
)
LENGTHS: Final = Group(
    "What is asked of it",
    (
        Field("context", "Context", "40000", "tokens a sequence, such as 32k (32768)", "--context"),
        Field("sequences", "Sequences at once", "1", "", "--sequences", "1", power=10),
        Field("engine", "Engine", "none", option="--engine", implied="none", options=ENGINES),
    ),
)
MORE: Final = Group(
    "More",
    (
        Field("overhead", "Runtime overhead", "2.5GB", "such as 2.5GB or 1GiB, on each device", "--overhead"),
        Field(
            "split",
            "Devices share it by",
            "tensor",
            option="--split",
            implied="tensor",
            options=(("tensor", "tensor parallelism"), ("pipeline", "pipeline")),
        ),
        COMPUTE_FIELD,
    ),
    is_folded=True,
)

_WRONG: Final = {
    "devices is": "devices",
    "divide over": "devices",
    "ranks": "devices",
    "sequences is": "sequences",
    "context is": "context",
    "and sequences": "sequences",
}


def _answer(values: Values, width: Width) -> Iterator[Json]:
    model, machine = model_of(values), machine_of(values)
    request = _request(values, machine)
    with at_what_is_said(_WRONG):
        answer = fit(model, machine, request)
    charts = {
        "memory": Drawing(
            "Memory",
            "What is in memory, to the byte: above by the layers' own rules, below by the usual formula, which charges "
            "every layer for the whole context.",
            lambda width_px: memory_chart(answer, width_px),
        ),
        "context": _context_drawing(model, machine, request, answer),
    }
    if answer.fits is not False or machine is None:
        yield _whole(values, answer, None, charts, width)
        return
    yield {**_whole(values, answer, None, charts, width), "is_partial": True}
    yield _whole(values, answer, suggest(model, machine, request), charts, width)


def _request(values: Values, machine: HardwareSpec | None) -> FitRequest:
    with at("weights"):
        weights = values.optional("weights")
        if weights is not None:
            weight_plan(weights)
    with at("kv"):
        cache_format(values.optional("kv"))
    engine = choose_engine(values.choice("engine"))
    return FitRequest(
        weights=weights,
        cache=values.optional("kv"),
        context_tokens=values.optional_tokens("context"),
        sequences=values.count("sequences"),
        engine=engine.allocation,
        overhead_bytes=values.optional_bytes("overhead"),
        compute_format=compute_format_of(values, machine),
        devices=values.count("devices"),
        split=Split(values.choice("split")),
        served_by=engine.family,
    )


def _context_drawing(
    model: LoadedModel, machine: HardwareSpec | None, request: FitRequest, answer: FitAnswer
) -> Drawing:
    return Drawing(
        "Over the context",
        "How the cache grows with the context, true and by the usual formula, and how the ceiling of decode falls with it.",
        lambda width_px: context_chart(context_curve(model, machine, request, answer.weights), width_px),
    )


def _whole(
    values: Values,
    answer: FitAnswer,
    suggestions: Sequence[Suggestion] | None,
    charts: dict[str, Drawing],
    width: Width,
) -> Json:
    shown = suggestions[0].answer if suggestions else answer
    commands = engine_commands(shown, served_as(values)) if answer.machine else ()
    html = fit_html(
        answer,
        commands,
        suggestions,
        drawings=chart_slots(charts),
        notes=compute_note(values, answer.machine, answer.weights),
    )
    without = () if has_own_peak(values, answer.machine) else ("compute",)
    more = ("--suggest",) if suggestions is not None else ()
    return {
        "answer": fit_json(answer, commands, suggestions or ()),
        "status": fit_status(answer),
        "html": html,
        "charts": chart_specs(charts, width),
        "tables": {"memory": csv_rows(memory_table(answer))},
        "command": command_line(values, *more, without=without),
        "files": files_of(values),
    }


FIT: Final = View(
    "fit",
    "Fit and speed",
    "Does it fit, and how fast could it be?",
    (MODEL_GROUP, OWN_MODEL_GROUP, MACHINE_GROUP, LENGTHS, MORE),
    _answer,
    command="fit",
    is_shown_first=True,
)
