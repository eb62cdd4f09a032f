"""Responses out of their framing: cut at every byte, against the standard library's reader, and what must be refused."""

from __future__ import annotations

import http.client
import io
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.conform.table import ALL_CASES
from inference_bench.measure.framing import MAX_HEADER_BYTES, MAX_LINE_BYTES, Head, ReplyReader
from inference_bench.measure.wire import ExchangeError, FailureKind

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
STREAM = Head(200, "text/event-stream", "identity", "")


class OfBytes:
    """What http.client takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def makefile(self, _mode: str) -> io.BytesIO:
        return self._file


def body_by_the_standard_library(data: bytes) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(OfBytes(data))  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read()


def read(parts: Iterable[bytes], is_closed: bool = False) -> tuple[Head | None, bytes, bool, str | None]:
    """Head, body, whether it is complete, and what was wrong."""
    reader, body = ReplyReader(), b""
    for part in parts:
        body += reader.feed(part)
    failure = reader.failure
    if is_closed and failure is None:
        try:
            reader.end()
        except ExchangeError as error:
            failure = error
    return reader.head, body, reader.is_complete, None if failure is None else str(failure)


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


WHOLE = {
    "chunked": CHUNKED + chunk(b"data: a\n\n") + chunk(b"data: b\r\n\r\n") + b"0\r\n\r\n",
    "extensions": CHUNKED + chunk(b"abc", b';name="value"') + chunk(b"de", b" ; x") + b"000\r\n\r\n",
    "trailers": CHUNKED + chunk(b"abc") + b"0;last\r\nX-Sum: 5\r\nY: 6\r\n\r\n",
    "capital sizes": CHUNKED + b"A\r\n" + b"0123456789" + b"\r\n0A\r\n" + b"9876543210" + b"\r\n0\r\n\r\n",
    "large chunk": CHUNKED + chunk(b"x" * 3000) + b"0\r\n\r\n",
    "length": HEAD + b"Content-Length: 11\r\n\r\nhello world",
    "length twice": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "length of nothing": HEAD + b"Content-Length: 0\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + CHUNKED + b"0\r\n\r\n",
    "bare line feeds in the head": b"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nContent-Length: 3\n\nabc",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na",
    "no content": b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    "chunked wins": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunk(b"abcdef") + b"0\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nX-Long: a\r\n  b\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_response_cut_at_any_byte_has_the_body_that_the_standard_library_finds(name: str) -> None:
    data = WHOLE[name]
    status, body = body_by_the_standard_library(data)
    whole = read([data])
    assert (whole[1:], whole[0] and whole[0].status) == ((body, True, None), status)
    for cut in range(len(data) + 1):
        assert read([data[:cut], data[cut:]]) == whole, cut
    assert read(data[at : at + 1] for at in range(len(data))) == whole


@pytest.mark.parametrize("name", WHOLE)
def test_a_response_that_stops_early_is_never_complete(name: str) -> None:
    data = WHOLE[name]
    for cut in range(len(data)):
        _, _, is_complete, said = read([data[:cut]], is_closed=True)
        assert (is_complete, said) == (False, "the server closed the connection"), cut


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    extensions=st.lists(st.sampled_from([b"", b";a", b'; b="c"', b" "]), min_size=8, max_size=8),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
)
def test_any_chunks_cut_anywhere_give_the_bytes_that_were_sent(
    pieces: list[bytes], extensions: list[bytes], cuts: list[int]
) -> None:
    framed = b"".join(chunk(piece, extension) for piece, extension in zip(pieces, extensions, strict=False))
    data = CHUNKED + framed + b"0\r\n\r\n"
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert read(data[begin:end] for begin, end in pairwise(edges)) == (STREAM, b"".join(pieces), True, None)


@pytest.mark.parametrize(
    "case", [case for case in ALL_CASES if b"event-stream" in case.script.head], ids=lambda case: case.name
)
def test_every_reply_of_the_conformance_suite_gives_its_stream_however_it_is_cut(case: object) -> None:
    script = case.script  # type: ignore[attr-defined]
    data = script.head + b"".join(step.wire for step in script.steps)
    whole = read([data])
    assert whole[1].startswith(script.stream[:100])
    step = 1 if len(data) < 2000 else 997
    for cut in range(0, len(data), step):
        assert read([data[:cut], data[cut:]]) == whole
    assert read(data[at : at + 1] for at in range(min(len(data), 400_000)))[:3] == whole[:3]


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    assert read([HEAD + b"\r\nab", b"c"]) == (STREAM, b"abc", False, None)
    assert read([HEAD + b"\r\nab", b"c"], is_closed=True) == (STREAM, b"abc", True, None)


def test_what_follows_a_complete_response_is_dropped() -> None:
    for whole in (CHUNKED + chunk(b"ab") + b"0\r\n\r\n", HEAD + b"Content-Length: 2\r\n\r\nab"):
        assert read([whole + b"HTTP/1.1 500 no\r\n\r\n", b"more"]) == (STREAM, b"ab", True, None)


def test_a_head_says_what_it_says_and_repeats_no_secret() -> None:
    data = b"HTTP/1.1 307 sk-secret\r\nLocation: /x\r\nContent-Encoding: GZIP\r\nContent-Type: sk secret/1\r\n\r\n"
    assert read([data])[0] == Head(307, "", "gzip", "/x")


BROKEN = {
    "no status line": (b"SSH-2.0-OpenSSH\r\n", "does not begin with a status line"),
    "garbage": (b"\x16\x03\x01\x00\xff", "does not begin with a status line"),
    "zeros": (b"\x00" * 100, "does not begin with a status line"),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", "does not begin with a status line"),
    "no number": (b"HTTP/1.1 abc OK\r\n\r\n", "does not begin with a status line"),
    "nul in the status": (b"HTTP/1.1 200 O\x00K\r\n\r\n", "does not begin with a status line"),
    "two digits": (b"HTTP/1.1 20 OK\r\n\r\n", "does not begin with a status line"),
    "nul in a header": (b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", "a header is none"),
    "no colon": (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "a header is none"),
    "space before the colon": (b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n", "a header is none"),
    "starts folded": (b"HTTP/1.1 200 OK\r\n X: a\r\n\r\n", "a header is none"),
    "other protocol": (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "changes the protocol"),
    "gzip coding": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "transfer coding is not chunked"),
    "negative length": (HEAD + b"Content-Length: -5\r\n\r\n", "length is not one number"),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "length is not one number"),
    "huge length": (HEAD + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n", "length is not one number"),
    "words for a length": (HEAD + b"Content-Length: 0x10\r\n\r\n", "length is not one number"),
    "negative chunk": (CHUNKED + b"-5\r\nhello\r\n", "a chunk has no size"),
    "signed chunk": (CHUNKED + b"+5\r\nhello\r\n", "a chunk has no size"),
    "prefixed chunk": (CHUNKED + b"0x5\r\nhello\r\n", "a chunk has no size"),
    "underscored chunk": (CHUNKED + b"1_0\r\n", "a chunk has no size"),
    "huge chunk": (CHUNKED + b"F" * 17 + b"\r\n", "a chunk has no size"),
    "empty size": (CHUNKED + b"\r\n", "a chunk has no size"),
    "words": (CHUNKED + b"zz not a size\r\n", "a chunk has no size"),
    "nul extension": (CHUNKED + b"5;\x00\r\nhello\r\n", "a chunk has no size"),
    "endless size": (CHUNKED + b"0" * MAX_LINE_BYTES, "a chunk has no size"),
    "too short": (CHUNKED + b"5\r\nhello world\r\n", "not as long as it says"),
    "line feed alone": (CHUNKED + b"5\r\nhello\n", "not as long as it says"),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "headers are larger than 65536 bytes"),
    "endless header": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "headers are larger than 65536 bytes"),
    "endless hints": (b"HTTP/1.1 103 Hints\r\nX: y\r\n\r\n" * 4000, "headers are larger than 65536 bytes"),
    "endless trailers": (CHUNKED + b"0\r\n" + b"X: y\r\n" * 20_000, "trailers are larger than 65536 bytes"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_http_is_refused_in_one_line_and_nothing_more_is_read(name: str) -> None:
    data, why = BROKEN[name]
    for parts in ([data], [data[at : at + 1000] for at in range(0, len(data), 1000)]):
        reader = ReplyReader()
        for part in parts:
            reader.feed(part)
        assert reader.failure is not None
        assert reader.failure.kind is FailureKind.BROKEN
        assert str(reader.failure).startswith("the reply breaks the rules of HTTP/1.1: ")
        assert why in str(reader.failure)
        assert str(reader.failure).isprintable()
        assert len(str(reader.failure)) < 120
        assert reader.feed(CHUNKED + chunk(b"late")) == b""
        assert not reader.is_complete


def test_chunks_before_a_broken_one_are_handed_out() -> None:
    reader = ReplyReader()
    assert reader.feed(CHUNKED + chunk(b"ab") + chunk(b"cd") + b"zz\r\n") == b"abcd"
    assert reader.failure is not None


def test_a_chunk_of_any_size_passes_through_without_being_kept() -> None:
    reader = ReplyReader()
    reader.feed(CHUNKED + b"7FFFFFFFFFFFFFFF\r\n")
    piece = b"x" * 8192
    tracemalloc.start()
    try:
        num_bytes = sum(len(reader.feed(piece)) for _ in range(2000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (num_bytes, reader.failure, reader.is_complete) == (2000 * 8192, None, False)
    assert peak_bytes < 200_000


PIECES = [b"\r\n", b"\n", b"0", b"5", b"ff", b":", b";", b" ", b"\x00", b"HTTP/1.1 ", b"200"]


@settings(max_examples=300, deadline=None)
@given(
    noise=st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=30),
    in_body=st.booleans(),
    cut=st.integers(0, 200),
)
def test_any_bytes_are_read_or_refused_alike_however_they_are_cut(noise: list[bytes], in_body: bool, cut: int) -> None:
    data = (CHUNKED if in_body else b"") + b"".join(noise)
    reader = ReplyReader()
    reader.feed(data[:cut])
    reader.feed(data[cut:])
    whole = read([data])
    assert (reader.head, reader.is_complete, str(reader.failure)) == (whole[0], whole[2], str(whole[3]))
    assert reader.failure is None or len(reader.failure.args[0]) < MAX_HEADER_BYTES


LENGTH = b"Content-Length: 2\r\n\r\nok"
ANOTHER_MAY_FOLLOW = {
    "a length": (HEAD + LENGTH, True),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    "a length of nothing": (HEAD + b"Content-Length: 0\r\n\r\n", True),
    "chunks": (CHUNKED + chunk(b"ok") + b"0\r\n\r\n", True),
    "trailers": (CHUNKED + chunk(b"ok") + b"0\r\nX-Sum: 5\r\n\r\n", True),
    "interim": (b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n" + HEAD + LENGTH, True),
    "it says so": (HEAD + b"Connection: keep-alive\r\n" + LENGTH, True),
    "it says no": (HEAD + b"Connection: close\r\n" + LENGTH, False),
    "it says no in capitals and among others": (HEAD + b"Connection: x\r\nConnection: CLOSE , y\r\n" + LENGTH, False),
    "an old one": (HEAD.replace(b"1.1", b"1.0") + LENGTH, False),
    "an old one that says so": (HEAD.replace(b"1.1", b"1.0") + b"Connection: Keep-Alive\r\n" + LENGTH, True),
    "an old one with chunks": (CHUNKED.replace(b"1.1", b"1.0", 1) + chunk(b"ok") + b"0\r\n\r\n", False),
    "two lengths": (
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"ok") + b"0\r\n\r\n",
        False,
    ),
    "until the end": (HEAD + b"\r\nok", False),
    "a chunk too long": (CHUNKED + b"1\r\nok\r\n0\r\n\r\n", False),
    "more than a length": (HEAD + LENGTH + b"H", False),
    "more than no body": (b"HTTP/1.1 204 No Content\r\n\r\nH", False),
    "more than a length of nothing": (HEAD + b"Content-Length: 0\r\n\r\nH", False),
    "more than chunks": (CHUNKED + chunk(b"ok") + b"0\r\n\r\nH", False),
}


@pytest.mark.parametrize("name", ANOTHER_MAY_FOLLOW)
def test_another_response_may_follow_one_that_has_an_end_of_its_own_and_nothing_after_it(name: str) -> None:
    data, expected = ANOTHER_MAY_FOLLOW[name]
    for cut in range(len(data) + 1):
        reader = ReplyReader()
        assert not reader.keeps_connection
        reader.feed(data[:cut])
        reader.feed(data[cut:])
        reader.feed(b"")
        assert (reader.keeps_connection and reader.is_complete) is expected, cut
