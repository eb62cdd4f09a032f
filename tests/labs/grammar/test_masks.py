"""A mask against brute force: what may come next is what some document of the schema goes on with."""

from __future__ import annotations

import random

import pytest

from inference_bench.labs.grammar.enforced import grammar_of
from inference_bench.labs.grammar.lexical import is_whole_text, spanning
from inference_bench.labs.grammar.matching import SchemaMasks, accepts_text
from inference_bench.labs.grammar.naive import NaiveMasks, lost_tokens, naive_vocabulary
from labs.grammar.tiny import vocabulary

pytest.importorskip("llguidance")
pytest.importorskip("transformers")

VALUES = ["ab", "abc", "abd", "東京", "東西", "Zürich"]
SCHEMA = {"enum": VALUES}
DOCUMENTS = [f'"{value}"'.encode() for value in VALUES]


def goes_on(text: bytes) -> bool:
    return any(document.startswith(text) for document in DOCUMENTS)


def by_hand(written: bytes) -> set[int]:
    """Every token after which some document is still possible, and the end where one is written."""
    vocab = vocabulary()
    allowed = {token for token, each in enumerate(vocab.token_bytes) if each and goes_on(written + each)}
    return allowed | (set(vocab.ends) if written in DOCUMENTS else set())


@pytest.mark.parametrize("seed", range(12))
def test_the_mask_is_every_token_that_some_document_goes_on_with(seed: int) -> None:
    draw, masks, written = random.Random(seed), SchemaMasks(vocabulary(), grammar_of(SCHEMA)), b""
    num_choices = 0
    while not masks.is_complete():
        allowed = set(masks.unpack(masks.packed()).nonzero()[0].tolist())
        expected = by_hand(written)
        if (
            len({document[len(written) : len(written) + 1] for document in DOCUMENTS if document.startswith(written)})
            > 1
        ):
            assert allowed == expected
            num_choices += 1
        else:  # one byte can follow: the library keeps the token that the tokenizer would write
            assert allowed <= expected
            assert allowed
        token = draw.choice(sorted(allowed - vocabulary().ends))
        masks.take(token)
        written += vocabulary().token_bytes[token]
    assert written in DOCUMENTS
    assert num_choices >= 1


def test_a_character_is_allowed_in_pieces() -> None:
    masks, tokens = SchemaMasks(vocabulary(), grammar_of(SCHEMA)), vocabulary().tokens_of('"東西"'.encode())
    assert any(not is_whole_text(vocabulary().token_bytes[token]) for token in tokens)
    assert masks.try_take(tokens) == len(tokens)
    assert masks.is_complete()


def test_a_token_may_lie_across_parts_of_json() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "東京"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tokens = vocabulary().tokens_of(b'{"city":"Oslo"}')
    assert any(spanning([vocabulary().token_bytes[token] for token in tokens]))
    assert SchemaMasks(vocabulary(), grammar_of(schema)).count_fitting(tokens) == len(tokens)


def test_masks_of_single_characters_allow_none_of_those_and_need_more_tokens() -> None:
    naive = naive_vocabulary(vocabulary())
    lost = lost_tokens(vocabulary())
    text = b'{"city":"Oslo"}'
    alone = [naive.token_bytes[token] for token in naive.tokens_of(text)]
    assert b"".join(alone) == text
    assert not any(spanning(alone))
    assert len(alone) > len(vocabulary().tokens_of(text))
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    masks = NaiveMasks(naive, grammar_of(schema), lost)
    for token in naive.tokens_of(text):
        assert masks.unpack(masks.packed())[token]
        masks.take(token)
    assert masks.is_complete()


def test_no_special_token_is_ever_text() -> None:
    masks = SchemaMasks(vocabulary(), grammar_of({"type": "string"}))
    masks.take(vocabulary().tokens_of(b'"a')[0])
    allowed = masks.unpack(masks.packed())
    assert not any(allowed[end] for end in vocabulary().ends)


@pytest.mark.parametrize(
    ("text", "fits"), [('"ab"', True), ('"a"', False), ('"ab', False), ('"東京"', True), (' "ab"', False)]
)
def test_a_text_is_accepted_byte_by_byte(text: str, fits: bool) -> None:
    assert accepts_text(grammar_of(SCHEMA), text) is fits
