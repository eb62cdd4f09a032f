"""What does a server's /metrics page say? The Prometheus text format, read by hand and within limits.

In:   the page as text, and the names of the series that matter
Out:  Series: name, labels and value of each line with such a name, in order
Leaves out: HELP and TYPE lines, times, exemplars, and lines of other names; names in quotes (Prometheus 3): no model
      server uses them
Read next by: server_metrics.

A page is somebody else's text. Whatever it holds, reading it takes time linear in its length and gives Series or one error,
which does not repeat the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import ServerError
from inference_bench.units import KIBI, MEBI

MAX_PAGE_BYTES: Final = 8 * MEBI
MOST_SAID: Final = 1e18  # no figure of a real server comes near, and sums and products of such stay finite
_MAX_LINE_CHARS: Final = 16 * KIBI
_MAX_LABELS: Final = 64
_MAX_SERIES: Final = 20_000

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|(?=\}))')
_CLOSED: Final = re.compile(r"[ \t]*\}")
_VALUE: Final = re.compile(
    r"[ \t]*([+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?|[nN]a[nN]))"
    r"(?:[ \t]+[+-]?\d+(?:\.\d+)?)?[ \t]*(?:#.*)?",
    re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a number with its name and labels. NaN and the infinities are numbers here, as they are on the page."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def is_known(self) -> bool:
        """Whether the value can be that of a server: not NaN, and not beyond everything."""
        return is_known(self.value)


def is_known(value: float) -> bool:
    """The same of a value alone, or of a sum of such."""
    return abs(value) <= MOST_SAID


def parse_prometheus(text: str, wanted: Collection[str] | None = None) -> tuple[Series, ...]:
    r"""The series of a page, or of its wanted names; lines of other names are passed over without being read.

    Raises:   ServerError for a page that is too large, and for a line that is none of a wanted name
    Source:   Prometheus, Exposition formats, text-based format 0.0.4; OpenMetrics 1.0 for exemplars and `# EOF`

    >>> parse_prometheus('up{job="a"} 1\n')[0].value
    1.0
    """
    if len(text) > MAX_PAGE_BYTES:
        raise ServerError(f"the page of metrics is longer than {MAX_PAGE_BYTES // MEBI} MiB")
    names = None if wanted is None else frozenset(wanted)
    found: list[Series] = []
    for number, line in _lines(text):
        if (series := _read_line(line, number, names)) is not None:
            found.append(series)
            if len(found) > _MAX_SERIES:
                raise ServerError(f"the page of metrics has more than {_MAX_SERIES} series")
    return tuple(found)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that may hold a series, numbered from 1."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line and line[0] not in "#{ \t\r":
            yield number, line
        elif line[:1] in (" ", "\t") and (bare := line.lstrip(" \t")) and bare[0] not in "#{\r":
            yield number, bare


def _read_line(line: str, number: int, wanted: frozenset[str] | None) -> Series | None:
    end = line.find("{")
    name = line[:end] if end > 0 else line.partition(" ")[0].partition("\t")[0]
    if wanted is not None and name.rstrip(" \t") not in wanted:
        return None
    if len(line) > _MAX_LINE_CHARS:
        raise _broken(number, "is too long")
    match = _NAME.match(line)
    if match is None:
        raise _broken(number, "begins with no name")
    labels, at = _read_labels(line, match.end(), number)
    value = _VALUE.fullmatch(line, at, len(line.rstrip("\r")))
    if value is None or (line[at - 1] != "}" and value.group()[0] not in " \t"):
        raise _broken(number, "ends in no number")
    return Series(match.group(), labels, float(value.group(1)))


def _read_labels(line: str, at: int, number: int) -> tuple[Mapping[str, str], int]:
    """The labels between braces, where there are any, and where what follows them begins."""
    after = len(line[at:]) - len(line[at:].lstrip(" \t"))
    if line[at + after : at + after + 1] != "{":
        return {}, at
    at, labels = at + after + 1, dict[str, str]()
    while (closed := _CLOSED.match(line, at)) is None:
        match = _LABEL.match(line, at)
        if match is None or match.group(1) in labels or len(labels) >= _MAX_LABELS:
            raise _broken(number, "has labels that cannot be read")
        labels[match.group(1)] = _ESCAPE.sub(lambda one: _ESCAPED.get(one.group(1), one.group()), match.group(2))
        at = match.end()
    return labels, closed.end()


def _broken(number: int, what: str) -> ServerError:
    return ServerError(f"line {number} of the page of metrics {what}")
