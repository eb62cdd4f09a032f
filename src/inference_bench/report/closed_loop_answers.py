"""What should whoever decides know first? Four questions, each with a mark and one or two sentences.

In:   VerifyResult
Out:  Answers: the question, a mark in words, and what was found
Leaves out: every table behind them (closed_loop_tables)
Read next by: verify_html, text_result, closed_loop_json.

Everything is composed from figures; nothing here measures or judges beyond comparing a figure with its target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.gap.parts import Cause, Change, GapPart, GapReading, StepGap
from inference_bench.report.closed_loop_tables import LEAST_GAIN
from inference_bench.report.closed_loop_words import (
    figure_name,
    requests_per_s,
    short_objective,
    signed,
    too_few_words,
)
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import interval_text
from inference_bench.units import format_fraction, format_number, format_seconds
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow
from inference_bench.verify.result import VerifyResult

_FEW_DIGITS: Final = 2
_NUM_PARTS: Final = 2
_SAID_FIGURES: Final = {
    "ttft_p50_s": "first token (median)",
    "ttft_p99_s": "first token (p99)",
    "tpot_p50_s": "time per token",
    "output_tokens_per_s": "throughput",
}
_PHASES: Final = {Phase.DECODE: "generating tokens (decode)", Phase.PREFILL: "reading prompts (prefill)"}
_MARK_CHARS: Final = 48
_FAR_OFF: Final = 0.1  # of a fitted step from the measured one, from which on it is said which of them gains are over
_LARGE: Final = 0.15  # an error of a kind of step that must not hide behind the median of all
_CHARS: Final = 160  # of a text from elsewhere inside a sentence


class State(StrEnum):
    """How an answer is coloured; the mark says the same in words."""

    GOOD = "good"
    POOR = "poor"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question of the verdict."""

    question: str
    mark: str
    state: State
    said: str


def answers(result: VerifyResult) -> tuple[Answer, ...]:
    """Does it reach its ceiling, what would help, was the load predicted, is the capacity confirmed."""
    found = (_ceiling(result.points), _help(result.gap), _load(result), _capacity(result.capacity))
    return tuple(map(_hedged, found)) if result.disturbances else found


def _hedged(found: Answer) -> Answer:
    """A mark that nobody should hold against the engine, where the run was disturbed."""
    if found.mark.startswith("Not "):
        return found
    return replace(found, mark=f"{found.mark} (disturbed run)", state=State.OPEN)


# ── does it reach its ceiling ──────────────────────────────────────────────────────────────────────


def _ceiling(points: Sequence[ComparedPoint]) -> Answer:
    question = "Does it reach its ceiling?"
    known = [point for point in points if point.fraction_of_bound is not None]
    if not known:
        return Answer(question, "Not known", State.OPEN, "No ceiling is known for what was measured.")
    verdicts = {point.verdict for point in known}
    if Verdict.ABOVE in verdicts:
        mark, state = "Beyond it", State.POOR  # a finding, wherever the others lie
    elif verdicts == {Verdict.NEAR}:
        mark, state = "Nearly", State.GOOD
    else:
        mark, state = ("In part", State.OPEN) if Verdict.NEAR in verdicts else ("No", State.POOR)
    said = [_reached(phase, [p for p in known if p.measured.phase is phase]) for phase in (Phase.DECODE, Phase.PREFILL)]
    odd = (
        " A share above 100 % says that the ceiling or the counted traffic is too strict."
        if mark == "Beyond it"
        else ""
    )
    return Answer(question, mark, state, f"{_capital('; '.join(filter(None, said)))}.{odd}")


def _reached(phase: Phase, points: Sequence[ComparedPoint]) -> str:
    """The shares of one phase, from the lowest to the highest, and of what."""
    shares = [point.fraction_of_bound for point in points if point.fraction_of_bound is not None]
    if not shares:
        return ""
    limits = list(dict.fromkeys(str(point.bound.limited_by) for point in points))
    low, high = (format_fraction(share, _FEW_DIGITS) for share in (min(shares), max(shares)))
    reached = low if low == high else f"{low} to {high}"
    return f"{_PHASES[phase]} reaches {reached} of what {' and '.join(limits)} allow{'s' if len(limits) == 1 else ''}"


