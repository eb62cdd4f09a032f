"""Each way in which a server misbehaves gets its verdict, and a good one gets none of them."""

from __future__ import annotations

from typing import Any

import pytest

from inference_bench.operate.contract.flow import Wish, check_contract
from inference_bench.operate.contract.rows import Row, Verdict
from operate.contract.fake_model_server import TIE, WIDE, Faults, fake_model_server

YES, NO, PARTLY, UNKNOWN = Verdict.YES, Verdict.NO, Verdict.PARTLY, Verdict.UNKNOWN


def rows(*groups: str, is_quick: bool = False, **faults: Any) -> dict[str, Row]:
    with fake_model_server(Faults(**faults)) as model:
        found = check_contract(model.url, Wish(only=groups, is_quick=is_quick, timeout_s=10, budget_s=30))
    assert found.lost is None
    return {row.id: row for row in found.rows}


def verdicts(*groups: str, **faults: Any) -> dict[str, Verdict]:
    return {row_id: row.verdict for row_id, row in rows(*groups, **faults).items()}


def test_a_good_server_does_everything_that_it_could_be_blamed_for() -> None:
    found = verdicts("limits", "streaming", "stops", "structured", "tools", "logprobs", "sampling", "context", "text")
    found |= verdicts("cancellation", "template", "parallel", "greedy")
    not_yes = {row_id: verdict for row_id, verdict in found.items() if verdict is not YES}
    assert not_yes == {
        "streaming.usage_unasked": NO,
        "streaming.keeps_connection": NO,
        "streaming.comments": UNKNOWN,
        "stops.finish_filter": UNKNOWN,
        "logprobs.echo": PARTLY,
        "logprobs.prompt": NO,
    }


def test_the_field_that_bounds_the_output_is_found_by_its_effect() -> None:
    found = rows("limits", ignored={"max_tokens"})
    assert (found["limits.max_tokens"].verdict, found["limits.max_completion_tokens"].verdict) == (NO, YES)
    assert found["limits.max_tokens"].action == "send max_completion_tokens instead"
    assert "max_completion_tokens" in found["limits.both"].seen


def test_a_limit_that_is_ignored_everywhere_is_seen_without_waiting_for_the_whole_answer() -> None:
    found = rows("limits", ignored={"max_tokens", "max_completion_tokens", "n_predict"})
    assert {row.verdict for row in found.values()} == {NO}
    assert "more than 40 pieces" in found["limits.max_tokens"].seen


def test_the_limit_is_known_by_pieces_and_reason_where_nothing_is_counted() -> None:
    found = rows("limits", has_no_usage=True)
    assert found["limits.max_tokens"].verdict is YES
    assert "no count" in found["limits.max_tokens"].seen


def test_usage_that_never_comes_is_no_and_what_rests_on_it_is_unknown() -> None:
    found = verdicts("streaming", "text", "template", has_no_usage=True)
    assert (found["streaming.include_usage"], found["streaming.usage_whole"]) == (NO, NO)
    assert (found["text.sent"], found["template.counted"], found["template.no_own_system"]) == (UNKNOWN,) * 3


def test_stream_options_that_are_ignored_are_no() -> None:
    found = verdicts("streaming", ignored={"stream_options"})
    assert (found["streaming.include_usage"], found["streaming.continuous_usage"]) == (NO, NO)


@pytest.mark.parametrize(
    ("faults", "row_id", "verdict"),
    [
        ({"ignored": {"stop"}}, "stops.string", NO),
        ({"ignored": {"stop"}}, "stops.across_chunks", NO),
        ({"keeps_stop": True}, "stops.left_out", NO),
        ({"keeps_stop": True}, "stops.string", YES),
        ({"leaks_stop": True}, "stops.across_chunks", PARTLY),
        ({"lies_in_finish": True}, "stops.finish_length", NO),
        ({"lies_in_finish": True}, "stops.finish_stop", NO),
        ({"is_random": True}, "stops.string", UNKNOWN),
    ],
)
def test_stop_strings_and_finish_reasons_are_judged_by_the_text(faults: Any, row_id: str, verdict: Verdict) -> None:
    assert verdicts("stops", **faults)[row_id] is verdict


def test_a_keyword_is_enforced_ignored_or_refused_and_the_three_are_told_apart() -> None:
    found = rows("structured", ignored_keywords={"pattern", "multipleOf"}, refused_keywords={"uniqueItems"})
    outcomes = {row_id.partition(".")[2]: row.figures.get("outcome") for row_id, row in found.items()}
    assert (outcomes["pattern"], outcomes["multipleOf"], outcomes["uniqueItems"]) == ("ignored", "ignored", "refused")
    enforced = ("minLength", "maxLength", "format", "not", "minimum", "minItems", "maxItems", "minProperties", "if")
    assert {outcomes[name] for name in enforced} == {"enforced"}
    assert "HTTP 400" in found["structured.uniqueItems"].seen


def test_a_way_of_asking_for_json_that_is_ignored_is_not_taken_for_one_that_works() -> None:
    found = verdicts("structured", ignored={"response_format", "structured_outputs", "grammar"})
    assert [found[f"structured.{way}"] for way in ("json_object", "json_schema", "structured_outputs", "grammar")] == [
        NO
    ] * 4
    assert found["structured.guided_json"] is YES
    assert found["structured.pattern"] is YES  # asked by guided_json, the way that works


