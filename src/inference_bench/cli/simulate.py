"""`simulate`: what a scheduler would do with a workload, on a server that need not exist."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_bench.cli.default_lengths import with_lengths_that_fit
from inference_bench.cli.given import choice
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.objective_options import objective_from
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.cli.server_choice import described_changes, fleet_from, say_that_it_compiles, served_from
from inference_bench.cli.server_options import DEFAULT_PROFILE, PRIMARY_SCHEDULER
from inference_bench.cli.workload_options import workload_from
from inference_bench.errors import RequestError
from inference_bench.facts.names import fold_name
from inference_bench.files import require_file_name, require_output_place, write_whole
from inference_bench.simulate.candidates import ALL
from inference_bench.simulate.estimate import work_ahead
from inference_bench.simulate.run import Engine
from inference_bench.simulate.study import Draw, Study, StudyReport, parse_rates, run_study
from inference_bench.simulate.sweep import Backend, CaseResult, WorkloadRecipe
from inference_bench.units import parse_count
from inference_bench.workload import Workload, says_its_rates

if TYPE_CHECKING:
    from inference_bench.charts import Spec

_RATE: Final = "0.25"  # of the default server: at which batches fall behind and the other policies just do not
_SMALL: Final = 20_000  # requests that may travel to another process as they are


def run(options: argparse.Namespace) -> int:
    """Simulate and print; exit 1 when nobody was answered, 2 when nothing could run, 130 when it was interrupted."""
    _require_names(options)
    if options.against is not None:
        require_file_name(options.against, "log")
        from inference_bench.cli.against import run_against

        return run_against(options)
    if options.calibrate or options.save_profile is not None:
        raise RequestError("efficiencies are fitted to a log; name one")
    fleet = fleet_from(options)
    options, sized = with_lengths_that_fit(options, ALL if fleet is None else PRIMARY_SCHEDULER)
    first, draws = _draws(options)
    study = _study(options, first, draws)
    report = _run(study, options)
    notes = (*first.notes, *sized, *described_changes(options, study.served))
    if report.is_complete:
        report.require_any()
    if report.num_ran:
        _write_files(report, options)
    if report.rows and options.report is not None:
        _write_report(report, notes, options)
    _print(report, notes, options.json)
    if report.rows:
        say_where(options)
    if report.is_complete:
        return 1 if report.nobody_was_answered else 0
    print(f"inference-bench: interrupted after {len(report.rows)} of {study.num_runs} runs", file=sys.stderr)
    return INTERRUPTED


def _require_names(options: argparse.Namespace) -> None:
    """The files that are to be written can be; asked before anything runs."""
    if options.chart is not None:
        from inference_bench.cli.picture import require_chart_file  # late: charts load much

        require_chart_file(options.chart)
    if options.report is not None:
        require_report_file(options.report, (options.chart, options.records, options.save_profile))
    if options.records is not None:
        require_output_place(options.records, "file of records")
    if options.save_profile is not None:
        require_output_place(options.save_profile, "file of the profile")


def _draws(options: argparse.Namespace) -> tuple[Workload, tuple[Draw, ...]]:
    """The first workload, and all of them: each rate with each seed."""
    is_default = options.model is None and fold_name(options.profile or DEFAULT_PROFILE) == fold_name(DEFAULT_PROFILE)
    is_open = options.rate is None and options.trace is None and options.concurrency is None
    if is_default and is_open and not says_its_rates(options.arrivals):
        options.rate = _RATE
    rates = (None,) if options.rate is None else parse_rates(options.rate)
    seeds = range(options.seed, options.seed + _num_seeds(options.seeds))
    first = workload_from(_drawn(options, rates[0], options.seed))
    return first, tuple(_each_draw(options, first, rates, seeds))


def _num_seeds(text: str) -> int:
    count = parse_count(text, "seeds")
    if not 1 <= count <= 1_000:
        raise RequestError(f"{count} seeds cannot be simulated; give 1 to 1000")
    return count


def _each_draw(
    options: argparse.Namespace, first: Workload, rates: tuple[float | None, ...], seeds: range
) -> Iterator[Draw]:
    is_large = len(first) > _SMALL
    for rate in rates:
        for seed in seeds:
            if (rate, seed) == (rates[0], options.seed):
                yield Draw(rate, seed, first)
                continue
            make = partial(workload_from, _drawn(options, rate, seed))
            yield Draw(rate, seed, WorkloadRecipe(make, len(first)) if is_large else make())


def _drawn(options: argparse.Namespace, rate: float | None, seed: int) -> argparse.Namespace:
    """The same options with one rate and seed."""
    return argparse.Namespace(**{**vars(options), "rate": None if rate is None else repr(rate), "seed": seed})


def _study(options: argparse.Namespace, first: Workload, draws: tuple[Draw, ...]) -> Study:
    fleet = fleet_from(options)
    served = served_from(options, first, ALL if fleet is None else PRIMARY_SCHEDULER)
    study = Study(served, draws, objective_from(options), engine_from(options), fleet)
    if options.records is None:
        return study
    if study.num_runs > 1:
        raise RequestError(
            f"records are of one run, and {study.num_runs} are asked for; name one policy, rate and seed"
        )
    return study.keeping_token_times()


def engine_from(options: argparse.Namespace) -> Engine:
    """Who runs the simulation."""
    return choice(Engine, options.simulator, "simulator")


def _run(study: Study, options: argparse.Namespace) -> StudyReport:
    progress, ended, shown = ProgressLine(), 0, ""
    if study.engine is Engine.COMPILED:
        say_that_it_compiles(progress)

    def going(done: int, of: int) -> None:
        nonlocal shown
        text = f"run {ended + 1} of {study.num_runs}: {done / of:.0%} of its requests"
        if text != shown:
            progress(text)
            shown = text

    def said(result: CaseResult) -> None:
        nonlocal ended
        ended += 1
        progress(f"{ended} of {study.num_runs} runs: {result.case.label}")

    progress(_ahead(study))
    workers = None if options.workers is None else parse_count(options.workers, "workers")
    draws_it = options.chart is not None or options.report is not None
    keeps = options.records is not None or (draws_it and len(study.draws) == 1)
    try:
        backend = choice(Backend, options.backend, "backend")
        return run_study(study, workers, said, keeps_outcome=keeps, backend=backend, progress=going)
    finally:
        progress.done()


def _ahead(study: Study) -> str:
    """How much there is to do, of the first scheduler and draw as for all."""
    workload, runs = study.draws[0].workload, f"{study.num_runs} run{'' if study.num_runs == 1 else 's'}"
    if isinstance(workload, WorkloadRecipe):
        return f"{runs} of {len(workload):,} requests"
    ahead = work_ahead(workload, study.served.contenders[0].setup.scheduler)
    return (
        f"{runs} of {ahead.num_requests:,} requests, {ahead.output_tokens:,} tokens, {ahead.fewest_steps:,} to "
        f"{ahead.most_steps:,} steps"
    )


def _write_files(report: StudyReport, options: argparse.Namespace) -> None:
    """What goes to files, before anything is printed: a file that cannot be written is an error alone."""
    if options.chart is not None:
        from inference_bench.cli.picture import write_chart

        write_chart(_chart(report), options.chart, "too little ran")
    outcome = report.rows[0].result.outcome
    if options.records is not None and outcome is not None:
        from inference_bench.measure.store import record_to_json
        from inference_bench.simulate.summary import records_of

        write_whole(Path(options.records), "".join(f"{record_to_json(record)}\n" for record in records_of(outcome)))


def _write_report(report: StudyReport, notes: tuple[str, ...], options: argparse.Namespace) -> None:
    from inference_bench.report.simulate_html import study_html

    write_report(options.report, partial(study_html, report, provenance(options), notes=notes))


def _chart(report: StudyReport) -> Spec | None:
    """One run over time; what users of several schedulers waited; or latency over the rate."""
    results = [row.result for row in report.rows if row.row is not None]
    if len(report.study.draws) > 1:
        from inference_bench.charts.simulation import rate_chart

        return rate_chart(results)
    from inference_bench.charts.simulation_runs import latency_cdf_chart, timeline_chart

    kept = {result.case.label: result.outcome for result in results if result.outcome is not None}
    if len(kept) > 1:
        return latency_cdf_chart(kept)
    (outcome,) = kept.values()
    fleet = report.study.fleet
    return timeline_chart(outcome, results[0].case.setup, num_servers=1 if fleet is None else fleet.num_servers)


def _print(report: StudyReport, notes: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        from inference_bench.report.simulate_json import study_json

        print_json(study_json(report, notes))
        return
    from inference_bench.report.simulate_report import study_text

    print(study_text(report, notes))
