"""Bytes to events: what servers send, cut at every byte, and what they must not send."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import StreamError
from inference_bench.measure.openai_stream import (
    Channel,
    Content,
    Done,
    ErrorObject,
    EventStream,
    Finish,
    RoleOnly,
    SseDecoder,
    StreamEvent,
    Timings,
    TokenIds,
    Usage,
    error_message,
    one_line,
    parse_payload,
)
from inference_bench.measure.reply import Reply
from inference_bench.records import RequestStatus, ServerTimings


def text(num_chars: int) -> Content:
    return Content(num_chars, Channel.CONTENT)


def sse(*payloads: object, line_end: str = "\n") -> bytes:
    lines = (p if isinstance(p, str) else json.dumps(p, ensure_ascii=False) for p in payloads)
    return "".join(f"data: {line}{line_end}{line_end}" for line in lines).encode()


def events_of(data: bytes) -> list[tuple[StreamEvent, ...]]:
    return EventStream().feed(data)


# llama.cpp, chat with include_usage, as its server sends it (ids shortened)
LLAMA_CPP_CHAT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":17959,'
    b'"id":"chatcmpl-3A5","model":"m.gguf","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}],"object":"chat.completion"}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"!"}}],"object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[],"object":"chat.completion.chunk","usage":{"completion_tokens":2,"prompt_tokens":32,'
    b'"total_tokens":34,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":32,'
    b'"prompt_ms":126.463,"prompt_per_token_ms":3.95196875,"predicted_n":2,"predicted_ms":13.633}}\n\n'
    b"data: [DONE]\n\n"
)
LLAMA_CPP_CHAT_EVENTS = [
    (RoleOnly(),),
    (text(5),),
    (text(1),),
    (Finish("length"),),
    (Usage(32, 2, 0), Timings(ServerTimings(32, 0, 0.126463, 2, 0.013633))),
    (Done(),),
]

# llama.cpp, completions: finish, usage and timings in one last chunk with empty text
LLAMA_CPP_COMPLETION = (
    b'data: {"choices":[{"text":"rolling","index":0,"logprobs":null,"finish_reason":null}],"created":17959}\n\n'
    b'data: {"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"object":"text_completion",'
    b'"usage":{"completion_tokens":1,"prompt_tokens":3,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":2}},'
    b'"timings":{"cache_n":2,"prompt_n":1,"prompt_ms":18.0,"predicted_n":1,"predicted_ms":0.001}}\n\n'
    b"data: [DONE]\n\n"
)
LLAMA_CPP_COMPLETION_EVENTS = [
    (text(7),),
    (Finish("length"), Usage(3, 1, 2), Timings(ServerTimings(1, 2, 0.018, 1, 0.000001))),
    (Done(),),
]

# vLLM, chat with continuous usage: an empty string in the role chunk, usage in every chunk, details null
VLLM_CHAT = sse(
    {
        "object": "chat.completion.chunk",
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ],
        "usage": {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0},
    },
    {
        "choices": [{"index": 0, "delta": {"reasoning_content": "hm", "reasoning": "hm"}, "finish_reason": None}],
        "usage": {"prompt_tokens": 9, "total_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": None},
    },
    {
        "choices": [{"index": 0, "delta": {"content": "né 🦙"}, "finish_reason": "stop", "stop_reason": None}],
        "usage": {"prompt_tokens": 9, "total_tokens": 12, "completion_tokens": 3},
    },
    {"choices": [], "usage": {"prompt_tokens": 9, "total_tokens": 12, "completion_tokens": 3}},
    "[DONE]",
)
VLLM_CHAT_EVENTS = [
    (RoleOnly(), Usage(9, 0, None)),
    (Content(2, Channel.REASONING), Usage(9, 1, None)),
    (text(4), Finish("stop"), Usage(9, 3, None)),
    (Usage(9, 3, None),),
    (Done(),),
]

RECORDED = [
    pytest.param(LLAMA_CPP_CHAT, LLAMA_CPP_CHAT_EVENTS, id="llama.cpp chat"),
    pytest.param(LLAMA_CPP_COMPLETION, LLAMA_CPP_COMPLETION_EVENTS, id="llama.cpp completion"),
    pytest.param(VLLM_CHAT, VLLM_CHAT_EVENTS, id="vLLM chat"),
]


@pytest.mark.parametrize(("data", "expected"), RECORDED)
def test_recorded_streams_give_the_events_they_hold(data: bytes, expected: list[tuple[StreamEvent, ...]]) -> None:
    assert events_of(data) == expected


@pytest.mark.parametrize(("data", "expected"), RECORDED)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_cut_at_any_byte_gives_the_same_events(
    data: bytes, expected: list[tuple[StreamEvent, ...]], line_end: bytes
) -> None:
    data = data.replace(b"\n", line_end)
    for cut in range(len(data) + 1):
        stream = EventStream()
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) == expected


@pytest.mark.parametrize(("data", "expected"), RECORDED)
def test_one_byte_at_a_time_gives_the_same_events(data: bytes, expected: list[tuple[StreamEvent, ...]]) -> None:
    stream = EventStream()
    assert [events for byte in data for events in stream.feed(bytes([byte]))] == expected


def payloads_by_the_standard(data: bytes) -> list[str]:
    """The WHATWG algorithm, word for word, over the whole text at once."""
    whole = data.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _ = re.split("\r\n|\n|\r", whole)
    payloads: list[str] = []
    buffer = ""
    for line in lines:
        if line == "":
            if buffer:
                payloads.append(buffer[:-1])
            buffer = ""
        elif not line.startswith(":"):
            name, colon, value = line.partition(":")
            value = value[1:] if colon and value.startswith(" ") else value
            buffer += f"{value}\n" if name == "data" else ""
    return payloads


PIECES = [
    b"data",
    b":",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"data: x",
    b"event",
    b"id: 1",
    b"retry",
    b"\xef\xbb\xbf",
]
PIECES += ["é🦙".encode(), b"\xf0\x9f", b"\xff", b": ping\n\n", b"datax: y", b"data:{}"]


@settings(max_examples=300)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=20), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_any_bytes_cut_anywhere_decode_as_the_standard_says(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = SseDecoder()
    got = [payload for begin, end in pairwise(edges) for payload in decoder.feed(data[begin:end])]
    assert got == payloads_by_the_standard(data)


def test_comments_other_fields_and_data_without_a_space_are_understood() -> None:
    data = (
        b': ping\r\n\r\nevent: message\r\nid: 7\r\nretry: 10\r\ndata:{"choices":[{"text":"ab"}]}\r\n\r\n: bye\r\n\r\n'
    )
    assert events_of(data) == [(text(2),)]


def test_a_payload_over_several_data_lines_is_one_payload() -> None:
    assert events_of(b'data: {"choices":\ndata: [{"text":\ndata: "abc"}]}\n\n') == [(text(3),)]


def test_an_event_without_its_closing_blank_line_is_not_an_event() -> None:
    assert events_of(b'data: {"choices":[{"text":"a"}]}\n') == []


def test_nothing_after_done_is_read() -> None:
    assert events_of(b"data: [DONE]\n\ndata: {broken\n\n") == [(Done(),)]


def test_an_empty_payload_says_nothing() -> None:
    assert events_of(b"data:\n\ndata: \n\n") == [(), ()]


@pytest.mark.parametrize("fed", [b"data: " + b"a" * 200, b"data: a\n" * 40, b"\n".join([b"data"] * 60)])
def test_an_event_larger_than_the_cap_is_refused(fed: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=100)
    with pytest.raises(StreamError, match="larger than 100 bytes"):
        list(map(decoder.feed, (bytes([byte]) for byte in fed)))


def test_many_events_that_each_fit_the_cap_are_read() -> None:
    assert len(SseDecoder(max_event_bytes=100).feed(b"data: a\n\n" * 1000)) == 1000


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"content": "ab"}, [text(2)]),
        ({"content": ""}, []),
        ({"content": None}, []),
        ({}, []),
        ({"role": "assistant"}, [RoleOnly()]),
        ({"role": "assistant", "content": "a"}, [text(1)]),
        ({"reasoning_content": "abc"}, [Content(3, Channel.REASONING)]),
        ({"reasoning": "abc", "content": None}, [Content(3, Channel.REASONING)]),
        ({"reasoning": "a", "content": "bc"}, [Content(1, Channel.REASONING), text(2)]),
        ({"refusal": "no"}, [text(2)]),
        (
            {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
            [Content(1, Channel.TOOL_CALL)],
        ),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}, [Content(4, Channel.TOOL_CALL)]),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, []),
        ({"tool_calls": None}, []),
    ],
)
def test_every_channel_counts_and_empty_deltas_do_not(delta: object, expected: list[StreamEvent]) -> None:
    assert list(parse_payload(json.dumps({"choices": [{"index": 0, "delta": delta}]}))) == expected


def test_one_payload_can_hold_content_finish_and_usage() -> None:
    chunk = {
        "choices": [{"text": "ab", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    assert parse_payload(json.dumps(chunk)) == (text(2), Finish("stop"), Usage(1, 2, None))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
        ({"error": {"type": "server_error"}}, "server_error"),
        ({"error": {"code": 1}}, "the server reported an error without a message"),
        ({"error": {"message": "two\nlines\x1b[31m \u202ered"}}, "two lines [31m red"),
    ],
)
def test_error_objects_give_their_message_on_one_clean_line(payload: object, message: str) -> None:
    assert parse_payload(json.dumps(payload)) == (ErrorObject(message),)


def test_a_null_error_is_no_error() -> None:
    assert parse_payload('{"error": null, "choices": [{"text": "a"}]}') == (text(1),)


def test_validation_errors_name_the_field_and_not_the_input() -> None:
    detail = [{"loc": ["body", "cache_prompt"], "msg": "Extra inputs are not permitted", "input": "the whole prompt"}]
    assert error_message({"detail": detail}) == "cache_prompt: Extra inputs are not permitted"


@given(st.text(max_size=600))
def test_one_line_is_one_printable_line_within_the_cap(foreign: str) -> None:
    line = one_line(foreign)
    assert len(line) <= 200
    assert line.isprintable()


@pytest.mark.parametrize(
    "payload",
    [
        "{",
        "hello",
        "[]",
        "3",
        '{"choices": {}}',
        '{"choices": [1]}',
        '{"choices": [{"delta": "text"}]}',
        '{"choices": [{"delta": {"content": 5}}]}',
        '{"choices": [{"text": ["a"]}]}',
        '{"choices": [{"text": "a", "finish_reason": 1}]}',
        '{"choices": [{"delta": {"tool_calls": {}}}]}',
        '{"choices": [{"delta": {"tool_calls": ["f"]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]}',
        '{"usage": 3}',
        '{"usage": {"completion_tokens": -1}}',
        '{"usage": {"completion_tokens": NaN}}',
        '{"usage": {"completion_tokens": 1e3}}',
        '{"usage": {"completion_tokens": "12"}}',
        '{"usage": {"completion_tokens": true}}',
        '{"usage": {"completion_tokens": 1' + "0" * 400 + "}}",
        '{"usage": {"completion_tokens": 1' + "0" * 5000 + "}}",
        '{"usage": {"prompt_tokens_details": []}}',
        '{"timings": {"prompt_ms": Infinity}}',
        '{"timings": {"prompt_ms": 1e999}}',
        '{"timings": {"prompt_ms": -0.5}}',
        '{"timings": {"predicted_n": 1.5}}',
        '{"a":' * 100_000,
    ],
)
def test_payloads_that_cannot_be_true_are_refused_in_one_short_line(payload: str) -> None:
    with pytest.raises(StreamError) as caught:
        parse_payload(payload)
    assert len(str(caught.value)) < 120
    assert "\n" not in str(caught.value)


FIELDS = ["choices", "delta", "content", "usage", "error", "message", "detail", "timings", "prompt_n", "text"]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


def nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)


@given(st.recursive(SCALARS, nest, max_leaves=12))
def test_any_json_gives_events_or_a_stream_error(value: object) -> None:
    try:
        events = parse_payload(json.dumps(value))
    except StreamError:
        return
    assert isinstance(events, tuple)


def test_generated_text_does_not_leave_the_module() -> None:
    secret = "zebra-crossing"
    for key in ("content", "reasoning_content"):
        events = events_of(sse({"choices": [{"delta": {key: secret}}]}))
        assert events
        assert secret not in repr(events)
    with pytest.raises(StreamError) as caught:
        events_of(f'data: {{"choices": ["{secret}"\n\n'.encode())
    assert secret not in str(caught.value)


def reply_of(*payloads: object) -> Reply:
    reply = Reply()
    for number, events in enumerate(events_of(sse(*payloads))):
        reply.add(events, float(number))
    return reply


CHUNK = {"choices": [{"text": "a"}]}
FINISH = {"choices": [{"text": "", "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}


def test_a_chunk_counts_once_however_many_channels_it_holds() -> None:
    both = {"choices": [{"delta": {"content": "a", "reasoning": "b"}}]}
    assert reply_of(both, both).chunk_times_s == [0.0, 1.0]


def test_the_last_usage_wins_and_null_does_not_erase_it() -> None:
    early = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 4, "completion_tokens": 1}}
    assert reply_of(early, USAGE, {"choices": [], "usage": None}).usage == Usage(4, 2, None)


@pytest.mark.parametrize(
    ("payloads", "status"),
    [
        ([CHUNK, CHUNK, FINISH, USAGE, "[DONE]"], RequestStatus.COMPLETED),
        ([CHUNK, FINISH], RequestStatus.COMPLETED),
        ([CHUNK, "[DONE]"], RequestStatus.COMPLETED),
        ([FINISH, "[DONE]"], RequestStatus.COMPLETED),
        ([CHUNK], RequestStatus.TRUNCATED),
        ([CHUNK, USAGE], RequestStatus.TRUNCATED),
        ([], RequestStatus.FAILED),
        (["[DONE]"], RequestStatus.FAILED),
        ([USAGE], RequestStatus.FAILED),
        ([CHUNK, {"error": "x"}], RequestStatus.FAILED),
        ([CHUNK, FINISH, {"error": "x"}, "[DONE]"], RequestStatus.FAILED),
    ],
)
def test_how_a_stream_ended_decides_the_status(payloads: list[object], status: RequestStatus) -> None:
    assert reply_of(*payloads).verdict()[0] is status


def test_a_finished_stream_without_done_is_complete_and_says_so() -> None:
    assert reply_of(CHUNK, FINISH, "[DONE]").verdict() == (RequestStatus.COMPLETED, None)
    status, remark = reply_of(CHUNK, FINISH).verdict()
    assert status is RequestStatus.COMPLETED
    assert remark == "the stream ended after the finish reason and before [DONE]"


@pytest.mark.parametrize(("counted", "is_said"), [(0, True), (1, True), (2, False), (3, False)])
def test_fewer_tokens_counted_than_chunks_sent_is_said_and_the_count_stands(counted: int, is_said: bool) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": counted}}
    reply = reply_of(CHUNK, CHUNK, FINISH, usage, "[DONE]")
    remark = f"the server counts {counted} tokens but sent 2 chunks with content" if is_said else None
    assert reply.verdict() == (RequestStatus.COMPLETED, remark)
    assert reply.usage == Usage(4, counted, None)


@pytest.mark.parametrize("reason", ["sk-abc123", "the prompt was this", "a" * 41, "naïve"])
def test_a_reason_that_is_not_one_plain_word_is_not_kept(reason: str) -> None:
    chunk = {"choices": [{"index": 0, "text": "", "finish_reason": reason}]}
    assert parse_payload(json.dumps(chunk)) == (Finish("other"),)


def reply_with(*payloads: tuple[StreamEvent, ...]) -> Reply:
    reply = Reply()
    for number, events in enumerate(payloads):
        reply.add(events, float(number))
    return reply


def test_usage_in_every_chunk_says_how_many_tokens_each_holds() -> None:
    # the role chunk counts nothing; 4, 4 and 2 tokens; a closing token without text is in no chunk
    reply = reply_with(
        (RoleOnly(), Usage(9, 0, None)),
        *((text(5), Usage(9, upto, None)) for upto in (4, 8, 10)),
        (Finish("stop"), Usage(9, 11, None)),
    )
    assert reply.chunk_tokens == (4, 4, 2)


@pytest.mark.parametrize(
    "payloads",
    [
        (),
        ((text(5),), (text(5), Usage(9, 8, None))),
        ((text(5), Usage(9, 8, None)), (text(5), Usage(9, 4, None))),
        ((text(5), Usage(9, None, None)),),
    ],
)
def test_counts_that_are_missing_or_shrink_say_nothing_of_chunks(payloads: tuple[tuple[StreamEvent, ...], ...]) -> None:
    assert reply_with(*payloads).chunk_tokens == ()


def test_token_ids_beside_the_text_are_counted_and_never_kept() -> None:
    payload = json.dumps({"choices": [{"index": 0, "delta": {"content": "abc"}, "token_ids": [7, 8, 9]}]})
    events = parse_payload(payload)
    assert events == (text(3), TokenIds(3))
    reply = reply_with(events, events)
    assert (reply.chunk_tokens, reply.num_token_ids) == ((3, 3), 6)
    assert parse_payload(json.dumps({"choices": [{"text": "a", "token_ids": None}]})) == (text(1),)


def test_timings_in_every_chunk_count_where_usage_does_not() -> None:
    assert reply_with(*((text(2), Timings(ServerTimings(output_tokens=n))) for n in (1, 3))).chunk_tokens == (1, 2)
