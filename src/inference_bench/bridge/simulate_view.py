"""What would a scheduler do, policy beside policy, as the rate grows: the third view of the page.

In:   Values
Out:  how far the runs are, then the answer as JSON, HTML, charts and a command line
Read next by: bridge.

The rates may be left to be found: then all requests come at once to the first policy that requests join at any step, and how
many it answers a second says where the rates lie that tell policies apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from inference_bench.bridge.command import command_line
from inference_bench.bridge.drawings import chart_slots, chart_specs, csv_rows
from inference_bench.bridge.fields import FieldError, Json, Values, View, Width, at
from inference_bench.bridge.simulate_charts import Shown, drawings_of, shown_of
from inference_bench.bridge.simulate_fields import GROUPS, reference_of
from inference_bench.bridge.simulate_server import notes_of, served_of
from inference_bench.bridge.simulate_workload import (
    NUM_FOUND_RATES,
    Asked,
    objective_of,
    rates_around,
    rates_of,
    refuse_too_much,
)
from inference_bench.bridge.subject import files_of
from inference_bench.report.report_html import body_html
from inference_bench.report.simulate_html import study_body, study_status
from inference_bench.report.simulate_json import study_json
from inference_bench.report.simulate_tables import rate_words, runs_table
from inference_bench.simulate.study import Draw, Study, StudyReport, StudyRow, run_study

_LOOKING: Final = "all requests at once, to see which rates tell policies apart"
_OF_A_MODEL: Final = ("weights", "kv", "devices", "engine", "mfu", "bandwidth_share", "overhead")


def _answer(values: Values, width: Width) -> Iterator[Json]:
    asked, rates = Asked.read(values), rates_of(values)
    at_once = _study(values, asked, (None,))
    schedulers = [each.setup.scheduler for each in at_once.served.contenders]
    refuse_too_much(asked.at_rate(None), schedulers, len(rates) or NUM_FOUND_RATES)
    if not rates:
        yield {"progress": 0.0, "said": _LOOKING}
        values = _with_rates(values, at_once)
    study = _study(values, asked, rates_of(values))
    shown = shown_of(values, study)
    rows: list[StudyRow] = []
    for single in _runs(study):
        yield {"progress": len(rows) / study.num_runs, "said": _said(single, len(rows) + 1, study.num_runs)}
        rows += run_study(single, 1, keeps_outcome=single.draws[0].rate == shown.rate).rows
    report = StudyReport(study, tuple(rows))
    with at(_too_large(values)):
        report.require_any()
    yield _whole(values, report, shown, width)


def _study(values: Values, asked: Asked, rates: Sequence[float | None]) -> Study:
    """What is to be run: every policy at every rate; None is all requests at once."""
    objective, workloads = objective_of(values), [asked.at_rate(rate) for rate in rates]
    draws = (Draw(rate, asked.seed, workload) for rate, workload in zip(rates, workloads, strict=True))
    return Study(served_of(values, workloads[0]), tuple(draws), objective)


def _with_rates(values: Values, at_once: Study) -> Values:
    """The same with rates around what one policy answers a second where all requests come at once.

    Raises:  FieldError where it cannot run
    """
    runs = sorted(_runs(at_once), key=lambda run: run.served.contenders[0].setup.scheduler.is_batched)
    (first,) = run_study(runs[0], 1).rows
    if first.row is None:
        raise FieldError(_too_large(values), f"{first.name} cannot run: {first.result.error}")
    return replace(values, texts={**values.texts, "rates": rates_around(first.row)})


def _runs(study: Study) -> Iterator[Study]:
    """Every run of a study as a study of its own, in the order in which they are shown."""
    for contender in study.served.contenders:
        for draw in study.draws:
            yield replace(study, served=replace(study.served, contenders=(contender,)), draws=(draw,))


def _said(single: Study, number: int, of: int) -> str:
    (contender,), (draw,) = single.served.contenders, single.draws
    return f"run {number} of {of}: {contender.name} at {rate_words(draw.rate)} requests/s"


def _too_large(values: Values) -> str:
    """The field that is to be changed where no request fits."""
    return "kv_memory" if values.text("kv_memory") else "prompt_lengths"


def _whole(values: Values, report: StudyReport, shown: Shown, width: Width) -> Json:
    charts, notes, runs = drawings_of(report, shown), notes_of(values, report.study.served), runs_table(report)
    return {
        "answer": study_json(report, notes),
        "status": study_status(report),
        "html": body_html(study_body(report, notes), chart_slots(charts)),
        "charts": chart_specs(charts, width),
        "tables": {} if runs is None else {"runs": csv_rows(runs)},
        "command": _command(values),
        "files": {} if reference_of(values) else files_of(values),
    }


def _command(values: Values) -> str:
    """The same question for a terminal; a reference profile has a model and a machine of its own."""
    reference = reference_of(values)
    policies = ",".join(name.strip() for name in values.text("policies").split(",") if name.strip())
    said = replace(values, texts={**values.texts, "policies": policies})
    if reference is None:
        return command_line(said, names_model="--model")
    return command_line(said, "--profile", reference, without=_OF_A_MODEL, has_subject=False)


SIMULATE: Final = View(
    "simulate",
    "Scheduler",
    "What would a scheduler do as the rate grows?",
    GROUPS,
    _answer,
    command="simulate",
    is_live=False,
    run_label="Simulate",
)
