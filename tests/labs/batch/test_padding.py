"""Left padding with positions from the mask gives each prompt what it gets alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from inference_bench.labs.batch.decoding import decode, in_one_pass
from inference_bench.labs.batch.faults import lengthen_padding
from inference_bench.labs.batch.padding import pad_left, pad_right
from labs.batch.tiny import PAD, PROMPTS, tiny_gpt2, tiny_llama

NEAR = 1e-5


def say(_line: str) -> None:
    return


def test_padding_stands_before_each_prompt_and_positions_count_real_tokens() -> None:
    padded = pad_left([[5, 9], [7, 1, 4]], PAD, extra=1)
    assert padded.ids.tolist() == [[0, 0, 5, 9], [0, 7, 1, 4]]
    assert padded.mask.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert padded.positions.tolist() == [[0, 0, 0, 1], [0, 0, 1, 2]]
    assert (padded.lengths, padded.width) == ([2, 3], 4)
    assert pad_right([[5, 9], [7, 1, 4]], PAD).ids.tolist() == [[5, 9, 0], [7, 1, 4]]


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_each_prompt_of_a_batch_gets_the_logits_and_tokens_it_gets_alone(make) -> None:  # type: ignore[no-untyped-def]
    network = make()
    together = decode(network, pad_left(PROMPTS, PAD), 6)
    for index, prompt in enumerate(PROMPTS):
        alone = decode(network, pad_left([prompt], PAD), 6)
        assert together.tokens[index] == alone.tokens[0]
        assert float((together.logits[:, index] - alone.logits[:, 0]).abs().max()) < NEAR


def test_one_pass_over_what_was_emitted_gives_the_logits_of_every_step() -> None:
    network = tiny_llama()
    together = decode(network, pad_left(PROMPTS, PAD), 6)
    found = in_one_pass(network, PROMPTS[1], together.tokens[1])
    assert found.shape == (6, 61)
    assert float((found - together.logits[:, 1]).abs().max()) < NEAR


def test_more_padding_leaves_the_logits_as_they_are() -> None:
    rows = lengthen_padding(tiny_llama(), PROMPTS[0], PAD, (0, 8, 64), 4, say)
    assert [row.num_pad_tokens for row in rows] == [0, 8, 64]
    assert all(row.max_difference < NEAR and row.num_changed_tokens == 0 for row in rows)


def test_a_run_along_given_tokens_feeds_those_and_not_its_own() -> None:
    network = tiny_llama()
    own = decode(network, pad_left([PROMPTS[0]], PAD), 4)
    forced = decode(network, pad_left([PROMPTS[0]], PAD), 4, forced=[[(token + 1) % 61 for token in own.tokens[0]]])
    assert torch.equal(own.logits[0], forced.logits[0])
    assert float((own.logits[1] - forced.logits[1]).abs().max()) > 1e-3
