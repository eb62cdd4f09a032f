"""What is sent where: four routes, addresses that name one, extra headers and fields, and documents."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.target import (
    ApiKey,
    Endpoint,
    Message,
    SecretHeaders,
    Target,
    parse_address,
    parse_extra_body,
    parse_header,
    parse_json_object,
)
from inference_bench.records import RequestStatus
from inference_bench.workload import RequestShape, closed_loop
from measure.truth_server import TruthServer

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("typed", "base_url", "address", "path", "models_path", "endpoint"),
    [
        ("http://h", "http://h", "http://h", "/v1/completions", "/v1/models", Endpoint.COMPLETIONS),
        ("http://h/v1/chat/completions", "http://h", "http://h", "/v1/chat/completions", "/v1/models", Endpoint.CHAT),
        ("http://h/a/v1/completions/", "http://h/a", "http://h/a", "/v1/completions", "/v1/models", Endpoint.COMPLETIONS),
        ("http://h/api/v3/completions", "http://h/api/v3/completions", "http://h/api/v3", "/completions", "/models", Endpoint.COMPLETIONS),
        ("http://h/v3/chat/completions", "http://h/v3/chat/completions", "http://h/v3", "/chat/completions", "/models", Endpoint.CHAT),
        ("http://h/generate", "http://h", "http://h", "/generate", "/v1/models", Endpoint.SGLANG),
        ("http://h/x/completion", "http://h/x", "http://h/x", "/completion", "/v1/models", Endpoint.LLAMA_CPP),
    ],
)  # fmt: skip
def test_an_address_may_end_in_a_route_which_is_used_as_given(
    typed: str, base_url: str, address: str, path: str, models_path: str, endpoint: Endpoint
) -> None:
    target = Target(typed)
    assert (target.base_url, str(target.address), target.path) == (base_url, address, path)
    assert (target.models_path, target.endpoint) == (models_path, endpoint)
    assert str(parse_address(typed)) == address
    again = replace(target, extra_body={"a": 1})
    assert (again.base_url, again.path, again.endpoint) == (base_url, path, endpoint)


def test_a_route_that_contradicts_what_is_asked_for_is_refused() -> None:
    assert Target("http://h/v1/chat/completions", endpoint=Endpoint.CHAT).endpoint is Endpoint.CHAT
    with pytest.raises(RequestError, match="which is the endpoint completions, and chat is asked for"):
        Target("http://h/v1/completions", endpoint=Endpoint.CHAT)


def body(target: Target, said: Any = "words", max_output_tokens: int = 7) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(target.build_body(said, max_output_tokens))
    return made


def test_sglangs_body_puts_how_to_sample_where_it_is_read() -> None:
    extra = {"ignore_eos": True, "top_k": 5, "return_logprob": True, "sampling_params": {"min_p": 0.1}}
    assert body(Target("http://h", "m", Endpoint.SGLANG, extra_body=extra)) == {
        "text": "words",
        "sampling_params": {"temperature": 0, "min_p": 0.1, "ignore_eos": True, "top_k": 5, "max_new_tokens": 7},
        "stream": True,
        "return_logprob": True,
    }


def test_llama_cpps_body() -> None:
    extra = {"cache_prompt": False, "temperature": 0.5}
    target = Target("http://h", None, Endpoint.LLAMA_CPP, extra_body=extra, counts_each_chunk=True)
    assert body(target) == {
        "prompt": "words",
        "n_predict": 7,
        "temperature": 0.5,
        "stream": True,
        "timings_per_token": True,
        "cache_prompt": False,
    }


def test_messages_keep_their_roles_where_there_are_roles() -> None:
    said = [Message("system", "be brief"), Message("user", "why?")]
    assert body(Target("http://h", endpoint=Endpoint.CHAT), said)["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "why?"},
    ]
    assert body(Target("http://h"), said)["prompt"] == "be brief\nwhy?"
    assert "brief" not in repr(said)


def test_counts_in_each_chunk_are_asked_for_and_given_up_together() -> None:
    target = Target("http://h", extra_body={"seed": 1}, counts_each_chunk=True)
    asked = body(target)
    assert asked["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert asked["timings_per_token"] is True
    assert "return_token_ids" not in asked  # the prompt's would come too
    assert target.first_given_up == ("continuous_usage_stats", "timings_per_token")
    without = target.without_fields(["continuous_usage_stats"])
    assert body(without).keys() == {"prompt", "max_tokens", "temperature", "stream", "stream_options", "seed"}
    assert without.first_given_up == without.optional_fields == ("seed", "stream_options")
    assert body(without.without_fields(["seed", "stream_options"])).keys() == {
        "prompt",
        "max_tokens",
        "temperature",
        "stream",
    }


def test_without_usage_token_ids_count_each_chunk() -> None:
    asked = body(Target("http://h", asks_usage=False, counts_each_chunk=True))
    assert asked["return_token_ids"] is True
    assert "stream_options" not in asked


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("endpoint", "place", "expected", "any_document"),
    [
        (
            Endpoint.CHAT,
            ("response_format",),
            {"type": "json_schema", "json_schema": {"name": "document", "strict": True, "schema": SCHEMA}},
            {"type": "json_object"},
        ),
        (Endpoint.LLAMA_CPP, ("json_schema",), SCHEMA, {}),
        (Endpoint.SGLANG, ("sampling_params", "json_schema"), json.dumps(SCHEMA), '{"type": "object"}'),
    ],
)
def test_a_document_is_asked_for_as_each_route_wants_it(
    endpoint: Endpoint, place: tuple[str, ...], expected: object, any_document: object
) -> None:
    for schema, wanted in ((SCHEMA, expected), ({}, any_document)):
        found: Any = body(Target("http://h", None, endpoint, document_schema=schema, extra_body={"ignore_eos": True}))
        assert "ignore_eos" not in json.dumps(found)
        for name in place:
            found = found[name]
        assert found == wanted


def test_a_schema_cannot_be_changed_from_outside_and_is_not_given_up() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    target = Target("http://h", document_schema=schema)
    schema["properties"]["b"] = {}
    assert target.document_schema == {"properties": {"a": {}}}
    assert "response_format" not in target.optional_fields


@pytest.mark.parametrize(
    ("endpoint", "extra"),
    [
        (Endpoint.SGLANG, {"text": "x"}),
        (Endpoint.SGLANG, {"stream": False}),
        (Endpoint.LLAMA_CPP, {"n_predict": 1}),
        (Endpoint.CHAT, {"max_tokens": 1}),
    ],
)
def test_fields_that_are_set_here_cannot_be_given(endpoint: Endpoint, extra: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="is set by this program"):
        Target("http://h", endpoint=endpoint, extra_body=extra)


def test_extra_body_fields_are_read_from_text_or_a_file(tmp_path: Path) -> None:
    assert parse_extra_body('{"seed": 1, "stop": ["\\n"]}') == {"seed": 1, "stop": ["\n"]}
    path = tmp_path / "extra.json"
    path.write_text('{"top_k": 5}', encoding="utf-8")
    assert parse_extra_body(f"@{path}") == {"top_k": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"secret": NaN}', "not JSON"),
        ("[1]", "this is a list"),
        ('"secret"', "this is a text"),
        ("null", "this is a null"),
        ("[" * 100_000, "not JSON"),
        ("@/no/such/secret-file", "cannot be read"),
    ],
)
def test_extra_body_fields_that_cannot_be_read_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        parse_extra_body(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
    with pytest.raises(RequestError, match="the metadata"):
        parse_json_object("", "metadata")


def test_headers_are_read_as_people_give_them(tmp_path: Path) -> None:
    path = tmp_path / "key.txt"
    path.write_text(f"{SECRET}\n", encoding="utf-8")
    assert parse_header("X-Api-Key: a b:c ") == ("X-Api-Key", "a b:c")
    assert parse_header("X-Api-Key: env:KEY", {"KEY": SECRET}) == ("X-Api-Key", SECRET)
    assert parse_header(f"X-Api-Key: @{path}") == ("X-Api-Key", SECRET)


@pytest.mark.parametrize(
    "text",
    [
        f"{SECRET}",
        f"X Api: {SECRET}",
        f": {SECRET}",
        f"X-Api: {SECRET}\r\nHost: evil",
        f"X-Api: {SECRET}\n",
        f"X-Api: {SECRET}\x00",
        f"X-Api: {SECRET}\u00e9",
        "X-Api:",
        f"Host: {SECRET}",
        f"content-LENGTH: {SECRET}",
        f"Transfer-Encoding: {SECRET}",
        "X-Api: env:NO_SUCH_VARIABLE",
        "X-Api: @/no/such/file",
        "X-Api: " + SECRET * 1000,
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_their_value(text: str) -> None:
    if text.endswith("\n") and text.count("\n") == 1 and "\r" not in text:
        assert parse_header(text) == ("X-Api", SECRET)  # a line end at the end is not part of it
        with pytest.raises(RequestError):
            Target("http://h", extra_headers={"X-Api": text.partition(": ")[2]})
        return
    with pytest.raises(RequestError) as caught:
        parse_header(text, {})
    assert SECRET not in str(caught.value)
    assert str(caught.value).isprintable()


def test_header_values_show_nowhere() -> None:
    target = Target("http://h", "m", extra_headers={"X-Api-Key": SECRET, "Cookie": f"session {SECRET}9"})
    assert target.secret_headers == (("X-Api-Key", SECRET), ("Cookie", f"session {SECRET}9"))
    assert SECRET not in f"{target!r} {target} {target.extra_headers!r} {target.build_body('x', 1)!r}"
    assert target.hide_secrets(f"bad key {SECRET}; cookie {SECRET}9") == "bad key [key]; cookie [key]"
    assert replace(target, model="n").extra_headers == target.extra_headers
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(target.extra_headers)


def test_a_key_and_a_header_for_it_or_a_header_twice_contradict_each_other() -> None:
    with pytest.raises(RequestError, match="both an API key and a header"):
        Target("http://h", api_key=ApiKey(SECRET), extra_headers={"authorization": f"Token {SECRET}"})
    with pytest.raises(RequestError, match="given twice"):
        SecretHeaders({"X-A": "1", "x-a": "2"})
    target = Target("http://h", extra_headers={"Authorization": f"Token {SECRET}"})
    assert target.hide_secrets(f"no such token: {SECRET}") == "no such token: [key]"


def test_headers_and_a_route_given_whole_reach_the_server() -> None:
    with TruthServer() as server:
        url = f"{server.url('steady')}/api/v3/chat/completions"
        target = Target(url, extra_headers={"X-Api-Key": SECRET}, extra_body={"seed": 5})
        (record,) = run_load(target, closed_loop("one", [RequestShape(5, 3)], 1, 1), LoadOptions()).records
        (request,) = server.requests
    assert (record.status, record.output_tokens) == (RequestStatus.COMPLETED, 3)
    assert request.path == "/steady/api/v3/chat/completions"
    assert request.headers["x-api-key"] == SECRET
    assert (request.body["seed"], request.body["messages"][0]["role"]) == (5, "user")


def test_a_server_that_repeats_a_header_gives_nothing_away() -> None:
    with TruthServer() as server:
        target = Target(server.url("echo"), extra_headers={"Authorization": f"Bearer {SECRET}"})
        with pytest.raises(MeasurementError) as caught:
            run_load(target, closed_loop("one", [RequestShape(5, 3)], 1, 1), LoadOptions())
    assert SECRET not in str(caught.value)
    assert "bad key [key]" in str(caught.value)
