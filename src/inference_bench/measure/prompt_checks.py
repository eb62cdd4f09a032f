"""Was what was said what was meant: prompts as long as asked and in no cache, answers that are the documents asked for.

In:   RequestRecords, and what the workload asked for
Out:  PromptCheck, CacheCheck and DocumentsJudged: counts, and a finding in words where there is one
Leaves out: the prompts themselves, and the judging of a text (text_checks); these are functions of the records alone
Read next by: loadtest, report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from inference_bench.measure.prompt_files import FilePrompts
from inference_bench.measure.prompt_sources import CorpusSource, PromptTemplate
from inference_bench.measure.prompts import PromptSource
from inference_bench.measure.text_checks import schema_hash
from inference_bench.records import RequestRecord, Stage
from inference_bench.units import format_count, format_fraction
from inference_bench.workload import Segment

BLOCK_TOKENS: Final = 16  # the block of most prefix caches; a hit below it is what begins every prompt


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """How long the server says the prompts were, against what was asked.

    Where:    largest_deviation_tokens is the deviation with the largest size, more than asked above zero; None where the
              server counted no prompt
    """

    num_requests: int
    num_counted: int
    num_equal: int
    largest_deviation_tokens: int | None = None

    @property
    def sentence(self) -> str:
        """What to say about it."""
        if not self.num_counted:
            return "The server counted no prompt, so whether they are as long as asked is not known."
        told = f"{self.num_equal} of {self.num_counted} prompts are as long as asked, by the server's count"
        if self.largest_deviation_tokens:
            told += f"; the furthest off by {self.largest_deviation_tokens:+d} tokens"
        return f"{told}."


def check_prompt_lengths(records: Iterable[RequestRecord], asked_tokens: Sequence[int]) -> PromptCheck:
    """Compare each counted prompt with the length its place in the workload asks for.

    Where:    asked_tokens is by index in the workload; beyond its end the workload began anew
    Ignores:  records that do not know their index
    """
    placed = [record for record in records if record.index is not None]
    deviations = [
        record.prompt_tokens - asked_tokens[record.index % len(asked_tokens)]
        for record in placed
        if record.index is not None and record.prompt_tokens is not None
    ]
    return PromptCheck(
        num_requests=len(placed),
        num_counted=len(deviations),
        num_equal=deviations.count(0),
        largest_deviation_tokens=max(deviations, key=abs, default=None),
    )


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """How much of the prompts a prefix cache held, and how much of that was not meant.

    Where:    num_known requests say how much was cached; template hits are of no more tokens than `tolerated_tokens`,
              which begin every prompt; unmeant tokens are what was cached beyond those and beyond what the workload shares
    """

    num_requests: int
    num_known: int
    prompt_tokens: int
    cached_tokens: int
    num_template_hits: int
    num_unmeant: int
    unmeant_tokens: int
    tolerated_tokens: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was cached that was not meant to be, as far as the server says."""
        return self.num_unmeant == 0

    @property
    def finding(self) -> str | None:
        """What is wrong, in words; None when nothing is."""
        if self.is_clean:
            return None
        share = format_fraction(self.unmeant_tokens / self.prompt_tokens)
        return (
            f"A prefix cache held {share} of the prompt tokens ({format_count(self.unmeant_tokens)} of "
            f"{format_count(self.prompt_tokens)}, in {self.num_unmeant} of {self.num_known} requests) that were meant to be "
            f"new to it: first tokens came sooner than they would for new prompts. Send prompts the server has not seen, or "
            f"turn its prompt cache off."
        )

    @property
    def remark(self) -> str:
        """What was looked at and what was let pass, in words."""
        if not self.num_known:
            return "The server does not say how much of a prompt was cached."
        told = f"{self.num_known} of {self.num_requests} requests say how much of the prompt was cached"
        if self.num_template_hits:
            told += (
                f"; {self.num_template_hits} of them no more than the {self.tolerated_tokens} tokens that may begin every "
                f"prompt (the template), which is let pass"
            )
        return f"{told}."


def prompt_findings(lengths: PromptCheck | None, cache: CacheCheck | None) -> tuple[str, ...]:
    """What is wrong with the prompts of a run, in sentences: not as long as asked, or not new to the server's cache."""
    is_off = lengths is not None and lengths.num_counted != lengths.num_equal
    said = (lengths.sentence if lengths is not None and is_off else None, None if cache is None else cache.finding)
    return tuple(line for line in said if line)


