"""Greedy speculation gives the plain answer, whatever the draft; and counts its rounds right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.cached_network import CachedNetwork  # noqa: E402
from inference_bench.labs.speculate.compare import compare  # noqa: E402
from inference_bench.labs.speculate.drafts import Draft, LookupDraft, NetworkDraft  # noqa: E402
from inference_bench.labs.speculate.early_exit import first_layers  # noqa: E402
from inference_bench.labs.speculate.greedy import (  # noqa: E402
    Decoded,
    Limits,
    decode_plainly,
    decode_speculatively,
    judge,
)
from inference_bench.labs.speculate.planted import WronglyRolledBack, plant_rollback  # noqa: E402
from labs.speculate.tiny import VOCABULARY, ScriptedDraft, tiny_network  # noqa: E402

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
TOKENS = 20


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def greedy_without_a_cache(network: Any, prompt: list[int], num_tokens: int) -> list[int]:
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(int(network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def drafts_for(network: Any, seed: int) -> list[Draft]:
    return [
        LookupDraft(),
        NetworkDraft("early exit", first_layers(network, 2), VOCABULARY),
        NetworkDraft("another model", tiny_network(seed + 100, 2), VOCABULARY),
        NetworkDraft("itself", network, VOCABULARY),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_every_draft_at_every_length_gives_the_answer_of_a_model_without_a_cache(seed: int) -> None:
    network = tiny_network(seed)
    expected = greedy_without_a_cache(network, PROMPT, TOKENS)
    target = CachedNetwork(network)
    plain = decode_plainly(target, PROMPT, Limits(TOKENS))
    assert plain.ids == expected
    for draft in drafts_for(network, seed):
        for gamma in (1, 3, 5):
            done = decode_speculatively(target, draft, PROMPT, gamma, Limits(TOKENS))
            assert done.ids == expected, (draft.name, gamma)
            compared = compare(plain, done, "p", draft.name, gamma)
            assert compared.divergence is None
            assert compared.max_logit_difference < 1e-4


def test_a_draft_that_is_the_target_is_always_right_and_a_round_gives_one_token_more_than_it_proposes() -> None:
    network = tiny_network()
    done = decode_speculatively(
        CachedNetwork(network), NetworkDraft("itself", network, VOCABULARY), PROMPT, 3, Limits(13)
    )
    assert [(each.num_proposed, each.num_accepted, each.num_emitted) for each in done.rounds] == [(3, 3, 4)] * 3


def scripted(wrong: set[int], gamma: int, limits: Limits) -> Decoded:
    network = tiny_network()
    plain = decode_plainly(CachedNetwork(network), PROMPT, Limits(limits.num_tokens))
    draft = ScriptedDraft(plain.ids, len(PROMPT), frozenset(wrong))
    return decode_speculatively(CachedNetwork(network), draft, PROMPT, gamma, limits)


def test_what_is_behind_the_first_wrong_proposal_is_not_counted_as_judged() -> None:
    done = scripted({2}, 4, Limits(10))
    first = done.rounds[0]  # proposes tokens 1 to 4, of which 2 is wrong
    assert (first.num_proposed, first.num_trials, first.num_accepted, first.num_emitted) == (4, 2, 1, 2)


def test_the_last_round_is_only_as_long_as_the_answer_has_room_and_is_marked_as_cut() -> None:
    done = scripted(set(), 4, Limits(8))  # one token from the prompt, five from the first round, two are left
    assert len(done.ids) == 8
    assert [(each.num_wanted, each.num_emitted, each.is_cut) for each in done.rounds] == [(4, 5, False), (1, 2, True)]


def test_an_answer_with_room_for_one_token_verifies_nothing() -> None:
    done = scripted(set(), 4, Limits(7))
    assert [(each.num_proposed, each.num_trials, each.num_emitted) for each in done.rounds] == [(4, 4, 5), (0, 0, 1)]


def test_speculation_stops_at_the_stop_token_where_plain_decoding_stops() -> None:
    network = tiny_network()
    whole = decode_plainly(CachedNetwork(network), PROMPT, Limits(TOKENS)).ids
    stop = next(token for place, token in enumerate(whole) if place >= 3 and token not in whole[:place])
    limits = Limits(TOKENS, {stop})
    plain = decode_plainly(CachedNetwork(network), PROMPT, limits)
    assert plain.ids == whole[: whole.index(stop) + 1]
    for gamma in (1, 2, 5, 8):
        done = decode_speculatively(
            CachedNetwork(network), NetworkDraft("itself", network, VOCABULARY), PROMPT, gamma, limits
        )
        assert done.ids == plain.ids, gamma
        assert done.all_logits.shape[0] == len(done.ids)


def test_a_stop_token_inside_an_accepted_draft_ends_the_round_there() -> None:
    emitted, judged = judge([5, 6, 7, 8], [5, 6, 7, 8, 9], {6}, 4, 4)
    assert emitted == [5, 6]
    assert (judged.num_trials, judged.num_accepted, judged.num_emitted, judged.is_cut) == (2, 2, 2, True)


def test_a_stop_token_that_the_target_puts_in_the_place_of_a_wrong_proposal_is_an_ordinary_rejection() -> None:
    emitted, judged = judge([5, 1, 7], [5, 6, 2, 3], {6}, 3, 3)
    assert emitted == [5, 6]
    assert (judged.num_trials, judged.num_accepted, judged.num_emitted, judged.is_cut) == (2, 1, 2, False)


def test_after_each_round_the_cache_holds_all_tokens_but_the_last() -> None:
    network = tiny_network()
    target = CachedNetwork(network)
    done = decode_speculatively(target, NetworkDraft("other", tiny_network(7), VOCABULARY), PROMPT, 3, Limits(TOKENS))
    assert len(target) == len(PROMPT) + len(done.ids) - 1
    assert any(each.num_accepted < each.num_proposed for each in done.rounds)


@pytest.mark.parametrize("off_by", [1, -1])
def test_a_cache_rolled_back_to_the_wrong_place_is_noticed(off_by: int) -> None:
    caught_by_tokens = 0
    for seed in range(4):
        network = tiny_network(seed)
        plain = decode_plainly(CachedNetwork(network), PROMPT, Limits(TOKENS))
        draft = NetworkDraft("other", tiny_network(seed + 100, 2), VOCABULARY)
        found = plant_rollback(WronglyRolledBack(network, off_by), draft, 3, PROMPT, plain, 1e-3, lambda _count: None)
        assert found is not None
        assert found.is_caught_by_logits
        caught_by_tokens += found.is_caught_by_tokens
    assert caught_by_tokens > 0


def test_a_rollback_without_the_mistake_is_not_reported_as_one() -> None:
    network = tiny_network()
    plain = decode_plainly(CachedNetwork(network), PROMPT, Limits(TOKENS))
    draft = NetworkDraft("other", tiny_network(100, 2), VOCABULARY)
    found = plant_rollback(WronglyRolledBack(network, 0), draft, 3, PROMPT, plain, 1e-3, lambda _count: None)
    assert found is not None
    assert not found.is_caught_by_logits
    assert not found.is_caught_by_tokens


def test_where_no_proposal_is_wrong_nothing_is_taken_back_so_a_planted_mistake_shows_nothing() -> None:
    network = tiny_network()
    plain = decode_plainly(CachedNetwork(network), PROMPT, Limits(9))
    draft = ScriptedDraft(plain.ids, len(PROMPT))
    wrong = WronglyRolledBack(network, 1)
    assert plant_rollback(wrong, draft, 3, PROMPT, plain, 1e-3, lambda _count: None) is None
