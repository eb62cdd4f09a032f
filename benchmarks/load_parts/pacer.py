"""A server that paces every stream to absolute times, logs every send and stamps every request by the kernel's clock.

Runs as a process of its own: `python pacer.py` prints its port and serves until stdin closes. The first part of the path
says how: /paced,first=0.05,gap=0.01/... (streams each with a phase of its own), /lockstep,..., /firehose/..., /null/...,
as conform/pacing.py reads them. One thread: what is due is sent, and in between requests are read. /_log is
what was sent when, on the clock of time.perf_counter_ns, which all processes of a Linux machine share; /_clear forgets it.
Connections are kept alive. Each token is one event of about 230 bytes in an HTTP chunk of its own, as vLLM sends them.
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from inference_bench.conform.pacing import FIREHOSE, LOCKSTEP, NULL, Pace, parse_pace

PRIORITY = 10
BURST = 16  # events in one send of the firehose
GOLDEN = 0.618034  # phases that fill a gap evenly, whatever the number of streams
ANCILLARY_BYTES = socket.CMSG_SPACE(16)
STAMP = getattr(socket, "SO_TIMESTAMPNS", 35)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(*payloads: str) -> bytes:
    data = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(is_chat: bool, text: str, finish: str | None, usage: dict[str, int] | None = None) -> str:
    delta = {"delta": {"content": text}} if is_chat else {"text": text, "stop_reason": None}
    choice = {"index": 0, **delta, "logprobs": None, "finish_reason": finish}
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    head = {"id": "cmpl-0123456789abcdef0123456789abcdef", "object": kind, "created": 1796000000, "model": "conform"}
    return json.dumps({**head, "choices": [] if usage else [choice], "usage": usage})


TOKENS = {is_chat: framed(event(is_chat, " a", None)) for is_chat in (True, False)}


def count_words(asked: dict[str, object]) -> int:
    """The tokens of a prompt, as this server counts them."""
    messages = asked.get("messages")
    texts = (
        [str(each["content"]) for each in messages] if isinstance(messages, list) else [str(asked.get("prompt", ""))]
    )
    return sum(len(text.split()) for text in texts)


def closing(is_chat: bool, prompt_tokens: int, count: int) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
    finish, counts = event(is_chat, "", "length"), event(is_chat, "", None, usage)
    return framed(finish) + framed(counts) + framed("[DONE]") + b"0\r\n\r\n"


@dataclass(slots=True)
class Stream:
    """One reply that is being sent."""

    peer: Peer
    pace: Pace
    is_chat: bool
    left: int
    arrived_ns: int
    due_ns: int
    count: int
    prompt_tokens: int
    number: int
    sends_ns: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Peer:
    """One connection; `unsent` waits for room in the socket."""

    socket: socket.socket
    received: bytes = b""
    unsent: bytes = b""
    stream: Stream | None = None


class Pacer:
    """The server; one thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setsockopt(socket.SOL_SOCKET, STAMP, 1)  # those accepted are born with it
        self.listener.setblocking(False)
        self.ready = select.epoll()
        self.ready.register(self.listener, select.EPOLLIN)
        self.ready.register(0, select.EPOLLIN | select.EPOLLHUP)
        self.peers: dict[int, Peer] = {}
        self.due: list[tuple[int, int, Stream]] = []
        self.log: list[Stream] = []
        self.num_streams = 0
        self.epoch_ns = time.perf_counter_ns()

    def serve(self) -> None:
        """Until stdin closes."""
        while True:
            wait_s = max(0, self.due[0][0] - time.perf_counter_ns()) / 1e9 if self.due else None
            if select.select([self.ready], [], [], wait_s)[0]:
                for descriptor, happened in self.ready.poll(0):
                    if descriptor == 0:
                        return
                    self.attend(descriptor, happened)
            now_ns = time.perf_counter_ns()
            while self.due and self.due[0][0] <= now_ns:
                self.send(heapq.heappop(self.due)[2])

    def attend(self, descriptor: int, happened: int) -> None:
        if descriptor == self.listener.fileno():
            with suppress(BlockingIOError):
                while True:
                    accepted, _ = self.listener.accept()
                    accepted.setblocking(False)
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.peers[accepted.fileno()] = Peer(accepted)
                    self.ready.register(accepted, select.EPOLLIN)
            return
        peer = self.peers[descriptor]
        try:
            if happened & select.EPOLLOUT:
                self.write(peer, b"")
            if happened & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self.read(peer)
        except OSError:
            self.forget(peer)

    def read(self, peer: Peer) -> None:
        offset_ns = time.time_ns() - time.perf_counter_ns()
        data, ancillary, _, _ = peer.socket.recvmsg(65536, ANCILLARY_BYTES)
        if not data:
            raise ConnectionError
        arrived_ns = next(
            (
                struct.unpack("qq", value)[0] * 10**9 + struct.unpack("qq", value)[1] - offset_ns
                for *_, value in ancillary
            ),
            time.perf_counter_ns(),
        )
        peer.received += data
        top, _, body = peer.received.partition(b"\r\n\r\n")
        if b"\r\n\r\n" not in peer.received:
            return
        first, *lines = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) >= int(headers.get("content-length", "0")):
            peer.received = b""
            method, path, _ = first.split()
            self.answer(peer, method, path, body, arrived_ns)

    def answer(self, peer: Peer, method: str, path: str, body: bytes, arrived_ns: int) -> None:
        if method == "POST" and path.endswith("/completions"):
            asked = json.loads(body)
            count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 1)
            pace = parse_pace(path.split("/")[1])
            if pace is not None:
                self.begin(
                    Stream(
                        peer, pace, "/chat/" in path, count, arrived_ns, 0, count, count_words(asked), self.num_streams
                    )
                )
                return
        status, found = "404 Not Found", b"{}"
        if path == "/_log":
            status, found = "200 OK", json.dumps([[each.arrived_ns, each.sends_ns] for each in self.log]).encode()
        elif path == "/_clear":
            self.log, status = [], "200 OK"
        elif path.endswith("/models"):
            status, found = (
                "200 OK",
                b'{"object": "list", "data": [{"id": "conform", "object": "model", "created": 1}]}',
            )
        elif path.endswith("/health"):
            status = "200 OK"
        self.write(
            peer,
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(found)}\r\n\r\n".encode()
            + found,
        )

    def begin(self, stream: Stream) -> None:
        """Send the head now, and plan the first token."""
        pace, number = stream.pace, stream.number
        self.num_streams += 1
        self.log.append(stream)
        stream.peer.stream = stream
        gap_ns = round(pace.gap * 1e9)
        stream.due_ns = stream.arrived_ns
        if pace.mode == LOCKSTEP:
            stream.due_ns += round(pace.first * 1e9)
            stream.due_ns += (self.epoch_ns - stream.due_ns) % gap_ns
        elif pace.mode not in (FIREHOSE, NULL):
            stream.due_ns += round(pace.first * 1e9) + round(number * GOLDEN % 1 * gap_ns)
        if pace.mode == NULL:
            stream.left = stream.count = 1
        self.write(stream.peer, HEAD)
        heapq.heappush(self.due, (stream.due_ns, number, stream))

    def send(self, stream: Stream) -> None:
        """What is due of a stream, and plan what follows."""
        if stream.peer.stream is not stream:
            return  # its client went away
        is_firehose = stream.pace.mode == FIREHOSE
        num = min(BURST, stream.left) if is_firehose else 1
        stream.left -= num
        data = TOKENS[stream.is_chat] * num
        if not stream.left:
            stream.peer.stream = None
            if is_firehose or stream.pace.mode == NULL:
                data += closing(stream.is_chat, stream.prompt_tokens, stream.count)
        stream.sends_ns += [time.perf_counter_ns()] * num
        try:
            self.write(stream.peer, data)
            if not stream.left and not is_firehose and stream.pace.mode != NULL:
                self.write(stream.peer, closing(stream.is_chat, stream.prompt_tokens, stream.count))
        except OSError:
            self.forget(stream.peer)
            return
        if stream.left:
            stream.due_ns += 0 if is_firehose else round(stream.pace.gap * 1e9)
            if not stream.peer.unsent:  # otherwise it goes on once there is room
                heapq.heappush(self.due, (stream.due_ns, stream.number, stream))

    def write(self, peer: Peer, data: bytes) -> None:
        was_waiting, data = bool(peer.unsent), peer.unsent + data
        try:
            sent = peer.socket.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        peer.unsent = data[sent:]
        if bool(peer.unsent) != was_waiting:
            self.ready.modify(peer.socket, select.EPOLLIN | (select.EPOLLOUT if peer.unsent else 0))
        if was_waiting and not peer.unsent and peer.stream is not None:
            heapq.heappush(self.due, (peer.stream.due_ns, peer.stream.number, peer.stream))

    def forget(self, peer: Peer) -> None:
        peer.stream = None
        self.peers.pop(peer.socket.fileno(), None)
        with suppress(OSError):
            self.ready.unregister(peer.socket)
        peer.socket.close()


def main() -> None:
    """With `real-time` as argument ahead of everything else on the machine, where that is allowed."""
    gc.disable()
    pacer = Pacer()
    is_ahead = False
    if "real-time" in sys.argv:
        with suppress(PermissionError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
            is_ahead = True
    print(pacer.listener.getsockname()[1], "real-time" if is_ahead else "normal", flush=True)
    pacer.serve()


if __name__ == "__main__":
    main()
