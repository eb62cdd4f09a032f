"""How much worse may a canary be? The rules of a verdict, as data that a person can replace.

In:   a TOML file, or limits named one by one
Out:  RuleSet
Leaves out: whether they are kept (evidence)
Read next by: evidence, decide, report.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.files import shown_name
from inference_bench.measure.prompt_sources import read_text
from inference_bench.units import KIBI, parse_fraction, plain_number
from inference_bench.workload.checks import require_count

_MOST_BYTES: Final = 64 * KIBI
_MOST_LOOKS: Final = 1000
_MOST_WORSE: Final = 100.0


class Unit(StrEnum):
    """In what a worsening is counted."""

    RELATIVE = "of the baseline"  # a fraction of the baseline's value
    POINTS = "of the requests"  # a difference of two shares of the requests
    ITEMS = "questions"  # how many of a suite, which is all of them and no sample


@dataclass(frozen=True, slots=True)
class Figure:
    """What a rule can be about: a percentile of a time, a rate, a share of the requests, or a count.

    Where:  quantile is None for what is no percentile; is_higher_better says which direction is the good one
    """

    unit: Unit
    quantile: float | None = None
    is_higher_better: bool = False


def _percentiles(time: str) -> dict[str, Figure]:
    return {f"{time}_p{round(100 * q)}_s": Figure(Unit.RELATIVE, q) for q in (0.5, 0.9, 0.99)}


FIGURES: Final[Mapping[str, Figure]] = {
    **_percentiles("ttft"),
    **_percentiles("tpot"),
    **_percentiles("itl"),
    **_percentiles("e2e"),
    "goodput_requests_per_s": Figure(Unit.RELATIVE, is_higher_better=True),
    "failed_fraction": Figure(Unit.POINTS),
    "truncated_fraction": Figure(Unit.POINTS),
    "length_limited_fraction": Figure(Unit.POINTS),
    "document_valid_fraction": Figure(Unit.POINTS, is_higher_better=True),
    "suite_regressions": Figure(Unit.ITEMS),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The most by which one figure may be worse on the canary, in the figure's unit."""

    figure: str
    most_worse: float

    @property
    def about(self) -> Figure:
        """What the figure is."""
        return FIGURES[self.figure]


_USUAL: Final = (
    Rule("ttft_p50_s", 0.10),
    Rule("ttft_p99_s", 0.20),
    Rule("tpot_p50_s", 0.05),
    Rule("tpot_p99_s", 0.20),
    Rule("itl_p99_s", 0.20),
    Rule("e2e_p99_s", 0.20),
    Rule("goodput_requests_per_s", 0.05),
    Rule("failed_fraction", 0.01),
    Rule("truncated_fraction", 0.01),
    Rule("length_limited_fraction", 0.05),
    Rule("document_valid_fraction", 0.01),
    Rule("suite_regressions", 0.0),
)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Every rule of a verdict.

    Where:    least_requests are those of each side below which nothing is promoted; looks is how often the verdict is asked for
              while requests come in, planned before the first of them: each look gets its part of the error
    Raises:   RequestError for no rule, a figure twice, or a value that cannot be
    """

    rules: tuple[Rule, ...] = _USUAL
    least_requests: int = 100
    confidence: float = 0.95
    looks: int = 1
    name: str = "the usual rules"

    def __post_init__(self) -> None:
        names = [rule.figure for rule in self.rules]
        if not names:
            raise RequestError("a verdict needs at least one rule")
        if len(set(names)) < len(names):
            raise RequestError(f"a figure has two rules: {', '.join(names)}; give one for each")
        for rule in self.rules:
            _require_within(rule.most_worse, f"limit of {rule.figure}", 0.0, _MOST_WORSE)
        _require_within(self.confidence, "confidence", 0.5, 0.999)
        require_count(self.least_requests, "fewest requests")
        require_count(self.looks, "number of looks", most=_MOST_LOOKS)

    @property
    def each_confidence(self) -> float:
        """That of one rule at one look."""
        return 1 - (1 - self.confidence) / self.looks

    @property
    def family_confidence(self) -> float:
        """That of one rule where all of them are to be right together, at every look.

        Formula:  1 - (1 - confidence) / (rules · looks), by Bonferroni
        """
        return 1 - (1 - self.confidence) / (len(self.rules) * self.looks)

    def with_limits(self, texts: Iterable[str]) -> RuleSet:
        """The same with some limits changed or added, each as FIGURE=LIMIT.

        Raises:   RequestError, QuantityError
        """
        limits = {rule.figure: rule.most_worse for rule in self.rules}
        given = list(texts)
        for text in given:
            name, mark, value = text.partition("=")
            if not mark:
                raise RequestError(f"the limit {text[:60]!r} is not understood; write for example ttft_p99_s=20%")
            figure = _known(name.strip())
            limits[figure] = _limit(figure, value.strip())
        changed = f"{self.name}, {len(given)} changed" if given else self.name
        return replace(self, rules=tuple(Rule(*pair) for pair in limits.items()), name=changed)


def read_rules(path: Path) -> RuleSet:
    """The rules in a TOML file: a table `limits` of figures, and least_requests, confidence, looks.

    Raises:   RequestError
    """
    where = f"the rules {shown_name(path)!r}"
    try:
        found = tomllib.loads(read_text(path, "rules", _MOST_BYTES))
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{where} are not TOML: {error}") from None
    limits = found.pop("limits", None)
    if not isinstance(limits, dict) or not limits:
        raise RequestError(f"{where} have no table 'limits', such as: limits = {{ttft_p99_s = 0.2}}")
    known = ("least_requests", "confidence", "looks")
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise RequestError(f"{where} have a field {unknown[0][:40]!r}; known are limits, {', '.join(known)}")
    rules = tuple(Rule(_known(name), _limit(name, value)) for name, value in limits.items())
    return RuleSet(rules, name=path.name, **found)


def _known(name: str) -> str:
    if name in FIGURES:
        return name
    near = get_close_matches(name, FIGURES, n=1, cutoff=0.4)
    hint = f"nearest: {near[0]}; known" if near else "known"
    raise RequestError(f"no figure is called {name[:60]!r}; {hint}: {', '.join(FIGURES)}")


def _limit(name: str, value: Any) -> float:
    if isinstance(value, str):
        if FIGURES[name].unit is Unit.ITEMS and value.isascii() and value.isdigit():
            return float(value)
        return parse_fraction(value, f"limit of {name}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"the limit of {name} is no number; write for example 0.2")
    return math.inf if isinstance(value, int) and plain_number(value) is None else float(value)


def _require_within(value: object, what: str, least: float, most: float) -> None:
    found = plain_number(value)
    if found is None or not least <= found <= most:
        raise RequestError(f"the {what} is {repr(value)[:40]}; it must be a number from {least:g} to {most:g}")
