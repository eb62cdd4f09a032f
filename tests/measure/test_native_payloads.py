"""The routes that are a server's own: what their payloads say, cut anywhere, and whole requests to them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from inference_bench.errors import StreamError
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.native_payloads import payload_parser
from inference_bench.measure.openai_stream import EventStream
from inference_bench.measure.stream_events import (
    Channel,
    Content,
    Done,
    ErrorObject,
    Finish,
    StreamEvent,
    Timings,
    TokenIds,
    Usage,
)
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import RequestRecord, RequestStatus, ServerTimings, Stage, TokenCountSource
from inference_bench.workload import RequestShape, closed_loop
from measure.truth_server import TruthServer

NATIVE = (Endpoint.SGLANG, Endpoint.LLAMA_CPP)


def content(num_chars: int) -> Content:
    return Content(num_chars, Channel.CONTENT)


def sglang(text: str | None, counted: int | None, finish: object = None, **more: object) -> dict[str, object]:
    meta: dict[str, object] = {"id": "x", "prompt_tokens": 9, "cached_tokens": 4, "finish_reason": finish}
    if counted is not None:
        meta["completion_tokens"] = counted
    return ({} if text is None else {"text": text}) | {"meta_info": meta} | more


def read(endpoint: Endpoint, *payloads: object) -> list[tuple[StreamEvent, ...]]:
    parse = payload_parser(endpoint)
    return [parse(payload if isinstance(payload, str) else json.dumps(payload)) for payload in payloads]


CUMULATIVE = [
    sglang("Hé", 1),
    sglang("Hé", 2),  # half a character held back
    sglang("Hé🙂 x", 5),
    sglang("Hé🙂 x.", 6, {"type": "length", "length": 6}),
    "[DONE]",
]
CUMULATIVE_EVENTS = [
    (content(2), Usage(9, 1, 4)),
    (Usage(9, 2, 4),),
    (content(3), Usage(9, 5, 4)),
    (content(1), Finish("length"), Usage(9, 6, 4)),
    (Done(),),
]
LLAMA = [
    {"index": 0, "content": " have", "tokens": [457], "stop": False, "tokens_predicted": 1, "tokens_evaluated": 3},
    {"index": 0, "content": "", "tokens": [], "stop": False, "tokens_predicted": 2, "tokens_evaluated": 3},
    {"index": 0, "content": " 🙂é", "tokens": [719, 1], "stop": False, "tokens_predicted": 4, "tokens_evaluated": 3},
    {
        "index": 0,
        "content": "",
        "stop": True,
        "stop_type": "limit",
        "prompt": "never looked at",
        "tokens_predicted": 4,
        "tokens_evaluated": 3,
        "tokens_cached": 6,
        "timings": {"cache_n": 1, "prompt_n": 2, "prompt_ms": 19.5, "predicted_n": 4, "predicted_ms": 20.25},
    },
]
LLAMA_EVENTS = [
    (content(5), Usage(3, 1, None)),
    (Usage(3, 2, None),),
    (content(3), Usage(3, 4, None)),
    (Finish("length"), Usage(3, 4, 1), Timings(ServerTimings(2, 1, 0.0195, 4, 0.02025)), Done()),
]


def test_sglangs_text_so_far_is_read_as_what_is_new_in_it() -> None:
    assert read(Endpoint.SGLANG, *CUMULATIVE) == CUMULATIVE_EVENTS


def test_sglangs_text_in_pieces_is_read_as_it_comes() -> None:
    pieces = [sglang(" a", 1, output_ids=[5]), sglang(" a", 2, output_ids=[5]), sglang(" a b", 4, output_ids=[5, 6])]
    assert [events[0] for events in read(Endpoint.SGLANG, *pieces)] == [content(2), content(2), content(4)]
    unlike = [sglang("One", 1), sglang(" two", 2), sglang(" two", 3)]
    assert [events[0] for events in read(Endpoint.SGLANG, *unlike)] == [content(3), content(4), content(4)]


def test_sglangs_text_so_far_beside_all_token_ids_is_known_by_them() -> None:
    chunks = [
        sglang("a", 1, output_ids=[1]),
        sglang("a", 2, output_ids=[1, 2]),
        sglang("aab", 4, output_ids=[1, 2, 3, 4]),
    ]
    assert read(Endpoint.SGLANG, *chunks) == [
        (content(1), Usage(9, 1, 4)),
        (Usage(9, 2, 4),),
        (content(2), Usage(9, 4, 4)),
    ]


def test_sglang_without_text_or_without_counts_is_read_by_its_token_ids() -> None:
    ids_alone = [sglang(None, 1, output_ids=[1]), sglang(None, 3, output_ids=[1, 2, 3])]
    assert read(Endpoint.SGLANG, *ids_alone) == [(content(0), Usage(9, 1, 4)), (content(0), Usage(9, 3, 4))]
    uncounted = [sglang("a", None, output_ids=[1]), sglang("abc", None, output_ids=[1, 2, 3])]
    assert read(Endpoint.SGLANG, *uncounted) == [(content(1), TokenIds(1)), (content(2), TokenIds(2))]


def test_sglangs_several_answers_are_told_apart_and_counted_together() -> None:
    chunks = [sglang("one", 1, index=0), sglang("two", 1, index=1), sglang("one more", 2, index=0)]
    assert read(Endpoint.SGLANG, *chunks) == [
        (content(3), Usage(9, 1, 4)),
        (content(3), Usage(9, 2, 4)),
        (content(5), Usage(9, 3, 4)),
    ]


@pytest.mark.parametrize(
    ("finish", "event"),
    [
        ({"type": "stop", "matched": 2}, Finish("stop")),
        ("length", Finish("length")),
        ({"type": "so it goes"}, Finish("other")),
        ({"type": "abort", "message": "out of\nmemory", "status_code": 500}, ErrorObject("out of memory")),
        ({"type": "abort"}, ErrorObject("the server broke the answer off")),
    ],
)
def test_why_sglangs_answer_ended(finish: object, event: StreamEvent) -> None:
    assert event in read(Endpoint.SGLANG, sglang("a", 1, finish))[0]


def test_llama_cpp_ends_with_the_chunk_that_says_stop() -> None:
    assert read(Endpoint.LLAMA_CPP, *LLAMA) == LLAMA_EVENTS


@pytest.mark.parametrize(
    ("stop_type", "reason"),
    [("eos", "stop"), ("word", "stop"), ("limit", "length"), ("none", "other"), (None, "other")],
)
def test_why_llama_cpps_answer_ended(stop_type: str | None, reason: str) -> None:
    assert read(Endpoint.LLAMA_CPP, {"content": "", "stop": True, "stop_type": stop_type}) == [(Finish(reason), Done())]


def test_llama_cpp_without_counts_is_counted_by_its_token_ids() -> None:
    assert read(Endpoint.LLAMA_CPP, {"content": "ab", "tokens": [1, 2]}) == [(content(2), TokenIds(2))]


@pytest.mark.parametrize("endpoint", NATIVE)
def test_errors_inside_a_stream_are_errors(endpoint: Endpoint) -> None:
    payload = {"error": {"code": 400, "message": "too\tlong \x1b[31m", "type": "invalid_request_error"}}
    assert read(endpoint, payload, {"error": True}, "", "[DONE]") == [
        (ErrorObject("too long [31m"),),
        (ErrorObject("the server reported an error without a message"),),
        (),
        (Done(),),
    ]


@pytest.mark.parametrize(
    ("endpoint", "payload"),
    [
        (Endpoint.SGLANG, "[1]"),
        (Endpoint.SGLANG, '{"text": 5}'),
        (Endpoint.SGLANG, '{"text": "secret", "meta_info": []}'),
        (Endpoint.SGLANG, '{"text": "secret", "meta_info": {"completion_tokens": -1}}'),
        (Endpoint.SGLANG, '{"text": "secret", "meta_info": {"completion_tokens": NaN}}'),
        (Endpoint.SGLANG, '{"text": "secret", "meta_info": {"finish_reason": 5}}'),
        (Endpoint.SGLANG, '{"text": "secret", "output_ids": {}}'),
        (Endpoint.LLAMA_CPP, '{"content": ["secret"]}'),
        (Endpoint.LLAMA_CPP, '{"content": "secret", "stop": "yes"}'),
        (Endpoint.LLAMA_CPP, '{"content": "secret", "tokens_predicted": 1e99}'),
        (Endpoint.LLAMA_CPP, '{"content": "secret", "tokens_predicted": true}'),
        (Endpoint.LLAMA_CPP, '{"content": "secret", "timings": {"prompt_ms": -1}}'),
        (Endpoint.LLAMA_CPP, '{"content": "secret"'),
    ],
)
def test_what_cannot_be_is_refused_and_not_repeated(endpoint: Endpoint, payload: str) -> None:
    with pytest.raises(StreamError) as caught:
        payload_parser(endpoint)(payload)
    assert "secret" not in str(caught.value)


def splits(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((data[:at], data[at:]) for at in range(len(data) + 1))


@pytest.mark.parametrize(
    ("endpoint", "payloads", "expected"),
    [(Endpoint.SGLANG, CUMULATIVE, CUMULATIVE_EVENTS), (Endpoint.LLAMA_CPP, LLAMA, LLAMA_EVENTS)],
)
def test_a_stream_cut_at_any_byte_says_the_same(
    endpoint: Endpoint, payloads: list[object], expected: list[tuple[StreamEvent, ...]]
) -> None:
    texts = [payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False) for payload in payloads]
    data = "".join(f"data: {text}\n\n" for text in texts).encode()
    for first, second in splits(data):
        stream = EventStream(payload_parser(endpoint))
        assert stream.feed(first) + stream.feed(second) == expected


def test_each_request_has_a_parser_of_its_own() -> None:
    assert read(Endpoint.SGLANG, sglang("abc", 3))[0][0] == content(3)
    assert read(Endpoint.SGLANG, sglang("abcd", 4))[0][0] == content(4)


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def record_of(server: TruthServer, case: str, endpoint: Endpoint) -> RequestRecord:
    target = Target(server.url(case), endpoint=endpoint)
    (record,) = run_load(
        target, closed_loop("one", [RequestShape(7, 6)], 1, 1), LoadOptions(stage=Stage.WARMUP)
    ).records
    return record


@pytest.mark.parametrize("endpoint", NATIVE)
def test_a_whole_reply_on_a_native_route_is_counted_in_every_chunk(server: TruthServer, endpoint: Endpoint) -> None:
    record = record_of(server, "steady", endpoint)
    assert (record.status, record.error, record.finish_reason) == (RequestStatus.COMPLETED, None, "length")
    assert (record.prompt_tokens, record.output_tokens, record.chunk_tokens) == (7, 6, (1,) * 6)
    assert record.token_count_source is TokenCountSource.SERVER_USAGE
    request = server.of("steady")[-1]
    assert request.path == f"/steady{endpoint.path}"
    assert request.num_content_sent == len(record.chunk_times_s) == 6


@pytest.mark.parametrize("endpoint", NATIVE)
@pytest.mark.parametrize(
    ("case", "status", "num_chunks"),
    [
        ("stops_early", RequestStatus.COMPLETED, 3),
        ("closes_midway", RequestStatus.TRUNCATED, 2),
        ("ends_without_finish", RequestStatus.TRUNCATED, 2),
        ("reset_midway", RequestStatus.TRUNCATED, 2),
        ("reset_after_finish", RequestStatus.COMPLETED, 6),
        ("broken_json", RequestStatus.FAILED, 2),
        ("late_done", RequestStatus.COMPLETED, 6),
    ],
)
def test_how_replies_on_native_routes_end(
    server: TruthServer, endpoint: Endpoint, case: str, status: RequestStatus, num_chunks: int
) -> None:
    record = record_of(server, case, endpoint)
    assert (record.status, len(record.chunk_times_s)) == (status, num_chunks)


@pytest.mark.parametrize("endpoint", NATIVE)
def test_an_error_inside_a_native_stream_fails_the_request(server: TruthServer, endpoint: Endpoint) -> None:
    record = record_of(server, "error_midway", endpoint)
    assert (record.status, record.error, len(record.chunk_times_s)) == (RequestStatus.FAILED, "the engine died", 2)
