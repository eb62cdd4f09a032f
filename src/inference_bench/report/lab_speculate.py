"""What does the speculate lab say?

In:   SpeculateResult
Out:  LabPage
Leaves out: its tables (lab_speculate_tables)
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.charts.lab_speculate import position_chart, speed_up_chart
from inference_bench.labs.speculate.result import TARGET, DraftRun, ServerResult, SpeculateResult, SpeedUps
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_page import LabPage
from inference_bench.report.lab_speculate_tables import (
    answers_table,
    comparisons_table,
    costs_table,
    gains_table,
    loads_table,
    places_table,
    planted_table,
    prompts_table,
    sampled_table,
    stopwatch_table,
)
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

Timed = tuple[DraftRun, SpeedUps]
_NO_DIFFERENCE: Final = 0.05  # between two timings of the same


def lab_page(result: SpeculateResult) -> LabPage:
    """Its figures, its sentences, its charts."""
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=(
            gains_table(result),
            stopwatch_table(result),
            places_table(result),
            costs_table(result),
            sampled_table(result),
            answers_table(result),
            loads_table(result),
        ),
        drawings=(
            Drawing(
                "Speed-up by draft and γ",
                "Measured and predicted from acceptance and step costs; below the line at 1 speculation loses.",
                lambda width: speed_up_chart(result, width),
            ),
            Drawing(
                "Where in the draft proposals are right",
                "The formula takes one acceptance for every place; a flat line would agree with it.",
                lambda width: position_chart(result, width),
            ),
        ),
        details=(planted_table(result), prompts_table(result), comparisons_table(result)),
    )


def _choices(result: SpeculateResult) -> list[Timed]:
    """Every run that was timed, but for the target as its own draft: nobody would use it."""
    own = {each.name for each in result.drafts if each.kind == TARGET}
    return [(run, run.speed_ups) for run in result.runs if run.speed_ups is not None and run.draft not in own]


def fastest(result: SpeculateResult) -> Timed | None:
    """The draft and γ with the largest measured speed-up."""
    return max(_choices(result), key=lambda each: each[1].measured, default=None)


def _figures(result: SpeculateResult) -> Iterator[KeyFigure]:
    equal = sum(each.divergence is None for each in result.comparisons)
    total = len(result.comparisons)
    yield (
        KeyFigure(
            "answers equal",
            f"{format_count(equal)} of {format_count(total)}",
            "",
            "measured",
            "token for token",
            "",
            equal / total,
        )
        if total
        else KeyFigure("answers equal", "none", "", "measured", "nothing was decoded", "")
    )
    if (best := fastest(result)) is not None:
        run, speeds = best
        yield KeyFigure(
            "fastest", format_number(speeds.measured), "×", "measured", f"{run.draft}, γ = {run.gamma}",
            f"predicted {format_number(speeds.predicted)}", is_finding=speeds.measured < 1,
        )  # fmt: skip
        yield KeyFigure("its acceptance", format_fraction(run.acceptance), "", "measured", "of judged proposals", "")
    if result.sampled:
        worst = max(result.sampled, key=lambda each: each.total_variation / each.total_variation_allowed)
        yield KeyFigure(
            "total variation", format_number(worst.total_variation), "", "measured",
            f"allowed {format_number(worst.total_variation_allowed)}", worst.draft,
        )  # fmt: skip
    if (ratio := _server_ratio(result.server)) is not None:
        yield KeyFigure("server, on over off", format_number(ratio), "×", "measured", "tokens a second under load", "")


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────


def _reading(result: SpeculateResult) -> Iterator[str]:
    yield _equality(result)
    yield from _gain(result)
    yield from _losers(result)
    yield from _drawn(result)
    if result.server is not None:
        yield from _served(result.server)


def _equality(result: SpeculateResult) -> str:
    total = len(result.comparisons)
    parted = [each for each in result.comparisons if each.divergence is not None]
    if not total:
        return "Nothing was decoded"
    error = format_number(max(each.max_logit_difference for each in result.comparisons))
    if not parted:
        return (
            f"Yes, the output stays: all {format_count(total)} speculative answers are the plain ones token for token, and their logits "
            f"differ by at most {error}"
        )
    ties = sum(each.divergence is not None and each.divergence.is_near_tie for each in parted)
    if ties == len(parted):
        return (
            f"The output stays up to rounding: {format_count(total - ties)} of {format_count(total)} answers are the plain ones, and "
            f"{format_count(ties)} part where the two likeliest tokens were nearer than rounding"
        )
    return (
        f"No, the output does not stay: {format_count(len(parted) - ties)} of {format_count(total)} answers part from the plain ones "
        "where rounding does not explain it"
    )


def _gain(result: SpeculateResult) -> Iterator[str]:
    best = fastest(result)
    if best is None:
        return
    run, speeds = best
    yield (
        f"{_verdict(speeds.measured)}: the fastest, {run.draft} at γ = {run.gamma}, decodes {format_number(speeds.measured)} times as "
        f"fast as plain, where acceptance and step costs predict {format_number(speeds.predicted)}{_best_by_formula(result, run)}"
    )
    yield (
        f"Prediction and stopwatch differ in three steps: a round gave {format_number(run.tokens_per_round)} tokens where one acceptance "
        f"at every place gives {format_number(run.expected_tokens_per_round)} (× {_ratio(speeds.with_tokens_counted, speeds.predicted)}); "
        f"of {format_count(run.num_rounds)} rounds {format_count(run.num_empty_rounds)} proposed nothing and "
        f"{format_count(run.num_cut_rounds)} were cut by the answer's end, which makes them cheaper "
        f"(× {_ratio(speeds.with_rounds_counted, speeds.with_tokens_counted)}); the rest is steps that took another time than where they "
        f"were measured, with {format_fraction(run.rollback_s / run.elapsed_s, 2)} for rolling back and "
        f"{format_fraction(run.other_s / run.elapsed_s, 2)} for the loop (× {_ratio(speeds.measured, speeds.with_rounds_counted)})"
    )


def _verdict(speed_up: float) -> str:
    """Timings of one run differ by some percent from those of the next."""
    if abs(speed_up - 1) < _NO_DIFFERENCE:
        return "It hardly changes the speed here"
    return "It gains" if speed_up > 1 else "It gains nothing here"


def _best_by_formula(result: SpeculateResult, fastest_run: DraftRun) -> str:
    """The best by prediction, where that is another one."""
    run, speeds = max(_choices(result), key=lambda each: each[1].predicted)
    if run == fastest_run:
        return ""
    return f"; by the formula the best would be {run.draft} at γ = {run.gamma} with {format_number(speeds.predicted)}"


def _ratio(value: float, before: float) -> str:
    return format_number(value / before)


def _losers(result: SpeculateResult) -> Iterator[str]:
    """Drafts that no acceptance would make pay."""
    hopeless = [run for run, _ in _choices(result) if run.break_even_acceptance is None]
    for draft in dict.fromkeys(run.draft for run in hopeless):
        run = next(each for each in hopeless if each.draft == draft)
        yield (
            f"The draft {draft} could not gain at γ = {run.gamma} even if every proposal were right: a round costs "
            f"{format_number(run.gamma * run.draft_cost + run.verify_cost)} plain steps "
            f"(a draft step {format_number(run.draft_cost)}, verifying {format_number(run.verify_cost)}) and gives {run.gamma + 1} tokens "
            f"at most; {format_fraction(run.acceptance)} of its judged proposals were right"
        )


def _drawn(result: SpeculateResult) -> Iterator[str]:
    if not result.sampled:
        return
    worst = max(result.sampled, key=lambda each: each.total_variation / each.total_variation_allowed)
    verdict = "follow" if worst.total_variation <= worst.total_variation_allowed else "do not follow"
    caught = sum(each.is_caught for each in result.planted)
    found = f"; {caught} of {len(result.planted)} mistakes made on purpose are found" if result.planted else ""
    yield (
        f"Drawn tokens {verdict} the target's own distribution: over {format_count(worst.num_draws)} draws a context the total variation "
        f"is at most {format_number(worst.total_variation)} where {format_number(worst.total_variation_allowed)} is allowed, and exactly "
        f"computed they miss it by {format_number(max(each.identity_error for each in result.sampled))}{found}"
    )


def _served(server: ServerResult) -> Iterator[str]:
    same = sum(each.is_same_text for each in server.answers)
    proposed = sum(each.num_proposed or 0 for each in server.answers)
    accepted = sum(each.num_accepted or 0 for each in server.answers)
    share = format_fraction(accepted / proposed) if proposed else ""
    drafted = (
        f"proposed {format_count(proposed)} tokens, of which {share} were accepted" if proposed else "proposed nothing"
    )
    said = [
        f"{format_number(load.on_tokens_per_s)} tokens/s with it and {format_number(load.off_tokens_per_s)} without at concurrency "
        f"{load.concurrency}"
        for load in server.loads
    ]
    yield (
        f"A real server, {server.engine} with its own option ({server.option}) gave the same text for {format_count(same)} of "
        f"{format_count(len(server.answers))} prompts and {', '.join(said)}; it "
        f"{drafted}"
    )
    slower = [each for each in server.answers if _is_slower(each.off_s_per_token, each.on_s_per_token)]
    if slower:
        worst = max(slower, key=lambda each: (each.on_s_per_token or 0) / (each.off_s_per_token or 1))
        yield (
            f"By its own clock {format_count(len(slower))} of {format_count(len(server.answers))} answers were slower with it, most "
            f"{worst.prompt}: {format_seconds(worst.on_s_per_token)} a token instead of {format_seconds(worst.off_s_per_token)}, with "
            f"{format_count(worst.num_accepted)} of {format_count(worst.num_proposed)} proposals accepted"
        )


def _is_slower(off_s: float | None, on_s: float | None) -> bool:
    return off_s is not None and on_s is not None and on_s > off_s * (1 + _NO_DIFFERENCE)


def _server_ratio(server: ServerResult | None) -> float | None:
    loads = [] if server is None else [each for each in server.loads if each.on_tokens_per_s and each.off_tokens_per_s]
    return (loads[0].on_tokens_per_s or 0) / (loads[0].off_tokens_per_s or 1) if loads else None
