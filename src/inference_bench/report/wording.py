"""How is a figure said? Names, intervals and origins in the words that the page and the terminal share.

In:   parts of a VerifyResult
Out:  short texts
Leaves out: escaping (html_pieces) and cutting to a width (text)
Read next by: key_figures, result_tables, html_pieces, verify_html, text_result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from inference_bench.origin import Origin
from inference_bench.report.text import clean
from inference_bench.stats import Interval
from inference_bench.units import KILO, NOT_AVAILABLE, format_count, format_number

if TYPE_CHECKING:
    from inference_bench.engines.base import EngineIdentity
    from inference_bench.verify.result import VerifyResult

REPORTED: Final = "reported"
ESTIMATE: Final = "estimate"
FITTED: Final = "fitted"
ORIGIN_WORDS: Final = {
    Origin.MEASURED: "timed on a real machine",
    Origin.SIMULATED: "what a scheduler would do, step by step, if steps take as long as is said",
    Origin.PREDICTED: "a bound times a stated efficiency, or what an engine is expected to reach",
    Origin.BOUND: "a limit: no engine can be faster under the traffic stated, if the ceiling it is built on holds",
    Origin.COUNTED: "exact arithmetic on the model's own shape",
    Origin.GIVEN: "said by whoever asked",
    Origin.PUBLISHED: "printed by a vendor or an author",
    ESTIMATE: "counted bytes or FLOPs over a measured time; no hardware counter was read",
    FITTED: "a formula's own, with its numbers fitted to measured points",
    REPORTED: "said by the server itself, not checked by timing",
}


def model_name(result: VerifyResult) -> str:
    """What the model is called."""
    return clean(result.model.spec.name)


def engine_name(engine: EngineIdentity) -> str:
    """The engine with its version, or that it did not say."""
    parts = [part for part in (engine.name or "an engine that did not give its name", engine.version) if part]
    return clean(" ".join(parts))


def interval_text(interval: Interval | None, write: Callable[[float], str]) -> str:
    """Both ends of an interval, a common unit once; n/a where there were too few samples for one."""
    if interval is None:
        return NOT_AVAILABLE
    (low, unit), (high, same) = (write(end).split(" ", 1) for end in (interval.low, interval.high))
    return f"{low} – {high} {same}" if unit == same else f"{low} {unit} – {high} {same}"


def started(result: VerifyResult) -> str:
    """When the run began, to the second."""
    return clean(result.started_at).replace("T", " ").replace("+00:00", " UTC")


def tokens_per_s(value: float | None) -> str:
    """A rate without its unit: three digits, and thousands apart where it is large."""
    return format_number(value) if value is None or value < KILO else format_count(round(value))


def yes_or_no(value: bool | None) -> str:
    """A yes, a no, or n/a."""
    return NOT_AVAILABLE if value is None else ("yes" if value else "no")
