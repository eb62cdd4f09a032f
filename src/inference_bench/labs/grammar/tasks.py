"""Which schemas are asked for, and can each be held to?

In:   GrammarRequest
Out:  Task: a schema with its grammar, its final validation and its prompts
Leaves out: the model (flow)
Read next by: flow, serving.

All of it happens before a model is loaded, so that a schema that cannot be is refused at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.labs.grammar.builtin import BUILT_IN, OWN_PROMPT, QUICK_SCHEMAS, BuiltIn
from inference_bench.labs.grammar.enforced import find_unenforced, grammar_of, require_enforced
from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import Unenforced
from inference_bench.labs.grammar.schema_walk import require_bounded
from inference_bench.labs.grammar.size import DocumentSize, document_size
from inference_bench.measure.text_checks import DocumentCheck, schema_hash, structured_check

_QUICK_PROMPTS: Final = 2
_MOST_SAID_CHARS: Final = 4000


@dataclass(frozen=True, slots=True)
class Task:
    """One schema and what is asked with it; is_own tells that the prompts are a user's."""

    name: str
    schema: Mapping[str, Any]
    sha256: str
    grammar: str
    check: DocumentCheck
    prompts: tuple[str, ...]
    size: DocumentSize
    unenforced: tuple[Unenforced, ...]
    short_document: str | None
    is_own: bool


def prepare(request: GrammarRequest) -> tuple[Task, ...]:
    """Every schema of a run.

    Raises:  RequestError for a schema that is none, is too deep or too large, refers out of itself, cannot be made a grammar, or
             holds keywords that its grammar does not enforce, where that is not allowed; MissingExtraError
    """
    if request.schema is None:
        return tuple(_built_in(each, request.settings.is_quick) for each in _chosen(request.settings.is_quick))
    require_bounded(request.schema)
    prompts = (request.prompt or with_schema(OWN_PROMPT, request.schema),)
    return (_task(request.schema_name, request.schema, prompts, None, request.allows_unenforced, is_own=True),)


def fault_task() -> Task:
    """The schema that masks are broken with, whatever else is asked: its first tokens leave a choice that a wrong mask changes."""
    return _built_in(BUILT_IN[0], is_quick=True)


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    """A question with the schema that its answer is to fit, so that a model can know it without any mask; too large a one is left out."""
    written = json.dumps(dict(schema), ensure_ascii=False, separators=(",", ":"))
    return prompt if len(written) > _MOST_SAID_CHARS else f"{prompt}\nThe answer is JSON of this schema: {written}"


def _chosen(is_quick: bool) -> tuple[BuiltIn, ...]:
    return tuple(each for each in BUILT_IN if not is_quick or each.name in QUICK_SCHEMAS)


def _built_in(built: BuiltIn, is_quick: bool) -> Task:
    asked = built.prompts[:_QUICK_PROMPTS] if is_quick else built.prompts
    prompts = tuple(f"{prompt}\nWrite it in this form: {built.short_document}" for prompt in asked)
    return _task(built.name, built.schema, prompts, built.short_document, False, is_own=False)


def _task(
    name: str,
    schema: Mapping[str, Any],
    prompts: tuple[str, ...],
    short_document: str | None,
    allows_unenforced: bool,
    *,
    is_own: bool,
) -> Task:
    unenforced = find_unenforced(schema)
    check = structured_check(schema)
    if not allows_unenforced:
        require_enforced(unenforced)
    grammar = grammar_of(schema, is_lenient=bool(unenforced))
    size = document_size(schema)
    return Task(name, schema, schema_hash(schema), grammar, check, prompts, size, unenforced, short_document, is_own)
