"""One request against a server of known behaviour: every ending, every count, and times that agree with its log."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench.errors import ServerError, StreamError
from inference_bench.measure import wire
from inference_bench.measure.http1 import Limits, RunClock, Timeouts
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.sender import Ask, Sender, get_json, post_json
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.units import KIBI, MEBI

from .raw_server import raw_server
from .truth_server import Request, TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=10.0)
SHORT = Timeouts(connect_s=5.0, idle_s=0.5, total_s=5.0)
NUM_TOKENS = 8
PROMPT = "river stone apple cloud machine garden winter bridge"


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def send(
    target: Target,
    timeouts: Timeouts = QUICK,
    limits: Limits | None = None,
    num_tokens: int = NUM_TOKENS,
    stamps: StampSource = StampSource.KERNEL,
) -> RequestRecord:
    async def one() -> RequestRecord:
        clock = RunClock()
        ask = Ask("r1", PROMPT, num_tokens, clock(), Stage.MEASURE, "g")
        sender = Sender(target, clock, timeouts, limits, stamps)
        return await sender.send(ask, target.build_body(PROMPT, num_tokens))

    return asyncio.run(one())


def send_on_server_clock(target: Target) -> RequestRecord:
    async def one() -> RequestRecord:
        ask = Ask("r1", PROMPT, NUM_TOKENS, time.perf_counter())
        return await Sender(target, time.perf_counter, QUICK).send(ask, target.build_body(PROMPT, NUM_TOKENS))

    return asyncio.run(one())


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.CHAT])
def test_a_steady_stream_is_recorded_as_it_happened(server: TruthServer, endpoint: Endpoint) -> None:
    record = send(Target(server.url("steady"), endpoint=endpoint))
    assert (record.status, record.error, record.http_status) == (RequestStatus.COMPLETED, None, 200)
    assert (record.request_id, record.group, record.origin, record.stage) == ("r1", "g", Origin.MEASURED, Stage.MEASURE)
    assert len(record.chunk_times_s) == NUM_TOKENS
    assert (record.prompt_tokens, record.output_tokens, record.requested_output_tokens) == (8, NUM_TOKENS, NUM_TOKENS)
    assert (record.token_count_source, record.finish_reason) == (TokenCountSource.SERVER_USAGE, "length")
    assert 0 <= record.planned_s <= record.sent_s < record.chunk_times_s[0]
    assert record.chunk_times_s[-1] <= record.end_s


@pytest.mark.parametrize("case", ["steady", "late_first_token", "slow", "usage_in_every_chunk"])
def test_no_chunk_is_stamped_before_the_server_sent_it_and_order_is_kept(server: TruthServer, case: str) -> None:
    record = send_on_server_clock(Target(server.url(case), endpoint=Endpoint.CHAT))
    sent_s = server.of(case)[-1].content_sent_s
    assert len(sent_s) == len(record.chunk_times_s) == NUM_TOKENS
    assert all(sent <= seen for sent, seen in zip(sent_s, record.chunk_times_s, strict=True))
    assert all(before <= after for before, after in pairwise(record.chunk_times_s))
    assert record.sent_s <= sent_s[0]


def test_the_role_chunk_is_not_the_first_token(server: TruthServer) -> None:
    record = send(Target(server.url("late_first_token"), endpoint=Endpoint.CHAT))
    assert record.chunk_times_s[0] - record.sent_s >= 0.05  # the server waits that long after the role chunk


def test_the_request_says_what_it_should_and_no_more(server: TruthServer) -> None:
    target = Target(server.url("steady"), model="m", api_key=ApiKey("sk-abc-123"), extra_body={"ignore_eos": True})
    send(target)
    request: Request = server.of("steady")[-1]
    assert (request.method, request.path) == ("POST", "/steady/v1/completions")
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["authorization"] == "Bearer sk-abc-123"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["connection"] == "close"
    assert request.body["ignore_eos"] is True
    assert request.prompt == PROMPT


@pytest.mark.parametrize(
    ("case", "num_chunks", "output_tokens"),
    [
        ("four_tokens_a_chunk", 2, 8),
        ("stops_early", 4, 4),
        ("no_tokens", 0, 0),
        ("no_usage", 8, None),
        ("usage_in_every_chunk", 8, 8),
        ("usage_null_then_twice", 8, 8),
        ("timings_without_usage", 8, 8),
        ("at_once", 8, None),
        ("late_done", 8, 8),
        ("no_done", 8, 8),
        ("stays_open_after_done", 8, 8),
        ("reset_after_finish", 8, None),
    ],
)
def test_tokens_are_what_the_server_counts_and_chunks_are_only_chunks(
    server: TruthServer, case: str, num_chunks: int, output_tokens: int | None
) -> None:
    record = send(Target(server.url(case)))
    assert record.status is RequestStatus.COMPLETED
    assert (len(record.chunk_times_s), record.output_tokens) == (num_chunks, output_tokens)
    counted = TokenCountSource.UNKNOWN if output_tokens is None else TokenCountSource.SERVER_USAGE
    assert record.token_count_source is counted


def test_server_timings_are_kept_and_fill_in_for_usage(server: TruthServer) -> None:
    record = send(Target(server.url("timings_without_usage")))
    assert record.server_timings is not None
    assert (record.server_timings.prefill_s, record.server_timings.decode_s) == (0.0125, 0.04)
    assert (record.prompt_tokens, record.cached_prompt_tokens, record.output_tokens) == (8, 3, 8)


def test_the_tail_after_the_last_token_is_in_the_end_and_not_in_the_chunks(server: TruthServer) -> None:
    record = send(Target(server.url("late_done")))
    assert record.end_s - record.chunk_times_s[-1] >= 0.09  # the server waits 0.1 s before the finish chunk


def test_chunks_of_one_read_share_its_stamp(server: TruthServer) -> None:
    record = send(Target(server.url("at_once")))
    assert len(record.chunk_times_s) == NUM_TOKENS
    assert len(set(record.chunk_times_s)) == 1


@pytest.mark.parametrize("case", ["no_done", "reset_after_finish"])
def test_a_finished_stream_without_done_is_complete_with_a_remark(server: TruthServer, case: str) -> None:
    record = send(Target(server.url(case)))
    assert record.status is RequestStatus.COMPLETED
    assert record.error is not None
    assert record.error.endswith("after the finish reason and before [DONE]")


@pytest.mark.parametrize(
    ("case", "status", "http_status", "num_chunks", "said"),
    [
        ("error_first", RequestStatus.FAILED, 200, 0, "out of memory [31m"),
        ("error_midway", RequestStatus.FAILED, 200, 2, "the engine died"),
        ("done_only", RequestStatus.FAILED, 200, 0, "without a single token"),
        ("reset_midway", RequestStatus.TRUNCATED, 200, 2, "connection reset by peer"),
        ("closes_midway", RequestStatus.TRUNCATED, 200, 2, "the server closed the connection after 2 chunks"),
        ("ends_without_finish", RequestStatus.TRUNCATED, 200, 2, "after 2 chunks without a finish reason"),
        ("reset_at_once", RequestStatus.FAILED, None, 0, "connection reset by peer"),
        ("closes_before_status", RequestStatus.FAILED, None, 0, "the server closed the connection"),
        ("html", RequestStatus.FAILED, 200, 0, "answered with text/html instead of text/event-stream"),
        ("whole_json", RequestStatus.FAILED, 200, 0, "answered with application/json instead of text/event-stream"),
        ("json_error", RequestStatus.FAILED, 200, 0, "model not loaded"),
        ("compressed", RequestStatus.FAILED, 200, 0, "encoded as gzip"),
        ("moved", RequestStatus.FAILED, 301, 0, "give the final address"),
        ("broken", RequestStatus.FAILED, 500, 0, "HTTP 500: text/plain"),
        ("not_found", RequestStatus.REJECTED, 404, 0, "HTTP 404: the model `x` does not exist"),
        ("busy", RequestStatus.REJECTED, 429, 0, "HTTP 429: slow down"),
        ("loading", RequestStatus.REJECTED, 503, 0, "HTTP 503: Loading model"),
        ("too_long", RequestStatus.REJECTED, 400, 0, "exceeds the available context size"),
        ("not_http", RequestStatus.FAILED, None, 0, "breaks the rules of HTTP/1.1"),
        ("broken_framing", RequestStatus.FAILED, 200, 2, "breaks the rules of HTTP/1.1"),
        ("broken_json", RequestStatus.FAILED, 200, 2, "not JSON"),
        ("usage_nan", RequestStatus.FAILED, 200, 2, "not JSON"),
        ("huge_event", RequestStatus.FAILED, 200, 0, "larger than 1048576 bytes"),
        ("huge_header", RequestStatus.FAILED, None, 0, "breaks the rules of HTTP/1.1"),
    ],
)
def test_every_bad_ending_has_its_status_and_says_why_in_one_line(
    server: TruthServer, case: str, status: RequestStatus, http_status: int | None, num_chunks: int, said: str
) -> None:
    record = send(Target(server.url(case)))
    assert (record.status, record.http_status, len(record.chunk_times_s)) == (status, http_status, num_chunks)
    assert record.error is not None
    assert said in record.error
    assert record.error.isprintable()
    assert len(record.error) <= 200
    assert "secret" not in record.error
    assert record.end_s >= record.sent_s


def test_a_reply_without_end_is_cut_off_at_the_cap(server: TruthServer) -> None:
    record = send(Target(server.url("endless")), limits=Limits(max_reply_bytes=MEBI))
    assert record.status is RequestStatus.FAILED
    assert record.error == "the reply is larger than 1048576 bytes; gave up reading"


@pytest.mark.parametrize(("case", "num_chunks"), [("silent", 0), ("stalls", 2)])
def test_a_silent_server_is_a_time_out(server: TruthServer, case: str, num_chunks: int) -> None:
    record = send(Target(server.url(case)), SHORT)
    assert record.status is RequestStatus.TIMED_OUT
    assert record.error == "no byte came for 0.5 s"
    assert len(record.chunk_times_s) == num_chunks
    assert record.end_s - record.sent_s >= SHORT.idle_s


def test_keep_alives_do_not_stop_the_total_time_limit(server: TruthServer) -> None:
    record = send(Target(server.url("trickles")), Timeouts(connect_s=5.0, idle_s=5.0, total_s=0.3))
    assert record.status is RequestStatus.TIMED_OUT
    assert record.error == "the reply was not finished within 0.3 s"


def test_a_port_where_nobody_listens_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    record = send(Target(f"http://127.0.0.1:{port}"))
    assert (record.status, record.http_status) == (RequestStatus.FAILED, None)
    assert record.error == f"could not connect to http://127.0.0.1:{port} (connection refused)"


def test_a_name_that_does_not_exist_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    record = send(Target("http://nowhere.invalid:8080"))
    assert (record.status, record.http_status) == (RequestStatus.FAILED, None)
    assert record.error == "could not connect to http://nowhere.invalid:8080 (name or service not known)"


def test_the_second_address_of_a_name_is_tried_when_the_first_refuses(
    server: TruthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_ups = list[object]()

    def two_addresses(host: object, port: object, *args: object, **kwargs: object) -> list[object]:
        look_ups.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    target = Target(f"http://twofold.invalid:{server.port}/steady")

    async def three() -> list[RequestRecord]:
        clock = RunClock()
        sender = Sender(target, clock, QUICK)
        body = target.build_body(PROMPT, NUM_TOKENS)
        return [await sender.send(Ask(f"r{number}", PROMPT, NUM_TOKENS, clock()), body) for number in range(3)]

    assert [record.status for record in asyncio.run(three())] == [RequestStatus.COMPLETED] * 3
    assert look_ups == ["twofold.invalid"]


def test_a_connection_that_nobody_accepts_times_out() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for knock in waiting:
            knock.setblocking(False)
            knock.connect_ex(full.getsockname())
        record = send(Target(f"http://127.0.0.1:{full.getsockname()[1]}"), Timeouts(0.2, 0.3, 1.0))
        for knock in waiting:
            knock.close()
    assert record.status is RequestStatus.TIMED_OUT
    assert record.http_status is None


def test_a_cancelled_request_leaves_a_record_and_passes_the_cancellation_on(server: TruthServer) -> None:
    target, records = Target(server.url("stalls")), list[RequestRecord]()
    num_before = len(server.of("stalls"))

    async def cancel_midway() -> None:
        clock = RunClock()
        ask = Ask("r1", PROMPT, NUM_TOKENS, clock())
        task = asyncio.create_task(
            Sender(target, clock, QUICK).send(ask, target.build_body(PROMPT, NUM_TOKENS), records.append)
        )
        while not any(request.num_content_sent == 2 for request in server.of("stalls")[num_before:]):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_midway())
    assert [record.status for record in records] == [RequestStatus.CANCELLED]
    assert len(records[0].chunk_times_s) == 2


def test_neither_key_nor_prompt_comes_back_in_an_error(server: TruthServer) -> None:
    record = send(Target(server.url("echo"), api_key=ApiKey("sk-very-private-key")))
    assert record.status is RequestStatus.REJECTED
    assert record.error == "HTTP 401: bad key [key]; asked: [prompt]"


def test_a_prompt_does_not_show_in_the_repr_of_what_is_sent() -> None:
    assert PROMPT not in repr(Ask("r1", PROMPT, 4, 0.0))


def test_json_questions_are_answered(server: TruthServer) -> None:
    target = Target(server.url("describes_itself"))
    assert get_json(target, "/v1/models") == {"data": [{"id": "tiny"}]}
    assert post_json(target, "/tokenize", {"content": "a b"}) == {"got": {"content": "a b"}}


@pytest.mark.parametrize(
    ("case", "path", "kind", "said"),
    [
        ("describes_itself", "/nothing", ServerError, "HTTP 404: File Not Found"),
        ("describes_itself", "/bad", StreamError, "/bad: the server sent"),
        ("describes_itself", "/big", ServerError, "/big: the reply is larger than 16777216 bytes"),
        ("html", "/v1/models", StreamError, "text/html instead of JSON"),
        ("silent", "/v1/models", ServerError, "no byte came for 0.5 s"),
        ("moved", "/v1/models", ServerError, "HTTP 301"),
        ("reset_at_once", "/v1/models", ServerError, "connection reset by peer"),
    ],
)
def test_json_questions_that_fail_raise_one_line(
    server: TruthServer, case: str, path: str, kind: type[ServerError], said: str
) -> None:
    with pytest.raises(kind) as caught:
        get_json(Target(server.url(case)), path, SHORT)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("limit", [{"connect_s": 0.0}, {"idle_s": -1.0}, {"total_s": float("inf")}])
def test_time_limits_must_be_real(limit: dict[str, float]) -> None:
    with pytest.raises(Exception, match="must be above 0"):
        Timeouts(**limit)


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[TruthServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with TruthServer(wrap=lambda plain: context.wrap_socket(plain, server_side=True)) as running:
        yield running


def test_https_works_with_a_certificate_the_system_trusts(
    tls_server: TruthServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    record = send(Target(tls_server.url("steady", "https")))
    assert (record.status, record.error) == (RequestStatus.COMPLETED, None)
    assert len(record.chunk_times_s) == NUM_TOKENS


def test_https_with_an_untrusted_certificate_is_a_failure(tls_server: TruthServer) -> None:
    record = send(Target(tls_server.url("steady", "https")))
    assert record.status is RequestStatus.FAILED
    assert record.error is not None
    assert "certificate is not trusted" in record.error


def test_https_to_a_plain_port_is_a_failure(server: TruthServer) -> None:
    record = send(Target(server.url("steady", "https")))
    assert record.status is RequestStatus.FAILED
    assert record.error is not None
    assert "TLS failed" in record.error


@pytest.mark.parametrize("stamps", StampSource)
def test_nagle_is_off_on_every_connection(
    server: TruthServer, monkeypatch: pytest.MonkeyPatch, stamps: StampSource
) -> None:
    seen = list[int]()
    original = wire.Wire._begin

    def spy(begun: wire.Wire) -> None:
        transport = getattr(begun, "_transport", None)
        connection = transport.get_extra_info("socket") if transport else begun._socket  # type: ignore[attr-defined]
        seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        original(begun)

    monkeypatch.setattr(wire.Wire, "_begin", spy)
    send(Target(server.url("steady")), stamps=stamps)
    assert seen
    assert all(seen)


def test_a_large_prompt_and_a_large_reply_arrive_whole(server: TruthServer) -> None:
    prompt = "word " * (100 * KIBI)
    target = Target(server.url("at_once"))

    async def one() -> RequestRecord:
        clock = RunClock()
        return await Sender(target, clock, QUICK).send(
            Ask("r1", prompt, 5000, clock()), target.build_body(prompt, 5000)
        )

    record = asyncio.run(one())
    assert record.status is RequestStatus.COMPLETED
    assert len(record.chunk_times_s) == 5000
    assert server.of("at_once")[-1].prompt == prompt


def test_a_reply_in_a_coding_that_nobody_asked_for_is_said_to_be_that() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"
    with (
        raw_server([(0, head)]) as server,
        pytest.raises(StreamError, match="encoded as gzip, which was not asked for"),
    ):
        post_json(Target(server.url), "/tokenize", {}, SHORT)
