"""What came out of the grammar lab.

In:   plain values
Out:  GrammarResult and its parts
Read next by: flow, charts, report.

A document is finished when its grammar (or, without one, the model) ended it within the budget. One that the budget cut off is
invalid, whatever its text looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead
from inference_bench.stats import Interval

MODEL, MASK, APPLY, CHOOSE, ADVANCE = "model", "compute the mask", "apply it", "choose", "advance the grammar"
STEP_PARTS: Final = (MODEL, MASK, APPLY, CHOOSE, ADVANCE)


class Way(StrEnum):
    """How a document was made."""

    CONSTRAINED = "constrained"
    FREE = "unconstrained"
    NAIVE = "one structural character a token"
    SHORT = "constrained, budget too small"


class Outcome(StrEnum):
    """What becomes of a keyword of JSON Schema."""

    ENFORCED = "enforced"
    REFUSED = "refused by name"
    IGNORED = "ignored"
    UNDECIDED = "not decided within the budget"


@dataclass(frozen=True, slots=True)
class Unenforced:
    """A keyword of a schema that its grammar does not hold a document to, by JSON pointer, and what the library says of it."""

    pointer: str
    keyword: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeywordOutcome:
    """What the grammar library makes of one keyword: asked with a document that only this keyword forbids."""

    keyword: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """One schema and its grammar.

    Unit:   seconds; bytes
    Where:  compile_s is from the schema to a matcher, first_mask_s what the first mask took, in which the library builds what it
            needs later; most_document_bytes is the longest document that fits, without white space, None where there is no end,
            and unbounded_at is where; num_short_tokens are those of a short document that is known to fit, of which num_short_partial_utf8
            are no whole characters, both None for a user's own schema; not_judged are patterns that the final validation leaves out
    """

    name: str
    sha256: str
    compile_s: float
    first_mask_s: float
    most_document_bytes: int | None
    unbounded_at: str | None
    num_short_tokens: int | None
    num_short_partial_utf8: int | None
    unenforced: tuple[Unenforced, ...]
    not_judged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentRun:
    """One document.

    Where:  seed is None for a greedy one; prefix_valid says that some document of the schema begins with this text, None without
            a grammar; is_json and is_valid are of the text as it is, is_valid_inside of the first whole object or list in it,
            whatever comes after;
            num_outside counts tokens that a second matcher does not allow, where it stops; num_forced are steps at which just one
            token was allowed; num_spanning are tokens with bytes of two or more lexical elements of JSON, num_partial_utf8 those
            that are not whole characters; text is None where the prompt is the user's own
    """

    schema: str
    prompt: int
    way: Way
    seed: int | None
    budget_tokens: int
    num_tokens: int
    is_finished: bool
    prefix_valid: bool | None
    is_json: bool
    is_valid: bool
    is_valid_inside: bool
    num_outside: int | None
    num_forced: int | None
    num_spanning: int
    num_partial_utf8: int
    elapsed_s: float
    text_sha256: str
    text: str | None

    @property
    def is_truncated(self) -> bool:
        """Whether the budget cut it off."""
        return not self.is_finished


@dataclass(frozen=True, slots=True)
class ValidityRate:
    """How many documents of one way fit their schema.

    Formula:  valid / all, truncated ones being invalid; the interval is Wilson's at 95 %
    Ignores:  that documents of one prompt are alike
    """

    way: Way
    num_documents: int
    num_truncated: int
    num_json: int
    num_valid: int
    num_valid_inside: int
    valid_fraction: float
    valid_interval: Interval | None


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step over all steps but the first of each document.

    Unit:   seconds
    Where:  is_constrained tells which documents; share_fraction is of all the time of their steps
    """

    name: str
    is_constrained: bool
    num_steps: int
    median_s: float
    p90_s: float
    max_s: float
    total_s: float
    share_fraction: float


@dataclass(frozen=True, slots=True)
class StepFact:
    """One step of a document: what its mask allowed, and what was taken; token is None where the prompt is the user's own."""

    num_allowed: int
    token: str | None
    is_forced: bool
    is_spanning: bool


@dataclass(frozen=True, slots=True)
class ExampleDocument:
    """One document step by step, and the size of the vocabulary that its masks choose from."""

    schema: str
    text: str | None
    num_vocabulary: int
    steps: tuple[StepFact, ...]


@dataclass(frozen=True, slots=True)
class NaiveCost:
    """What masks cost that know characters alone: no token with a structural character beside anything else.

    Where:  num_tokens and num_naive_tokens write the same texts, those of the greedy documents of the schema's own masks;
            num_different are those of them in place of which the model wrote another text when it had such masks;
            num_vocabulary_lost are tokens that these can never allow
    """

    num_documents: int
    num_tokens: int
    num_naive_tokens: int
    num_different: int
    num_vocabulary_lost: int


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A mask broken on purpose, and what showed it."""

    fault: str
    is_caught: bool
    caught_by: str


@dataclass(frozen=True, slots=True)
class ServerWay:
    """What a server did with or without the schemas.

    Unit:   seconds
    Where:  ttft_s and tpot_s are medians; tokens_per_s is 1 / tpot_s, of one request at a time; num_tokens are all that the
            server counted, None where it counts none
    """

    is_constrained: bool
    num_documents: int
    num_truncated: int
    num_valid: int
    num_tokens: int | None
    valid_fraction: float
    valid_interval: Interval | None
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class ServerKeyword:
    """What a server made of a schema that no document fits, since one keyword forbids what the others demand."""

    keyword: str
    outcome: Outcome
    answer: str


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A real server with and without the constraint; budget_tokens is that of each document."""

    engine: str
    is_own: bool
    budget_tokens: int
    ways: tuple[ServerWay, ...]
    keywords: tuple[ServerKeyword, ...]


@dataclass(frozen=True, slots=True)
class GrammarResult:
    """The figures of one run.

    Unit:   seconds
    Where:  tokenizer_s is what the library's own form of the vocabulary took, once a model; naive and server are None where left out
    """

    head: LabHead
    checks: tuple[Check, ...]
    library: str
    temperature: float
    tokenizer_s: float
    schemas: tuple[SchemaFacts, ...]
    documents: tuple[DocumentRun, ...]
    rates: tuple[ValidityRate, ...]
    step_parts: tuple[StepPart, ...]
    example: ExampleDocument | None
    naive: NaiveCost | None
    keywords: tuple[KeywordOutcome, ...]
    faults: tuple[PlantedFault, ...]
    server: ServerRun | None
