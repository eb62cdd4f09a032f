"""`capacity`: how many requests a second a server takes within latency objectives."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.cli.default_lengths import with_lengths_that_fit
from inference_bench.cli.given import choice, number, refuse
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.cli.server_choice import fleet_from, say_that_it_compiles, served_from
from inference_bench.cli.server_options import PRIMARY_SCHEDULER
from inference_bench.cli.workload_options import workload_from
from inference_bench.errors import RequestError
from inference_bench.files import write_whole
from inference_bench.simulate.capacity import (
    Capacity,
    Limits,
    SearchSettings,
    find_capacity,
)
from inference_bench.simulate.replay import ReplayReport, compare_replay
from inference_bench.simulate.run import Engine
from inference_bench.simulate.served import Served
from inference_bench.simulate.settings import BudgetRule
from inference_bench.units import parse_count, parse_seconds
from inference_bench.workload import OpenLoop, Poisson, Workload, with_arrivals

_DRAWN_AT: Final = "1"  # requests a second; every rate that is looked at scales the times
_SEEDS: Final = "4"
_STEPS: Final = "10"
_LONGER: Final = "10"
# of a server whose rules only the readable loop knows
_SHORT: Final = {"requests": "100", "seeds": "3", "steps": "6", "longer": "4"}
_NOT_SCALED: Final = (
    "rates are changed by scaling times: pauses of conversations and durations of bursts are scaled with them"
)


def run(options: argparse.Namespace) -> int:
    """Search and print; exit 1 when no rate keeps the objectives."""
    refuse(options, ("rate",), "the rate is what is looked for")
    if options.chart is not None:
        from inference_bench.cli.picture import require_chart_file  # late: charts load much

        require_chart_file(options.chart)
    if options.report is not None:
        require_report_file(options.report, (options.chart,))
    options, sized = with_lengths_that_fit(options, PRIMARY_SCHEDULER)
    workload_of, workload = _workloads(options)
    served = served_from(options, workload, PRIMARY_SCHEDULER)
    options, shortened = _shortened(options, served)
    if shortened:
        workload_of, workload = _workloads(options)
    workload = replace(workload, notes=(*workload.notes, *sized, *shortened))
    if len(served.contenders) > 1:
        names = ", ".join(each.name for each in served.contenders)
        raise RequestError(f"the capacity of one scheduler is looked for at a time; {names} are named")
    progress = ProgressLine()
    if _engine(options) is Engine.COMPILED:
        say_that_it_compiles(progress)
    try:
        if options.replay:
            return _replay(options, workload, served, progress)
        found = _search(options, workload_of, len(workload), served, progress)
    finally:
        progress.done()
    spec = None
    if options.chart is not None:
        from inference_bench.charts.simulation import capacity_chart
        from inference_bench.cli.picture import write_chart

        spec = capacity_chart(found)
        if spec is not None:
            write_chart(spec, options.chart)
    _write_report(options, found, served, workload)
    _print(options, found, served, workload)
    say_where(options)
    if options.chart is not None and spec is None:
        print("inference-bench: no rate keeps the objectives, so there is nothing to draw", file=sys.stderr)
    return 0 if found.nominal_rate is not None else 1


def _workloads(options: argparse.Namespace) -> tuple[Callable[[int, int], Workload], Workload]:
    """How workloads are made from a count and a seed, and the first one."""
    rate = None if options.trace is not None and options.arrivals is None else _DRAWN_AT

    def workload_of(count: int | None, seed: int) -> Workload:
        changed = {"rate": rate, "seed": seed, **({} if count is None else {"requests": str(count)})}
        return workload_from(argparse.Namespace(**{**vars(options), **changed}))

    first = workload_of(None, options.seed)
    if not isinstance(first.arrival, OpenLoop) or first.arrival.realised_rate is None:
        raise RequestError(
            "the requests have no times, or all the same: there is no rate to scale; name arrivals for them"
        )
    return workload_of, first


def _shortened(options: argparse.Namespace, served: Served) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """A smaller search for a profile's server whose rules only the readable loop knows, unless its size is stated."""
    rules = {each.setup.scheduler.budget_rule for each in served.contenders}
    sized = [name for name in _SHORT if getattr(options, name) is not None]
    if options.profile is None or options.trace is not None or sized or BudgetRule.EQUAL_BATCHES not in rules:
        return options, ()
    size = ", ".join(f"{value} {_SIZES[name]}" for name, value in _SHORT.items())
    said = f"search: {size}; a server that cuts batches equally is simulated by the readable loop, which takes its time"
    return argparse.Namespace(**{**vars(options), **_SHORT}), (said,)


_SIZES: Final = {
    "requests": "requests",
    "seeds": "further draws",
    "steps": "halvings",
    "longer": "times the requests once more",
}


