"""Where do the words of a prompt come from: drawn at random, or cut from a text.

In:   a word list, or a text file that the user names, or the English text that comes with every CPython
Out:  text of so many words for a number: the same number gives the same text, neighbouring numbers begin differently
Leaves out: how many words a token count is (prompts); prompts that were written by others (prompt_files)
Read next by: prompts, loadtest.

Random words are what a prefix cache cannot know and a token count can be exact for; a model makes little sense of them,
so its output, and with it what a speculator guesses, is unlike what it does with people's text. That needs a corpus.
"""

from __future__ import annotations

import random
import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import gcd
from pathlib import Path
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.files import open_regular, shown_name
from inference_bench.measure.prompt_words import WORDS
from inference_bench.units import MEBI

MAX_CORPUS_BYTES: Final = 16 * MEBI
MAX_TEMPLATE_BYTES: Final = MEBI
PROMPT_MARK: Final = "{prompt}"
ID_MARK: Final = "{id}"

_WORD: Final = re.compile(r"\S+")
_PIECE: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]+|_+|\n\s*|[ \t]{2,}")
_PROSE_CHARS: Final = 80  # a paragraph of the default text is kept when it is this long, and this much of it letters
_PROSE_SHARE: Final = 0.9
_GOLDEN_SHARE: Final = 0.618  # starts a golden share of the text apart lie evenly in it, however many there are


@dataclass(frozen=True, slots=True)
class WordSource:
    """Words drawn at random; the first comes from `starters`, a different one for each of the next few hundred numbers."""

    words: tuple[str, ...] = WORDS
    starters: tuple[str, ...] = WORDS

    def text_of(self, number: int, num_words: int, key: str) -> str:
        """So many words for this number; at least one."""
        first = self.starters[(_place(key, len(self.starters)) + number) % len(self.starters)]
        others = random.Random(f"{key}/{number}").choices(self.words, k=num_words - 1) if num_words > 1 else []
        return " ".join([first, *others])


@dataclass(frozen=True, slots=True)
class CorpusSource:
    """Text as it was written, cut between words; it starts anew at its end.

    Where:    its length is counted in pieces (words, digits, runs of marks, new lines), which tokens follow closer than
              words: 3 % beside 6 % over 250 words of the default text. Each number has a start of its own until there is
              one at every word; from then on a word in front tells the rounds apart
    Raises:   RequestError for a text without a word
    """

    text: str = field(repr=False)
    _starts: array[int] = field(init=False, repr=False, compare=False)
    _ends: array[int] = field(init=False, repr=False, compare=False)
    _pieces_upto: array[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spans = [found.span() for found in _WORD.finditer(self.text)]
        if not spans:
            raise RequestError("the text to cut prompts from holds no word")
        starts, ends = array("q", [start for start, _ in spans]), array("q", [end for _, end in spans])
        pieces = (max(1, len(_PIECE.findall(self.text, before, end))) for before, end in pairwise((0, *ends)))
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_ends", ends)
        object.__setattr__(self, "_pieces_upto", array("q", accumulate(pieces)))

    @property
    def num_words(self) -> int:
        """How many words the text has, each of which a prompt may start at."""
        return len(self._starts)

    def text_of(self, number: int, num_words: int, key: str) -> str:
        """About so many pieces for this number, up to the end of a word; at least one word."""
        in_all = self.num_words
        round_number, place = divmod(number, in_all)
        at = (_place(key, in_all) + place * _stride(in_all)) % in_all
        parts = [WORDS[round_number % len(WORDS)]] if round_number else []
        left = num_words - len(parts)
        while left > 0 or not parts:
            before = self._pieces_upto[at - 1] if at else 0
            last = min(bisect_left(self._pieces_upto, before + left, lo=at), in_all - 1)
            parts.append(self.text[self._starts[at] : self._ends[last]])
            left, at = left - (self._pieces_upto[last] - before), 0
        return " ".join(parts)


@lru_cache(maxsize=64)
def _place(key: str, count: int) -> int:
    return random.Random(key).randrange(count)


@lru_cache(maxsize=16)
def _stride(count: int) -> int:
    """A step that reaches every one of `count` places before any comes again."""
    return next(step for step in range(max(1, round(count * _GOLDEN_SHARE)), 2 * count + 2) if gcd(step, count) == 1)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Text around each prompt; it may hold a number of its own for each. Nothing else in it is read.

    Raises:   RequestError when it has no place for the prompt
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if PROMPT_MARK not in self.text:
            raise RequestError(f"the prompt template has no {PROMPT_MARK}; write it where the prompt is to stand")

    def fill(self, prompt: str, prompt_id: str) -> str:
        """The template with both put in; what the prompt itself says is left as it is."""
        return prompt.join(part.replace(ID_MARK, prompt_id) for part in self.text.split(PROMPT_MARK))


def read_corpus(path: Path | None = None) -> CorpusSource:
    """The text to cut prompts from: a UTF-8 file, or without one the English reference text that comes with CPython.

    Raises:   RequestError for a file that is missing, too large, not UTF-8, or without a word
    """
    if path is not None:
        return CorpusSource(read_text(path, "text to cut prompts from", MAX_CORPUS_BYTES))
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise RequestError(
            "this Python comes without pydoc_data.topics; name a text file to cut prompts from"
        ) from None
    paragraphs = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    return CorpusSource("\n\n".join(filter(_is_prose, paragraphs)))


def _is_prose(paragraph: str) -> bool:
    """Whether it is sentences, and not code, grammar or a table."""
    num_letters = sum(character.isalpha() or character == " " for character in paragraph)
    return len(paragraph) >= _PROSE_CHARS and num_letters >= _PROSE_SHARE * len(paragraph)


def read_template(path: Path) -> PromptTemplate:
    """The template in a UTF-8 file; one line end at its end is not part of it.

    Raises:   RequestError
    """
    return PromptTemplate(read_text(path, "prompt template", MAX_TEMPLATE_BYTES).removesuffix("\n"))


def read_text(path: Path, what: str, max_bytes: int) -> str:
    """A whole UTF-8 file that the user named; see `read_bytes`.

    Raises:   RequestError, also for one that is not UTF-8
    """
    try:
        return read_bytes(path, what, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"the {what} {shown_name(path)!r}"
        raise RequestError(f"{where} is not UTF-8 at byte {error.start}; save it as UTF-8") from None


def read_bytes(path: Path, what: str, max_bytes: int) -> bytes:
    """A whole file that the user named.

    Raises:   RequestError for one that is missing, no regular file, or larger than `max_bytes`
    """
    name = shown_name(path)
    try:
        with open_regular(path) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise RequestError(f"the {what} {name!r} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a null character
        raise RequestError(f"the {what} {name!r} is not the path of a file") from None
    if len(data) > max_bytes:
        raise RequestError(f"the {what} {name!r} is larger than {max_bytes} bytes; give a smaller one")
    return data