# ── what would help ────────────────────────────────────────────────────────────────────────────────


def _help(gap: GapReading | None) -> Answer:
    question = "What would help most?"
    if gap is None or not gap.steps:
        return Answer(question, "Not computed", State.OPEN, "This run did not take its steps apart.")
    choices = [change for change in gap.changes if change.is_choice]
    best = _best(choices)
    if choices and (best is None or best.gain < LEAST_GAIN):
        return Answer(question, "Nothing that can be chosen", State.OPEN, _no_choice(gap, best))
    best = best or _best(gap.changes)
    if best is None:
        said = f"{_spent(gap.steps[0], '')} No change that was computed gains anything."
        return Answer(question, "Nothing that was tried", State.OPEN, said)
    step = _step_at(gap, best)
    assumed = " A number in it is assumed, not measured here." if best.is_assumed else ""
    said = (
        f"Predicted: {signed(best.gain)} tokens/s in {_text(best.at)}; bytes and FLOPs alone promise "
        f"{signed(best.ceiling_gain)}.{assumed} {_spent(step, best.at)}"
        f"{_engine(gap.changes, best)}{_over_fitted(step)}"
    )
    return Answer(question, _capital(shorten(_text(best.name), _MARK_CHARS)), State.OPEN, said)


def _no_choice(gap: GapReading, best: Change | None) -> str:
    """That no choice is worth it, and what a better engine could gain."""
    tried = "" if best is None else f" ({_text(best.name)}: {signed(best.gain)})"
    said = f"No change that can be chosen is predicted to gain {format_fraction(LEAST_GAIN, 1)} or more{tried}."
    limit = _best(change for change in gap.changes if not change.is_choice)
    if limit is None:
        return f"{said} {_spent(gap.steps[0], '')}"
    step = _step_at(gap, limit)
    return (
        f"{said} A better engine could gain {signed(limit.gain)} at most in {_text(limit.at)} ({_text(limit.name)}). "
        f"{_spent(step, limit.at)}{_over_fitted(step)}"
    )


def _step_at(gap: GapReading, change: Change) -> StepGap:
    """The step that a change is computed for."""
    return next((step for step in gap.steps if step.title == change.at), gap.steps[0])


def _over_fitted(step: StepGap) -> str:
    """That gains are over the fitted step, where the measured one is another; nothing where the two are near."""
    if abs(step.predicted_s / step.measured_s - 1) <= _FAR_OFF:
        return ""
    return f" Gains are over the {format_seconds(step.predicted_s)} that the formula says of it."


def _best(changes: Iterable[Change]) -> Change | None:
    """The change that gains most; None where none gains anything."""
    return max((change for change in changes if change.gain > 0), key=lambda change: change.gain, default=None)


def _engine(changes: Iterable[Change], best: Change) -> str:
    """What a better engine could gain at most in the same step, beside what can be chosen."""
    limit = _best(change for change in changes if not change.is_choice and change.at == best.at)
    if limit is None or limit is best:
        return ""
    return f" A better engine could gain {signed(limit.gain)} there at most ({_text(limit.name)})."


def _spent(step: StepGap, named: str) -> str:
    """What most of a step goes to; one that was just named is not named again."""
    parts = sorted((part for part in step.parts if part.seconds > 0), key=lambda part: -part.seconds)[:_NUM_PARTS]
    said = " and ".join(_part_words(part) for part in parts) or "no part is known"
    name = "That step" if step.title == named else _capital(_text(step.title))
    return f"{name} takes {format_seconds(step.measured_s)}, of which {said}."


def _part_words(part: GapPart) -> str:
    cause = "not explained" if part.cause is Cause.UNEXPLAINED else str(part.cause)
    return f"{format_fraction(part.share, _FEW_DIGITS)} is {cause}"


# ── was the load predicted ─────────────────────────────────────────────────────────────────────────