def check_cache(
    records: Iterable[RequestRecord], template_tokens: float = 0.0, shared_tokens: Sequence[int] | None = None
) -> CacheCheck:
    """Look for prompt tokens that a cache held though they were meant to be new.

    Formula:  unmeant = cached tokens - those meant to be shared, where that is more than what may begin every prompt
    Where:    template_tokens are what the server adds to every prompt (TokenFit.overhead_tokens); shared_tokens, by index
              in the workload, are how many leading tokens an earlier prompt has too (`count_shared_tokens`), None: none
    """
    tolerated = max(math.ceil(template_tokens), BLOCK_TOKENS - 1)
    num_requests = num_known = prompt_tokens = cached_tokens = 0
    num_template_hits = num_unmeant = unmeant_tokens = 0
    for record in records:
        num_requests += 1
        if record.cached_prompt_tokens is None or record.prompt_tokens is None:
            continue
        num_known += 1
        prompt_tokens += record.prompt_tokens
        cached_tokens += record.cached_prompt_tokens
        excess = record.cached_prompt_tokens - _meant(record, shared_tokens)
        if excess > tolerated:
            num_unmeant += 1
            unmeant_tokens += excess
        elif excess > 0:
            num_template_hits += 1
    return CacheCheck(
        num_requests, num_known, prompt_tokens, cached_tokens, num_template_hits, num_unmeant, unmeant_tokens, tolerated
    )


def _meant(record: RequestRecord, shared_tokens: Sequence[int] | None) -> int:
    if not shared_tokens or record.index is None:
        return 0
    return shared_tokens[record.index % len(shared_tokens)]


def kept_of_prompts(
    source: PromptSource | None, template: PromptTemplate | None, schema: Mapping[str, object] | None
) -> dict[str, str | None]:
    """What a run folder keeps of where its prompts came from: the kind, a file's name, and hashes; no text."""
    kind = "file" if isinstance(source, FilePrompts) else "corpus" if isinstance(source, CorpusSource) else "words"
    return {
        "source": kind,
        "file": source.name if isinstance(source, FilePrompts) else None,
        "template_sha256": None if template is None else sha256(template.text.encode("utf-8", "replace")).hexdigest(),
        "schema_sha256": None if schema is None else schema_hash(schema),
    }


@dataclass(frozen=True, slots=True)
class DocumentsJudged:
    """How many answers are the JSON documents that were asked for, under the stable keys of `documents`.

    Where:    asked are the measured requests; not_judged of them brought no whole answer
    """

    asked: int
    valid: int
    invalid: int
    not_judged: int

    @property
    def finding(self) -> str | None:
        """What is wrong, in words; None when every document fits."""
        if not self.invalid:
            return None
        count, judged = format_count(self.invalid), format_count(self.valid + self.invalid)
        verb = "is no document that fits" if self.invalid == 1 else "are no documents that fit"
        return f"{count} of {judged} answers {verb} the schema they were asked to{self._rest}."

    @property
    def remark(self) -> str:
        """The same where nothing is wrong."""
        return self.finding or f"All {format_count(self.valid)} answers fit the schema they were asked to{self._rest}."

    @property
    def _rest(self) -> str:
        return f"; {format_count(self.not_judged)} more brought no whole answer to judge" if self.not_judged else ""


def judge_documents(records: Iterable[RequestRecord]) -> DocumentsJudged | None:
    """Count the verdicts on the answers of measured requests; None where no answer was judged."""
    verdicts = [record.document_valid for record in records if record.stage is Stage.MEASURE]
    valid, invalid = verdicts.count(True), verdicts.count(False)
    if not valid + invalid:
        return None
    return DocumentsJudged(len(verdicts), valid, invalid, len(verdicts) - valid - invalid)


def count_shared_tokens(prompts: Iterable[Sequence[Segment]]) -> tuple[int, ...]:
    """For each prompt, in order, how many of its leading tokens an earlier prompt begins with too."""
    seen: dict[tuple[int, Segment], int] = {}
    shared = []
    for prompt in prompts:
        node, num_known, num_tokens, is_shared = 0, len(seen), 0, True
        for segment in prompt:
            node = seen.setdefault((node, segment), len(seen) + 1)
            is_shared = is_shared and node <= num_known
            num_tokens += segment.num_tokens if is_shared else 0
        shared.append(num_tokens)
    return tuple(shared)
