"""A ledger as JSON: raw SI numbers and USD under stable keys, null where there is no value.

In:   Ledger
Out:  a dict that `json.dumps` takes with allow_nan=False
Leaves out: requests one by one, which an export has
Read next by: ledger_report.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from inference_bench.operate.ledger.flow import Group, Ledger, Source
from inference_bench.operate.ledger.totals import Sums
from inference_bench.origin import Origin
from inference_bench.records import RequestStatus
from inference_bench.report.ledger_notes import ledger_notes
from inference_bench.report.ledger_tables import RULES, reading

SCHEMA: Final = "inference-bench/ledger/1"
Json = dict[str, Any]


def ledger_json(ledger: Ledger, export: Path | None = None) -> Json:
    """The stable keys of `ledger --json`."""
    paid, money = ledger.paid, ledger.money
    return {
        "schema": SCHEMA,
        "paid": {
            **asdict(paid),
            "device_hours": paid.device_hours,
            "busy_fraction": paid.busy_fraction,
            "usd": None if money is None else money.usd,
            "origin": {"hours": Origin.GIVEN if paid.are_hours_given else Origin.MEASURED, "busy_s": Origin.MEASURED},
        },
        **sums_json(ledger.sums),
        "cost": None if money is None else {name: value for name, value in asdict(money).items() if name != "usd"},
        "by": {str(by): [_group(group) for group in groups] for by, groups in ledger.groups.items()},
        "sources": [_source(source) for source in ledger.sources],
        "repeated_request_ids": ledger.num_repeated_ids,
        "repeated_request_ids_is_estimate": ledger.is_repeated_estimate,
        "same_places": ledger.num_same_places,
        "export": None if export is None else str(export),
        "rules": list(RULES),
        "reading": list(reading(ledger)),
        "notes": list(ledger_notes(ledger)),
    }


def sums_json(sums: Sums) -> Json:
    """Work and success apart, in all and of each group."""
    return {
        "requests": {
            "sent": sums.num_requests,
            **{str(status): sums.by_status.get(status, 0) for status in RequestStatus},
            "warm_up": sums.num_warm_up,
            "at_length_limit": sums.num_at_length,
            "by_fallback": sums.num_fallback,
        },
        "attempts": {
            "sent": sums.num_attempts,
            "computed": sums.num_computed_attempts,
            "refused": sums.num_refused_attempts,
            "failed": sums.num_failed_attempts,
            "hedges": sums.num_hedges,
            "uncounted": sums.num_uncounted,
            "without_input_count": sums.num_without_input,
            "in_flight_s": sums.in_flight_s,
        },
        "answers": {
            "input_tokens": sums.input_tokens,
            "cached_input_tokens": sums.cached_input_tokens,
            "output_tokens": sums.output_tokens,
            "reasoning_tokens": sums.reasoning_tokens,
            "lower_bounds": sums.num_lower_bounds,
            "num_answers": sums.num_answers,
            "num_without_cached": sums.num_without_cached,
            "num_without_reasoning": sums.num_without_reasoning,
        },
        "computed": {"input_tokens": sums.computed_input_tokens, "output_tokens": sums.computed_output_tokens},
        "completed": {
            "requests": sums.num_completed,
            "input_tokens": sums.completed_input_tokens,
            "output_tokens": sums.completed_output_tokens,
        },
        "success": {
            "requests": sums.num_useful,
            "judged_requests": sums.num_judged,
            "input_tokens": sums.useful_input_tokens,
            "output_tokens": sums.useful_output_tokens,
        },
        "waste": {
            "input_fraction": sums.wasted_input_fraction,
            "output_fraction": sums.wasted_output_fraction,
            "speculative_output_tokens": None,
            "reasons": [{**asdict(each), "waste": str(each.waste)} for each in sums.wastes()],
        },
    }


def _group(group: Group) -> Json:
    return {
        "name": group.name,
        **sums_json(group.sums),
        "usd": group.usd,
        "usd_per_successful_request": group.usd_per_successful_request,
    }


def _source(source: Source) -> Json:
    return {
        "path": str(source.path),
        "kind": "recorder" if source.facts is None else "run",
        "requests": source.num_requests,
        "span_s": source.span_s,
        "files": None if source.trouble is None else asdict(source.trouble),
        "run": None if source.facts is None else asdict(source.facts),
    }
