"""Which words are one token each in the vocabulary that is served, so that a prompt of n words is n tokens to the token.

In:   a way to have texts counted by the server
Out:  a WordSource of such words, or None when too few are
Leaves out: how the server counts (server_tokenizer, warmup), and what its template adds (prompts.calibrate)
Read next by: warmup.

Words are tested in groups: a text of n words that has n tokens has none of two. Only groups that have more are divided.
Short words come first: they are the likelier ones, and what is left when questions run out are the others.
A word is tested twice, as it stands behind a space and as it stands behind a line end, because most vocabularies hold
both forms as tokens of their own, and the first word of a prompt is of the second kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from inference_bench.measure.prompt_sources import WordSource
from inference_bench.measure.prompt_words import WORDS

CountTexts: TypeAlias = Callable[[Sequence[str]], Sequence[int | None]]

LEAST_WORDS: Final = 200
LEAST_STARTERS: Final = 64

_BASE: Final = WORDS[0]
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class _Form:
    """How a word stands in a text, and how many tokens it takes with what is in front of it when it is one itself."""

    separator: str
    num_tokens: int


_INSIDE: Final = _Form(" ", 1)
_AT_START: Final = _Form("\n", 2)


@dataclass(frozen=True, slots=True)
class _Group:
    words: tuple[str, ...]
    form: _Form

    @property
    def text(self) -> str:
        return self.form.separator.join((_BASE, *self.words))

    def divide(self) -> list[_Group]:
        size = max(1, -(-len(self.words) // _PARTS))
        parts = (self.words[start : start + size] for start in range(0, len(self.words), size))
        return [] if len(self.words) == 1 else [_Group(part, self.form) for part in parts]


def find_single_token_words(count: CountTexts, max_counts: int, words: Sequence[str] = WORDS) -> WordSource | None:
    """The words that are one token each, in order; those of them that are one at the start of a prompt too.

    Where:    `count` gives the tokens of each text, with whatever the server adds to every text, None where it would not
              say. After `max_counts` texts, words not decided by then are left out
    """
    (base,) = count([_BASE])
    if base is None:
        return None
    left = max_counts - 1
    likely_first = tuple(sorted(words, key=len))
    groups = [_Group(likely_first, form) for form in (_INSIDE, _AT_START)]
    found: dict[_Form, set[str]] = {_INSIDE: set(), _AT_START: set()}
    while groups and left > 0:
        asked, groups = groups[:left], []
        left -= len(asked)
        for group, counted in zip(asked, count([group.text for group in asked]), strict=True):
            if counted == base + group.form.num_tokens * len(group.words):
                found[group.form].update(group.words)
            else:
                groups += group.divide()
    inside = tuple(word for word in words if word in found[_INSIDE])
    starters = tuple(word for word in inside if word in found[_AT_START])
    is_enough = len(inside) >= min(LEAST_WORDS, len(words)) and len(starters) >= min(LEAST_STARTERS, len(words))
    return WordSource(inside, starters) if is_enough else None