def _search(
    options: argparse.Namespace,
    workload_of: Callable[[int, int], Workload],
    count: int,
    served: Served,
    progress: ProgressLine,
) -> Capacity:
    fleet = fleet_from(options)
    return find_capacity(
        workload_of,
        served.contenders[0].setup,
        served.step_time,
        _limits(options),
        _settings(options),
        count=count,
        seed=options.seed,
        usd_per_hour=served.priced_for(1 if fleet is None else fleet.num_servers),
        engine=_engine(options),
        say=progress,
        fleet=fleet,
    )


def _engine(options: argparse.Namespace) -> Engine:
    return choice(Engine, options.simulator, "simulator")


def _limits(options: argparse.Namespace) -> Limits:
    names = ("ttft_p99", "itl_p99", "tpot_p99", "e2e_p99")
    given = {name: getattr(options, name) for name in names}
    return Limits(
        **{
            f"{name}_s": None if text is None else parse_seconds(text, f"objective for {name.replace('_', ' ')}")
            for name, text in given.items()
        }
    )


def _settings(options: argparse.Namespace) -> SearchSettings:
    """A replay has one draw; others are repeated with further seeds."""
    is_replay = options.trace is not None and options.arrivals is None
    seeds = options.seeds if options.seeds is not None else "0" if is_replay else _SEEDS
    return SearchSettings(
        low=None if options.low is None else number(options.low, "lowest rate"),
        high=None if options.high is None else number(options.high, "highest rate"),
        steps=parse_count(_STEPS if options.steps is None else options.steps, "halvings"),
        seeds=parse_count(seeds, "seeds"),
        longer=parse_count(_LONGER if options.longer is None else options.longer, "times the requests"),
    )


def _notes(options: argparse.Namespace, workload: Workload) -> tuple[str, ...]:
    scales = options.turns is not None or (options.arrivals or "").startswith("on-off")
    return (*workload.notes, _NOT_SCALED) if scales else workload.notes


def _write_report(options: argparse.Namespace, found: Capacity, served: Served, workload: Workload) -> None:
    if options.report is None:
        return
    from inference_bench.report.capacity_html import capacity_html

    make = partial(
        capacity_html,
        found,
        served,
        workload,
        provenance(options),
        notes=_notes(options, workload),
        fleet=fleet_from(options),
        seed=options.seed,
    )
    write_report(options.report, make)


def _print(options: argparse.Namespace, found: Capacity, served: Served, workload: Workload) -> None:
    notes, fleet = _notes(options, workload), fleet_from(options)
    if options.json:
        from inference_bench.report.capacity_json import capacity_json

        print_json(capacity_json(found, served, workload, notes, fleet))
        return
    from inference_bench.report.capacity_report import capacity_text

    print(capacity_text(found, served, workload, notes, fleet))


# --- a trace beside random arrivals -------------------------------------------------------------------------------


def _replay(options: argparse.Namespace, workload: Workload, served: Served, progress: ProgressLine) -> int:
    """Both forms of the trace; exit 1 when objectives were given and neither form keeps them at any rate."""
    refuse(options, ("chart",), "a replay is two rows, and there is nothing to draw")
    if fleet_from(options) is not None:
        raise RequestError("a replay is held beside random arrivals on one server; leave the others out")
    if options.trace is None or options.arrivals is not None:
        raise RequestError("a replay holds a trace's own times beside random ones; name a trace, and no arrivals")
    progress("the trace, and random arrivals")
    found = compare_replay(
        workload, served.contenders[0].setup, served.step_time, seed=options.seed, engine=_engine(options)
    )
    capacities = _both_capacities(options, workload, served, found, progress)
    progress.done()
    if options.report is not None:
        from inference_bench.report.capacity_html import replay_html

        page = replay_html(
            found, capacities, served, workload, provenance(options), notes=workload.notes, seed=options.seed
        )
        write_whole(Path(options.report), page)
    _print_replay(options, found, capacities, served, workload)
    say_where(options)
    return 0 if not capacities or any(each.nominal_rate is not None for each in capacities) else 1


def _both_capacities(
    options: argparse.Namespace, workload: Workload, served: Served, found: ReplayReport, progress: ProgressLine
) -> tuple[Capacity, ...]:
    if all(getattr(options, name) is None for name in ("ttft_p99", "itl_p99", "tpot_p99", "e2e_p99")):
        return ()
    random = with_arrivals(workload, Poisson(found.rate), options.seed)
    return tuple(
        _search(options, partial(_always, form), len(workload), served, progress) for form in (workload, random)
    )


def _always(workload: Workload, _count: int, _seed: int) -> Workload:
    """A trace, of which there is one draw."""
    return workload


def _print_replay(
    options: argparse.Namespace,
    found: ReplayReport,
    capacities: tuple[Capacity, ...],
    served: Served,
    workload: Workload,
) -> None:
    if options.json:
        from inference_bench.report.capacity_json import replay_json

        print_json(replay_json(found, capacities, served, workload, workload.notes))
        return
    from inference_bench.report.capacity_report import replay_text

    print(replay_text(found, capacities, served, workload, workload.notes))
