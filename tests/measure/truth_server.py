"""An OpenAI-compatible server of exactly known behaviour, for tests of the client.

The first part of the path names the behaviour: http://127.0.0.1:PORT/steady answers as `steady` below. Every request
is logged with what was received and when each content chunk was handed to the socket, on the clock the client uses
too (time.perf_counter of the same machine), so that a test compares the client with what truly happened.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

PACE_S = 0.002
PATIENCE_S = 20.0
TLS_HELLO = b"\x16\x03"


class Stopped(Exception):
    """The server is being closed."""


@dataclass
class Request:
    case: str
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    content_sent_s: list[float] = field(default_factory=list)
    num_content_sent: int = 0
    finished: bool = False

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def is_sglang(self) -> bool:
        return self.path.endswith("/generate")

    @property
    def is_llama_cpp(self) -> bool:
        return self.path.endswith("/completion")

    @property
    def is_native(self) -> bool:
        return self.is_sglang or self.is_llama_cpp

    @property
    def num_tokens(self) -> int:
        if self.is_sglang:
            return int(self.body["sampling_params"]["max_new_tokens"])
        return int(self.body["n_predict" if self.is_llama_cpp else "max_tokens"])

    @property
    def prompt(self) -> str:
        if self.is_chat:
            return "\n".join(str(message["content"]) for message in self.body["messages"])
        return str(self.body["text" if self.is_sglang else "prompt"])


class Reply:
    """What a behaviour can do."""

    def __init__(
        self, connection: socket.socket, request: Request, stopping: threading.Event, requests: list[Request]
    ) -> None:
        self.request, self.requests = request, requests
        self._said, self._num_said = "", 0
        self._connection = connection
        self._stopping = stopping

    def raw(self, data: bytes) -> None:
        self._connection.sendall(data)

    def wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise Stopped

    def hang(self) -> None:
        """Say nothing more until the client goes away."""
        self._connection.settimeout(PATIENCE_S)
        if self._connection.recv(1):
            raise AssertionError("the client sent more than one request")

    def head(self, status: str = "200 OK", content_type: str = "text/event-stream", *more: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", "Transfer-Encoding: chunked", *more]
        self.raw("\r\n".join([*lines, "", ""]).encode())

    def body(self, data: bytes) -> None:
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, payload: object, counts: bool = False) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        if counts:
            self.request.content_sent_s.append(time.perf_counter())
        self.body(f"data: {text}\n\n".encode())
        self.request.num_content_sent += counts

    def role(self) -> None:
        if self.request.is_chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})

    def native(self, text: str, finish: str | None = None) -> dict[str, object]:
        """A payload of SGLang's or llama.cpp's own route, with the counts so far."""
        self._said += text
        counts = len(self.request.prompt.split()), self._num_said
        if self.request.is_sglang:
            reason = None if finish is None else {"type": finish}
            names = ("prompt_tokens", "completion_tokens")
            return {"text": self._said, "meta_info": dict(zip(names, counts, strict=True)) | {"finish_reason": reason}}
        fields: dict[str, object] = dict(zip(("tokens_evaluated", "tokens_predicted"), counts, strict=True))
        if finish is not None:
            fields["stop_type"] = "limit" if finish == "length" else "eos"
        return {"content": text, "stop": finish is not None} | fields

    def content(self, text: str = " a", **more: object) -> None:
        if self.request.is_native:
            self._num_said += 1
            self.event(self.native(text) | more, counts=True)
            return
        where = {"delta": {"content": text}} if self.request.is_chat else {"text": text}
        self.event({"choices": [{"index": 0, "finish_reason": None, **where}], **more}, counts=True)

    def tokens(self, count: int) -> None:
        for _ in range(count):
            self.wait(PACE_S)
            self.content()

    def finish(self, reason: str = "length") -> None:
        if self.request.is_native:
            self.event(self.native("", reason))
            return
        where: dict[str, object] = {"delta": {}} if self.request.is_chat else {"text": ""}
        self.event({"choices": [{"index": 0, "finish_reason": reason, **where}]})

    def usage(self, count: int | None = None) -> None:
        if self.request.is_native:  # its counts are in every chunk
            return
        self.event({"choices": [], "usage": self.usage_fields(count)})

    def usage_fields(self, count: int | None = None) -> dict[str, object]:
        generated = self.request.num_tokens if count is None else count
        prompt_tokens = len(self.request.prompt.split())
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
        }

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def done(self) -> None:
        if not self.request.is_llama_cpp:
            self.event("[DONE]")
        self.request.finished = True
        self.end()

    def json(self, status: str, value: object, *more: str) -> None:
        data = json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json; charset=utf-8", f"Content-Length: {len(data)}"]
        self.raw("\r\n".join([*lines, *more, "", ""]).encode() + data)

    def reset(self) -> None:
        """Abort the connection; what was sent before has arrived by then."""
        self.wait(0.05)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Behaviour = Callable[[Reply], None]
LISTING = frozenset({"steady", "slow", "unhurried", "at_once", "busy_with_two"})
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


@behaviour
def steady(reply: Reply) -> None:
    """Everything as it should be: max_tokens chunks of one token each, finish, usage, [DONE]."""
    reply.head()
    reply.role()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.usage()
    reply.done()


@behaviour
def slow(reply: Reply) -> None:
    """As steady, but 20 ms a token."""
    reply.head()
    for _ in range(reply.request.num_tokens):
        reply.wait(0.02)
        reply.content()
    reply.finish()
    reply.done()


@behaviour
def unhurried(reply: Reply) -> None:
    """As steady, but 60 ms a token."""
    reply.head()
    for _ in range(reply.request.num_tokens):
        reply.wait(0.06)
        reply.content()
    reply.finish()
    reply.usage()
    reply.done()


@behaviour
def at_once(reply: Reply) -> None:
    """As steady, but all in one write."""
    chunk = json.dumps({"choices": [{"index": 0, "text": "a"}]})
    events = [chunk] * reply.request.num_tokens
    events += [json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}), "[DONE]"]
    reply.head()
    reply.body("".join(f"data: {event}\n\n" for event in events).encode())
    reply.end()
    reply.request.finished = True


@behaviour
def late_first_token(reply: Reply) -> None:
    reply.head()
    reply.role()
    reply.wait(0.05)
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.usage()
    reply.done()


@behaviour
def four_tokens_a_chunk(reply: Reply) -> None:
    reply.head()
    for _ in range(reply.request.num_tokens // 4):
        reply.wait(4 * PACE_S)
        reply.content(" a b c d")
    reply.finish()
    reply.usage()
    reply.done()


@behaviour
def document(reply: Reply) -> None:
    """A document in pieces, one token each; the first and every second one is cut off. The server counts nothing."""
    cut = sum(request.case == "document" for request in reply.requests) % 2
    reply.head()
    for text in ('{"na', 'me": ', '"Ada', '"}')[: 3 if cut else 4]:
        reply.content(text)
    reply.finish("length" if cut else "stop")
    reply.done()


@behaviour
def thoughtful_document(reply: Reply) -> None:
    """A document that was thought about first, in words that are none."""
    reply.head()
    reply.event({"choices": [{"index": 0, "delta": {"reasoning_content": "not { a"}}]}, counts=True)
    reply.content('{"name": "Ada"}')
    reply.finish("stop")
    reply.done()


@behaviour
def stops_early(reply: Reply) -> None:
    """Half of the tokens that were asked for, then end of text."""
    count = reply.request.num_tokens // 2
    reply.head()
    reply.tokens(count)
    reply.finish("stop")
    reply.usage(count)
    reply.done()


@behaviour
def no_tokens(reply: Reply) -> None:
    reply.head()
    reply.finish("stop")
    reply.usage(0)
    reply.done()


@behaviour
def done_only(reply: Reply) -> None:
    reply.head()
    reply.done()


@behaviour
def no_usage(reply: Reply) -> None:
    reply.head()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.done()


@behaviour
def usage_in_every_chunk(reply: Reply) -> None:
    reply.head()
    for count in range(1, reply.request.num_tokens + 1):
        reply.content(usage=reply.usage_fields(count))
    reply.finish()
    reply.done()


@behaviour
def usage_null_then_twice(reply: Reply) -> None:
    reply.head()
    for _ in range(reply.request.num_tokens):
        reply.content(usage=None)
    reply.finish()
    reply.usage()
    reply.usage()
    reply.done()


@behaviour
def timings_without_usage(reply: Reply) -> None:
    """llama.cpp when usage was not asked for."""
    count = reply.request.num_tokens
    timings = {"cache_n": 3, "prompt_n": 5, "prompt_ms": 12.5, "predicted_n": count, "predicted_ms": 40.0}
    reply.head()
    reply.tokens(count)
    reply.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "timings": timings})
    reply.done()


@behaviour
def error_first(reply: Reply) -> None:
    reply.head()
    reply.event({"error": {"message": "out of\nmemory \x1b[31m", "type": "server_error", "code": 500}})
    reply.end()


@behaviour
def error_midway(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.event({"error": {"message": "the engine died", "code": 500}})
    reply.done()


@behaviour
def reset_midway(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.reset()


@behaviour
def reset_at_once(reply: Reply) -> None:
    reply.reset()


@behaviour
def reset_after_finish(reply: Reply) -> None:
    reply.head()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.reset()


@behaviour
def ends_without_finish(reply: Reply) -> None:
    """The body ends in order, but neither a finish reason nor [DONE] was in it."""
    reply.head()
    reply.tokens(2)
    reply.end()


@behaviour
def closes_midway(reply: Reply) -> None:
    """The connection is closed in the middle of the chunked body."""
    reply.head()
    reply.tokens(2)


@behaviour
def closes_before_status(reply: Reply) -> None:
    del reply


@behaviour
def no_done(reply: Reply) -> None:
    reply.head()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.usage()
    reply.end()


@behaviour
def stays_open_after_done(reply: Reply) -> None:
    reply.head()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    reply.usage()
    reply.event("[DONE]")
    reply.hang()


@behaviour
def late_done(reply: Reply) -> None:
    reply.head()
    reply.tokens(reply.request.num_tokens)
    reply.wait(0.1)
    reply.finish()
    reply.usage()
    reply.done()


@behaviour
def html(reply: Reply) -> None:
    reply.head("200 OK", "text/html; charset=utf-8")
    reply.body(b"<html>welcome</html>")
    reply.end()


@behaviour
def whole_json(reply: Reply) -> None:
    """A server that does not stream."""
    reply.json("200 OK", {"choices": [{"text": "generated words"}]})


@behaviour
def json_error(reply: Reply) -> None:
    reply.json("200 OK", {"error": "model not loaded"})


@behaviour
def compressed(reply: Reply) -> None:
    reply.head("200 OK", "text/event-stream", "Content-Encoding: gzip")
    reply.body(b"\x1f\x8b")
    reply.end()


@behaviour
def moved(reply: Reply) -> None:
    reply.head("301 Moved Permanently", "text/html", "Location: https://user:secret@example.com/v1?token=secret")
    reply.end()


@behaviour
def not_found(reply: Reply) -> None:
    reply.json("404 Not Found", {"error": {"message": "the model `x` does not exist", "type": "NotFoundError"}})


@behaviour
def busy(reply: Reply) -> None:
    reply.json("429 Too Many Requests", {"detail": "slow down"}, "Retry-After: 7")


@behaviour
def busy_with_two(reply: Reply) -> None:
    """Too busy for requests for two tokens, which no warm-up sends."""
    (busy if reply.request.num_tokens == 2 else steady)(reply)


@behaviour
def loading(reply: Reply) -> None:
    reply.json("503 Service Unavailable", {"error": {"message": "Loading model", "code": 503}})


@behaviour
def broken(reply: Reply) -> None:
    reply.head("500 Internal Server Error", "text/plain")
    reply.body(b"Traceback: secret")
    reply.end()


@behaviour
def echo(reply: Reply) -> None:
    """A refusal that repeats the key and the prompt."""
    key = reply.request.headers.get("authorization", "").removeprefix("Bearer ")
    reply.json("401 Unauthorized", {"error": {"message": f"bad key {key}; asked: {reply.request.prompt}"}})


@behaviour
def silent(reply: Reply) -> None:
    reply.hang()


@behaviour
def stalls(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.hang()


@behaviour
def trickles(reply: Reply) -> None:
    """Keep-alive comments for ever, and never a token."""
    reply.head()
    while True:
        reply.wait(0.01)
        reply.body(b": ping\n\n")


@behaviour
def huge_event(reply: Reply) -> None:
    reply.head()
    while True:
        reply.body(b"a" * 65536)


@behaviour
def huge_header(reply: Reply) -> None:
    reply.raw(b"HTTP/1.1 200 OK\r\n")
    while True:
        reply.raw(b"X-Padding: " + b"a" * 65536 + b"\r\n")


@behaviour
def endless(reply: Reply) -> None:
    reply.head()
    while True:
        reply.body(b": padding padding padding padding\n" * 1000)


@behaviour
def not_http(reply: Reply) -> None:
    reply.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    reply.hang()


@behaviour
def broken_framing(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.raw(b"zz not a chunk size\r\n")
    reply.hang()


@behaviour
def broken_json(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.event('{"choices": [')
    reply.hang()


@behaviour
def usage_nan(reply: Reply) -> None:
    reply.head()
    reply.tokens(2)
    reply.event('{"choices": [], "usage": {"prompt_tokens": NaN, "completion_tokens": 2}}')
    reply.hang()


@behaviour
def refuses_extras(reply: Reply) -> None:
    """Steady, except for requests with a field it does not know, of which it names one at a time."""
    for name in ("ignore_eos", "cache_prompt"):
        if name in reply.request.body:
            entry = {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}
            reply.json("422 Unprocessable Entity", {"detail": [entry]})
            return
    steady(reply)


@behaviour
def refuses_chunk_counts(reply: Reply) -> None:
    """Steady, except for requests that want a count in each chunk; it does not say which field it minds."""
    if "timings_per_token" in reply.request.body or "continuous_usage_stats" in reply.request.body["stream_options"]:
        reply.json("400 Bad Request", {"error": {"message": "Unsupported parameter"}})
        return
    steady(reply)


@behaviour
def refuses_usage(reply: Reply) -> None:
    if "stream_options" in reply.request.body:
        reply.json("400 Bad Request", {"error": {"message": "Unrecognized request argument supplied: stream_options"}})
        return
    no_usage(reply)


@behaviour
def too_long(reply: Reply) -> None:
    reply.json("400 Bad Request", {"error": {"message": "request (5001 tokens) exceeds the available context size"}})


@behaviour
def describes_itself(reply: Reply) -> None:
    """For single JSON exchanges."""
    answers: dict[str, object] = {"/v1/models": {"data": [{"id": "tiny"}]}, "/tokenize": {"got": reply.request.body}}
    path = reply.request.path.removeprefix("/describes_itself")
    if path in answers:
        reply.json("200 OK", answers[path])
    elif path == "/big":
        reply.head("200 OK", "application/json")
        while True:
            reply.body(b" " * 65536)
    elif path == "/bad":
        reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{NaN")
    else:
        reply.json("404 Not Found", {"error": {"message": "File Not Found", "code": 404}})


@behaviour
def tokenizes(reply: Reply) -> None:
    """Steady, in a vocabulary that has a name for most words; it is asked for as vLLM is."""
    _tokenizes(reply, "prompt")


@behaviour
def tokenizes_like_llama_cpp(reply: Reply) -> None:
    _tokenizes(reply, "content")


@behaviour
def counts_long_words_twice(reply: Reply) -> None:
    """As `tokenizes`, but only requests say how many tokens a text is."""
    _steady_in_vocabulary(reply)


def _tokenizes(reply: Reply, text_field: str) -> None:
    if not reply.request.path.endswith("/tokenize"):
        _steady_in_vocabulary(reply)
        return
    num_tokens = count_tokens(reply.request.body.get(text_field, ""))
    named = {"count": num_tokens} if text_field == "prompt" else {}
    reply.json("200 OK", {"tokens": list(range(num_tokens)), **named})


def _steady_in_vocabulary(reply: Reply) -> None:
    """Two tokens of template and three around each message; a chat without a system message has one of 20 tokens."""
    messages = reply.request.body.get("messages", [{"role": "system", "content": reply.request.prompt}])
    prompt_tokens = 2 + sum(3 + count_tokens(message["content"]) for message in messages)
    prompt_tokens += 0 if messages[0]["role"] == "system" else 20
    reply.head()
    reply.role()
    reply.tokens(reply.request.num_tokens)
    reply.finish()
    counts = reply.usage_fields() | {"prompt_tokens": prompt_tokens}
    reply.event({"choices": [], "usage": counts})
    reply.done()


def count_tokens(text: str) -> int:
    """A word is a token, and a long one two: long is over 6 letters where a line begins, over 8 elsewhere."""
    lines = [line.split(" ") for line in text.split("\n")] if text else []
    in_lines = sum(1 + (len(words[0]) > 6) + sum(1 + (len(word) > 8) for word in words[1:]) for words in lines)
    return in_lines + max(0, len(lines) - 1)


TOKENIZING = ("tokenizes", "tokenizes_like_llama_cpp", "describes_itself")


class TruthServer:
    """Runs in threads of this process until the `with` block ends; `dies_after` closes its port after so many."""

    def __init__(
        self, dies_after: int | None = None, wrap: Callable[[socket.socket], socket.socket] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self._dies_after = dies_after
        self._wrap = wrap
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]

    def url(self, case: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/{case}"

    def of(self, case: str) -> list[Request]:
        return [request for request in self.requests if request.case == case]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()

    def _accept(self) -> None:
        num_accepted = 0
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()
            num_accepted += 1
            if num_accepted == self._dies_after:
                self._listener.close()
                return

    def _serve(self, plain: socket.socket) -> None:
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(PATIENCE_S)
            with plain if self._wrap is None else self._wrap(plain) as connection:
                request = _read_request(connection)
                reply = Reply(connection, request, self._stopping, self.requests)
                if request.path.endswith("/tokenize") and request.case not in TOKENIZING:
                    reply.json("404 Not Found", {"detail": "Not Found"})  # as most servers have no such route
                    return
                if request.method == "GET" and request.path.endswith("/v1/models") and request.case in LISTING:
                    reply.json("200 OK", {"data": [{"id": "m"}]})  # a question, and no part of a load
                    return
                self.requests.append(request)
                BEHAVIOURS[request.case](reply)
        except (OSError, Stopped):
            plain.close()


def _read_request(connection: socket.socket) -> Request:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
        if received.startswith(TLS_HELLO):
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionResetError
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += _receive(connection)
    method, path, _ = first.split()
    return Request(path.split("/")[1], method, path, headers, json.loads(body) if body else {})


def _receive(connection: socket.socket) -> bytes:
    if not (part := connection.recv(65536)):
        raise ConnectionResetError
    return part


if __name__ == "__main__":
    with TruthServer() as server:
        print(server.url(""), flush=True)
        threading.Event().wait()
