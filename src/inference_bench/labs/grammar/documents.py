"""Which documents are written of a schema, in which ways, and what is found of each?

In:   a model, a Vocabulary, Tasks
Out:  DocumentRun after DocumentRun, with the times of their steps
Leaves out: how one is written (writing), gone through again (tracing) and judged (judging)
Read next by: flow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.labs.grammar.faults import plant_faults
from inference_bench.labs.grammar.judging import judge
from inference_bench.labs.grammar.lexical import is_whole_text, spanning
from inference_bench.labs.grammar.matching import Masks, SchemaMasks, Vocabulary
from inference_bench.labs.grammar.naive import NaiveMasks, lost_tokens, naive_vocabulary
from inference_bench.labs.grammar.result import DocumentRun, ExampleDocument, PlantedFault, StepFact, Way
from inference_bench.labs.grammar.tasks import Task
from inference_bench.labs.grammar.tracing import Trace, trace
from inference_bench.labs.grammar.writing import CachedModel, Model, Written, greedy, sampled, write
from inference_bench.labs.model import LabModel

SHORT_TOKENS: Final = 6
Say = Callable[[str], None]


@dataclass(slots=True)
class DocumentWriter:
    """All documents of a run as they are written.

    Where:  naive documents and those with too small a budget are made for the first prompt of each schema in the quick mode, for
            all in the full one; faults are planted once, in a document of a built-in schema
    """

    model: LabModel
    vocabulary: Vocabulary
    budget_tokens: int
    seeds: tuple[int, ...]
    temperature: float
    is_quick: bool
    say: Say
    documents: list[DocumentRun] = field(default_factory=list)
    constrained: list[Written] = field(default_factory=list)
    free: list[Written] = field(default_factory=list)
    faults: list[PlantedFault] = field(default_factory=list)
    example: ExampleDocument | None = None
    num_naive_tokens: dict[str, int] = field(default_factory=dict)
    _naive: Vocabulary | None = None
    _lost: list[bool] = field(default_factory=list)

    @property
    def num_lost(self) -> int:
        """Tokens that masks of single characters never allow."""
        return sum(self._lost)

    def plant(self, task: Task) -> None:
        """Write a document of a schema with masks that are wrong; the first few tokens show it."""
        self.say("masks broken on purpose")
        cached = CachedModel(self.model.network, self._prompt_ids(task.prompts[0], SHORT_TOKENS), self.say)
        self.faults += plant_faults(cached, self.vocabulary, task.grammar, task.check, SHORT_TOKENS)

    def write_all(self, task: Task) -> None:
        """Every document of one schema."""
        for number, prompt in enumerate(task.prompts):
            self.say(f"{task.name}, prompt {number + 1} of {len(task.prompts)}")
            cached = CachedModel(self.model.network, self._prompt_ids(prompt, self.budget_tokens), self.say)
            is_thorough = number == 0 or not self.is_quick
            self._write_constrained(task, number, cached, self.seeds if is_thorough else ())
            self._write(task, number, cached, Way.FREE, None, self.budget_tokens)
            if is_thorough:
                self._write(task, number, cached, Way.SHORT, None, min(SHORT_TOKENS, self.budget_tokens))
                self._write(task, number, cached, Way.NAIVE, None, self.budget_tokens)

    def _prompt_ids(self, prompt: str, budget_tokens: int) -> list[int]:
        """A prompt as token ids.

        Raises:  RequestError where it leaves no room for the document
        """
        ids = self.model.chat_ids(prompt)
        self.model.require_room(ids, budget_tokens)
        return ids

    def _write_constrained(self, task: Task, number: int, cached: Model, seeds: Sequence[int]) -> None:
        for seed in (None, *seeds):
            self._write(task, number, cached, Way.CONSTRAINED, seed, self.budget_tokens)

    def _write(self, task: Task, number: int, cached: Model, way: Way, seed: int | None, budget: int) -> None:
        choose = greedy if seed is None else sampled(self.temperature, seed)
        written = write(cached, self._masks(way, task), choose, budget, self.vocabulary.ends)
        if way in (Way.CONSTRAINED, Way.FREE):
            (self.constrained if way is Way.CONSTRAINED else self.free).append(written)
        traced = None if way is Way.FREE else trace(self._vocabulary_of(way), task.grammar, written.tokens)
        document = self._found(task, number, way, seed, budget, written, traced)
        if way is Way.CONSTRAINED and seed is None:
            text = self.vocabulary.text_bytes(written.tokens)
            self.num_naive_tokens[document.text_sha256] = len(self._vocabulary_of(Way.NAIVE).tokens_of(text))
        self.documents.append(document)
        if way is Way.CONSTRAINED and seed is None and traced is not None and document.is_valid:
            self._keep_example(task, document, traced.steps)

    def _keep_example(self, task: Task, document: DocumentRun, steps: tuple[StepFact, ...]) -> None:
        """Keep the document that tells most; of one that a user's own prompt led to, no token."""
        if self.example is None or _tells(steps) > _tells(self.example.steps):
            kept = tuple(replace(step, token=None) for step in steps) if task.is_own else steps
            self.example = ExampleDocument(task.name, document.text, len(self.vocabulary), kept)

    def _masks(self, way: Way, task: Task) -> Masks | None:
        if way is Way.FREE:
            return None
        vocabulary = self._vocabulary_of(way)
        return (
            NaiveMasks(vocabulary, task.grammar, self._lost)
            if way is Way.NAIVE
            else SchemaMasks(vocabulary, task.grammar)
        )

    def _vocabulary_of(self, way: Way) -> Vocabulary:
        if way is not Way.NAIVE:
            return self.vocabulary
        if self._naive is None:
            self._naive, self._lost = naive_vocabulary(self.vocabulary), lost_tokens(self.vocabulary)
        return self._naive

    def _found(
        self, task: Task, number: int, way: Way, seed: int | None, budget: int, written: Written, traced: Trace | None
    ) -> DocumentRun:
        each = [self.vocabulary.token_bytes[token] for token in written.tokens]
        text, is_finished = _text(b"".join(each)), written.is_finished
        verdict = judge(text, is_finished, task.check)
        return DocumentRun(
            schema=task.name,
            prompt=number,
            way=way,
            seed=seed,
            budget_tokens=budget,
            num_tokens=len(written.tokens),
            is_finished=is_finished,
            prefix_valid=None if traced is None else traced.prefix_valid,
            is_json=verdict.is_json,
            is_valid=verdict.is_valid,
            is_valid_inside=verdict.is_valid_inside,
            num_outside=None if traced is None else traced.num_outside,
            num_forced=None if traced is None else traced.num_forced,
            num_spanning=sum(spanning(each)),
            num_partial_utf8=sum(not is_whole_text(token) for token in each),
            elapsed_s=written.elapsed_s,
            text_sha256=hashlib.sha256(b"".join(each)).hexdigest(),
            text=None if task.is_own else text,
        )


def _tells(steps: Sequence[StepFact]) -> tuple[int, int]:
    """How much a document shows of what masks do: from forced steps to the widest choice, over many steps."""
    return max((step.num_allowed for step in steps), default=0), len(steps)


def _text(written: bytes) -> str:
    """Bytes as text; a document that ends inside a character keeps a mark in its place."""
    return written.decode("utf-8", "replace")
