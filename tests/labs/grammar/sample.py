"""A result of the grammar lab made of plain values, with everything in it that one can have."""

from __future__ import annotations

from inference_bench.labs.checks import Check
from inference_bench.labs.grammar.result import (
    DocumentRun,
    ExampleDocument,
    GrammarResult,
    KeywordOutcome,
    NaiveCost,
    Outcome,
    PlantedFault,
    SchemaFacts,
    ServerKeyword,
    ServerRun,
    ServerWay,
    StepFact,
    StepPart,
    Unenforced,
    ValidityRate,
    Way,
)
from inference_bench.stats import Interval
from labs.made_page import HEAD

ALLOWED = (1, 1, 3, 44, 49_000, 48_000, 49_000, 1, 1, 10, 12, 1, 1, 1, 13, 1)
TOKENS = ('{"', "name", '":', '"', "M", "ate", '","', "age", '":', "2", "5", ',"', "role", '":"', "cook", '"}')
TEXT = "".join(TOKENS)


def document(way: Way = Way.CONSTRAINED, *, is_valid: bool = True, text: str | None = TEXT) -> DocumentRun:
    has_masks = way is not Way.FREE
    return DocumentRun(
        schema="person", prompt=0, way=way, seed=None, budget_tokens=48, num_tokens=16, is_finished=is_valid,
        prefix_valid=True if has_masks else None, is_json=is_valid, is_valid=is_valid, is_valid_inside=is_valid,
        num_outside=0 if has_masks else None, num_forced=9 if has_masks else None, num_spanning=6, num_partial_utf8=0,
        elapsed_s=1.5, text_sha256="ab" * 32, text=text,
    )  # fmt: skip


def rate(way: Way, num_valid: int) -> ValidityRate:
    return ValidityRate(way, 4, 4 - num_valid, 4, num_valid, num_valid, num_valid / 4, Interval(0.1, 0.9, 0.95))


def schema(name: str = "person", *, most: int | None = 184) -> SchemaFacts:
    return SchemaFacts(
        name, "cd" * 32, 8e-4, 5e-3, most, None if most else "#/properties/celsius", 13, 4,
        (Unenforced("#/properties/a/uniqueItems", "uniqueItems", 'Unimplemented keys: ["uniqueItems"]'),), (),
    )  # fmt: skip


def server() -> ServerRun:
    way = ServerWay(True, 4, 1, 3, 136, 0.75, Interval(0.3, 0.954, 0.95), 0.4, 0.016, 62.5)
    free = ServerWay(False, 4, 4, 0, 192, 0.0, Interval(0.0, 0.49, 0.95), 0.4, 0.0125, 80.0)
    ignored = ServerKeyword("not", Outcome.IGNORED, 'answered {"a":true}')
    return ServerRun("llama.cpp 1", False, 48, (way, free), (ignored,))


def result() -> GrammarResult:
    steps = tuple(
        StepFact(count, token, count == 1, len(token) > 1 and '"' in token)
        for count, token in zip(ALLOWED, TOKENS, strict=True)
    )
    parts = (
        StepPart("model", True, 150, 0.06, 0.07, 0.1, 9.0, 0.98),
        StepPart("compute the mask", True, 150, 1.5e-4, 2e-4, 4e-3, 0.03, 0.005),
        StepPart("apply it", True, 150, 2e-4, 2.5e-4, 8e-3, 0.04, 0.005),
        StepPart("choose", True, 150, 6e-5, 1e-3, 5e-3, 0.05, 0.009),
        StepPart("advance the grammar", True, 150, 1.5e-5, 2e-5, 1e-4, 3e-3, 0.001),
        StepPart("model", False, 170, 0.061, 0.075, 0.11, 10.0, 0.998),
        StepPart("choose", False, 170, 7e-5, 9e-5, 4e-3, 0.02, 0.002),
    )
    return GrammarResult(
        head=HEAD,
        checks=(Check("each planted fault is caught", True, "2 of 2", "all"),),
        library="llguidance 1.9.1",
        temperature=1.0,
        tokenizer_s=0.4,
        schemas=(schema(), schema("weather", most=None)),
        documents=(
            document(),
            document(Way.FREE, is_valid=False),
            document(Way.NAIVE),
            document(Way.SHORT, is_valid=False),
        ),
        rates=(rate(Way.CONSTRAINED, 4), rate(Way.FREE, 0), rate(Way.NAIVE, 4), rate(Way.SHORT, 0)),
        step_parts=parts,
        example=ExampleDocument("person", TEXT, 49_152, steps),
        naive=NaiveCost(2, 57, 90, 2, 467),
        keywords=(
            KeywordOutcome("enum", Outcome.ENFORCED, ""),
            KeywordOutcome("not", Outcome.REFUSED, 'Unimplemented keys: ["not"]'),
        ),
        faults=(PlantedFault("every mask is one row off", True, "token 1 outside its mask; document invalid"),),
        server=server(),
    )
