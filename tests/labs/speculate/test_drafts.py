"""Who proposes: lookups by hand, an early exit against its own layers, vocabularies token by token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.cached_network import CachedNetwork  # noqa: E402
from inference_bench.labs.speculate.drafts import NetworkDraft  # noqa: E402
from inference_bench.labs.speculate.early_exit import first_layers  # noqa: E402
from inference_bench.labs.speculate.lookup import look_up  # noqa: E402
from inference_bench.labs.speculate.vocabulary import require_same_vocabulary  # noqa: E402
from labs.speculate.tiny import NUM_LAYERS, VOCABULARY, tiny_network  # noqa: E402

# ── lookup ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("context", "count", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2, 3], 2, [4, 9]),  # three tokens stand there before
        ([7, 2, 3, 4, 9, 1, 2, 3], 2, [4, 9]),  # only two of them
        ([7, 7, 3, 4, 9, 1, 2, 3], 2, [4, 9]),  # only the last
        ([1, 2, 3, 4], 2, []),  # nothing
        ([1, 2, 3, 5, 8, 2, 3, 6, 1, 2, 3], 1, [5]),  # the longer match, though the shorter is later
        ([2, 3, 5, 8, 2, 3, 6, 8, 1, 2, 3], 1, [6]),  # of equal matches the later one
        ([4, 4, 4, 4, 4], 3, [4]),  # a loop: the match that is followed by most, here one token
        ([5, 6, 5, 6, 5, 6, 5], 4, [6, 5]),
        ([5], 4, []),
        ([], 4, []),
    ],
)
def test_a_lookup_proposes_what_followed_the_longest_match(context: list[int], count: int, expected: list[int]) -> None:
    proposed = look_up(context, count)
    assert proposed[: len(expected)] == expected
    assert len(proposed) <= count
    assert bool(proposed) == bool(expected)


# ── early exit ─────────────────────────────────────────────────────────────────────────────────────


def by_hand(network: Any, ids: list[int], num_layers: int) -> Any:
    inner = network.model
    hidden = inner.embed_tokens(torch.tensor([ids]))
    places = torch.arange(len(ids)).unsqueeze(0)
    mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)[None, None]
    for layer in inner.layers[:num_layers]:
        hidden = layer(
            hidden, attention_mask=mask, position_ids=places, position_embeddings=inner.rotary_emb(hidden, places)
        )
    return network.lm_head(inner.norm(hidden))[0]


@pytest.mark.parametrize("num_layers", [1, 2, NUM_LAYERS])
def test_an_early_exit_is_the_first_layers_then_the_last_norm_and_the_head(num_layers: int) -> None:
    network, ids = tiny_network(), [3, 1, 4, 1, 5]
    with torch.inference_mode():
        found = first_layers(network, num_layers)(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        torch.testing.assert_close(found, by_hand(network, ids, num_layers), atol=1e-5, rtol=1e-4)


def test_an_early_exit_shares_every_weight_and_leaves_the_model_as_it_was() -> None:
    network = tiny_network()
    shorter = first_layers(network, 1)
    assert len(shorter.model.layers) == 1
    assert len(network.model.layers) == NUM_LAYERS == network.config.num_hidden_layers
    mine = {each.data_ptr() for each in network.parameters()}
    assert all(each.data_ptr() in mine for each in shorter.parameters())


@pytest.mark.parametrize("num_layers", [0, NUM_LAYERS + 1])
def test_an_exit_after_layers_that_are_not_there_is_refused_with_how_many_there_are(num_layers: int) -> None:
    with pytest.raises(RequestError, match=f"the model has {NUM_LAYERS} layers.*after {num_layers}"):
        first_layers(tiny_network(), num_layers)


# ── a network that drafts ──────────────────────────────────────────────────────────────────────────


def test_a_draft_with_a_cache_proposes_what_it_would_without_one_after_its_proposals_were_refused() -> None:
    network, context = tiny_network(3), [3, 1, 4, 1, 5]
    draft = NetworkDraft("d", network, VOCABULARY)
    with torch.inference_mode():
        draft.begin(context)
        for _ in range(4):
            proposed = draft.propose(context, 3)
            fresh = NetworkDraft("d", network, VOCABULARY)
            fresh.begin(context)
            assert proposed == fresh.propose(context, 3)
            context = [*context, proposed[0], (proposed[1] + 1) % VOCABULARY]  # the second was wrong


def test_a_draft_never_proposes_an_id_that_the_target_has_no_row_for() -> None:
    network = tiny_network()
    with torch.inference_mode():
        network.lm_head.weight[-5:] = 100 * network.lm_head.weight[-5:].abs()
        draft = NetworkDraft("d", network, VOCABULARY - 5)
        draft.begin([1, 2, 3])
        assert all(each < VOCABULARY - 5 for each in draft.propose([1, 2, 3], 6))


def test_a_model_that_keeps_a_sum_in_the_place_of_a_cache_cannot_be_rolled_back() -> None:
    network = SimpleNamespace(config=SimpleNamespace(layer_types=["full_attention", "linear_attention"]))
    with pytest.raises(RequestError, match="linear_attention cannot take back"):
        CachedNetwork(network)


# ── vocabularies ───────────────────────────────────────────────────────────────────────────────────


def tokenizer(words: dict[str, int], **special: str) -> Any:
    return SimpleNamespace(get_vocab=lambda: words, special_tokens_map=special)


WORDS = {"<end>": 0, "the": 1, "sea": 2, "ship": 3}


def test_a_draft_with_the_same_tokens_by_the_same_ids_is_taken() -> None:
    require_same_vocabulary(tokenizer(WORDS, eos_token="<end>"), tokenizer(dict(WORDS), eos_token="<end>"), "d")


def test_a_draft_of_the_same_size_with_two_tokens_exchanged_is_refused_by_the_first_of_them() -> None:
    exchanged = {**WORDS, "sea": 3, "ship": 2}
    assert len(exchanged) == len(WORDS)
    with pytest.raises(RequestError, match=r"token 2 is 'sea' here and 'ship' there, the first of 2"):
        require_same_vocabulary(tokenizer(WORDS), tokenizer(exchanged), "small")


def test_a_draft_that_lacks_a_token_is_refused() -> None:
    fewer = {word: number for word, number in WORDS.items() if word != "ship"}
    with pytest.raises(RequestError, match=r"token 3 is 'ship' here and no token there, the first of 1"):
        require_same_vocabulary(tokenizer(WORDS), tokenizer(fewer), "small")


def test_a_draft_that_ends_its_answers_by_another_token_is_refused() -> None:
    with pytest.raises(RequestError, match="its eos_token is 'sea' and the model's is '<end>'"):
        require_same_vocabulary(tokenizer(WORDS, eos_token="<end>"), tokenizer(WORDS, eos_token="sea"), "small")
