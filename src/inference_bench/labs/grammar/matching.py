"""Which tokens may come next? A grammar's own answer, over the whole vocabulary.

In:   a tokenizer, a grammar
Out:  Vocabulary, SchemaMasks; accepts_text
Leaves out: choosing a token (writing), whether a finished text fits the schema (judging)
Read next by: writing, tracing, naive, faults, flow.

A grammar is over bytes, not characters: a token is allowed when its bytes lead on to some document, also where they end inside a
character, or cover the end of a string, a comma and the next name at once. Where only one continuation is possible, the library
allows just the token that the tokenizer would have written it with.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from inference_bench.errors import MeasurementError

_SILENT: Final = 0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer in the library's form.

    Where:  token_bytes are those of each id, empty for special tokens, which are no text; ends are the ids that end an answer
    Unit:   seconds
    """

    library: Any
    token_bytes: tuple[bytes, ...]
    ends: frozenset[int]
    build_s: float

    def __len__(self) -> int:
        return len(self.token_bytes)

    def text_bytes(self, tokens: Sequence[int]) -> bytes:
        """What the tokens write, special ones nothing."""
        return b"".join(self.token_bytes[token] for token in tokens)

    def tokens_of(self, text: bytes) -> list[int]:
        """A text as the tokenizer writes it."""
        return [int(token) for token in self.library.tokenize_bytes(text)]


def read_vocabulary(tokenizer: Any, num_rows: int, ends: Sequence[int]) -> Vocabulary:
    """The vocabulary of a fast tokenizer of Transformers, as wide as the model's logits."""
    from llguidance import hf

    started_s = time.perf_counter()
    library = hf.from_tokenizer(tokenizer, n_vocab=num_rows, eos_token=list(ends) or None)
    build_s = time.perf_counter() - started_s
    return Vocabulary(library, bytes_of(library), frozenset(int(end) for end in library.eos_tokens), build_s)


def bytes_of(library: Any) -> tuple[bytes, ...]:
    """What each id of the library's vocabulary writes; special tokens nothing."""
    return tuple(
        b"" if library.is_special_token(token) else bytes(library.decode_bytes([token]))
        for token in range(library.vocab_size)
    )


class Masks(Protocol):
    """What a writer asks before it chooses a token, and tells after."""

    def packed(self) -> bytes:
        """Whether each token of the vocabulary may come next, a bit a token."""

    def unpack(self, packed: bytes) -> Any:
        """The same as truth values.

        Shape:  [num_vocabulary]
        """

    def take(self, token: int) -> None:
        """The token that came."""

    def is_complete(self) -> bool:
        """Whether the document is whole and nothing more may come."""


class SchemaMasks:
    """The masks of one document of one schema, in order."""

    def __init__(self, vocabulary: Vocabulary, grammar: str) -> None:
        from llguidance import LLMatcher

        self._matcher = LLMatcher(vocabulary.library, grammar, log_level=_SILENT)
        self._size = len(vocabulary)
        if self._matcher.is_error():
            raise MeasurementError(
                f"the grammar cannot be matched: {' '.join(self._matcher.get_error().split())[:200]}"
            )

    def packed(self) -> bytes:
        """The mask as the library computes it, a bit a token."""
        return bytes(self._matcher.compute_bitmask())

    def unpack(self, packed: bytes) -> Any:
        """A packed mask as truth values."""
        import numpy as np

        bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
        return bits[: self._size].view(np.bool_)

    def allowed(self) -> Any:
        """Whether each token may come next."""
        return self.unpack(self.packed())

    def take(self, token: int) -> None:
        """The token that came; one that is not allowed leaves the matcher where nothing more is."""
        self._matcher.consume_token(token)

    def try_take(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first, lead on to some document."""
        return int(self._matcher.try_consume_tokens(list(tokens)))

    def count_fitting(self, tokens: Sequence[int]) -> int:
        """The same without taking them."""
        return int(self._matcher.validate_tokens(list(tokens)))

    def is_accepting(self) -> bool:
        """Whether what came so far is a whole document."""
        return bool(self._matcher.is_accepting())

    def is_broken(self) -> bool:
        """Whether a token came that leads to no document."""
        return bool(self._matcher.is_error())

    def is_complete(self) -> bool:
        """Whether it is, and nothing more may come."""
        return bool(self._matcher.is_stopped()) and self.is_accepting()


def compile_masks(vocabulary: Vocabulary, grammar: str) -> tuple[SchemaMasks, float, float]:
    """The masks of a schema, with what it took to make them and the first mask.

    Unit:    seconds
    Raises:  MeasurementError
    """
    started_s = time.perf_counter()
    masks = SchemaMasks(vocabulary, grammar)
    made_s = time.perf_counter()
    masks.packed()
    return masks, made_s - started_s, time.perf_counter() - made_s


def accepts_text(grammar: str, text: str) -> bool:
    """Whether a text is a whole document of a grammar, byte by byte, without any model's vocabulary."""
    from llguidance import LLMatcher

    tokenizer = _bytes_alone()
    matcher = LLMatcher(tokenizer, grammar, log_level=_SILENT)
    tokens = tokenizer.tokenize_str(text)
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


@cache
def _bytes_alone() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")
