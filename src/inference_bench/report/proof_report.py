"""Whether requests arrived as asked, and what other tools would have printed of the run: as JSON and for a terminal.

In:   ArrivalProof, Recomputed
Out:  dicts ready for JSON, texts of at most 100 columns
Read next by: load_report, sweep_report, saved_load, load_html_definitions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

from inference_bench.arrival_proof import ArrivalProof, Concurrency, Verdict
from inference_bench.arrival_proof.proof import FitTests
from inference_bench.definitions import METRICS, Recomputed
from inference_bench.definitions.rules import OURS
from inference_bench.report.text import table, wrap
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number, format_seconds

VERDICTS: Final = {
    Verdict.KEPT: "requests arrived as asked",
    Verdict.BROKEN: "requests did not arrive as asked",
    Verdict.NOT_REACHED: "fewer were in flight than asked",
    Verdict.UNDECIDED: "whether requests arrived as asked is not decided",
}
DEFINITIONS_TITLE: Final = "this run as other tools define it"
LETTERS: Final = (
    "p planned send, s actual send, f first chunk, l last chunk, a and z those of the answer without reasoning, e end of the "
    "reply; n tokens, k in the first chunk"
)
_SAME: Final = 0.001  # of a figure: tools that differ by less agree
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


def proof_text(proof: ArrivalProof, with_reasons: bool = True) -> str:
    """The verdict, why (unless that is said elsewhere), and what it rests on, in a few lines."""
    lines = [f"{VERDICTS[proof.verdict]}: {proof.process}, {_requests(proof.num_requests)}, {_rates(proof)}"]
    lines += (f"not as asked: {reason}" for reason in proof.reasons if with_reasons)
    if (late := proof.lateness) is not None:
        drift = "" if late.drift_fraction is None else f", drift {format_fraction(late.drift_fraction)}"
        times = ", ".join(
            f"{name} {format_seconds(value)}"
            for name, value in (("p50", late.p50_s), ("p99", late.p99_s), ("most", late.max_s))
        )
        lines.append(f"sent after their plan: {times}{drift}; {_concurrency_text(proof.concurrency)}")
    fits = [(which, fit) for which, fit in (("plan", proof.plan_fit), ("sends", proof.send_fit)) if fit is not None]
    if fits:
        lines.append(
            f"p-values of five tests of the process: {'; '.join(f'{which} {_fit(fit)}' for which, fit in fits)}"
        )
    return "\n".join(wrap(line) for line in (*lines, *proof.notes))


def _fit(fit: FitTests) -> str:
    """Distribution, rate, dispersion, repeats and shortest gap: the lowest p-value and which it is."""
    found = {
        "Kolmogorov-Smirnov": fit.ks,
        "rate": fit.rate,
        f"dispersion of {format_number(fit.dispersion_index, 2)}": fit.dispersion,
        "repeats": fit.repeats,
        "shortest gap": fit.shortest,
    }
    known = {name: value for name, value in found.items() if value is not None}
    lowest = min(known, key=lambda name: known[name])
    return f"{format_number(known[lowest], 2)} or more ({lowest})"


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"


def _rates(proof: ArrivalProof) -> str:
    if proof.process.startswith("closed loop"):  # its sends begin with a burst, one from each slot
        return f"{format_number(proof.completed_rate)} requests/s completed over the whole run"
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
    """A table a metric: each tool's word and figures, with the reason that they differ below; a line where none does."""
    blocks = [_metric_text(_NAMES[metric], [one for one in found if one.rule.metric == metric]) for metric in METRICS]
    return "\n\n".join([DEFINITIONS_TITLE, wrap(LETTERS), *blocks])


def _metric_text(name: str, found: Sequence[Recomputed]) -> str:
    is_time = any(one.rule.of for one in found)
    ours = next((one for one in found if one.rule.tool == OURS), None)
    if ours is not None and (line := _agreement(name, ours, found, is_time)) is not None:
        return line
    headers = ("mean", "p50", "p99") if is_time else ("value",)
    rows = [definition_cells(one, is_time) for one in found]
    other = [one for one in found if ours is None or one.missing or not _is_same(one, ours)]
    reasons = [wrap(f"{reason}: {', '.join(named)}", "  ") for reason, named in tools_by_reason(other).items()]
    return "\n".join([table((name, "its word", "formula", *headers), rows, "lll" + "r" * len(headers)), *reasons])


def _agreement(name: str, ours: Recomputed, found: Sequence[Recomputed], is_time: bool) -> str | None:
    """One line where all tools that print the metric print the same, with those that print none; None where they differ."""
    known = [one for one in found if not one.missing]
    if len(known) < 2 or ours.missing or not all(_is_same(one, ours) for one in known):
        return None
    values = ", ".join(definition_cells(ours, is_time)[3:])
    what = f"mean, p50 and p99 of {values}" if is_time else values
    lines = [wrap(f"{name}: all {len(known)} tools that print it print {what}")]
    missing = [one for one in found if one.missing]
    lines += [wrap(f"{reason}: {', '.join(named)}", "  ") for reason, named in tools_by_reason(missing).items()]
    return "\n".join(lines)


def _is_same(one: Recomputed, other: Recomputed) -> bool:
    """Whether both print the same to a thousandth."""
    pairs = ((one.value, other.value), (one.mean_s, other.mean_s), (one.p50_s, other.p50_s), (one.p99_s, other.p99_s))
    return all(
        first is second or (first is not None and second is not None and math.isclose(first, second, rel_tol=_SAME))
        for first, second in pairs
    )


def definition_cells(one: Recomputed, is_time: bool) -> tuple[str, ...]:
    """A tool, its word and formula, and its value, or mean, p50 and p99 of a time."""
    times_s = (one.mean_s, one.p50_s, one.p99_s)
    figures = tuple(map(format_seconds, times_s)) if is_time else (format_number(one.value),)
    return (one.rule.tool, one.rule.word or NOT_AVAILABLE, one.rule.formula, *figures)


def tools_by_reason(found: Sequence[Recomputed]) -> dict[str, list[str]]:
    """Why figures differ or are missing, and for which tools."""
    tools: dict[str, list[str]] = {}
    for one in found:
        for reason in filter(None, (one.missing or one.rule.reason).split("; ")):
            tools.setdefault(reason, []).append(one.rule.tool)
    return tools
