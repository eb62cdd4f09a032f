"""Before anything is measured: wake the server up, learn what it refuses, and how many tokens a prompt is.

In:   Target, prompts, and how to send
Out:  the target without the fields the server refused; words that are one token each where the server can tell; the
      prompts' length fitted to the server's own counts
Leaves out: how many requests a server needs to be warm; a few are sent, of different lengths, none of them measured later
Read next by: loadtest, verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.load import LoadOptions, LoadResult, run_load
from inference_bench.measure.prompt_files import FilePrompt, FilePrompts
from inference_bench.measure.prompt_sources import CorpusSource, WordSource
from inference_bench.measure.prompt_vocabulary import find_single_token_words
from inference_bench.measure.prompts import PromptMaker, calibrate
from inference_bench.measure.server_tokenizer import ServerTokenizer
from inference_bench.measure.target import Message, Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import RequestShape, closed_loop

WARMUP_WORDS: Final = (24, 96)
CORPUS_WORDS: Final = (48, 384, 384, 384)  # the tokens of a word vary in people's text
MOST_TOKENIZED: Final = 400
MOST_COUNTING_REQUESTS: Final = 40

_WARMUP_OUTPUT_TOKENS: Final = 4
_COUNTED_AT_ONCE: Final = 4


def warm_up(
    target: Target, prompts: PromptMaker, options: LoadOptions, *, exact: bool = True, with_messages: bool = False
) -> LoadResult:
    """Send the warm-up requests one after the other and fit the prompts to what the server counted.

    Where:    exact looks, for random words, for those that are one token each: by the server's tokenizer where it has a
              route for that; else, where the first counts show that not all are, by up to `MOST_COUNTING_REQUESTS`
              requests for one token. with_messages learns what the messages of a conversation add
    Raises:   MeasurementError when none completed; see `run_load` for the rest
    """
    warming = _Warming(target, prompts, options)
    warm = warming.send_by_length()
    if exact and isinstance(prompts.source, WordSource):
        warming.find_words()
    if with_messages:
        warming.fit_messages()
    return replace(warm, target=warming.target)


class _Warming:
    """What the requests of one warm-up share."""

    def __init__(self, target: Target, prompts: PromptMaker, options: LoadOptions) -> None:
        self.target = target
        self._prompts = prompts
        self._options = replace(
            options, stage=Stage.WARMUP, begin_s=None, indices=None, first_serial=None, duration_s=None, warmup_s=0.0,
            warmup_requests=0, cooldown_s=0.0, ramp_s=0.0, examine=None,
        )  # fmt: skip
        self._num_parts = 0

    def send_by_length(self) -> LoadResult:
        """The first requests, of known numbers of words.

        Raises:   MeasurementError when none completed
        """
        num_words = CORPUS_WORDS if isinstance(self._prompts.source, CorpusSource) else WARMUP_WORDS
        warm = self._send(self._maker(), [RequestShape(words, _WARMUP_OUTPUT_TOKENS) for words in num_words])
        self.target = warm.target
        if not any(record.status is RequestStatus.COMPLETED for record in warm.records):
            first = warm.records[0].error or "no reason given"
            raise MeasurementError(f"no warm-up request completed; the first: {first}")
        self._fit(num_words, _final_records(warm.records, len(num_words)))
        return warm

    def find_words(self) -> None:
        """Make prompts of words that are one token each, where the server can tell and has enough of them."""
        tokenizer = ServerTokenizer.find(self.target)
        if tokenizer is not None:
            found = find_single_token_words(tokenizer.count, MOST_TOKENIZED)
        elif self._prompts.fit.tokens_per_word != 1:
            found = find_single_token_words(self._count_by_request, MOST_COUNTING_REQUESTS)
        else:
            return
        if found is None or found == self._prompts.source:
            return
        self._prompts.source = found
        counted = self._count_by_request([self._prompts.make_words(words).text for words in WARMUP_WORDS])
        known = [(words, tokens) for words, tokens in zip(WARMUP_WORDS, counted, strict=True) if tokens]
        if known:
            self._prompts.fit = calibrate(known)

    def fit_messages(self) -> None:
        """Learn what messages add to the words in them: two further ones, and one of the system in front."""
        words, fit = WARMUP_WORDS[0], self._prompts.fit
        talk, told = (self._messages(*roles) for roles in (("user", "assistant", "user"), ("system", "user")))
        in_talk, in_told = self._count_messages([talk, told])
        if in_talk:
            rest = in_talk - fit.overhead_tokens - fit.tokens_per_word * words * len(talk)
            self._prompts.fit = fit = replace(fit, message_tokens=max(0.0, rest / 2))
        if in_told:
            rest = in_told - fit.overhead_tokens - fit.tokens_per_word * words * len(told)
            self._prompts.fit = replace(fit, system_tokens=rest)

    def _messages(self, *roles: str) -> tuple[Message, ...]:
        return tuple(Message(role, self._maker().make_words(WARMUP_WORDS[0]).text) for role in roles)

    def _fit(self, num_words: Sequence[int], records: Sequence[RequestRecord | None]) -> None:
        counted = [
            (words, record.prompt_tokens)
            for words, record in zip(num_words, records, strict=True)
            if record is not None and record.prompt_tokens
        ]
        if counted:
            self._prompts.fit = calibrate(counted)

    def _maker(self) -> PromptMaker:
        """The prompts to warm up with: the run's own maker, which makes none twice; words where they are from a file."""
        return self._prompts.for_warm_up() if isinstance(self._prompts.source, FilePrompts) else self._prompts

    def _count_by_request(self, texts: Sequence[str]) -> list[int | None]:
        return self._count_messages([(Message("user", text),) for text in texts])

    def _count_messages(self, asked: Sequence[tuple[Message, ...]]) -> list[int | None]:
        """The prompt tokens the server counts for each, by having it answer with one token."""
        given = FilePrompts("warm-up", tuple(FilePrompt(messages, 1) for messages in asked))
        shapes = [RequestShape(1, 1)] * len(asked)
        try:
            records = self._send(PromptMaker(0, source=given), shapes, at_once=_COUNTED_AT_ONCE).records
        except MeasurementError:
            return [None] * len(asked)
        return [None if record is None else record.prompt_tokens for record in _final_records(records, len(asked))]

    def _send(self, prompts: PromptMaker, shapes: Sequence[RequestShape], at_once: int = 1) -> LoadResult:
        group = f"warmup{self._num_parts or ''}"
        self._num_parts += 1
        workload = closed_loop("warmup", shapes, at_once, len(shapes))
        return run_load(self.target, workload, replace(self._options, group=group, prompts=prompts))


def _final_records(records: Sequence[RequestRecord], num_asked: int) -> list[RequestRecord | None]:
    """The record of the last try of each request, in the order in which they were asked; None for one that failed."""
    by_index = {record.index: record for record in records if record.index is not None}
    found = [by_index.get(index) for index in range(num_asked)]
    return [record if record is not None and record.status is RequestStatus.COMPLETED else None for record in found]
