"""Is the text of an answer what was asked for: a valid document, and of how many tokens?

In:   the text of one answer, in memory only
Out:  TextFindings; makers of checks, which are made once a run and called once an answer
Leaves out: when that happens (sender: after a request has ended, in a thread of its own)
Read next by: sender, loadtest.

A document is judged by JSON Schema, in the draft that the schema names, else 2020-12. `format` is a note there and
judges nothing. A reference must lead to a place in the schema itself; none is ever fetched. Patterns that could take
for ever on some text are not tried (`DocumentCheck.ignored` names where), nor is any on long text.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.files import shown_name
from inference_bench.measure.openai_stream import one_line
from inference_bench.measure.pattern_risk import explain_risk
from inference_bench.measure.payload_fields import strict_json
from inference_bench.measure.prompt_sources import read_bytes, read_text
from inference_bench.units import MEBI

MAX_SCHEMA_BYTES: Final = MEBI
MAX_TOKENIZER_BYTES: Final = 256 * MEBI
MAX_PATTERN_CHARS: Final = 500
MAX_DOCUMENT_CHARS: Final = 4 * MEBI

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class TextFindings:
    """What the text of one answer shows; None for what was not looked at."""

    num_tokens: int | None = None
    is_valid: bool | None = None


Examine: TypeAlias = Callable[[str], TextFindings]


@dataclass(frozen=True, slots=True)
class DocumentCheck:
    """Whether an answer is one JSON document that fits a schema. `ignored` are the parts of the schema not judged by."""

    validator: Any
    ignored: tuple[str, ...] = ()

    def __call__(self, text: str) -> TextFindings:
        """Valid or not: text around the document, NaN, and nesting without end are not."""
        if len(text) > MAX_DOCUMENT_CHARS:
            return TextFindings(is_valid=False)
        try:
            document = strict_json(text)
            return TextFindings(is_valid=bool(self.validator.is_valid(document)))
        except (ValueError, RecursionError):
            return TextFindings(is_valid=False)


@dataclass(frozen=True, slots=True)
class TokenRecount:
    """How many tokens a text is, in a vocabulary read from a file, without the special ones that frame it."""

    tokenizer: Any
    name: str

    def __call__(self, text: str) -> TextFindings:
        """The count."""
        return TextFindings(num_tokens=len(self.tokenizer.encode(text, add_special_tokens=False).ids))


def structured_check(schema: Mapping[str, object] | None = None) -> DocumentCheck:
    """A check that an answer is a JSON document, and fits the schema where one is given.

    Raises:   RequestError for what is not a JSON Schema, a reference that leads out of it or nowhere, or one that goes
              round in a circle; MissingExtraError
    """
    jsonschema = _import("jsonschema", "JSON documents are judged", "bench")
    plain = deepcopy(dict(schema or {}))
    _check_references(plain)
    ignored = tuple(_leave_out_patterns(plain, "#"))
    validators = jsonschema.validators
    known = validators.validator_for(plain, default=jsonschema.Draft202012Validator)
    if "$schema" in plain and validators.validator_for(plain, default=None) is None:
        raise RequestError("the schema of the documents names a draft of JSON Schema that is not known")
    try:
        known.check_schema(plain)
    except jsonschema.exceptions.SchemaError as error:
        raise RequestError(
            f"the schema of the documents is not one: {_one_line(error.message)} at {_place(error.path)}"
        ) from None
    except RecursionError:
        raise RequestError("the schema of the documents is nested too deep") from None
    bounded = validators.extend(known, {"pattern": _match_short_text})
    check = DocumentCheck(bounded(plain, registry=_empty_registry()), ignored)
    _try_out(check)
    return check


def recount(tokenizer_path: Path) -> TokenRecount:
    """A recount with the vocabulary in a tokenizer.json, or in the folder that holds one; nothing is fetched.

    Raises:   RequestError for a file that cannot be read as one; MissingExtraError
    """
    tokenizers = _import("tokenizers", "tokens are counted again", "tokenizer")
    path = tokenizer_path / "tokenizer.json" if tokenizer_path.is_dir() else tokenizer_path
    data = read_bytes(path, "tokenizer", MAX_TOKENIZER_BYTES)
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except Exception:  # the library raises nothing narrower
        raise RequestError(
            f"{shown_name(path)!r} is not a tokenizer.json that the tokenizers package can read"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return TokenRecount(tokenizer, path.name)


def examine_with(checks: Sequence[Examine]) -> Examine | None:
    """One check of several: the first that says something of a kind says it; None without any."""
    if len(checks) < 2:
        return checks[0] if checks else None

    def examine(text: str) -> TextFindings:
        found = [check(text) for check in checks]
        counts = (finding.num_tokens for finding in found if finding.num_tokens is not None)
        verdicts = (finding.is_valid for finding in found if finding.is_valid is not None)
        return TextFindings(next(counts, None), next(verdicts, None))

    return examine


def read_schema(path: Path) -> dict[str, object]:
    """The JSON Schema in a file, which `structured_check` then judges.

    Raises:   RequestError
    """
    text = read_text(path, "schema of the documents", MAX_SCHEMA_BYTES)
    try:
        schema = strict_json(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise RequestError(f"the schema of the documents {shown_name(path)!r} is not JSON{where}") from None
    if not isinstance(schema, dict):
        raise RequestError(f"the schema of the documents {shown_name(path)!r} must be a JSON object")
    return schema


def schema_hash(schema: Mapping[str, object]) -> str:
    """SHA-256 of a schema written compactly with its names in order: a run folder holds no more of it."""
    plain = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def _import(name: str, what: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"{what} with the package {name}; install it with: pip install 'inference-bench[{extra}]'"
        ) from None


def _empty_registry() -> Any:
    return importlib.import_module("referencing").Registry()


def _check_references(schema: dict[str, object]) -> None:
    try:
        names = {value for key, value in _walk(schema) if key in _REFERENCES and isinstance(value, str)}
    except RecursionError:
        raise RequestError("the schema of the documents is nested too deep") from None
    for name in sorted(names):
        if not name.startswith("#"):
            raise RequestError(
                f"the schema of the documents refers to {_one_line(name)!r}, outside of it, which is never fetched; put it in"
            )


def _walk(value: object) -> Iterator[tuple[str, object]]:
    """Every name with its value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def _leave_out_patterns(value: object, where: str) -> Iterator[str]:
    """Take out the patterns that could take for ever, or that cannot be read here; say where they stood and why."""
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leave_out_patterns(inner, f"{where}/{number}")
    if not isinstance(value, dict):
        return
    pattern = value.get("pattern")
    if isinstance(pattern, str) and (risk := explain_risk(pattern)):
        del value["pattern"]
        yield _one_line(f"{where}/pattern: {risk}")
    named = value.get("patternProperties")
    if isinstance(named, dict) and (risk := next(filter(None, map(explain_risk, named)), None)):
        for keyword in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
            value.pop(keyword, None)
        yield _one_line(f"{where}/patternProperties: {risk}")
    for key, inner in value.items():
        if key not in ("enum", "const", "default", "examples"):
            yield from _leave_out_patterns(inner, f"{where}/{key}")


def _match_short_text(validator: Any, pattern: str, text: object, _schema: object) -> Iterator[Any]:
    """The keyword `pattern`, for text of bounded length."""
    if not validator.is_type(text, "string") or not isinstance(text, str) or len(text) > MAX_PATTERN_CHARS:
        return
    if re.search(pattern, text) is None:
        yield importlib.import_module("jsonschema").exceptions.ValidationError("does not match")


def _try_out(check: DocumentCheck) -> None:
    """Judge a few documents, so that a schema that cannot judge says so before anything is sent.

    Raises:   RequestError
    """
    samples: tuple[object, ...] = (None, True, 0, "", [], {}, [{}], {"a": {}})
    for document in samples:
        try:
            check.validator.is_valid(document)
        except RecursionError:
            raise RequestError("the schema of the documents refers to itself without end") from None
        except Exception as error:
            raise RequestError(f"the schema of the documents cannot be used: {_one_line(str(error))}") from None


def _place(path: Any) -> str:
    return "/".join(("#", *map(str, path)))[:_SHOWN_CHARS]


def _one_line(text: str) -> str:
    return one_line(text, _SHOWN_CHARS)
