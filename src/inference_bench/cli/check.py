"""`check`: what a server does with each part of a request, exercised and not assumed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import listed
from inference_bench.cli.main import INTERRUPTED, WORLD_FAILED
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.errors import RequestError
from inference_bench.operate.contract.catalog import group_of
from inference_bench.operate.contract.flow import Wish, check_contract
from inference_bench.operate.contract.rows import Contract, Need, groups_named, rows_needed
from inference_bench.report.check_report import check_html, check_json, check_text
from inference_bench.units import parse_seconds, parse_tokens


def run(options: argparse.Namespace) -> int:
    """Check and print; exit 1 when something that is needed is not there, 3 when the server went away before the end."""
    names, only = _listed(options.need, "needs"), _listed(options.only, "groups to ask")
    _require_asked(names, only)
    if options.report is not None:
        require_report_file(options.report)
    wish = Wish(
        model=options.model,
        only=groups_named(only) if only else (),
        is_quick=options.quick,
        timeout_s=parse_seconds(options.timeout, "time of a request"),
        budget_s=parse_seconds(options.budget, "time of the check"),
        context_tokens=None if options.context is None else parse_tokens(options.context),
    )
    progress = ProgressLine()
    try:
        found = check_contract(options.url, wish, api_key(options.api_key_env), progress)
    finally:
        progress.done()
    return _say(options, found, found.needs(names))


def _say(options: argparse.Namespace, found: Contract, needs: Sequence[Need]) -> int:
    if options.json:
        print_json(check_json(found, needs))
    else:
        print(check_text(found, needs))
    if options.report is not None:  # printed first: what was found is seen even where the page cannot be written
        made = provenance(options)
        write_report(options.report, lambda _: check_html(found, needs, made))
    say_where(options)
    if found.is_interrupted:
        return INTERRUPTED
    if found.lost is not None:
        return WORLD_FAILED
    return 0 if all(need.is_met for need in needs) else 1


def _require_asked(names: Sequence[str], only: Sequence[str]) -> None:
    """Everything that is needed is known, and among what is asked.

    Raises:  RequestError
    """
    groups = groups_named(only)
    for name in names:
        for row_id in rows_needed(name):
            if group_of(row_id) not in groups:
                raise RequestError(
                    f"{name} is needed, and its group {group_of(row_id)} is not among those that are asked; ask it, too"
                )


def _listed(given: Sequence[str] | None, what: str) -> list[str]:
    """Names that were given one by one or with commas, each once."""
    return list(dict.fromkeys(name for text in given or () for name in listed(text, what)))
