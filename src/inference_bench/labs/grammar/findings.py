"""What must hold for the figures to mean anything, and what do masks of single characters cost?

In:   the documents of a run, the planted faults
Out:  Checks, NaiveCost
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inference_bench.labs.checks import Check
from inference_bench.labs.grammar.matching import SchemaMasks, Vocabulary
from inference_bench.labs.grammar.result import DocumentRun, NaiveCost, PlantedFault, Way
from inference_bench.labs.grammar.tasks import Task

_WITH_MASKS = (Way.CONSTRAINED, Way.NAIVE, Way.SHORT)


def grammar_checks(
    documents: Sequence[DocumentRun], faults: Sequence[PlantedFault], tasks: Sequence[Task], vocabulary: Vocabulary
) -> tuple[Check, ...]:
    """Everything that would show the lab, or the library, wrong."""
    return (
        _all_inside(documents),
        _finished_are_valid(documents, tasks),
        _truncated_are_invalid(documents),
        _prefixes_are_valid(documents),
        _bounded(documents, tasks),
        *([_known_documents(tasks, vocabulary)] if any(task.short_document for task in tasks) else []),
        _faults_caught(faults),
    )


def _all_inside(documents: Sequence[DocumentRun]) -> Check:
    masked = [each for each in documents if each.way in _WITH_MASKS]
    outside = sum(each.num_outside or 0 for each in masked)
    tokens = sum(each.num_tokens for each in masked)
    return Check("every token is allowed by a second matcher", not outside, f"{outside} of {tokens:,} outside", "0")


def _finished_are_valid(documents: Sequence[DocumentRun], tasks: Sequence[Task]) -> Check:
    """Of schemas that their grammar enforces whole: where a user allows the rest, breaking it is a finding and not a fault."""
    whole = {task.name for task in tasks if not task.unenforced}
    finished = [each for each in documents if each.way in _WITH_MASKS and each.is_finished and each.schema in whole]
    broken = [each for each in finished if not each.is_valid]
    found = f"{len(broken)} of {len(finished)} invalid"
    return Check("every finished document is valid by jsonschema", not broken, found, "0")


def _truncated_are_invalid(documents: Sequence[DocumentRun]) -> Check:
    cut = [each for each in documents if each.is_truncated]
    counted_valid = sum(each.is_valid for each in cut)
    return Check(
        "no truncated document counts as valid", not counted_valid, f"{counted_valid} of {len(cut)} counted valid", "0"
    )


def _prefixes_are_valid(documents: Sequence[DocumentRun]) -> Check:
    cut = [each for each in documents if each.is_truncated and each.way in _WITH_MASKS]
    broken = sum(not each.prefix_valid for each in cut)
    return Check("every truncated one begins a valid document", not broken, f"{broken} of {len(cut)} do not", "0")


def _bounded(documents: Sequence[DocumentRun], tasks: Sequence[Task]) -> Check:
    """No document is longer than the schema's own bound, counted before anything was written."""
    most = {task.name: task.size.most_bytes for task in tasks}
    known = [each for each in documents if each.way in _WITH_MASKS and most[each.schema] is not None]
    longer = sum(each.num_tokens > (most[each.schema] or 0) for each in known)
    return Check("no document is longer than its schema's bound", not longer, f"{longer} of {len(known)} longer", "0")


def _known_documents(tasks: Sequence[Task], vocabulary: Vocabulary) -> Check:
    """A document that is known to fit can be written in the tokens that the tokenizer has for it."""
    known = [(task, task.short_document) for task in tasks if task.short_document is not None]
    fit = sum(_can_write(vocabulary, task.grammar, text) for task, text in known)
    return Check("documents known to fit can be written", fit == len(known), f"{fit} of {len(known)}", "all")


def _can_write(vocabulary: Vocabulary, grammar: str, text: str) -> bool:
    masks, tokens = SchemaMasks(vocabulary, grammar), vocabulary.tokens_of(text.encode())
    return masks.try_take(tokens) == len(tokens) and masks.is_accepting()


def _faults_caught(faults: Sequence[PlantedFault]) -> Check:
    caught = sum(fault.is_caught for fault in faults)
    return Check("each planted fault is caught", caught == len(faults), f"{caught} of {len(faults)}", "all")


def naive_cost(
    documents: Sequence[DocumentRun], num_naive_tokens: Mapping[str, int], num_lost: int
) -> NaiveCost | None:
    """Greedy documents that both kinds of masks finished, side by side; None without any.

    Where:  num_naive_tokens is how many tokens a text takes with such masks, by the hash of the text
    """
    whole = {
        (each.schema, each.prompt): each for each in documents if each.way is Way.CONSTRAINED and each.seed is None
    }
    pairs = [
        (whole[each.schema, each.prompt], each)
        for each in documents
        if each.way is Way.NAIVE and each.is_finished and whole[each.schema, each.prompt].is_finished
    ]
    if not pairs:
        return None
    return NaiveCost(
        num_documents=len(pairs),
        num_tokens=sum(own.num_tokens for own, _ in pairs),
        num_naive_tokens=sum(num_naive_tokens[own.text_sha256] for own, _ in pairs),
        num_different=sum(own.text_sha256 != naive.text_sha256 for own, naive in pairs),
        num_vocabulary_lost=num_lost,
    )
