"""What physics says of a run: as JSON with stable keys, and for a terminal.

In:   Refereed
Out:  a dict ready for JSON, a text of at most 100 columns
Read next by: load_report, sweep_report, load_html_physics.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from inference_bench.metrics import Percentiles
from inference_bench.referee import ClassBounds, Flag, Refereed, RunBound, Verdict
from inference_bench.report.text import table, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds, format_si

_MOST_LISTED: Final = 100
_MOST_CLASSES: Final = 16


def referee_json(found: Refereed) -> dict[str, Any]:
    """The stable keys of `referee`; `origins` says which of its figures are bounds and which are measured.

    Where:    above lists the first hundred times that are shorter than their bound; num_above counts the requests
    """
    return {
        **dataclasses.asdict(dataclasses.replace(found, above=found.above[:_MOST_LISTED])),
        "origins": {
            "least": "bound",
            "shortest": "measured",
            "mbu": "measured over bound",
            "mfu": "measured over bound",
        },
    }


def referee_text(found: Refereed) -> str:
    """The verdict, every flag with its evidence, the bounds of each class, and MBU of what is possible."""
    lines = [wrap(_head(found)), *(line for flag in found.flags for line in _flag(flag)), *map(wrap, found.notes)]
    if found.run is not None:
        lines.append(wrap(_run(found.run)))
    blocks = ["\n".join(lines)]
    if found.classes and found.verdict is not Verdict.UNKNOWN:
        headers = (
            "prompt",
            "cached",
            "output",
            "requests",
            "least TTFT",
            "shortest",
            "least TPOT",
            "shortest",
            "above",
        )
        blocks.append(table(headers, [_class(one) for one in found.classes[:_MOST_CLASSES]], "r" * len(headers)))
        if len(found.classes) > _MOST_CLASSES:
            blocks[-1] += f"\nand {len(found.classes) - _MOST_CLASSES} more classes of lengths, in the JSON"
    shares = [
        line for name, values in (("MBU", found.mbu), ("MFU", found.mfu)) for line in _share(name, values, found.run)
    ]
    if shares:
        blocks.append("\n".join(map(wrap, shares)))
    return "\n\n".join(blocks)


def _head(found: Refereed) -> str:
    above = f"{format_count(found.num_above)} of {_requests(found.num_judged)}"
    return f"physics: {found.verdict}: {above} faster than the bound of {subject_words(found)}"


def subject_words(found: Refereed) -> str:
    """The model in its formats, the machine and its ceilings."""
    ceiling = found.ceiling
    rates = f"{format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}, {format_si(ceiling.peak_flops_per_s, 'FLOP/s')}"
    devices = f"{found.devices} × " if found.devices > 1 else ""
    return f"{found.model} ({found.weights} weights, {found.cache} cache) on {devices}{found.machine} ({rates})"


def _flag(flag: Flag) -> list[str]:
    which = "/".join(measure.upper() for measure in flag.measures)
    count = (
        f"{format_count(flag.num_requests)} of {_requests(flag.num_judged)}"
        if flag.num_requests
        else "the run as a whole"
    )
    others = ", ".join(flag.alternatives)
    lines = [
        f"above ceiling, likely {flag.cause}: {flag.meaning} ({count}, {which}, {format_number(flag.factor)} times too fast)"
    ]
    rest = [*flag.evidence, *([f"what else would explain it: {others}"] if others else [])]
    return [*map(wrap, lines), *(wrap(sentence, "  ") for sentence in rest)]


def _run(run: RunBound) -> str:
    return (
        f"the run: {format_number(run.output_tokens_per_s)} output tokens/s measured, at most {format_number(run.most_tokens_per_s)} "
        f"with no more than {run.peak_in_flight} in flight (bound); that is {format_fraction(run.factor)} of the bound"
    )


def _class(one: ClassBounds) -> tuple[str, ...]:
    times = (one.least_ttft_s, one.shortest_ttft_s, one.least_tpot_s, one.shortest_tpot_s)
    lengths = (one.prompt_tokens, one.cached_tokens, one.output_tokens)
    return (*map(length_span, lengths), str(one.num_requests), *map(format_seconds, times), str(one.num_above))


def length_span(lengths: tuple[int, int] | None) -> str:
    """The fewest and the most tokens of a class."""
    if lengths is None:
        return NOT_AVAILABLE
    low, high = lengths
    return format_count(low) if low == high else f"{format_count(low)}–{format_count(high)}"


def _share(name: str, values: Percentiles | None, run: RunBound | None) -> list[str]:
    if values is None:
        return []
    return [f"{mbu_words(run) if name == 'MBU' else 'MFU of prompts, waiting included'}: {share_words(values)}"]


def mbu_words(run: RunBound | None) -> str:
    """What MBU is of: with several in flight each sequence counts as if it read the weights alone, which is a lower limit."""
    peak = 1 if run is None else run.peak_in_flight
    if peak < 2:
        return "MBU of decoding, one sequence alone"
    return (
        f"MBU of decoding, at least (each counted alone, and up to {format_count(peak)} in flight shared what was read)"
    )


def share_words(values: Percentiles) -> str:
    """Percentiles of a share, and of how many requests."""
    points = (("p50", values.p50), ("p90", values.p90), ("p99", values.p99))
    return f"{', '.join(f'{name} {format_fraction(value)}' for name, value in points)} ({_requests(values.count)})"


def _requests(count: int) -> str:
    return f"{format_count(count)} request{'' if count == 1 else 's'}"
