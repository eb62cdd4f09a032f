"""The quick parser says what the strict one says, of every payload it dares to read."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference_bench.conform.table import ALL_CASES
from inference_bench.errors import StreamError
from inference_bench.measure import quick_payloads
from inference_bench.measure.openai_stream import EventStream, parse_payload
from inference_bench.measure.quick_payloads import make_quick_parser
from inference_bench.measure.sse import SseDecoder
from inference_bench.measure.stream_events import Channel, Content, Finish, RoleOnly, StreamEvent, TokenIds, Usage

pytest.importorskip("msgspec")


def quick(payload: bytes, keeps_text: bool = False) -> tuple[StreamEvent, ...] | None:
    parse = make_quick_parser(keeps_text)
    assert parse is not None
    return parse(payload)


def strict(payload: bytes) -> tuple[StreamEvent, ...] | str:
    try:
        return parse_payload(payload.decode("utf-8", "replace"))
    except StreamError as error:
        return str(error)


def agrees(payload: bytes) -> bool:
    """Whether the quick parser says the same, or leaves it to the strict one; whether it dared."""
    events = quick(payload)
    if events is None:
        return False
    assert events == strict(payload), payload
    told = quick(payload, keeps_text=True)
    assert told == events
    spoken = [event for event in told or () if isinstance(event, Content)]
    slow = [event for event in strict(payload) if isinstance(event, Content)]
    assert [event.text for event in spoken] == [event.text for event in slow]
    return True


def payloads_of_the_suite() -> Iterable[bytes]:
    for case in ALL_CASES:
        if b"event-stream" in case.script.head and case.name not in ("huge_line", "endless"):
            yield from SseDecoder().feed_bytes(case.script.stream)


def test_every_payload_of_the_conformance_suite_is_read_alike_and_most_of_them_quickly() -> None:
    payloads = [payload for payload in payloads_of_the_suite() if payload != b"[DONE]"]
    num_quick = sum(map(agrees, payloads))
    assert len(payloads) > 300
    assert num_quick > 0.8 * len(payloads)


VLLM = {
    "id": "cmpl-0123456789abcdef",
    "object": "text_completion",
    "created": 1796000000,
    "model": "m",
    "choices": [{"index": 0, "text": " a", "logprobs": None, "finish_reason": None, "stop_reason": None}],
    "usage": None,
}
SGLANG = {
    "id": "c5",
    "object": "chat.completion.chunk",
    "created": 1796000000,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "delta": {"role": None, "content": "b", "reasoning_content": None, "tool_calls": None},
            "logprobs": None,
            "finish_reason": None,
            "matched_stop": None,
        }
    ],
    "usage": None,
}
LLAMA_CPP = {
    "choices": [{"finish_reason": None, "index": 0, "delta": {"content": "Hello"}}],
    "created": 17959,
    "id": "chatcmpl-3A5",
    "model": "m.gguf",
    "system_fingerprint": "b0-unknown",
    "object": "chat.completion.chunk",
}

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize(
    ("payload", "events"),
    [
        (VLLM, (Content(2, Channel.CONTENT),)),
        (LLAMA_CPP, (Content(5, Channel.CONTENT),)),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, (RoleOnly(),)),
        ({"choices": [{"delta": {"content": "ab", "reasoning": "c"}}]}, (Content(1, Channel.REASONING), Content(2, Channel.CONTENT))),
        ({"choices": [{"delta": {"refusal": "no"}}]}, (Content(2, Channel.CONTENT),)),
        ({"choices": [{"text": "é🦙" * 50, "finish_reason": "stop"}]}, (Content(100, Channel.CONTENT), Finish("stop"))),
        ({"choices": [{"text": "", "finish_reason": "sk-1"}]}, (Finish("other"),)),
        ({"choices": [{"text": "a", "token_ids": [5, 6]}]}, (Content(1, Channel.CONTENT), TokenIds(2))),
        ({"choices": [{"text": "a"}, {"text": "b", "index": 1}]}, (Content(1, Channel.CONTENT), Content(1, Channel.CONTENT))),
        ({"choices": [], "usage": USAGE}, (Usage(9, 3, 4),)),
        ({"choices": None}, ()),
        ({"error": None, "choices": [{"text": "a"}]}, (Content(1, Channel.CONTENT),)),
    ],
)  # fmt: skip
def test_the_usual_shapes_are_read_quickly(payload: object, events: tuple[StreamEvent, ...]) -> None:
    data = json.dumps(payload).encode()
    assert quick(data) == events
    assert agrees(data)
    assert agrees(json.dumps(payload, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    "payload",
    [
        b"[DONE]",
        b"",
        b"{",
        b"[]",
        b'{"error": {"message": "out of memory"}}',
        b'{"object": "error", "message": "no"}',
        b'{"choices": [{"delta": {"role": null}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}',
        b'{"choices": [{"text": "a"}], "timings": {"prompt_n": 1}}',
        b'{"usage": {"completion_tokens": -1}}',
        b'{"usage": {"completion_tokens": 1.0}}',
        b'{"usage": {"completion_tokens": true}}',
        b'{"usage": {"completion_tokens": 1' + b"0" * 20 + b"}}",
        b'{"created": 1' + b"0" * 6000 + b"}",
        b'{"created": NaN}',
        b'{"choices": [{"text": "\xff"}]}',
        b'{"choices": [{"text": "\\ud800"}]}',
        b'{"choices": [{"text": "a\tb"}]}',
        b'{"choices": [{"text": 5}]}',
        b'{"choices": [{"text": "a", "logprobs": {"tokens": ["a"]}}]}',
        b'{"id": ' + b"[" * 100_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_unusual_or_wrong_is_left_to_the_strict_parser(payload: bytes) -> None:
    assert quick(payload) is None


def test_a_word_from_a_server_that_is_no_reason_is_not_kept() -> None:
    assert "secret" not in repr(quick(b'{"choices": [{"text": "secret", "finish_reason": "my secret"}]}', True))


NAMES = ["id", "object", "created", "model", "choices", "usage", "error", "index", "text", "delta", "logprobs"]
NAMES += ["finish_reason", "token_ids", "role", "content", "reasoning", "reasoning_content", "refusal", "tool_calls"]
NAMES += ["prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens", "timings", "stop_reason"]
SCALARS = st.none() | st.booleans() | st.integers(-2, 2**42) | st.floats(allow_nan=False) | st.text(max_size=4)
SCALARS |= st.sampled_from(["text_completion", "chat.completion.chunk", "error", "stop", ""])


def nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


@settings(max_examples=400, deadline=None)
@given(value=st.recursive(SCALARS, nest, max_leaves=15))
def test_any_json_is_read_alike_or_left_alone(value: object) -> None:
    agrees(json.dumps(value).encode())


SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.text(max_size=3),
        "object": st.sampled_from(["text_completion", "chat.completion.chunk", "error", "other", None]),
        "usage": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "prompt_tokens": st.none() | st.integers(-1, 2**41),
                "completion_tokens": st.none() | st.integers(0, 9),
                "prompt_tokens_details": st.none()
                | st.fixed_dictionaries({}, optional={"cached_tokens": st.none() | st.integers(-1, 9)}),
            },
        ),
        "error": st.none() | st.just("") | st.just("no"),
        "choices": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "text": st.none() | st.text(max_size=4),
                    "finish_reason": st.none() | st.sampled_from(["stop", "length", "", "a b", "é"]),
                    "token_ids": st.none() | st.lists(st.integers(0, 9), max_size=3),
                    "delta": st.none()
                    | st.dictionaries(
                        st.sampled_from(["role", "content", "reasoning", "reasoning_content", "refusal", "tool_calls"]),
                        st.none() | st.text(max_size=3),
                    ),
                },
            ),
            max_size=3,
        ),
    },
)


@settings(max_examples=600, deadline=None)
@given(value=SHAPED)
@example(value={"choices": [{"text": "a", "delta": {"content": "b"}}]})
@example(value={"choices": [{"delta": {"reasoning": "", "reasoning_content": "x"}}]})
def test_payloads_of_about_the_usual_shape_are_read_alike(value: object) -> None:
    agrees(json.dumps(value).encode())


@settings(max_examples=600, deadline=None)
@given(
    base=st.sampled_from([json.dumps(shape).encode() for shape in (VLLM, SGLANG, LLAMA_CPP)]),
    at=st.integers(0, 250),
    length=st.integers(0, 3),
    put=st.binary(max_size=3) | st.sampled_from([b"null", b'"', b"}", b",", b"\\", b"\x00", b"1e9", b"\xff"]),
)
def test_damaged_payloads_are_read_alike_or_left_alone(base: bytes, at: int, length: int, put: bytes) -> None:
    agrees(base[:at] + put + base[at + length :])


def test_without_msgspec_the_strict_parser_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: object, **more: object) -> object:
        if name == "msgspec":
            raise ImportError(name)
        return original(name, *rest, **more)  # type: ignore[arg-type]

    data = b"data: " + json.dumps(VLLM).encode() + b"\n\n"
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "msgspec", raising=False)
        patch.setattr(builtins, "__import__", refuse)
        quick_payloads._make_decoder.cache_clear()
        assert make_quick_parser() is None
        assert EventStream().feed(data) == [(Content(2, Channel.CONTENT),)]
    quick_payloads._make_decoder.cache_clear()
    assert make_quick_parser() is not None


def chat_payload(text: str, created: int = 7, name: str = "content") -> bytes:
    choice = {"index": 0, "delta": {name: text}, "finish_reason": None}
    return json.dumps({"id": "a", "created": created, "choices": [choice]}).encode()


@pytest.mark.parametrize(
    "texts",
    [
        [" a", " bc", "d" * 100, "é漢🙂", "", " e"],
        [" a", 'say "x"', "back\\slash", "two\nlines", '", "finish_reason": "stop', " b"],
        ['"content": "', " a", "content", " b"],
    ],
)
def test_payloads_that_differ_in_their_text_alone_say_what_a_parser_says(texts: list[str]) -> None:
    parse = make_quick_parser(keeps_text=True)
    assert parse is not None
    for escapes in (True, False):
        for text in texts:
            payload = chat_payload(text)
            if not escapes:
                payload = json.dumps(json.loads(payload), ensure_ascii=False).encode()
            events = parse(payload)
            assert events is None or (events, [e.text for e in events if isinstance(e, Content)]) == (
                strict(payload),
                [text] if text else [],
            )


@pytest.mark.parametrize(
    "other",
    [
        chat_payload(" a")[:-1],
        chat_payload("\x01").replace(b"\\u0001", b"\x01"),
        chat_payload(" a").replace(b" a", b"\xff"),
        chat_payload(" a").replace(b"null}]}", b'null}], "x": 1}'),
    ],
)
def test_a_form_that_was_learnt_hides_nothing_that_the_strict_parser_refuses_or_judges(other: bytes) -> None:
    parse = make_quick_parser()
    assert parse is not None
    for _ in range(3):
        assert parse(chat_payload(" a")) == (Content(2, Channel.CONTENT),)
    assert parse(other) is None
    assert parse(chat_payload("abc", created=8)) == (Content(3, Channel.CONTENT),)
    assert parse(chat_payload("abc", name="reasoning_content")) == (Content(3, Channel.REASONING),)
