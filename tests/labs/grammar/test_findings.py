"""Each check of the lab misses when the one thing it is about is wrong, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from inference_bench.labs.checks import missed
from inference_bench.labs.grammar.findings import grammar_checks
from inference_bench.labs.grammar.result import DocumentRun, PlantedFault, Unenforced, Way
from inference_bench.labs.grammar.tasks import Task, fault_task
from labs.grammar.sample import document
from labs.grammar.tiny import vocabulary

for package in ("llguidance", "jsonschema", "transformers"):
    pytest.importorskip(package)

FAULT = PlantedFault("every mask is one row off", True, "token 1 outside its mask")
GOOD = (
    document(),
    document(Way.FREE, is_valid=False),
    document(Way.NAIVE),
    document(Way.SHORT, is_valid=False),
)


def names(documents: Sequence[DocumentRun] = GOOD, fault: PlantedFault = FAULT, task: Task | None = None) -> list[str]:
    checks = grammar_checks(documents, [fault], [task or fault_task()], vocabulary())
    return [check.name for check in missed(checks)]


def test_a_run_as_it_should_be_meets_all_seven() -> None:
    assert len(grammar_checks(GOOD, [FAULT], [fault_task()], vocabulary())) == 7
    assert names() == []


@pytest.mark.parametrize(
    ("place", "wrong", "name"),
    [
        (0, {"num_outside": 1}, "every token is allowed by a second matcher"),
        (0, {"is_valid": False}, "every finished document is valid by jsonschema"),
        (3, {"is_valid": True}, "no truncated document counts as valid"),
        (1, {"is_valid": True}, "no truncated document counts as valid"),
        (3, {"prefix_valid": False}, "every truncated one begins a valid document"),
        (0, {"num_tokens": 185}, "no document is longer than its schema's bound"),
    ],
)
def test_one_wrong_document_misses_its_own_check(place: int, wrong: dict[str, Any], name: str) -> None:
    documents = [replace(each, **wrong) if i == place else each for i, each in enumerate(GOOD)]
    assert names(documents) == [name]


def test_a_fault_that_is_not_caught_and_a_known_document_that_cannot_be_written_are_missed() -> None:
    assert names(fault=replace(FAULT, is_caught=False)) == ["each planted fault is caught"]
    task = replace(fault_task(), short_document='{"name":"A","age":500,"role":"cook"}')
    assert names(task=task) == ["documents known to fit can be written"]


def test_what_a_grammar_does_not_enforce_is_a_finding_and_misses_no_check() -> None:
    task = replace(fault_task(), unenforced=(Unenforced("#/uniqueItems", "uniqueItems", "said so"),))
    documents = (replace(GOOD[0], is_valid=False), *GOOD[1:])
    assert names(documents, task=task) == []
