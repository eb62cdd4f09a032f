"""Bytes that no honest server sends end an exchange, and nothing else."""

from __future__ import annotations

import pytest

from inference_bench.measure.target import Target
from inference_bench.operate.contract.wire import NoReplyError, Wire
from measure.raw_server import raw_server


def chunk_below_0(content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"-5\r\nabc\r\n"


def test_a_reply_with_a_chunk_of_a_size_below_0_is_no_reply() -> None:
    with raw_server([(0, chunk_below_0("application/json"))]) as server:
        wire = Wire(Target(server.url), 2.0, 5.0)
        with pytest.raises(NoReplyError, match="a chunk has no size"):
            wire.ask("POST", "/v1/completions", b"{}")


def drain(wire: Wire) -> None:
    with wire.stream("/v1/completions", b"{}") as (found, payloads):
        assert found.is_stream
        list(payloads)


def test_a_stream_with_a_chunk_of_a_size_below_0_breaks_off() -> None:
    with raw_server([(0, chunk_below_0("text/event-stream"))]) as server:
        wire = Wire(Target(server.url), 0.5, 5.0)
        with pytest.raises(NoReplyError, match="a chunk has no size"):
            drain(wire)
