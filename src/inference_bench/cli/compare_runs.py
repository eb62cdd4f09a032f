"""`compare RUN RUN`: what changed between two runs of the same work; and whether the second may take over."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.charts.canary import canary_chart
from inference_bench.charts.two_runs import two_runs_chart
from inference_bench.cli.given import refuse
from inference_bench.cli.objective_options import objective_from
from inference_bench.cli.output import print_json
from inference_bench.cli.picture import require_chart_file, write_chart
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.compare_runs.decide import Verdict, decide
from inference_bench.compare_runs.flow import compare_runs
from inference_bench.compare_runs.rules import RuleSet, read_rules
from inference_bench.errors import RequestError
from inference_bench.report.compare_runs_report import compare_runs_html, compare_runs_json, compare_runs_text
from inference_bench.report.decision_report import decision_html, decision_json, decision_text
from inference_bench.units import parse_count

NOT_PROMOTED: Final = 1
_OF_A_VERDICT: Final = ("rules", "min_requests", "looks", "part", "limit", "max_ttft", "max_gap")


def run(options: argparse.Namespace) -> int:
    """Compare, print, and write what was asked for; of a verdict, exit 1 unless it is to promote."""
    if options.chart is not None:
        require_chart_file(options.chart)
    if options.report is not None:
        require_report_file(options.report, (options.chart,))
    if options.decide or options.baseline or options.canary:
        return _decide(options)
    refuse(options, _OF_A_VERDICT, "they are about a verdict, and none is asked for; add --decide")
    result = compare_runs(*_two(options.runs))
    if options.chart is not None:
        write_chart(two_runs_chart(result), options.chart, "the runs have no measured step in common")
    if options.report is not None:
        write_report(options.report, partial(compare_runs_html, result, provenance(options)))
    if options.json:
        print_json(compare_runs_json(result))
    else:
        print(compare_runs_text(result))
    say_where(options)
    return 0


def _two(runs: list[str]) -> tuple[Path, Path]:
    if len(runs) != 2:
        raise RequestError(
            f"{len(runs)} runs are given; give two, or name several of each side with --baseline RUN ... --canary RUN ..."
        )
    return Path(runs[0]), Path(runs[1])


def _decide(options: argparse.Namespace) -> int:
    baselines, canaries = _sides(options)
    found = decide(baselines, canaries, _rules(options), objective_from(options), options.part)
    if options.chart is not None:
        write_chart(canary_chart(found), options.chart, "no rule has an interval")
    if options.report is not None:
        write_report(options.report, partial(decision_html, found, provenance(options)))
    if options.json:
        print_json(decision_json(found))
    else:
        print(decision_text(found))
    say_where(options)
    return 0 if found.verdict is Verdict.PROMOTE else NOT_PROMOTED


def _sides(options: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    if options.baseline is None and options.canary is None:
        first, second = _two(options.runs)
        return [first], [second]
    if options.runs or options.baseline is None or options.canary is None:
        raise RequestError("name the runs of both sides: --baseline RUN ... --canary RUN ..., and none beside them")
    return list(map(Path, options.baseline)), list(map(Path, options.canary))


def _rules(options: argparse.Namespace) -> RuleSet:
    rules = RuleSet() if options.rules is None else read_rules(Path(options.rules))
    rules = rules.with_limits(options.limit or ())
    if options.min_requests is not None:
        rules = replace(rules, least_requests=parse_count(options.min_requests, "fewest requests"))
    if options.looks is not None:
        rules = replace(rules, looks=parse_count(options.looks, "number of looks"))
    return rules
