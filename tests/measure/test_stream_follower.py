"""Streams that pile up undecoded: ends are seen at once, errors and news in time, memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench.errors import StorageError
from inference_bench.measure import stream_follower, wire
from inference_bench.measure.client_loop import find_loop_factory
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.stream_follower import ROUND_S, StreamFollower
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import Channel, RequestRecord, RequestStatus, TokenCountSource

from .raw_server import RawServer, raw_server
from .truth_server import TruthServer

QUICK = Timeouts(connect_s=5.0, idle_s=5.0, total_s=20.0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LOOPS = [None] if find_loop_factory() is None else [None, find_loop_factory()]
on_each_loop = pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
Loop = Callable[[], asyncio.AbstractEventLoop] | None


def framed(*payloads: object) -> bytes:
    texts = (payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads)
    data = "".join(f"data: {text}\n\n" for text in texts).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


TOKEN = framed(delta(content=" a"))
FINISH = framed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]") + END


@dataclass
class Findings:
    num_tokens: int | None = None
    is_valid: bool | None = None


@dataclass
class Told:
    """A journal that remembers."""

    started_s: list[float] = field(default_factory=list)
    calls: list[tuple[float, list[float], list[int], str]] = field(default_factory=list)

    def started(self, request_id: str, planned_s: float, sent_s: float, **_: object) -> None:
        assert request_id == "r1"
        self.started_s.append(sent_s)

    def chunks(self, request_id: str, times_s: Sequence[float], chunk_tokens: Sequence[int], channels: str) -> None:
        assert request_id == "r1"
        self.calls.append((time.perf_counter(), list(times_s), list(chunk_tokens), channels))


def send(
    url: str,
    loop: Loop = None,
    stamps: StampSource = StampSource.KERNEL,
    timeouts: Timeouts = QUICK,
    journal: object = None,
    examine: object = None,
) -> RequestRecord:
    async def one() -> RequestRecord:
        target = Target(url, endpoint=Endpoint.CHAT)
        ask = Ask("r1", "river stone", 8, time.perf_counter(), index=3, session=1, turn=2, examine=examine)  # type: ignore[arg-type]
        sender = Sender(target, time.perf_counter, timeouts, stamps=stamps, journal=journal)  # type: ignore[arg-type]
        return await sender.send(ask, target.build_body("river stone", 8))

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(one())


@on_each_loop
@pytest.mark.parametrize("stamps", StampSource)
@pytest.mark.parametrize(
    "end",
    [
        [(0.05, FINISH)],
        [(0.05, FINISH[:-5]), (0.0, END)],
        [(0.05, FINISH[:-12]), (0.03, FINISH[-12:])],  # within [DONE]
        [(0.05, framed({"choices": [{"finish_reason": "stop"}]})), (0.0, END[:3]), (0.03, END[3:])],
        [(0.05, framed({"choices": [{"finish_reason": "stop"}]})), (0.0, END[:1]), (0.03, END[1:])],
        [(0.05, FINISH[:-5] + framed(": that is all"))],
    ],
    ids=["at once", "end apart", "cut in done", "cut between", "cut in the end", "something after it"],
)
def test_the_end_of_a_stream_is_seen_when_it_comes(
    loop: Loop, stamps: StampSource, end: list[tuple[float, bytes]]
) -> None:
    with raw_server([(0.0, HEAD + TOKEN), *end]) as server:
        record = send(server.url, loop, stamps)
        late_s = time.perf_counter() - server.sent_s[-1]
    assert (record.status, len(record.chunk_times_s)) == (RequestStatus.COMPLETED, 1)
    if end[0][1] != FINISH[:-5] + framed(": that is all"):
        assert late_s < ROUND_S / 2


@on_each_loop
def test_an_error_in_a_stream_that_goes_on_ends_the_request_within_a_round(loop: Loop) -> None:
    steps = [(0.0, HEAD + TOKEN), (0.02, framed({"error": {"message": "the engine died"}})), *[(0.05, TOKEN)] * 30]
    with raw_server(steps) as server:
        record = send(server.url, loop)
        assert time.perf_counter() - server.sent_s[1] < 2 * ROUND_S
    assert (record.status, record.error, len(record.chunk_times_s)) == (RequestStatus.FAILED, "the engine died", 1)
    assert record.end_s - server.sent_s[1] < 0.05  # when the error came, not when it was seen


def test_bytes_that_are_no_http_end_the_request_within_a_round_at_the_time_they_came() -> None:
    with raw_server([(0.0, HEAD + TOKEN + TOKEN), (0.02, b"-5\r\nhello\r\n"), *[(0.05, TOKEN)] * 20]) as server:
        record = send(server.url)
    assert (record.status, len(record.chunk_times_s)) == (RequestStatus.FAILED, 2)
    assert record.error == "the reply breaks the rules of HTTP/1.1: a chunk has no size"
    assert record.end_s - server.sent_s[1] < 0.05


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"\x00" * 5000, "does not begin with a status line"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000, "headers are larger than 65536 bytes"),
        (b"HTTP/1.1 103 Hints\r\n\r\n" * 10_000, "headers are larger than 65536 bytes"),
        (HEAD + b"FFFFFFFFFFFFFFFFFF\r\n", "a chunk has no size"),
        (HEAD + b"0" * 5000, "a chunk has no size"),
        (HEAD + b"5;" + b"x" * 5000, "a chunk has no size"),
        (HEAD + b"3\r\nabcde\r\n", "not as long as it says"),
        (HEAD + b"0\r\n" + b"X: y\r\n" * 20_000, "trailers are larger than 65536 bytes"),
        (HEAD.replace(b"chunked", b"gzip"), "transfer coding is not chunked"),
        (HEAD + b"200000\r\ndata: " + b"\x00" * 1_500_000, "one event of the stream is larger than 1048576 bytes"),
    ],
)
def test_a_hostile_reply_fails_in_one_line_while_the_server_hangs(reply: bytes, said: str) -> None:
    with raw_server([(0.0, reply)]) as server:
        begin_s = time.perf_counter()
        record = send(server.url)
        assert time.perf_counter() - begin_s < 3 * ROUND_S
    assert record.status is RequestStatus.FAILED
    assert record.error is not None
    assert said in record.error
    assert record.error.isprintable()


def test_a_journal_knows_what_came_within_a_second_and_hears_nothing_twice() -> None:
    steps = [(0.0, HEAD + framed(delta(role="assistant")))]
    steps += [(0.05, framed(delta(reasoning="hm") if number < 5 else delta(content=" a"))) for number in range(40)]
    told = Told()
    with raw_server([*steps, (0.0, FINISH)]) as server:
        record = send(server.url, journal=told)
    assert (record.status, told.started_s) == (RequestStatus.COMPLETED, [record.sent_s])
    heard = [time_s for _, times_s, _, _ in told.calls for time_s in times_s]
    assert heard == list(record.chunk_times_s[: len(heard)])
    assert len(heard) >= 25  # two seconds, less what came since the last round
    assert all(when_s - times_s[0] < 1.0 for when_s, times_s, _, _ in told.calls)
    assert all(b[0] - a[0] > 0.8 * ROUND_S for a, b in pairwise(told.calls))
    assert told.calls[0][3][:5] == "rrrrr"
    assert told.calls[-1][3] == ""
    assert record.channels == "r" * 5 + "c" * 35


def test_a_journal_that_fails_ends_the_request_with_its_error() -> None:
    class Full(Told):
        def chunks(self, *_: object) -> None:
            raise StorageError("no space left on the device")

    with raw_server([(0.0, HEAD), *[(0.05, TOKEN)] * 40]) as server, pytest.raises(StorageError, match="no space left"):
        send(server.url, journal=Full())


def test_tokens_counted_in_every_chunk_reach_the_journal_and_the_record() -> None:
    def counted(upto: int) -> bytes:
        return framed(delta(content="ab") | {"usage": {"prompt_tokens": 2, "completion_tokens": upto}})

    told = Told()
    steps = [(0.0, HEAD), *[(0.1, counted(2 * number)) for number in range(1, 13)], (0.0, FINISH)]
    with raw_server(steps) as server:
        record = send(server.url, journal=told)
    assert record.chunk_tokens == (2,) * 12
    assert [count for _, _, tokens, _ in told.calls for count in tokens] == [2] * len(
        [time_s for _, times_s, _, _ in told.calls for time_s in times_s]
    )
    assert told.calls


def test_a_flood_is_decoded_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_bytes = list[int]()
    original = StreamFollower.decode

    def spy(follower: StreamFollower) -> None:
        waiting_bytes.append(follower._exchange._wire._num_waiting_bytes)
        original(follower)

    monkeypatch.setattr(StreamFollower, "decode", spy)
    flood = TOKEN * 40_000
    with raw_server([(0.0, HEAD + flood), (0.0, FINISH)]) as server:
        tracemalloc.start()
        try:
            record = send(server.url)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (record.status, len(record.chunk_times_s)) == (RequestStatus.COMPLETED, 40_000)
    assert max(waiting_bytes) < 3 * wire.MOST_WAITING_BYTES
    assert len(waiting_bytes) > len(flood) / (3 * wire.MOST_WAITING_BYTES)
    assert peak_bytes < len(flood) + 8_000_000


def test_a_cancelled_request_lets_the_server_see_it_go() -> None:
    records = list[RequestRecord]()

    async def cancel(server: RawServer) -> float:
        target = Target(server.url, endpoint=Endpoint.CHAT)
        sender = Sender(target, time.perf_counter, QUICK)
        ask = Ask("r1", "river", 8, time.perf_counter())
        task = asyncio.create_task(sender.send(ask, target.build_body("river", 8), records.append))
        while len(server.sent_s) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.perf_counter()

    with raw_server([(0.0, HEAD), (0.02, TOKEN), (0.02, TOKEN)]) as server:
        gone_s = asyncio.run(cancel(server))
    assert [len(record.chunk_times_s) for record in records] == [2]
    assert records[0].status is RequestStatus.CANCELLED
    assert len(server.gone_s) == 1
    assert abs(server.gone_s[0] - gone_s) < 0.5


def test_what_was_asked_for_and_when_the_first_byte_came_stand_in_the_record() -> None:
    with raw_server([(0.0, HEAD), (0.1, TOKEN), (0.0, FINISH)]) as server:
        record = send(server.url)
    assert (record.index, record.session, record.turn, record.document_valid) == (3, 1, 2, None)
    assert record.first_byte_s is not None
    assert record.sent_s < record.first_byte_s <= record.chunk_times_s[0] - 0.09


def test_a_request_without_a_byte_has_no_first_byte() -> None:
    with raw_server([(0.0, b"")], hangs=False) as server:
        record = send(server.url)
    assert (record.status, record.first_byte_s) == (RequestStatus.FAILED, None)


def test_the_answer_is_examined_outside_the_loop_without_its_reasoning_and_is_not_kept() -> None:
    seen = list[tuple[str, int]]()

    def examine(text: str) -> Findings:
        seen.append((text, threading.get_ident()))
        return Findings(num_tokens=11, is_valid=False)

    long = "zebra crossing " * 20
    parts = [delta(role="assistant"), delta(reasoning="quiet"), delta(content="zeb"), delta(content=long)]
    with raw_server([(0.0, HEAD + framed(*parts)), (0.0, FINISH)]) as server:
        record = send(server.url, examine=examine)
    assert seen[0][0] == "zeb" + long
    assert seen[0][1] != threading.get_ident()
    assert (record.output_tokens, record.token_count_source) == (None, TokenCountSource.UNKNOWN)  # reasoning counts too
    assert record.document_valid is False
    assert record.channels == "rcc"
    assert "zeb" not in repr(record)


def test_the_servers_own_count_comes_before_the_examiners() -> None:
    usage = framed({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 5}})
    with raw_server([(0.0, HEAD + TOKEN + usage), (0.0, FINISH)]) as server:
        record = send(server.url, examine=lambda _: Findings(num_tokens=11))
    assert (record.output_tokens, record.token_count_source) == (5, TokenCountSource.SERVER_USAGE)


def test_the_examiners_count_is_taken_where_nobody_else_counts() -> None:
    with raw_server([(0.0, HEAD + TOKEN), (0.0, FINISH)]) as server:
        record = send(server.url, examine=lambda _: Findings(num_tokens=11, is_valid=True))
    assert (record.output_tokens, record.token_count_source) == (11, TokenCountSource.TOKENIZER)
    assert record.document_valid is True


def test_an_empty_answer_is_examined_and_none_at_all_is_not() -> None:
    with raw_server([(0.0, HEAD + framed(delta(reasoning="hm"))), (0.0, FINISH)]) as server:
        record = send(server.url, examine=lambda text: Findings(is_valid=bool(text)))
    assert (record.status, record.channels) == (RequestStatus.COMPLETED, Channel.REASONING.letter)
    assert record.document_valid is False
    with raw_server([(0.0, b"")], hangs=False) as server:
        assert send(server.url, examine=lambda _: pytest.fail("there is nothing to examine")).document_valid is None


@on_each_loop
@pytest.mark.parametrize("stamps", StampSource)
def test_streams_over_tls_end_when_they_end(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, loop: Loop, stamps: StampSource
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with TruthServer(wrap=lambda plain: context.wrap_socket(plain, server_side=True)) as secure:
        for case, num_chunks in (("steady", 8), ("at_once", 8), ("closes_midway", 2), ("no_done", 8)):
            record = send(secure.url(case, "https"), loop, stamps)
            assert len(record.chunk_times_s) == num_chunks, case


def test_streams_that_begin_together_do_not_have_their_turns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    turns_s = list[float]()
    original = StreamFollower.take_turn

    def spy(follower: StreamFollower) -> None:
        turns_s.append(time.perf_counter())
        original(follower)

    monkeypatch.setattr(StreamFollower, "take_turn", spy)
    steps = [(0.0, HEAD), *[(0.1, TOKEN)] * 9, (0.0, FINISH)]

    async def together(server: RawServer) -> list[RequestRecord]:
        target = Target(server.url, endpoint=Endpoint.CHAT)
        sender, body = Sender(target, time.perf_counter, QUICK), target.build_body("river", 8)
        asks = [Ask(f"r{number}", "river", 8, time.perf_counter()) for number in range(8)]
        records = await asyncio.gather(*(sender.send(ask, body) for ask in asks))
        assert sender._rounds._timer is None
        assert not sender._rounds._joined
        return list(records)

    with raw_server(steps, num_connections=8) as server:
        records = asyncio.run(together(server))
    assert [len(record.chunk_times_s) for record in records] == [9] * 8
    assert len(turns_s) >= 8
    assert max(turns_s[:8]) - min(turns_s[:8]) > stream_follower.ROUND_S / 8
