"""Addresses as people type them, and secrets that must not show."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace

import pytest

from inference_bench.errors import RequestError
from inference_bench.measure.target import ApiKey, Endpoint, Target, parse_address

KEY = "sk-secret-0123456789"


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("https://API.example.com/openai/v1", "https://api.example.com/openai"),
        ("https://example.com:443", "https://example.com"),
        ("http://example.com:443", "http://example.com:443"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_is_read_as_people_type_it(typed: str, address: str) -> None:
    assert str(parse_address(typed)) == address
    assert Target(typed).base_url == address


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "localhost:8080",
        "ftp://example.com",
        "http://",
        "http://:8080",
        "http://host:99999",
        "http://host:0",
        "http://host:port",
        "http://[::1",
        "http://ho st",
        "http://host/\r\nX-Evil: 1",
        "http://host/\u00e9",
        "http://" + "a" * 70 + ".com",
        "http://host?x=1",
        "http://host#x",
        "x" * 10_000,
    ],
)
def test_an_address_that_cannot_work_is_refused_in_one_line(typed: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_address(typed)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("typed", ["http://me:hunter2@host", "me:hunter2@host:80", "http://host?key=hunter2"])
def test_a_password_in_an_address_is_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(RequestError) as caught:
        Target(typed)
    assert "hunter2" not in str(caught.value)


def test_a_completion_body_is_greedy_capped_and_asks_for_usage() -> None:
    target = Target("http://host", model="m", extra_body={"ignore_eos": True, "temperature": 0.5})
    assert json.loads(target.build_body("words", 7)) == {
        "model": "m",
        "prompt": "words",
        "max_tokens": 7,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_a_chat_body_holds_one_user_message() -> None:
    body = json.loads(Target("http://host", endpoint=Endpoint.CHAT, asks_usage=False).build_body("words", 7))
    assert body["messages"] == [{"role": "user", "content": "words"}]
    assert body.keys() == {"messages", "max_tokens", "temperature", "stream"}


@pytest.mark.parametrize("extra", [{"stream": False}, {"prompt": "x"}, {"x": float("nan")}, {"x": object()}])
def test_extra_fields_that_clash_or_are_not_json_are_refused(extra: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        Target("http://host", extra_body=extra)


def test_extra_fields_cannot_be_changed_from_outside() -> None:
    extra = {"a": [1]}
    target = Target("http://host", extra_body=extra)
    extra["a"].append(2)
    assert target.extra_body == {"a": [1]}


def test_an_unknown_endpoint_is_refused() -> None:
    with pytest.raises(RequestError, match="known: completions, chat"):
        Target("http://host", endpoint="embeddings")  # type: ignore[arg-type]


def test_a_target_can_be_changed_and_keeps_its_key() -> None:
    target = Target("http://host/v1", api_key=ApiKey(KEY), extra_body={"a": 1})
    changed = replace(target, extra_body={})
    assert changed.api_key is target.api_key
    assert changed.base_url == "http://host"


def test_the_key_shows_in_one_header_and_nowhere_else() -> None:
    key = ApiKey(KEY)
    target = Target("http://host", api_key=key)
    assert key.authorization() == f"Bearer {KEY}"
    assert "secret" not in f"{key!r} {key} {target!r} {target.build_body('x', 1)!r}"
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(key)


@pytest.mark.parametrize("secret", ["", "two words", "line\nbreak", "caf\u00e9"])
def test_a_key_that_cannot_be_a_header_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(RequestError) as caught:
        ApiKey(secret)
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"bad key {KEY}, sorry", "bad key [key], sorry"),
        (f"bad key {KEY[:12]}…", "bad key [key]"),
        ("all is well…", "all is well…"),
    ],
)
def test_an_echoed_key_is_hidden_even_when_cut_off(said: str, shown: str) -> None:
    assert Target("http://host", api_key=ApiKey(KEY)).hide_secrets(said) == shown


def test_an_echoed_prompt_is_cut_off() -> None:
    prompt = "river stone apple cloud\nmachine garden winter"
    said = f"cannot process: {' '.join(prompt.split())}"
    assert Target("http://host").hide_secrets(said, prompt) == "cannot process: [prompt]"
    assert Target("http://host").hide_secrets("apple is not allowed", prompt) == "apple is not allowed"


@pytest.mark.parametrize(
    "said",
    [
        "no: RIVER STONE APPLE CLOUD MACHINE",
        "no: river | stone | apple | cloud",
        "no: [\\'river\\', \\'stone\\', \\'apple\\', \\'cloud\\']",
        "no: ver stone apple cloud machine",
        "no: R\u0130VER stone apple cloud machine garden",
    ],
)
def test_a_prompt_that_is_quoted_in_another_way_is_cut_off_too(said: str) -> None:
    hidden = Target("http://host").hide_secrets(said, "river stone apple cloud\nmachine garden winter")
    assert hidden.endswith("[prompt]")
    assert hidden.startswith("no: ")
    assert "stone apple" not in hidden.casefold()
    assert len(hidden) < 24
