"""Does a document fit its schema? Asked of the jsonschema package, which knows nothing of the grammar.

In:   a text, whether it was finished, a DocumentCheck
Out:  Verdict; rates with their intervals
Read next by: flow, serving.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.labs.grammar.result import DocumentRun, ValidityRate, Way
from inference_bench.measure.payload_fields import strict_json
from inference_bench.measure.text_checks import DocumentCheck
from inference_bench.stats import proportion_interval


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a text is: any JSON, a document of its schema, or one with other text around it."""

    is_json: bool
    is_valid: bool
    is_valid_inside: bool


def judge(text: str, is_finished: bool, check: DocumentCheck) -> Verdict:
    """Judge a text; one that a budget cut off is never valid, whatever it looks like."""
    is_valid = is_finished and bool(check(text).is_valid)
    inside = first_value(text)
    return Verdict(_is_json(text), is_valid, is_valid or (inside is not None and bool(check(inside).is_valid)))


def first_value(text: str) -> str | None:
    """The first object or list that stands whole in a text, as a client finds it that looks past what is said around it."""
    starts = [text.index(mark) for mark in "{[" if mark in text]
    if not starts:
        return None
    start = min(starts)
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return text[start:end]


def _is_json(text: str) -> bool:
    try:
        strict_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def validity_rates(documents: Sequence[DocumentRun]) -> tuple[ValidityRate, ...]:
    """How many documents of each way fit."""
    by_way = ((way, [each for each in documents if each.way is way]) for way in Way)
    return tuple(_rate(way, own) for way, own in by_way if own)


def _rate(way: Way, documents: Sequence[DocumentRun]) -> ValidityRate:
    num_valid = sum(each.is_valid for each in documents)
    return ValidityRate(
        way=way,
        num_documents=len(documents),
        num_truncated=sum(each.is_truncated for each in documents),
        num_json=sum(each.is_json for each in documents),
        num_valid=num_valid,
        num_valid_inside=sum(each.is_valid_inside for each in documents),
        valid_fraction=num_valid / len(documents),
        valid_interval=proportion_interval(num_valid, len(documents)),
    )
