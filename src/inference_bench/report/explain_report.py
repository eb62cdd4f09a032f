"""Where a published figure comes from, as JSON with stable keys and as text for a terminal.

In:   Explanation
Out:  a dict ready for JSON or a text of at most 100 columns
"""

from __future__ import annotations

from typing import Any

from inference_bench.predict.explain import Explanation, Rule
from inference_bench.report.text import table, wrap
from inference_bench.units import format_bytes, format_bytes_binary, format_count, format_fraction


def explain_json(found: Explanation) -> dict[str, Any]:
    """The stable keys of `explain --json`."""
    return {
        "schema": "inference-bench/explain/1",
        "model": found.model,
        "figure": found.figure,
        "figure_bytes": found.figure_bytes,
        "context_tokens": found.context_tokens,
        "sequences": found.sequences,
        "true_bytes": found.true_bytes,
        "verdict": found.verdict,
        "matches": [
            {
                "rule": match.rule.name,
                "says": match.rule.says,
                "bytes": match.rule.num_bytes,
                "relative_error": match.relative_error,
                "is_true": match.rule.is_true,
                "unit_note": match.unit_note,
            }
            for match in found.matches
        ],
        "rules": [{"rule": rule.name, "bytes": rule.num_bytes, "is_true": rule.is_true} for rule in found.rules],
        "origin": "counted",
    }


def explain_text(found: Explanation) -> str:
    """The verdict first, then what every known rule would have given."""
    matching = {match.rule.name for match in found.matches}
    rows = [
        (
            rule.name,
            format_count(rule.num_bytes),
            format_bytes(rule.num_bytes),
            format_bytes_binary(rule.num_bytes),
            _share(rule, found.true_bytes),
            "this one" if rule.name in matching else "",
        )
        for rule in found.rules
    ]
    where = f"{found.model}, {format_count(found.sequences)} sequence(s) of {format_count(found.context_tokens)} tokens"
    headers = ("rule", "bytes", "decimal", "binary", "of the true cache", "")
    return f"{wrap(found.verdict)}\n{wrap(where)}\n\n{table(headers, rows, 'lrrrrl')}"


def _share(rule: Rule, true_bytes: int) -> str:
    """How a rule's figure stands to the true cache; weights do not stand to it at all."""
    if not true_bytes or rule.name.startswith("weights") or "bits" in rule.name or "experts" in rule.name:
        return ""
    return format_fraction(rule.num_bytes / true_bytes)
