"""How are the figures of the closed loop said? Fitted numbers, formulas, latencies and errors in words.

In:   names and numbers of a calibration, a load check, a gap
Out:  short texts
Leaves out: escaping (html_pieces), tables (closed_loop_tables)
Read next by: closed_loop_answers, closed_loop_tables, closed_loop_html, closed_loop_text.
"""

from __future__ import annotations

from typing import Final

from inference_bench.calibrate.steps.forms import StepCalibration, StepForm, StepParameter
from inference_bench.report.text import clean
from inference_bench.report.wording import interval_text
from inference_bench.stats import Interval
from inference_bench.units import NOT_AVAILABLE, format_fraction, format_number, format_seconds
from inference_bench.verify.closed_loop import CapacityCheck, LoadRow

_ADDITIVE: Final = "time of its bytes + time of its FLOPs + what comes on top"
_MAXIMUM: Final = "the longer of the time of its bytes and that of its FLOPs + what comes on top"
_VECTOR: Final = (
    "few positions are multiplied one by one, each reading the weights, where that is quicker than all at once"
)
_FORMS: Final = {
    StepForm.ADDITIVE: f"{_ADDITIVE}: nothing overlaps",
    StepForm.MAXIMUM: f"{_MAXIMUM}: everything overlaps",
    StepForm.ADDITIVE_VECTOR: f"{_ADDITIVE}: nothing overlaps; {_VECTOR}",
    StepForm.MAXIMUM_VECTOR: f"{_MAXIMUM}: everything overlaps; {_VECTOR}",
}
_PARAMETERS: Final = {
    "bandwidth": "of memory bandwidth, reading the weights once for all positions",
    "compute": "of the compute peak, multiplying them",
    "vector": "of memory bandwidth, reading the weights once a position",
    "cache": "of memory bandwidth, reading the cache",
    "attention": "of the compute peak, attending",
    "serial": "of the shorter of memory and compute time that is not overlapped",
    "fixed_s": "a step, whatever is in it",
    "sequence_s": "a sequence in a step",
    "position_s": "a position in a step",
    "request_s": "a request besides its steps",
}
_WIDE: Final = 10  # times its lower end: an interval that reaches beyond says nothing
_FIGURES: Final = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
_DIGITS_FROM: Final = (0.0005, 0.01, 0.1)  # shares from which a tenth of a percent is one, two and three digits


def form_words(form: StepForm) -> str:
    """The formula of a step in words."""
    return f"step = {_FORMS[form]}"


def parameter_words(name: str) -> str:
    """What a fitted number is."""
    return _PARAMETERS.get(name, "")


def parameter_value(name: str, value: float | None) -> str:
    """A fitted number: a time where its name ends in _s, a share otherwise."""
    return format_seconds(value) if name.endswith("_s") else format_fraction(value)


def fitted_value(item: StepParameter) -> str:
    """A number of the formula, and that it is assumed where the steps do not tell it."""
    assumed = item.is_assumed or not item.is_told
    return f"{parameter_value(item.name, item.value)}{' (assumed)' if assumed else ''}"


def parameter_interval(name: str, interval: Interval | None) -> str:
    """The interval of a fitted number; n/a where the sweep does not tell it from others, not known where it says next to nothing."""
    if interval is None:
        return NOT_AVAILABLE
    if interval.low <= 0:
        return f"at most {parameter_value(name, interval.high)}"
    if interval.high > _WIDE * interval.low:
        return "not known"
    return interval_text(interval, lambda value: parameter_value(name, value))


def held_out_words(found: StepCalibration) -> str:
    """How far the formula is off on steps that were kept from the fit, by steps that did not choose it; or why nobody can say."""
    if found.held_out_error is None:
        return too_few_words(found)
    said = f"median error {format_fraction(found.held_out_error)}"
    if found.held_out_p90 is not None:
        said += f", p90 {format_fraction(found.held_out_p90)}"
    return f"{said}{honest_words(found)}"


def too_few_words(found: StepCalibration) -> str:
    """Why there is no honest error."""
    return f"too few held-out steps ({found.num_held_out}) for an honest error"


def honest_words(found: StepCalibration) -> str:
    """Why the honest error is not that of the chosen formula; nothing where both are the same."""
    honest, plain = found.held_out_error, found.plain_held_out_error
    if honest is None or plain is None or format_fraction(honest, 2) == format_fraction(plain, 2):
        return ""
    return ", each step judged under the formula the others chose"


def is_rate(name: str) -> bool:
    """Whether a figure is something a second."""
    return name.endswith("_per_s") or name.endswith("rate")


def figure_name(name: str) -> str:
    """A figure of a load by the words of the field.

    >>> figure_name("ttft_p99_s"), figure_name("output_tokens_per_s")
    ('TTFT p99', 'output tokens/s')
    """
    bare = name.removesuffix("_per_s")
    words = bare if bare != name else name.removesuffix("_s")
    said = " ".join(_FIGURES.get(word, word) for word in words.split("_"))
    return f"{said}/s" if bare != name else said


def figure_value(name: str, value: float | None) -> str:
    """A figure of a load with its unit, where its name does not say it."""
    return (
        format_number(value)
        if is_rate(name)
        else format_seconds(value)
        if name.endswith("_s")
        else format_number(value)
    )


def signed(fraction: float | None) -> str:
    """A difference as a share with its sign, to a tenth of a percent.

    >>> signed(0.125), signed(-0.0312), signed(0.0)
    ('+12.5 %', '−3.1 %', '0 %')
    """
    if fraction is None:
        return NOT_AVAILABLE
    size = abs(fraction)
    digits = sum(size >= least for least in _DIGITS_FROM)
    return f"{'+' if fraction > 0 else '−'}{format_fraction(size, digits)}" if digits else "0 %"


def minus(said: str) -> str:
    """A number that may be below zero, with the sign that `signed` and the charts use."""
    return said.replace("-", "−", 1) if said.startswith("-") else said


def requests_per_s(rate: float | None) -> str:
    """A rate of requests."""
    return NOT_AVAILABLE if rate is None else f"{format_number(rate)} requests/s"


def load_name(row: LoadRow) -> str:
    """One load among several: where it stands to the knee, and its rate."""
    return f"{clean(row.place)}, {format_number(row.rate)}/s"


def short_objective(check: CapacityCheck) -> str:
    """The objective without how it was chosen."""
    return check.objective.partition(":")[0].partition(";")[0].replace("<=", "≤")


def capacity_state(check: CapacityCheck) -> str:
    """What the runs say of the prediction."""
    if check.contradiction is not None:
        return check.contradiction_words
    return {True: "confirmed", False: "not confirmed", None: "not settled"}[check.is_confirmed]


def full_sentence(line: str) -> str:
    """A line of this package's words as a sentence begins and ends."""
    return f"{line[:1].upper()}{line[1:].rstrip('.')}." if line else ""
