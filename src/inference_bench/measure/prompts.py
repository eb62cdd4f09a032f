"""What do we send: prompts of so many tokens that no cache has seen.

In:   a seed, a source of text, and what a server counted for prompts of known length
Out:  prompts by number: the same seed, salt and number give the same prompt in every process
Leaves out: where the words come from (prompt_sources, prompt_files); the true token count, which is always the
      server's (prompt_checks compares)
Read next by: jobs, warmup.

A prompt's first word differs from that of the next few hundred prompts, so that not even one token after the template
is shared and a prefix cache finds nothing. Where a workload says that prompts share segments, they share the words of
those, and no more. The words are seeded: a server that still holds an earlier run needs a new salt (or no prompt cache).
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.measure.prompt_files import FilePrompts
from inference_bench.measure.prompt_sources import CorpusSource, PromptTemplate, WordSource
from inference_bench.measure.prompt_words import WORDS as WORDS
from inference_bench.measure.target_body import Message, plain_text
from inference_bench.stats import median
from inference_bench.workload import Segment

PromptSource = WordSource | CorpusSource | FilePrompts

_SYSTEM: Final = "system"
_PLAUSIBLE_TOKENS_PER_WORD: Final = (0.2, 20.0)


class UnlikelyCountError(MeasurementError):
    """A server counts prompt tokens as no tokenizer does."""


@dataclass(frozen=True, slots=True)
class TokenFit:
    """How many prompt tokens a server counts: so many a word, and so many for its template.

    Formula:  tokens = tokens_per_word · words + overhead_tokens, for one message; each further one adds message_tokens,
              one of the system in front system_tokens
    Where:    system_tokens is below zero where the template has a system message of its own, which is then left out
    """

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0
    message_tokens: float = 0.0
    system_tokens: float = 0.0

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
        raise UnlikelyCountError(
            f"the server counts {slope:.3g} tokens a word, which no vocabulary does ({low} to {high})"
        )
    return TokenFit(slope, max(0.0, overhead))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and its number in the run. What it says never shows in a repr.

    Where:    messages are the conversation where it is one; max_output_tokens is set where the prompt came with the
              length of its answer
    """

    serial: int
    num_words: int
    text: str = field(repr=False)
    messages: tuple[Message, ...] = ()
    max_output_tokens: int | None = None

    @property
    def said(self) -> str | tuple[Message, ...]:
        """What goes into the request's body: the conversation, or else the text."""
        return self.messages or self.text


class PromptMaker:
    """Prompts of one run, never the same twice, by number or one after the other.

    Where:    fit and source change once, while the server is warmed up; after that a copy of this (it can be pickled)
              makes the same prompts in another process. `source` None is random words
    """

    def __init__(
        self,
        seed: int,
        fit: TokenFit | None = None,
        salt: str = "",
        source: PromptSource | None = None,
        template: PromptTemplate | None = None,
    ) -> None:
        self.fit = fit or TokenFit()
        self.source: PromptSource = source or WordSource()
        self.template = template
        self._key = f"{seed}/{salt}"
        self._serial = 0

    def reserve(self, count: int) -> int:
        """Set aside the numbers of so many prompts, and say the first: a load makes them by number, in any order."""
        first, self._serial = self._serial, self._serial + count
        return first

    def for_warm_up(self) -> PromptMaker:
        """A maker of other prompts, of random words in the same template, where this one's are too few to warm up with."""
        maker = PromptMaker(0, self.fit, template=self.template)
        maker._key = f"{self._key}/warm-up"
        return maker

    def make(self, num_tokens: int, serial: int | None = None) -> Prompt:
        """The next prompt, or the one of this number, of about `num_tokens` tokens as the server counts them.

        Where:    prompts from a file are as long as they are
        """
        if isinstance(self.source, FilePrompts):
            return self._from_file(self.source, self.reserve(1) if serial is None else serial)
        return self.make_words(self.fit.num_words(num_tokens), serial)

    def make_words(self, num_words: int, serial: int | None = None) -> Prompt:
        """The next prompt, or the one of this number, of exactly `num_words` words, and what the template adds."""
        serial = self.reserve(1) if serial is None else serial
        text = self._texts.text_of(serial, num_words, self._key)
        return Prompt(serial, num_words, self._in_template(text, serial))

    def make_of(
        self,
        segments: Sequence[Segment],
        serial: int | None = None,
        roles: Sequence[str] | None = None,
        part: int = 0,
    ) -> Prompt:
        """The next prompt, or the one of this number: one that begins with the same segments begins with the same words.

        Where:    a segment's words depend on what it is and on where it ends, so that rounding to whole words does not
                  part two prompts; with `roles`, one for each segment, every segment is a message of its own. Segments are the
                  same only within one part of a run: what is sent again in another has other words
        Raises:   RequestError for roles beside a template
        """
        serial = self.reserve(1) if serial is None else serial
        if roles is not None and self.template is not None:
            raise RequestError(
                "a prompt template holds one prompt, and conversations are messages; give one of the two"
            )
        num_words, num_tokens, texts = 0, 0.0, []
        for number, segment in enumerate(segments):
            num_tokens += segment.num_tokens - (self._added_by(roles, number) if roles else 0.0)
            count = self.fit.num_words_up_to(round(num_tokens)) - num_words
            if count > 0 or roles:  # a server may refuse an empty message
                count = max(1, count)
                texts.append(self._texts.text_of(segment.content, count, f"{self._key}/part {part}"))
                num_words += count
        if not texts:
            return self.make_words(1, serial)
        if roles is not None:
            messages = tuple(Message(role, text) for role, text in zip(roles, texts, strict=True))
            return Prompt(serial, num_words, plain_text(messages), messages)
        return Prompt(serial, num_words, self._in_template(" ".join(texts), serial))

    def _added_by(self, roles: Sequence[str], number: int) -> float:
        """The tokens that the message with this number adds to its words; the first one's are the template's."""
        if roles[0] == _SYSTEM and number < 2:
            return 0.0 if number else self.fit.system_tokens
        return self.fit.message_tokens if number else 0.0

    @property
    def _texts(self) -> WordSource | CorpusSource:
        """What text is made of where a length is asked for; prompts from a file have the length they have."""
        return WordSource() if isinstance(self.source, FilePrompts) else self.source

    def _from_file(self, prompts: FilePrompts, serial: int) -> Prompt:
        entry = prompts[serial % len(prompts)]
        if len(entry.messages) > 1:
            text = plain_text(entry.messages)
            return Prompt(serial, len(text.split()), text, entry.messages, entry.output_tokens)
        text = self._in_template(entry.messages[0].content, serial)
        return Prompt(serial, len(text.split()), text, max_output_tokens=entry.output_tokens)

    def _in_template(self, text: str, serial: int) -> str:
        if self.template is None:
            return text
        return self.template.fill(text, f"{random.Random(f'{self._key}/id {serial}').getrandbits(32):08x}")


def conversation_roles(segments: Sequence[Segment], answers: Container[int]) -> tuple[str, ...]:
    """Who says which segment of a conversation.

    Where:    what is an earlier answer the assistant said; of two segments in front of the first answer, the first is
              the system's; all else the user said
    """
    roles = ["assistant" if segment.content in answers else "user" for segment in segments]
    if roles[:2] == ["user", "user"]:
        roles[0] = _SYSTEM
    return tuple(roles)
