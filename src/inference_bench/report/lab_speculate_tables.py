"""The figures of the speculate lab, table by table.

In:   SpeculateResult
Out:  Tables
Read next by: lab_speculate.
"""

from __future__ import annotations

from typing import Final

from inference_bench.charts.lab_speculate import longest_runs
from inference_bench.labs.speculate.checks import rollback_words
from inference_bench.labs.speculate.result import Comparison, DraftRun, ServerAnswer, SpeculateResult
from inference_bench.report.table import Cells, Column, Table
from inference_bench.units import (
    NOT_AVAILABLE,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

_DRAFT: Final = Column("draft", "l")
_GAMMA: Final = Column("γ")


def gains_table(result: SpeculateResult) -> Table:
    """Every draft at every γ: what it cost, how often it was right, what it gained."""
    columns = (
        _DRAFT,
        _GAMMA,
        Column(
            "accepted", note="accepted: of the proposals that were judged; those after the first rejection are not."
        ),
        Column("of all", note="of all: of all proposals, as servers count."),
        Column(
            "break-even", note="break-even: the acceptance above which it gains; none: not even a perfect draft does."
        ),
        Column("tokens/round"),
        Column("E[K]", note="E[K]: tokens a full round gives at that acceptance."),
        Column("predicted"),
        Column("measured"),
    )
    return Table(
        "What each draft gained: times as fast as plain decoding",
        columns,
        tuple(_gain_cells(run) for run in result.runs),
        marked=frozenset(i for i, run in enumerate(result.runs) if run.num_equal_prompts < run.num_prompts),
    )


def _gain_cells(run: DraftRun) -> Cells:
    speeds = run.speed_ups
    return (
        run.draft,
        format_count(run.gamma),
        format_fraction(run.acceptance),
        format_fraction(run.accepted_of_proposed_fraction),
        "none" if run.break_even_acceptance is None else format_fraction(run.break_even_acceptance),
        format_number(run.tokens_per_round),
        format_number(run.expected_tokens_per_round),
        NOT_AVAILABLE if speeds is None else format_number(speeds.predicted),
        NOT_AVAILABLE if speeds is None else format_number(speeds.measured),
    )


def stopwatch_table(result: SpeculateResult) -> Table:
    """From the formula to the stopwatch."""
    columns = (
        _DRAFT,
        _GAMMA,
        Column("formula"),
        Column("tokens", note="tokens: with the tokens a round gave in the place of E[K]."),
        Column("rounds", note="rounds: also with what each round proposed in the place of γ."),
        Column("stopwatch"),
        Column(
            "empty", note="empty: rounds in which nothing was proposed; cut: those that the answer's end made shorter."
        ),
        Column("cut"),
        Column("drafting"),
        Column("rollback"),
        Column(
            "loop",
            note="Shares are of decoding's time; loop: choosing and counting around the steps; the rest is verifying.",
        ),
    )
    rows = tuple(_stopwatch_cells(run) for run in result.runs if run.speed_ups is not None)
    return Table("From the formula to the stopwatch", columns, rows)


def _stopwatch_cells(run: DraftRun) -> Cells:
    speeds = run.speed_ups
    shown = (
        ()
        if speeds is None
        else (speeds.predicted, speeds.with_tokens_counted, speeds.with_rounds_counted, speeds.measured)
    )
    shares = (run.draft_s, run.rollback_s, run.other_s)
    return (
        run.draft,
        format_count(run.gamma),
        *(format_number(each) for each in shown),
        f"{format_count(run.num_empty_rounds)}/{format_count(run.num_rounds)}",
        f"{format_count(run.num_cut_rounds)}",
        *(format_fraction(each / run.elapsed_s, 2) for each in shares),
    )


def places_table(result: SpeculateResult) -> Table:
    """Acceptance by place in the draft, at each draft's longest γ."""
    columns = (_DRAFT, _GAMMA, Column("place"), Column("judged"), Column("right"), Column("share"))
    rows = tuple(
        (
            run.draft,
            format_count(run.gamma),
            format_count(each.position),
            format_count(each.num_trials),
            format_count(each.num_accepted),
            format_fraction(each.num_accepted / each.num_trials if each.num_trials else None),
        )
        for run in longest_runs(result.runs)
        for each in run.by_position
    )
    return Table("Where in the draft proposals are right", columns, rows)


def costs_table(result: SpeculateResult) -> Table:
    """What each step took at one context."""
    costs = result.costs
    if costs is None:
        return Table("Step costs", (), ())
    rows = [("plain decode step of the target", format_seconds(costs.step_s), format_number(1.0))]
    rows += [
        (
            f"verifying step, γ = {gamma} ({gamma + 1} positions)",
            format_seconds(taken_s),
            format_number(costs.verify_cost(gamma)),
        )
        for gamma, taken_s in costs.verify_s.items()
    ]
    rows += [
        (f"draft step, {name}", format_seconds(taken_s), format_number(costs.draft_cost(name)))
        for name, taken_s in costs.draft_step_s.items()
    ]
    note = f"Medians of {format_count(costs.num_repeats)} of each, in turn, after {format_count(costs.context_tokens)} tokens."
    return Table("Step costs", (Column("step", "l"), Column("time"), Column("in plain steps")), tuple(rows), note)


def sampled_table(result: SpeculateResult) -> Table:
    """Tokens drawn with a temperature."""
    columns = (
        _DRAFT,
        Column("contexts"),
        Column("Σ min(p, q)"),
        Column("accepted"),
        Column("identity off"),
        Column(
            "TV",
            note="TV: total variation of the drawn first tokens from the target's distribution, mean over contexts.",
        ),
        Column("expected"),
        Column("allowed"),
    )
    rows = tuple(
        (
            each.draft,
            format_count(each.num_contexts),
            format_fraction(each.acceptance_analytic),
            format_fraction(each.acceptance_sampled),
            format_number(each.identity_error),
            format_number(each.total_variation),
            format_number(each.total_variation_expected),
            format_number(each.total_variation_allowed),
        )
        for each in result.sampled
    )
    return Table("Drawn by acceptance and residual", columns, rows)


def planted_table(result: SpeculateResult) -> Table:
    """Mistakes made on purpose, and by what they were found."""
    columns = (Column("mistake", "l"), Column("found", "l"), Column("by", "l"))
    drawn = [
        (
            each.name,
            "yes" if each.is_caught else "NO",
            f"total variation {format_number(each.total_variation)}, allowed {format_number(each.total_variation_allowed)}",
        )
        for each in result.planted
    ]
    rolled = [
        (
            f"cache rolled back, {rollback_words(each.off_by)}",
            "yes" if each.is_caught_by_tokens or each.is_caught_by_logits else "NO",
            f"{'tokens and logits' if each.is_caught_by_tokens else 'logits alone'}, off by {format_number(each.max_logit_difference)}",
        )
        for each in result.planted_rollbacks
    ]
    return Table("Planted mistakes", columns, (*drawn, *rolled))


def answers_table(result: SpeculateResult) -> Table:
    """The server's answers, its option off and on."""
    columns = (
        Column("prompt", "l"),
        Column("text", "l"),
        Column("off, a token"),
        Column("on, a token"),
        Column("off/on"),
        Column("proposed"),
        Column("accepted"),
        Column("share"),
    )
    answers = () if result.server is None else result.server.answers
    return Table("The server's answers, one by one", columns, tuple(map(_answer_cells, answers)))


def _answer_cells(answer: ServerAnswer) -> Cells:
    off, on, proposed = answer.off_s_per_token, answer.on_s_per_token, answer.num_proposed
    text = "same" if answer.is_same_text else f"differs at {format_count(answer.first_difference)}"
    return (
        answer.prompt,
        text,
        format_seconds(off),
        format_seconds(on),
        format_number(off / on if off and on else None),
        format_count(proposed),
        format_count(answer.num_accepted),
        format_fraction((answer.num_accepted or 0) / proposed if proposed else None),
    )


def loads_table(result: SpeculateResult) -> Table:
    """The server under load, its option off and on."""
    columns = (
        Column("concurrency"),
        Column("requests"),
        Column("off, tokens/s"),
        Column("on, tokens/s"),
        Column("on/off"),
    )
    loads = () if result.server is None else result.server.loads
    rows = tuple(
        (
            format_count(each.concurrency),
            format_count(each.num_requests),
            format_number(each.off_tokens_per_s),
            format_number(each.on_tokens_per_s),
            format_number(
                each.on_tokens_per_s / each.off_tokens_per_s if each.on_tokens_per_s and each.off_tokens_per_s else None
            ),
        )
        for each in loads
    )
    return Table("The server under load", columns, rows)


def prompts_table(result: SpeculateResult) -> Table:
    """What was decoded."""
    columns = (
        Column("prompt", "l"),
        Column("prompt tokens"),
        Column("answer tokens"),
        Column("ended", "l"),
        Column("a step"),
    )
    rows = tuple(
        (
            each.name,
            format_count(each.num_prompt_tokens),
            format_count(each.num_tokens),
            "by itself" if each.has_ended else "at the length asked for",
            format_seconds(each.step_s),
        )
        for each in result.prompts
    )
    return Table("Prompts, decoded plainly", columns, rows)


def comparisons_table(result: SpeculateResult) -> Table:
    """Every speculative answer beside the plain one."""
    columns = (
        Column("prompt", "l"),
        _DRAFT,
        _GAMMA,
        Column("tokens equal"),
        Column("logits differ by"),
        Column("top-two gap", note="top-two gap: in the plain run, at the first token that differs."),
        Column("reading", "l"),
    )
    rows = tuple(map(_comparison_cells, result.comparisons))
    odd = frozenset(i for i, each in enumerate(result.comparisons) if each.divergence is not None)
    return Table("Every answer beside the plain one", columns, rows, marked=odd)


def _comparison_cells(compared: Comparison) -> Cells:
    parted = compared.divergence
    reading = "equal" if parted is None else "a near tie" if parted.is_near_tie else "a fault"
    return (
        compared.prompt,
        compared.draft,
        format_count(compared.gamma),
        f"{format_count(compared.num_equal_tokens)} of {format_count(compared.num_tokens)}",
        format_number(compared.max_logit_difference),
        format_number(None if parted is None else parted.top_two_gap),
        reading,
    )
