"""The grammar lab from its request to its result.

In:   GrammarRequest
Out:  GrammarResult
Read next by: cli, notebook pages.

In the order of it: the schemas are made grammars and looked through for what those do not enforce; the model writes each document
with masks, without, with a budget that is too small, and with masks that know characters alone; every document is gone through
again by a second matcher and validated by the jsonschema package; two faults are planted; a server is asked the same.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from inference_bench.engines.attach import attach
from inference_bench.engines.base import LLAMA_CPP, EngineIdentity
from inference_bench.engines.start import EngineSettings, start_engine
from inference_bench.errors import MissingExtraError, WorldError
from inference_bench.labs.grammar.documents import DocumentWriter
from inference_bench.labs.grammar.enforced import keyword_outcomes
from inference_bench.labs.grammar.findings import grammar_checks, naive_cost
from inference_bench.labs.grammar.judging import validity_rates
from inference_bench.labs.grammar.lexical import is_whole_text
from inference_bench.labs.grammar.matching import Vocabulary, compile_masks, read_vocabulary
from inference_bench.labs.grammar.request import GrammarRequest
from inference_bench.labs.grammar.result import GrammarResult, SchemaFacts, ServerRun
from inference_bench.labs.grammar.serving import ask_server
from inference_bench.labs.grammar.tasks import Task, fault_task, prepare
from inference_bench.labs.grammar.timing import step_parts
from inference_bench.labs.model import LabModel, load_model, require_packages
from inference_bench.labs.session import LabSession, Progress, computing_threads, counted
from inference_bench.labs.subject import LabSubject, find_subject

QUESTION: Final = "What does a schema guarantee, and what do its masks cost?"
QUICK_TOKENS: Final = 48
FULL_TOKENS: Final = 96
_CONTEXT_TOKENS: Final = 2048
_SERVER_SLOTS: Final = 1


def run_lab(request: GrammarRequest, progress: Progress | None = None) -> GrammarResult:
    """Run it.

    Raises:  RequestError for a schema that cannot be held to; what loading a model raises; ServerError for a server that was named
             and does not answer
    """
    session = LabSession("grammar", QUESTION, request.settings, progress)
    session.say("making grammars of the schemas")
    require_packages("llguidance", "jsonschema")
    tasks = prepare(request)
    own = None if request.url is None else attach(request.url).identity
    subject = find_subject(session)
    _say_what_is_assumed(session, request, tasks)
    with computing_threads(session.num_threads):
        model = load_model(subject, request.settings.dtype, say=session.say)
        writer = _writer(model, request, session)
        schemas = tuple(_facts(task, writer.vocabulary) for task in tasks)
        writer.plant(fault_task())
        for task in tasks:
            writer.write_all(task)
    server = _server(request, own, subject, tasks, writer.budget_tokens, session)
    documents = tuple(writer.documents)
    keywords = keyword_outcomes()
    return GrammarResult(
        head=session.head(),
        checks=grammar_checks(documents, writer.faults, tasks, writer.vocabulary),
        library=f"llguidance {importlib.metadata.version('llguidance')}",
        temperature=request.temperature,
        tokenizer_s=writer.vocabulary.build_s,
        schemas=schemas,
        documents=documents,
        rates=validity_rates(documents),
        step_parts=(
            *step_parts(writer.constrained, is_constrained=True),
            *step_parts(writer.free, is_constrained=False),
        ),
        example=writer.example,
        naive=naive_cost(documents, writer.num_naive_tokens, writer.num_lost),
        keywords=keywords,
        faults=tuple(writer.faults),
        server=server,
    )


def _writer(model: LabModel, request: GrammarRequest, session: LabSession) -> DocumentWriter:
    session.say("reading the vocabulary")
    num_rows = int(model.network.get_output_embeddings().weight.shape[0])
    vocabulary = read_vocabulary(model.tokenizer, num_rows, _ends(model))
    budget = request.num_tokens or (QUICK_TOKENS if request.settings.is_quick else FULL_TOKENS)
    seed = request.settings.seed
    seeds = (seed,) if request.settings.is_quick else (seed, seed + 1)
    return DocumentWriter(model, vocabulary, budget, seeds, request.temperature, request.settings.is_quick, session.say)


def _ends(model: LabModel) -> list[int]:
    """The ids that end an answer, where they are no text."""
    special = set(model.tokenizer.all_special_ids)
    return [token for token in model.end_ids if token in special]


def _facts(task: Task, vocabulary: Vocabulary) -> SchemaFacts:
    _, compile_s, first_mask_s = compile_masks(vocabulary, task.grammar)
    short = None if task.short_document is None else vocabulary.tokens_of(task.short_document.encode())
    return SchemaFacts(
        name=task.name,
        sha256=task.sha256,
        compile_s=compile_s,
        first_mask_s=first_mask_s,
        most_document_bytes=task.size.most_bytes,
        unbounded_at=task.size.unbounded_at,
        num_short_tokens=None if short is None else len(short),
        num_short_partial_utf8=None
        if short is None
        else sum(not is_whole_text(vocabulary.token_bytes[t]) for t in short),
        unenforced=task.unenforced,
        not_judged=task.check.ignored,
    )


def _say_what_is_assumed(session: LabSession, request: GrammarRequest, tasks: Sequence[Task]) -> None:
    session.assumptions += [
        "documents are written without white space between their parts, which the grammar then does not allow",
        "the final validation is JSON Schema 2020-12 where a schema names no other draft, with the format checker off; "
        "the grammar enforces those formats it knows",
        "a document that its budget cut off counts as invalid",
        _what_is_asked(request),
    ]
    if request.settings.is_quick:
        session.left_out += [
            f"{counted(tasks, 'schema')} with {counted(tasks[0].prompts, 'prompt')} each; the full run has five schemas with four"
            if request.schema is None
            else "only one sampled document",
            "one sampled document a schema; the full run has two for each prompt",
        ]
    if any(task.unenforced for task in tasks):
        named = ", ".join(f"{each.keyword} at {each.pointer}" for task in tasks for each in task.unenforced)
        session.assumptions.append(f"the grammar does not enforce {named}; only the final validation does")
    for task in tasks:
        session.left_out += [f"not validated in {task.name}: {place}" for place in task.check.ignored]


def _what_is_asked(request: GrammarRequest) -> str:
    if request.prompt is not None:
        return "the prompt is the user's own, as it is, with masks and without"
    told = "a short document that fits" if request.schema is None else "its schema"
    return f"each prompt ends with {told}, so that a model without masks can know what is wanted"


def _server(
    request: GrammarRequest,
    own: EngineIdentity | None,
    subject: LabSubject,
    tasks: Sequence[Task],
    budget: int,
    session: LabSession,
) -> ServerRun | None:
    """The same prompts on a real server, the user's own or the embedded engine; None where that failed, which is said."""
    if not request.uses_server:
        session.left_out.append("a real server, as asked")
        return None
    is_quick = request.settings.is_quick
    try:
        if request.url is None or own is None:
            return _embedded(subject, tasks, budget, is_quick, session)
        name = " ".join(filter(None, (own.name or "a server without a name", own.version)))
        return ask_server(request.url, name, True, own.model_name, tasks, budget, is_quick, session.say)
    except (MissingExtraError, WorldError) as error:
        session.left_out.append(f"a real server: {error}")
        return None


def _embedded(
    subject: LabSubject, tasks: Sequence[Task], budget: int, is_quick: bool, session: LabSession
) -> ServerRun | None:
    """The embedded engine's answers; None for a model that it cannot serve.

    Raises:  MissingExtraError, ServerStartError, ServerError, MeasurementError
    """
    if subject.gguf is None:
        session.left_out.append("a real server: the embedded engine serves .gguf files, and this model is none")
        return None
    settings = EngineSettings(
        context_tokens=_CONTEXT_TOKENS + budget, num_slots=_SERVER_SLOTS, num_threads=session.num_threads
    )
    with TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.log"
        with start_engine(LLAMA_CPP, subject.gguf, settings, log_path=log, progress=session.say) as server:
            name = f"{LLAMA_CPP} ({server.identity.version})"
            return ask_server(server.base_url, name, False, None, tasks, budget, is_quick, session.say)