def _load(result: VerifyResult) -> Answer:
    question, load = "Was the load predicted?", result.load
    if load is None or not load.rows:
        return Answer(
            question, "Not run", State.OPEN, f"No load was predicted and sent in this run.{_held_out(result)}"
        )
    judged = [figure for row in load.rows for figure in row.figures if figure.is_reached is not None]
    reached = [figure for figure in judged if figure.is_reached]
    said = f"{_capital(_errors(_quietest(load)))}{_unfinished(load)}{_held_out(result)}"
    if not any(figure.error is not None for row in load.rows for figure in row.figures):
        return Answer(question, "Not measured", State.POOR, said)
    if not judged:
        return Answer(question, "No target set", State.OPEN, said)
    met = f"{len(reached)} of {len(judged)} targets"
    if len(reached) == len(judged):
        return Answer(question, f"Yes, {met}", State.GOOD, said)
    mark, state = ("In part", State.OPEN) if reached else ("No", State.POOR)
    return Answer(question, f"{mark}, {met}", state, said)


def _quietest(load: LoadCheck) -> LoadRow:
    return min(load.rows, key=lambda row: row.rate)


def _errors(row: LoadRow) -> str:
    """How far the prediction of one load was off."""
    chosen = [figure for name in _SAID_FIGURES if (figure := row.figure(name)) is not None] or list(row.figures)
    said = [
        f"{_SAID_FIGURES.get(figure.name) or figure_name(figure.name)} {signed(figure.error)}"
        for figure in _with_error(chosen)
    ]
    where = f"at {requests_per_s(row.rate)}"
    return f"{where} the prediction was off by {', '.join(said)}." if said else f"{where} nothing could be compared."


def _with_error(figures: Iterable[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.error is not None][: len(_SAID_FIGURES)]


def _unfinished(load: LoadCheck) -> str:
    sent, done = sum(row.num_requests for row in load.rows), sum(row.num_completed for row in load.rows)
    return f" {sent - done} of {sent} requests did not complete." if done < sent else ""


def _held_out(result: VerifyResult) -> str:
    if result.calibration is None:
        return ""
    error = result.calibration.held_out_error
    if error is None:
        return f" {_capital(too_few_words(result.calibration))}."
    said = f" Steps that the formula was not fitted to are off by {format_fraction(error, _FEW_DIGITS)} (median)"
    kind, worst = max(result.calibration.held_out_error_by_kind.items(), key=lambda item: item[1], default=("", 0.0))
    return (
        f"{said}; {kind} steps, the worst, by {format_fraction(worst, _FEW_DIGITS)}." if worst > _LARGE else f"{said}."
    )


# ── is the capacity confirmed ──────────────────────────────────────────────────────────────────────


def _capacity(check: CapacityCheck | None) -> Answer:
    question = "Is the capacity confirmed?"
    if check is None:
        return Answer(question, "Not run", State.OPEN, "No capacity was predicted in this run.")
    objective = _text(short_objective(check))
    if check.predicted_rate is None:
        return Answer(question, "None", State.POOR, f"No rate is predicted to keep {objective}.")
    predicted = f"Predicted: {requests_per_s(check.predicted_rate)} within {objective}{_range(check)}."
    if check.is_confirmed:
        above = "" if check.above_rate is None else f" and one at {format_number(check.above_rate.rate)} did not"
        return Answer(question, "Yes", State.GOOD, f"{predicted} A run at that rate kept it{above}.")
    known = (
        "No measured rate is known to keep it."
        if check.measured_rate is None
        else f"Measured: {requests_per_s(check.measured_rate)} is the most up to which every run kept it."
    )
    if check.contradiction is not None:
        said = f"{predicted} {_capital(check.contradiction_words)}."
        sure = "" if check.measured_rate is None else f" {known}"
        return Answer(question, "Undecided", State.OPEN, f"{said}{sure}")
    if check.is_confirmed is None:
        return Answer(question, "Not settled", State.OPEN, f"{predicted} The runs did not settle it. {known}")
    return Answer(question, "No", State.POOR, f"{predicted} {known}")


def _range(check: CapacityCheck) -> str:
    return "" if check.interval is None else f" ({interval_text(check.interval, requests_per_s)})"


def _text(text: str) -> str:
    """A text of another module inside a sentence, no longer than a line or two."""
    return shorten(clean(text).rstrip("."), _CHARS)


def _capital(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}"
