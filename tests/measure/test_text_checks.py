"""What the text of an answer shows: a document of the right kind, and how many tokens it is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.pattern_risk import explain_risk
from inference_bench.measure.target import Endpoint, Target
from inference_bench.measure.text_checks import (
    TextFindings,
    examine_with,
    read_schema,
    recount,
    structured_check,
)
from inference_bench.records import TokenCountSource
from inference_bench.workload import RequestShape, closed_loop
from measure.truth_server import TruthServer

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ('{"name": "Ada", "age": 36}', True),
        (' \n{"name": "Ada"}\n', True),
        ('{"name": "ada"}', False),
        ('{"age": 36}', False),
        ('{"name": "Ada", "age": -1}', False),
        ('{"name": "Ada", "more": 1}', False),
        ('{"name": "Ada"', False),
        ('{"name": "Ada"} and so on', False),
        ('```json\n{"name": "Ada"}\n```', False),
        ('{"name": "Ada", "age": NaN}', False),
        ("[" * 100_000, False),
        ("", False),
    ],
)
def test_a_document_is_valid_when_it_is_json_and_fits_the_schema(text: str, is_valid: bool) -> None:
    assert structured_check(PERSON)(text) == TextFindings(is_valid=is_valid)


def test_without_a_schema_any_document_will_do() -> None:
    for schema in (None, {}):
        check = structured_check(schema)
        assert check("[1, 2]").is_valid is True
        assert check("1 2").is_valid is False


def test_a_document_larger_than_any_answer_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_bench.measure.text_checks.MAX_DOCUMENT_CHARS", 10)
    assert structured_check()('"1234567"').is_valid is True
    assert structured_check()('"123456789"').is_valid is False


def test_references_inside_the_schema_are_followed() -> None:
    tree = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
    check = structured_check(tree)
    assert (check("[[], [[]]]").is_valid, check("[[], [1]]").is_valid) == (True, False)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "is not one"),
        ({"properties": {"a": {"minimum": "zero"}}}, "at #/properties/a/minimum"),
        ({"$ref": "https://example.com/schema.json"}, "never fetched"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "never fetched"),
        ({"$ref": "file:///etc/passwd"}, "never fetched"),
        ({"$ref": "#/$defs/missing"}, "cannot be used"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$schema": "https://example.com/my-draft"}, "draft"),
    ],
)
def test_a_schema_that_cannot_judge_is_refused_before_anything_is_sent(schema: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        structured_check(schema)
    assert str(caught.value).isprintable()


def test_drafts_are_told_apart() -> None:
    tuple_of_old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert structured_check(tuple_of_old)('["a"]').is_valid is False


def test_a_schema_given_stays_as_it_was() -> None:
    schema = {"properties": {"a": {"pattern": "(a+)+$"}}}
    check = structured_check(schema)
    assert schema == {"properties": {"a": {"pattern": "(a+)+$"}}}
    assert check.ignored == ("#/properties/a/pattern: a pattern that repeats what repeats or branches inside",)


def test_patterns_that_could_take_for_ever_are_not_tried() -> None:
    schema = {
        "properties": {"a": {"pattern": "^(a|aa)+$"}, "c": {"pattern": "^x+$"}},
        "patternProperties": {"(b+)+$": {"type": "integer"}},
        "additionalProperties": False,
    }
    check = structured_check(schema)
    assert len(check.ignored) == 2
    begin_s = time.perf_counter()
    assert check(json.dumps({"a": "a" * 60 + "!", "b" * 60 + "!": "text", "c": "x"})).is_valid is True
    assert time.perf_counter() - begin_s < 30  # of itself it would take longer than the sun has left
    assert check('{"c": "y"}').is_valid is False
    assert check(json.dumps({"c": "y" * 501})).is_valid is True  # no pattern is tried on text that long


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "^(a|aa)+$",
        "((a+))*",
        "(a?){40}a{40}",
        "(?:x*y)*z",
        "(?P<n>a+)+",
        "(a+){2,}",
        "a*b*c*d*",
        "(",
        "a?" * 30 + "a{30}",
    ],
)
def test_risky_patterns_are_known(pattern: str) -> None:
    assert explain_risk(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]+$",
        r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
        r"^\S+@\S+\.\S+$",
        r"^[(a+)+]{3}$",
        r"^\(a\+\)\+$",
        r"^(\d{3})?-?\d+$",
        r"^#[0-9a-fA-F]{6}$",
    ],
)
def test_common_patterns_are_tried(pattern: str) -> None:
    assert explain_risk(pattern) is None


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(PERSON), encoding="utf-8")
    assert read_schema(path) == PERSON
    for content, message in (('{\n"a": }', "not JSON at line 2"), ("[1]", "must be a JSON object")):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(RequestError, match=message):
            read_schema(path)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A vocabulary of five words, which frames what it encodes with special tokens and would cut it at three."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[BOS]", "[EOS]", "a", "b"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 1), ("[EOS]", 2)]
    )
    made.enable_truncation(3)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_tokens_are_counted_again_whole_and_without_special_ones(tokenizer: Path) -> None:
    for path in (tokenizer, tokenizer.parent):
        count = recount(path)
        assert count("a b a b a x") == TextFindings(num_tokens=6)
        assert count("") == TextFindings(num_tokens=0)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(RequestError, match="cannot be read"):
        recount(path)
    path.write_text('{"model": "none"}', encoding="utf-8")
    with pytest.raises(RequestError, match="is not a tokenizer"):
        recount(path)


def test_checks_are_put_together(tokenizer: Path) -> None:
    examine = examine_with([structured_check(), recount(tokenizer)])
    assert examine is not None
    assert examine("a b") == TextFindings(num_tokens=2, is_valid=False)
    assert examine_with([]) is None
    only = structured_check()
    assert examine_with([only]) is only


@pytest.mark.parametrize(("package", "extra"), [("jsonschema", "bench"), ("tokenizers", "tokenizer")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'inference-bench\[{extra}\]'"):
        structured_check() if package == "jsonschema" else recount(tmp_path)


def test_each_answer_is_judged_and_counted(tokenizer: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    examine = examine_with([structured_check(schema), recount(tokenizer)])
    workload = closed_loop("documents", [RequestShape(10, 8)], 1, 4)
    with TruthServer() as server:
        target = Target(server.url("document"), endpoint=Endpoint.CHAT, document_schema=schema)
        records = run_load(target, workload, LoadOptions(examine=examine)).records
        thoughtful = Target(server.url("thoughtful_document"), endpoint=Endpoint.CHAT, document_schema=schema)
        (thought,) = run_load(
            thoughtful, closed_loop("one", [RequestShape(10, 8)], 1, 1), LoadOptions(examine=examine)
        ).records
    assert [record.document_valid for record in records] == [False, True, False, True]
    assert {record.token_count_source for record in records} == {TokenCountSource.TOKENIZER}
    # {" name ": " Ada "} are six words and runs of marks, the last of which is cut off in every second answer
    assert [record.output_tokens for record in records] == [5, 6, 5, 6]
    assert server.of("document")[0].body["response_format"]["json_schema"]["schema"] == schema
    # what a model thinks is no part of the document, and is not in the text that was counted
    assert (thought.document_valid, thought.output_tokens) == (True, None)
    assert not any("Ada" in repr(record) for record in [*records, thought])
