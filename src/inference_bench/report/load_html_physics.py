"""What does physics say of a load run? Each class of requests beside its least possible times, and MBU of the rest.

In:   Refereed
Out:  HTML text
Leaves out: the flags, which stand among the findings
Read next by: load_html.
"""

from __future__ import annotations

from inference_bench.origin import Origin
from inference_bench.referee import ClassBounds, Refereed, Verdict
from inference_bench.report import html_pieces as pieces
from inference_bench.report.load_page_pieces import broad
from inference_bench.report.referee_report import length_span, share_words, subject_words
from inference_bench.report.report_html import quiet
from inference_bench.report.table import Cells, Column, Table
from inference_bench.units import format_count, format_number, format_seconds

_COLUMNS = (
    Column("prompt tokens"),
    Column("cached"),
    Column("output tokens"),
    Column("requests"),
    Column("least TTFT", origin=Origin.BOUND),
    Column("shortest", origin=Origin.MEASURED),
    Column("least TPOT", origin=Origin.BOUND),
    Column("shortest", origin=Origin.MEASURED),
    Column("faster than the bound"),
)


def physics_html(found: Refereed | None) -> str:
    """What the run was held to, a row for each class of lengths, and what share of the ceiling the rest reached."""
    if found is None:
        return ""
    rows = [
        (
            "verdict",
            f"{found.verdict}: {format_count(found.num_above)} of {format_count(found.num_judged)} requests above",
        )
    ]
    rows.append(("held to", subject_words(found)))
    if (run := found.run) is not None:
        most = f"{format_number(run.output_tokens_per_s)} of at most {format_number(run.most_tokens_per_s)} output tokens/s"
        rows.append(("the run as a whole", f"{most}, with no more than {format_count(run.peak_in_flight)} in flight"))
    rows += [
        (name, share_words(values))
        for name, values in (("MBU of decoding", found.mbu), ("MFU of prompts", found.mfu))
        if values
    ]
    classes = () if found.verdict is Verdict.UNKNOWN else found.classes
    marked = frozenset(index for index, each in enumerate(classes) if each.num_above)
    table = Table("Each class of requests", _COLUMNS, tuple(map(_cells, classes)), _NOTE, marked)
    notes = "".join(map(quiet, found.notes))
    return f"{pieces.facts(rows)}{broad(pieces.table(table))}{notes}"


_NOTE = (
    "MBU and MFU count one sequence alone, and waiting as work: in a batch they are lower limits of what was reached."
)


def _cells(one: ClassBounds) -> Cells:
    times = (one.least_ttft_s, one.shortest_ttft_s, one.least_tpot_s, one.shortest_tpot_s)
    lengths = map(length_span, (one.prompt_tokens, one.cached_tokens, one.output_tokens))
    return (*lengths, format_count(one.num_requests), *map(format_seconds, times), format_count(one.num_above))
