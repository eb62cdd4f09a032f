"""What do the reports of `simulate`, `capacity` and `plan` have in common? The order of their parts, and how to repeat one.

In:   what a report says, as Parts; Provenance, which the command hands over, since nothing here reads a clock
Out:  HTML text
Leaves out: what each part says (simulate_html, capacity_html, against_html, plan_html)
Read next by: those four, cli, bridge.

A report reads from the question to its evidence: a few figures, what must not be missed, the answer in words, charts, tables,
what it rests on, and how to make it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.table import Table


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a report came about: the command that was given, when it was, and by which versions."""

    command: str
    line: str
    made_at: str
    versions: Mapping[str, str]


class Part(NamedTuple):
    """A section: where links lead, its name among them, its heading, and what it holds; left out where it holds nothing."""

    anchor: str
    link: str
    title: str
    content: str


class Head(NamedTuple):
    """The question, and of what it is asked."""

    question: str
    place: str


class Body(NamedTuple):
    """An answer as a report and the calculator page both show it.

    Where:  odd is what must not be missed, each list under its heading; parts follow the charts
    """

    said: str
    figures: tuple[KeyFigure, ...]
    odd: tuple[tuple[str, Sequence[str]], ...]
    parts: tuple[Part, ...]


def body_html(body: Body, drawings: str) -> str:
    """The answer inside a page of many: drawings is HTML that stands below the figures."""
    return "\n".join(
        [
            f'<div class="verdict"><p class="first">{pieces.say(sentence(body.said))}</p></div>',
            pieces.key_figures(body.figures),
            *(pieces.findings(lines, title) for title, lines in body.odd),
            drawings,
            *(pieces.section(part.anchor, part.title, part.content) for part in body.parts if part.content),
        ]
    )


def report_page(
    head: Head,
    made: Provenance,
    figures: Sequence[KeyFigure],
    odd: Iterable[tuple[str, Sequence[str]]],
    parts: Iterable[Part],
) -> str:
    """The whole page.

    Where:  odd is what must not be missed, each list under its heading
    """
    shown = [part for part in parts if part.content]
    kicker = f"inference-bench {made.command} · {made.made_at}"
    body = [
        pieces.header(kicker, head.question, head.place, [(part.anchor, part.link) for part in shown]),
        pieces.key_figures(figures),
        *(pieces.findings(lines, title) for title, lines in odd),
        *(pieces.section(part.anchor, part.title, part.content) for part in shown),
    ]
    return pieces.document(head.question, "\n".join(body))


def sentence(line: str) -> str:
    """A line of our own words as a sentence begins; not for one that begins with a name."""
    return f"{line[:1].upper()}{line[1:]}"


def value_and_unit(said: str) -> tuple[str, str]:
    """A number with its unit behind it, as `units` writes it, in two; one without a unit is whole.

    >>> value_and_unit("3.21 – 4.5 s"), value_and_unit("n/a")
    (('3.21 – 4.5', 's'), ('n/a', ''))
    """
    value, _, unit = said.rpartition(" ")
    return (value, unit) if value else (unit, "")


def reading_part(lines: Iterable[str]) -> Part:
    """The answer in words; nothing where there are none."""
    said = [line for line in lines if line]
    return Part("reading", "Reading", "What the numbers say", pieces.bullets(said, "reading") if said else "")


def charts_part(drawings: Sequence[Drawing], draw: Draw | None) -> Part:
    """Every chart that has data, or why there are none; nothing where there is nothing to draw."""
    return Part("charts", "Charts", "Charts", pieces.charts(drawings, draw) if drawings else "")


def all_tables(shown: Iterable[Table | None]) -> str:
    """Tables under headings of their own."""
    return "".join(map(pieces.table, shown))


def quiet(line: str) -> str:
    """A remark below a table."""
    return f'<p class="quiet">{pieces.say(line)}</p>\n' if line else ""


def assumptions_part(assumptions: Iterable[str], notes: Sequence[str] = ()) -> Part:
    """What all of it rests on, and what there is to know besides."""
    besides = f"<h3>Notes</h3>\n{pieces.bullets(notes)}" if notes else ""
    return Part("assumptions", "Assumptions", "Assumptions", pieces.bullets(assumptions) + besides)


def repeat_part(made: Provenance, seeds: Sequence[int] = ()) -> Part:
    """The command line, and everything that could make its answer another one."""
    rows = [("made", made.made_at), *([("seeds", ", ".join(map(str, seeds)))] if seeds else []), *made.versions.items()]
    return Part("repeat", "Repeat", "How to repeat it", pieces.command(made.line) + pieces.facts(rows))
