"""Documents of a random model: always valid when they are finished, never when they are cut off, and caught when masks are wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.labs.grammar.builtin import BUILT_IN
from inference_bench.labs.grammar.enforced import grammar_of
from inference_bench.labs.grammar.faults import plant_faults
from inference_bench.labs.grammar.judging import judge
from inference_bench.labs.grammar.matching import SchemaMasks
from inference_bench.labs.grammar.size import document_size
from inference_bench.labs.grammar.timing import step_parts
from inference_bench.labs.grammar.tracing import trace
from inference_bench.labs.grammar.writing import Written, greedy, only, sampled, write
from inference_bench.measure.text_checks import structured_check
from labs.grammar.tiny import model, network, vocabulary

torch = pytest.importorskip("torch")
pytest.importorskip("llguidance")
pytest.importorskip("transformers")

BUDGET = 400


def written(schema: Any, seed: int | None, budget: int = BUDGET) -> tuple[Written, str]:
    masks = SchemaMasks(vocabulary(), grammar_of(schema))
    choose = greedy if seed is None else sampled(2.0, seed)
    made = write(model(), masks, choose, budget, vocabulary().ends)
    return made, vocabulary().text_bytes(made.tokens).decode("utf-8", "replace")


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("built", BUILT_IN[:4], ids=lambda built: built.name)
def test_a_finished_document_is_valid_and_within_its_schemas_bound(built: Any, seed: int | None) -> None:
    made, text = written(built.schema, seed)
    assert made.is_finished
    assert judge(text, True, structured_check(built.schema)).is_valid
    most = document_size(built.schema).most_bytes
    assert most is not None
    assert len(made.tokens) <= len(text.encode()) <= most


@pytest.mark.parametrize("budget", [1, 3, 7])
def test_a_document_that_is_cut_off_is_a_valid_beginning_and_no_valid_document(budget: int) -> None:
    schema = BUILT_IN[1].schema
    made, text = written(schema, None, budget)
    whole, _ = written(schema, None)
    found = trace(vocabulary(), grammar_of(schema), made.tokens)
    assert not made.is_finished
    assert made.tokens == whole.tokens[:budget]
    assert found.prefix_valid
    assert not found.is_whole
    assert not judge(text, made.is_finished, structured_check(schema)).is_valid


def test_a_number_that_is_cut_off_is_invalid_though_it_reads_as_one() -> None:
    verdict = judge("12", False, structured_check({"type": "integer"}))
    assert verdict.is_json
    assert not verdict.is_valid
    assert judge("12", True, structured_check({"type": "integer"})).is_valid


def test_without_masks_a_random_model_writes_no_document() -> None:
    made = write(model(), None, sampled(1.0, 5), 60, vocabulary().ends)
    text = vocabulary().text_bytes(made.tokens).decode("utf-8", "replace")
    assert not judge(text, made.is_finished, structured_check(BUILT_IN[0].schema)).is_valid
    assert trace(vocabulary(), grammar_of(BUILT_IN[0].schema), made.tokens).num_outside == 1


def test_both_planted_faults_are_caught() -> None:
    schema = BUILT_IN[0].schema
    faults = plant_faults(model(), vocabulary(), grammar_of(schema), structured_check(schema), 60)
    assert [fault.is_caught for fault in faults] == [True, True]
    assert all("outside its mask" in fault.caught_by and "document invalid" in fault.caught_by for fault in faults)


def test_a_document_after_another_on_the_same_cache_is_what_it_is_alone() -> None:
    shared, grammar = model(), grammar_of(BUILT_IN[1].schema)
    first, second = (write(shared, SchemaMasks(vocabulary(), grammar), greedy, 40, vocabulary().ends) for _ in range(2))
    assert first.tokens == second.tokens
    prompt = vocabulary().tokens_of(b"Oslo")
    with torch.inference_mode():
        full = network()(input_ids=torch.tensor([prompt + first.tokens[:5]])).logits[0, -1]
        shared.restart()
        for token in first.tokens[:5]:
            cached = shared.step(token)
    assert torch.allclose(full, cached, atol=1e-5)


def test_what_is_not_allowed_has_no_probability() -> None:
    import numpy as np

    allowed = np.array([True, False, True])
    masked = only(torch.tensor([1.0, 9.0, 2.0]), allowed)
    assert masked.tolist() == [1.0, -math.inf, 2.0]
    assert {sampled(5.0, seed)(masked) for seed in range(30)} == {0, 2}
    assert sampled(1e-45, 0)(masked) == 2  # so cold that only the likeliest is left, and no number overflows
    with pytest.raises(MeasurementError, match="no token at all"):
        only(torch.zeros(3), np.zeros(3, dtype=bool))
    with pytest.raises(MeasurementError, match="a mask of 2 tokens does not fit logits of 3"):
        only(torch.zeros(3), np.ones(2, dtype=bool))


def test_the_trace_counts_forced_steps_and_stops_at_the_first_token_outside() -> None:
    grammar = grammar_of({"enum": ["ab", "ac"]})
    tokens = vocabulary().tokens_of(b'"ab"')
    found = trace(vocabulary(), grammar, tokens)
    assert found.is_whole
    assert found.num_outside == 0
    assert found.num_forced == sum(step.num_allowed == 1 for step in found.steps)
    wrong = trace(vocabulary(), grammar, [*tokens[:-1], *vocabulary().tokens_of(b"z"), *tokens[-1:]])
    assert wrong.num_outside == 1
    assert not wrong.prefix_valid
    assert not wrong.is_whole


def test_parts_of_a_step_leave_out_the_first_and_share_out_the_whole() -> None:
    made = Written(parts_s=[{"choose": 9.0}, {"model": 3.0, "choose": 1.0}, {"model": 5.0, "choose": 1.0}])
    model_part, choose = step_parts([made], is_constrained=False)
    assert (model_part.name, model_part.num_steps, model_part.total_s, model_part.median_s) == ("model", 2, 8.0, 4.0)
    assert model_part.share_fraction == pytest.approx(0.8)
    assert choose.share_fraction == pytest.approx(0.2)
