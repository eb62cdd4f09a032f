"""Whether requests arrived as asked, and what other tools would have printed of the run: as JSON and for a terminal.

In:   ArrivalProof, Recomputed
Out:  dicts ready for JSON, texts of at most 100 columns
Read next by: load_report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, Concurrency
from inference_bench.definitions import METRICS, Recomputed
from inference_bench.report.text import table, wrap
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number, format_seconds

_NAMES: Final = {
    "ttft": "TTFT",
    "ttfa": "first answer",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "E2E",
    "output_tokens_per_s": "output tokens/s",
    "goodput_requests_per_s": "goodput",
}


def proof_json(proof: ArrivalProof) -> dict[str, Any]:
    """The stable keys of `arrivals_proof`."""
    return dataclasses.asdict(proof)


def proof_text(proof: ArrivalProof) -> str:
    """The verdict and what it rests on, in a few lines."""
    lines = [f"arrivals {proof.verdict}: {proof.process}, {proof.num_requests} requests, {_rates(proof)}"]
    lines += (f"not as asked: {reason}" for reason in proof.reasons)
    if (late := proof.lateness) is not None:
        drift = "" if late.drift_fraction is None else f", drift {format_fraction(late.drift_fraction)}"
        times = ", ".join(
            f"{name} {format_seconds(value)}"
            for name, value in (("p50", late.p50_s), ("p99", late.p99_s), ("most", late.max_s))
        )
        lines.append(f"sent after their plan: {times}{drift}; {_concurrency_text(proof.concurrency)}")
    fits = (("plan", proof.plan_fit), ("sends", proof.send_fit))
    lines += (
        f"{which} against the process: Kolmogorov-Smirnov p {format_number(fit.ks, 2)}, rate p {format_number(fit.rate, 2)}, "
        f"index of dispersion {format_number(fit.dispersion_index)} (1 when kept; p {format_number(fit.dispersion, 2)}), "
        f"repeats p {format_number(fit.repeats, 2)}"
        for which, fit in fits
        if fit is not None
    )
    return "\n".join(wrap(line) for line in (*lines, *proof.notes))


def _rates(proof: ArrivalProof) -> str:
    realised = f"{format_number(proof.realised_rate)} requests/s sent"
    return realised if proof.asked_rate is None else f"{realised} of {format_number(proof.asked_rate)} asked for"


def _concurrency_text(concurrency: Concurrency | None) -> str:
    if concurrency is None:
        return "none in flight"
    return f"in flight {format_number(concurrency.mean)} on average, {concurrency.peak} at most"


def definitions_json(found: Sequence[Recomputed]) -> dict[str, dict[str, dict[str, Any]]]:
    """The stable keys of `definitions`: by tool and metric."""
    tools: dict[str, dict[str, dict[str, Any]]] = {}
    for one in found:
        tools.setdefault(one.rule.tool, {})[one.rule.metric] = {
            "word": one.rule.word or None,
            "formula": one.rule.formula or None,
            "differs": one.rule.reason or None,
            "value": one.value,
            "mean_s": one.mean_s,
            "p50_s": one.p50_s,
            "p99_s": one.p99_s,
            "count": one.count,
            "missing": one.missing or None,
        }
    return tools


def definitions_text(found: Sequence[Recomputed]) -> str:
    """A table a metric: each tool's word and figures, with the reason that they differ below."""
    blocks = [_metric_text(_NAMES[metric], [one for one in found if one.rule.metric == metric]) for metric in METRICS]
    letters = (
        "p planned send, s actual send, f first chunk, l last chunk, a and z those of the answer without reasoning, e end of the "
        "reply; n tokens, k in the first chunk"
    )
    return "\n\n".join(["this run as other tools define it", wrap(letters), *blocks])


def _metric_text(name: str, found: Sequence[Recomputed]) -> str:
    is_time = any(one.rule.of for one in found)
    headers = ("mean", "p50", "p99") if is_time else ("value",)
    rows = [(one.rule.tool, one.rule.word or NOT_AVAILABLE, one.rule.formula, *_cells(one, is_time)) for one in found]
    tools: dict[str, list[str]] = {}
    for one in found:
        for reason in filter(None, (one.missing or one.rule.reason).split("; ")):
            tools.setdefault(reason, []).append(one.rule.tool)
    reasons = [wrap(f"{reason}: {', '.join(named)}", "  ") for reason, named in tools.items()]
    return "\n".join([table((name, "its word", "formula", *headers), rows, "lll" + "r" * len(headers)), *reasons])


def _cells(one: Recomputed, is_time: bool) -> tuple[str, ...]:
    if not is_time:
        return (format_number(one.value),)
    return tuple(format_seconds(time_s) for time_s in (one.mean_s, one.p50_s, one.p99_s))
