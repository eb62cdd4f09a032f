"""What do we send: prompts of about so many tokens that no cache has seen.

In:   a seed, and what a server counted for prompts of known length
Out:  text of common English words, each one token in most vocabularies, drawn at random
Leaves out: real conversations; and the true token count, which is always the server's (`usage`)
Read next by: load.

A prompt's first word differs from that of the next few hundred prompts, so that not even one token after the template
is shared and a prefix cache finds nothing. Where a workload says that prompts share segments, they share the words of
those, and no more. The words are seeded: the same seed and salt give the same prompts, so a server that still holds an
earlier run needs a new salt (or no prompt cache).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.stats import median
from inference_bench.workload import Segment

_WORD_LIST: Final = """
    time year people way day man thing woman life child world school state family student group country problem hand
    part place case week company system program question work government number night point home water room mother
    area money story fact month right study book eye job word business issue side kind head house service friend
    father power hour game line end member law car city community name president team minute idea body information
    back parent face level office door health person art war history party result change morning reason research
    moment air teacher force education foot boy age policy music process sense nation plan college interest
    experience effect use class control care field development role effort rate heart show leader light voice wife
    mind price report decision son view relationship town road arm difference value building action season society
    tax director position player record paper space ground form event matter center couple site project activity
    star table need court oil situation cost industry figure street image phone data picture practice piece land
    product doctor wall patient worker news test movie north love support technology step baby computer type
    attention film tree source organization hair look window evidence chance order middle beach summer winter spring
    river mountain forest ocean island bridge garden kitchen flower animal horse bird fish dog cat stone metal glass
    wood fire rain snow wind cloud earth moon sun sea lake valley desert farm village church market shop store bank
    hotel train plane ship boat bus wheel engine machine tool key box bag cup bottle plate bread milk tea coffee
    sugar salt fruit apple orange rice meat egg dinner lunch breakfast song dance paint letter page pen desk chair
    bed lamp clock mirror color red blue green white black brown yellow gold silver large small long short high low
    young old new good great little big early late hard soft warm cold fast slow deep wide strong weak rich poor
    clean dark bright quiet simple common public private local global social political economic natural human
    medical legal final main major single double open close true false free full empty ready safe easy
"""
WORDS: Final = tuple(_WORD_LIST.split())

_PLAUSIBLE_TOKENS_PER_WORD: Final = (0.2, 20.0)


@dataclass(frozen=True, slots=True)
class TokenFit:
    """How many prompt tokens a server counts: so many a word, and so many for its template.

    Formula:  tokens = tokens_per_word · words + overhead_tokens
    """

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0

    def num_words(self, num_tokens: int) -> int:
        """The number of words that comes nearest to `num_tokens`; at least one."""
        return max(1, self.num_words_up_to(num_tokens))

    def num_words_up_to(self, num_tokens: int) -> int:
        """The number of words of a prompt that lie before this token, the template in front of them."""
        return max(0, round((num_tokens - self.overhead_tokens) / self.tokens_per_word))


def calibrate(samples: Sequence[tuple[int, int]]) -> TokenFit:
    """The fit through (words sent, prompt tokens counted by the server).

    Formula:  the median slope over all pairs with different word counts, and the median rest; from one length alone,
              tokens / words and no overhead
    Raises:   MeasurementError when the counts cannot come from such prompts
    """
    known = [(words, tokens) for words, tokens in samples if words > 0]
    if not known:
        raise MeasurementError("there is no prompt with a token count to calibrate the prompt length from")
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a in known for b in known if a[0] < b[0]]
    slope = median(slopes or (tokens / words for words, tokens in known))
    overhead = median(tokens - slope * words for words, tokens in known) if slopes else 0.0
    low, high = _PLAUSIBLE_TOKENS_PER_WORD
    if not low <= slope <= high:
        raise MeasurementError(
            f"the server counts {slope:.3g} tokens a word, which no vocabulary does ({low} to {high})"
        )
    return TokenFit(slope, max(0.0, overhead))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and its number in the run."""

    serial: int
    num_words: int
    text: str


class PromptMaker:
    """Prompts of one run, one after the other, never the same twice."""

    def __init__(self, seed: int, fit: TokenFit | None = None, salt: str = "") -> None:
        self.fit = fit or TokenFit()
        self._key = f"{seed}/{salt}"
        self._serial = 0
        self._first_word = random.Random(self._key).randrange(len(WORDS))

    def make(self, num_tokens: int) -> Prompt:
        """The next prompt, of about `num_tokens` tokens as the server counts them."""
        return self.make_words(self.fit.num_words(num_tokens))

    def make_words(self, num_words: int) -> Prompt:
        """The next prompt, of exactly `num_words` words."""
        serial, self._serial = self._serial, self._serial + 1
        first = WORDS[(self._first_word + serial) % len(WORDS)]
        others = random.Random(f"{self._key}/{serial}").choices(WORDS, k=num_words - 1)
        return Prompt(serial, num_words, " ".join([first, *others]))

    def make_of(self, segments: Sequence[Segment]) -> Prompt:
        """The next prompt, of these segments: one that begins with the same segments begins with the same words.

        Where:    a segment's words depend on what it is and on where it ends, so that rounding to whole words does not
                  part two prompts; segments that differ may still begin with the same word
        """
        serial, self._serial = self._serial, self._serial + 1
        words: list[str] = []
        num_tokens = 0
        for segment in segments:
            num_tokens += segment.num_tokens
            count = self.fit.num_words_up_to(num_tokens) - len(words)
            words += random.Random(f"{self._key}/segment {segment.content}").choices(WORDS, k=max(0, count))
        if not words:
            words = [WORDS[(self._first_word + serial) % len(WORDS)]]
        return Prompt(serial, len(words), " ".join(words))
