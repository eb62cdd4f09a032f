"""Was every token one that the grammar allows? A document gone through again, by a matcher that did not take part in writing it.

In:   a vocabulary, a grammar, the tokens of a document
Out:  Trace
Leaves out: whether the text fits the schema (judging)
Read next by: flow, faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.labs.grammar.lexical import is_whole_text, spanning
from inference_bench.labs.grammar.matching import SchemaMasks, Vocabulary
from inference_bench.labs.grammar.result import StepFact


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a document.

    Where:  steps end before the first token that is not allowed, of which num_outside counts at most one; prefix_valid is
            asked of a third matcher, of all tokens at once
    """

    steps: tuple[StepFact, ...]
    num_outside: int
    prefix_valid: bool
    is_whole: bool

    @property
    def num_forced(self) -> int:
        """Steps at which just one token was allowed."""
        return sum(step.is_forced for step in self.steps)


def trace(vocabulary: Vocabulary, grammar: str, tokens: Sequence[int]) -> Trace:
    """Go through a document again."""
    masks = SchemaMasks(vocabulary, grammar)
    across = spanning([vocabulary.token_bytes[token] for token in tokens])
    steps: list[StepFact] = []
    for token, is_across in zip(tokens, across, strict=True):
        allowed = masks.allowed()
        if not bool(allowed[token]):
            break
        count = int(allowed.sum())
        steps.append(StepFact(count, shown(vocabulary.token_bytes[token]), count == 1, is_across))
        masks.take(token)
    fitting = SchemaMasks(vocabulary, grammar).count_fitting(tokens)
    is_inside = len(steps) == len(tokens)
    return Trace(tuple(steps), int(not is_inside), fitting == len(tokens), is_inside and masks.is_accepting())


def shown(token: bytes) -> str:
    """A token as text, with bytes that are no whole character as hexadecimal."""
    return token.decode("utf-8") if is_whole_text(token) else token.hex(" ")
