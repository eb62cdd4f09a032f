"""What would masks cost that know characters alone?

In:   a Vocabulary
Out:  a Vocabulary that writes structure one character at a time, and masks that allow no other token
Read next by: flow.

Such a mask asks of each token whether it is the next structural character. Most tokens of a document hold several, such as the end
of a name, the colon and the beginning of a string; it can allow none of them, and the model has to write what it never saw.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from inference_bench.labs.grammar.lexical import is_one_character_of_structure
from inference_bench.labs.grammar.matching import SchemaMasks, Vocabulary, bytes_of

_PIECES: Final = re.compile(r'[{}\[\]:,"]|[^{}\[\]:,"]+')


class _OneCharacterTokenizer:
    """The tokenizer with every structural character a token of its own; in the form that the library asks for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        library = vocabulary.library
        self._library = library
        self.eos_token_id = int(library.eos_token)
        self.bos_token_id = None
        self.tokens = list(vocabulary.token_bytes)
        self.special_token_ids = [token for token in range(len(vocabulary)) if library.is_special_token(token)]

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        pieces = (piece.encode("utf-8", "surrogateescape") for piece in _PIECES.findall(text))
        return [int(token) for piece in pieces for token in self._library.tokenize_bytes(piece)]


def naive_vocabulary(vocabulary: Vocabulary) -> Vocabulary:
    """The same tokens, with the only way left that such masks let a text be written in."""
    from llguidance import LLTokenizer, TokenizerWrapper

    library = LLTokenizer(TokenizerWrapper(_OneCharacterTokenizer(vocabulary)))
    return replace(vocabulary, library=library, token_bytes=bytes_of(library))


def lost_tokens(vocabulary: Vocabulary) -> list[bool]:
    """Whether each token is one that such masks never allow."""
    return [not is_one_character_of_structure(token) for token in vocabulary.token_bytes]


class NaiveMasks(SchemaMasks):
    """The masks of a schema without every token that holds a structural character beside anything else."""

    def __init__(self, vocabulary: Vocabulary, grammar: str, is_lost: list[bool]) -> None:
        import numpy as np

        super().__init__(vocabulary, grammar)
        self._kept = ~np.array(is_lost, dtype=np.bool_)

    def unpack(self, packed: bytes) -> Any:
        """Whether each token may come next."""
        return super().unpack(packed) & self._kept
