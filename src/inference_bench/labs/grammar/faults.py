"""Would the checks notice wrong masks? Two faults that a server could have, planted.

In:   a model, a Vocabulary, a grammar
Out:  PlantedFault
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inference_bench.labs.grammar.judging import judge
from inference_bench.labs.grammar.matching import Masks, SchemaMasks, Vocabulary
from inference_bench.labs.grammar.result import PlantedFault
from inference_bench.labs.grammar.tracing import trace
from inference_bench.labs.grammar.writing import Model, greedy, write
from inference_bench.measure.text_checks import DocumentCheck


class _WrongMasks(SchemaMasks):
    """Masks that may lead to no document: one is complete as soon as it is broken, too."""

    def is_complete(self) -> bool:
        """Whether nothing more can come, since the document is whole or broken."""
        return self.is_broken() or super().is_complete()


class StaleMasks(_WrongMasks):
    """Each step gets the mask of the step before, as where masks are computed ahead and one is dropped."""

    def __init__(self, vocabulary: Vocabulary, grammar: str) -> None:
        super().__init__(vocabulary, grammar)
        self._before: bytes | None = None

    def packed(self) -> bytes:
        """The mask of the step before, the first one's own."""
        now = super().packed()
        before, self._before = self._before, now
        return now if before is None else before


class ShiftedMasks(_WrongMasks):
    """Each token gets the bit of the one before it, as where a vocabulary is counted from another start."""

    def unpack(self, packed: bytes) -> Any:
        """The mask, one row further."""
        import numpy as np

        return np.roll(super().unpack(packed), 1)


FAULTS: Final[tuple[tuple[str, Callable[[Vocabulary, str], Masks]], ...]] = (
    ("every mask is the one of the step before", StaleMasks),
    ("every mask is one vocabulary row off", ShiftedMasks),
)


def plant_faults(
    model: Model, vocabulary: Vocabulary, grammar: str, check: DocumentCheck, budget_tokens: int
) -> tuple[PlantedFault, ...]:
    """Write a document with each fault, and ask the same checks as of every other document."""
    return tuple(
        _plant(name, make(vocabulary, grammar), model, vocabulary, grammar, check, budget_tokens)
        for name, make in FAULTS
    )


def _plant(
    name: str, masks: Masks, model: Model, vocabulary: Vocabulary, grammar: str, check: DocumentCheck, budget: int
) -> PlantedFault:
    written = write(model, masks, greedy, budget, vocabulary.ends)
    found = trace(vocabulary, grammar, written.tokens)
    text = vocabulary.text_bytes(written.tokens).decode("utf-8", "replace")
    caught = []
    if found.num_outside:
        caught.append(f"token {len(found.steps) + 1} outside its mask")
    if written.is_finished and not judge(text, True, check).is_valid:
        caught.append("document invalid")
    return PlantedFault(name, bool(found.num_outside), "; ".join(caught) or "nothing")