def test_a_keyword_that_the_model_keeps_unasked_is_unknown_not_enforced() -> None:
    found = rows("structured", writes_b=True, ignored_keywords={"not"})
    assert (found["structured.not"].verdict, found["structured.if"].verdict) == (UNKNOWN, UNKNOWN)
    assert "unasked" in found["structured.not"].seen
    assert found["structured.pattern"].verdict is YES


def test_a_server_that_asks_for_no_key_is_said_to_be_open_once() -> None:
    found = rows("routes")
    assert (found["routes.absent_key"].verdict, found["routes.wrong_key"].verdict) == (NO, NO)
    assert (bool(found["routes.absent_key"].action), found["routes.wrong_key"].action) == (True, "")
    assert (found["routes.tokenize"].verdict, found["routes.sglang"].verdict) == (NO, NO)


def test_a_quick_check_leaves_keywords_out_and_says_so() -> None:
    found = rows("structured", is_quick=True)
    assert (found["structured.pattern"].verdict, found["structured.pattern"].seen) == (
        UNKNOWN,
        "left out of a quick check",
    )


def test_tools_that_never_reach_the_prompt_are_no_though_the_server_takes_them() -> None:
    found = verdicts("tools", ignored={"tools", "tool_choice"})
    assert (found["tools.accepted"], found["tools.required"], found["tools.finish_reason"]) == (NO, NO, UNKNOWN)


def test_seeds_and_counts_of_several_choices_are_judged_by_what_came() -> None:
    assert verdicts("sampling", ignored={"seed"})["sampling.seed"] is NO
    assert verdicts("sampling", one_choice_usage=True)["sampling.n"] is PARTLY


def test_a_prompt_that_is_silently_cut_is_found_by_the_count() -> None:
    found = rows("context", truncates=True)
    assert (found["context.error"].verdict, found["context.not_truncated"].verdict) == (NO, NO)
    assert found["context.not_truncated"].figures == {"prompt_tokens": 200, "sent_tokens": 266}


def test_a_prompt_that_is_silently_cut_without_a_count_is_unknown() -> None:
    assert verdicts("context", truncates=True, has_no_usage=True)["context.not_truncated"] is UNKNOWN


@pytest.mark.parametrize(("fault", "said"), [("splits_characters", "not UTF-8"), ("loses_characters", "U+FFFD")])
def test_broken_characters_in_a_stream_are_no(fault: str, said: str) -> None:
    row = rows("text", **{fault: True})["text.streamed"]
    assert row.verdict is NO
    assert said in row.seen


def test_work_that_goes_on_after_its_reader_left_is_no_and_without_metrics_unknown() -> None:
    assert verdicts("cancellation", works_on=True)["cancellation.stops"] is NO
    row = rows("cancellation", no_metrics=True)["cancellation.stops"]
    assert (row.verdict, row.seen) == (UNKNOWN, "the server does not say how many requests it works on")
    assert row.action == "turn the server's metrics on, and check again"


def test_a_system_message_that_the_template_adds_shows_in_the_counts() -> None:
    row = rows("template", injects_system=True)["template.no_own_system"]
    assert (row.verdict, row.figures) == (NO, {"without_system": 17, "empty_system": 8})


def test_mistakes_that_are_refused_are_told_from_those_that_are_ignored() -> None:
    strict, lax = rows("errors", refuses_unknown=True), verdicts("errors")
    assert (strict["errors.unknown_field"].verdict, strict["errors.unknown_model"].verdict) == (YES, YES)
    assert strict["errors.unknown_field"].seen == "HTTP 400: unrecognized field inference_bench_unknown_field"
    assert (lax["errors.unknown_field"], lax["errors.unknown_model"], lax["errors.invalid_json"]) == (NO, NO, YES)


def test_a_batch_that_parts_at_a_near_tie_is_partly_and_one_that_parts_widely_is_a_bug() -> None:
    tie, bug = rows("greedy", batch_gap=TIE)["greedy.batched"], rows("greedy", batch_gap=WIDE)["greedy.batched"]
    assert (tie.verdict, tie.figures["kind"], tie.figures["first_divergence"]) == (PARTLY, "near_tie", 3)
    assert tie.figures["gap_nats"] == pytest.approx(TIE)
    assert (bug.verdict, bug.figures["kind"], bug.figures["top_two_gap_nats"]) == (NO, "bug", WIDE)
    assert "token 3" in bug.seen


def test_log_probabilities_that_move_too_far_in_a_batch_are_a_bug_though_the_text_is_the_same() -> None:
    row = rows("greedy", shift=0.5)["greedy.batched"]
    assert (row.verdict, row.figures["different"], row.figures["shift_nats"]) == (NO, 0, pytest.approx(0.5))


def test_texts_that_part_without_log_probabilities_are_unknown_not_a_bug() -> None:
    row = rows("greedy", is_random=True, no_logprobs=True)["greedy.repeated"]
    assert (row.verdict, row.figures["kind"]) == (UNKNOWN, "unknown")


def test_a_server_without_chats_is_asked_by_completions() -> None:
    with fake_model_server(Faults(only_completions=True)) as model:
        found = check_contract(model.url, Wish(only=("routes", "limits", "tools")))
    assert found.route == "/v1/completions"
    assert [row.verdict for row in found.rows if row.id in ("routes.chat", "limits.max_tokens", "tools.accepted")] == [
        NO,
        YES,
        UNKNOWN,
    ]
