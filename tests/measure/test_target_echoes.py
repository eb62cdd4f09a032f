"""A prompt or a key that a server says again in another form is in no message, and looking for it takes no time to speak of."""

from __future__ import annotations

import html
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from inference_bench.measure.target import ApiKey, Target

PROMPTS = {
    "chinese": "请告诉我这个病人的诊断结果是什么，以及下一步的治疗方案应该如何制定。",
    "russian": "Скажи мне, какой диагноз у пациента Иванова и что делать дальше",
    "english": 'please tell "nobody" that the <treasure> is under the oak & the stone',
    "mixed": "Frau Müller 😀 was born in 1961 & lives in Köln, 𝒶𝒷𝒸 <street> 7",
}
KEY = "sk-abc+def/ghi=jkl&mno"


def body(prompt: str) -> str:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]})


def num_alike(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), len(other))


FORMS: dict[str, Callable[[str], str]] = {
    "as it was sent": body,
    "JSON in JSON": lambda prompt: json.dumps({"input": body(prompt)}),
    "JSON three times": lambda prompt: json.dumps(json.dumps(body(prompt))),
    "in an address": quote,
    "in a form": lambda prompt: quote_plus(body(prompt)),
    "on a page": lambda prompt: html.escape(body(prompt)),
    "on a page of ASCII": lambda prompt: prompt.encode("ascii", "xmlcharrefreplace").decode(),
    "by decimal numbers": lambda prompt: "".join(f"&#{ord(char)};" for char in prompt),
    "by hexadecimal numbers": lambda prompt: "".join(f"&#x{ord(char):X};" for char in prompt),
    "as bytes of Python": lambda prompt: repr(prompt.encode()),
    "as ASCII of Python": ascii,
    "by points": lambda prompt: "".join(f"\\u{{{ord(char):x}}}" for char in prompt),
    "in base64": lambda prompt: b64encode(body(prompt).encode()).decode(),
    "in base64 of addresses": lambda prompt: urlsafe_b64encode(prompt.encode()).decode(),
    "in base64 from the middle": lambda prompt: b64encode(prompt.encode()).decode()[5:],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", PROMPTS)
@pytest.mark.parametrize("most_chars", [10_000, 200])
def test_a_prompt_that_is_quoted_in_another_form_is_cut_off(language: str, form: str, most_chars: int) -> None:
    prompt = PROMPTS[language]
    said = f"no: {FORMS[form](prompt)}, and so on"
    shown = said if len(said) <= most_chars else f"{said[: most_chars - 1]}…"
    hidden = Target("http://host").hide_secrets(shown, prompt)
    assert hidden.startswith("no: ")
    assert hidden.endswith("[prompt]")
    # what is left is what a body with any other prompt begins with
    assert len(hidden.removesuffix("[prompt]")) <= num_alike(said, f"no: {FORMS[form]('~')}") + 1


@pytest.mark.parametrize(
    "form",
    [
        quote,
        lambda key: quote(key, safe=""),
        html.escape,
        lambda key: key.replace("/", "\\/"),
        lambda key: b64encode(f"Bearer {key}".encode()).decode(),
        lambda key: b64encode(json.dumps({"Authorization": f"Bearer {key}"}).encode()).decode(),
    ],
)
def test_a_key_in_another_form_is_cut_off(form: Callable[[str], str]) -> None:
    for target in (
        Target("http://host", api_key=ApiKey(KEY)),
        Target("http://host", extra_headers={"X-Key": KEY}),
    ):
        hidden = target.hide_secrets(f"bad key: {form(KEY)}")
        assert hidden.startswith("bad key: ")
        assert hidden.endswith("[key]")
        assert len(hidden) < 24


@pytest.mark.parametrize(
    "said",
    [
        "no model \\u8bf7 here, and 100%25 of memory is &lt; used",
        "request 0123456789abcdef0123456789abcdef failed",
        "HTTP 500: internal error\\n  at C:\\users\\new",
        "контекст слишком длинный",
    ],
)
def test_a_message_that_quotes_nothing_is_shown_as_it_was(said: str) -> None:
    target = Target("http://host", api_key=ApiKey(KEY))
    for prompt in ("", *PROMPTS.values()):
        assert target.hide_secrets(said, prompt) == said


def test_a_prompt_whose_beginning_stands_at_a_cut_is_hidden_too() -> None:
    prompt = PROMPTS["chinese"]
    said = f'no: {{"content": "{json.dumps(prompt[:7])[1:-1]}…'
    assert Target("http://host").hide_secrets(said, prompt) == 'no: {"content": "[prompt]'


@pytest.mark.parametrize(
    "said", ["a" * 200, "\\" * 100_000, "YWJjZGVmZ2hpamts" * 10_000, "word " * 20_000, "请告" * 9_000]
)
@pytest.mark.parametrize("letters", ["a", "word other ", "请告诉我 "])
def test_hiding_takes_no_longer_than_a_pass_over_a_long_prompt(said: str, letters: str) -> None:
    prompt = letters * (1_000_000 // len(letters))
    begun_s = time.process_time()
    Target("http://host", api_key=ApiKey(KEY)).hide_secrets(said, prompt)
    assert time.process_time() - begun_s < 2  # 0.1 s; looking up each letter of the message takes minutes
