"""What does the truth server say, byte for byte, and when: a script for one reply, and the pen that writes one.

In:   nothing; scripts are plain immutable values
Out:  Step, Script and Case; Story, with which the *_cases write theirs; CASES grows as those modules are imported
Leaves out: sockets and clocks (server.py), what is right (oracle.py)
Read next by: shape_cases, framing_cases, fault_cases, server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

TOKENS: Final = 8  # what every case is asked for
FIRST_S: Final = 0.06
GAP_S: Final = 0.02
LF: Final = b"\n"

_STREAM: Final = "Content-Type: text/event-stream; charset=utf-8"
_CHUNKED: Final = "Transfer-Encoding: chunked"
_CLOSE: Final = "Connection: close"
LAST_CHUNK: Final = b"0\r\n\r\n"


class Ending(StrEnum):
    """What becomes of the connection after the last step."""

    CLOSE = "close"
    RESET = "reset"  # an RST, once everything before has had time to arrive
    HANG = "hang"  # nothing more, until the client goes away


@dataclass(frozen=True, slots=True)
class Step:
    """One send.

    Where:    at_s counts from when the request was read; `wire` goes to the socket; `body` is what that completes of
              the reply's body; chunks has the tokens of each content event that this send completes
    """

    at_s: float
    wire: bytes
    body: bytes = b""
    chunks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """One whole reply."""

    head: bytes
    steps: tuple[Step, ...]
    ending: Ending = Ending.CLOSE

    @property
    def stream(self) -> bytes:
        """The body without its HTTP framing."""
        return b"".join(step.body for step in self.steps)


@dataclass(frozen=True, slots=True)
class Case:
    """A named script, the module it stands in, and how it has to be asked for."""

    name: str
    summary: str
    source: str
    script: Script
    is_chat: bool = True
    timeout_s: float = 10.0


CASES: Final[dict[str, Case]] = {}


def case(*, is_chat: bool = True, timeout_s: float = 10.0) -> Callable[[Callable[[], Script]], Callable[[], Script]]:
    """Name the script that a function writes: its name is the case's, its docstring says what is special."""

    def add(write: Callable[[], Script]) -> Callable[[], Script]:
        name, summary = write.__name__, (write.__doc__ or "").strip()
        CASES[name] = Case(name, summary, write.__module__, write(), is_chat, timeout_s)
        return write

    return add


def head(status: str = "200 OK", *lines: str) -> bytes:
    """A status line and headers; without `lines` those of a chunked event stream that closes."""
    lines = lines or (_STREAM, _CHUNKED, _CLOSE)
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def framed(data: bytes, extension: bytes = b"") -> bytes:
    """Bytes as one HTTP chunk."""
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def refusal(status: str, body: bytes, content_type: str, *lines: str) -> Script:
    """A whole reply that is no stream."""
    top = head(status, f"Content-Type: {content_type}", f"Content-Length: {len(body)}", _CLOSE, *lines)
    return Script(top, (Step(0.0, body, body),))


class Story:
    """Writes a script event by event; each comes at `now_s`, which `pause` moves on."""

    def __init__(self, *, line_end: bytes = LF, field: bytes = b"data: ", is_chat: bool = True) -> None:
        self.now_s = 0.0
        self.steps: list[Step] = []
        self._line_end, self._field, self._is_chat = line_end, field, is_chat

    def pause(self, seconds: float) -> Self:
        """Let time pass."""
        self.now_s += seconds
        return self

    def raw(self, wire: bytes, body: bytes = b"", *chunks: int) -> Self:
        """Send bytes as they are."""
        self.steps.append(Step(self.now_s, wire, body, chunks))
        return self

    def text(self, body: bytes, *chunks: int) -> Self:
        """A piece of the body, in an HTTP chunk of its own."""
        return self.raw(framed(body), body, *chunks)

    def encode(self, payload: object) -> bytes:
        """One event's bytes."""
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        lines = (self._field + line for line in text.encode().split(LF))
        return self._line_end.join([*lines, b"", b""])

    def event(self, payload: object, *chunks: int) -> Self:
        """One event in one send."""
        return self.text(self.encode(payload), *chunks)

    def chunk(self, text: str = " a", finish: str | None = None, **more: object) -> dict[str, object]:
        """The payload of one content event of the route."""
        where: dict[str, object] = {"delta": {"content": text}} if self._is_chat else {"text": text}
        choice = {"index": 0, **where, "logprobs": None, "finish_reason": finish}
        return {"id": "cmpl-1", "object": self.kind, "created": 1, "model": "conform", "choices": [choice], **more}

    @property
    def kind(self) -> str:
        """The object name of the route's events."""
        return "chat.completion.chunk" if self._is_chat else "text_completion"

    def delta(self, delta: object, *chunks: int, **more: object) -> Self:
        """One chat event with this delta."""
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return self.event({"id": "cmpl-1", "object": self.kind, "choices": [choice], **more}, *chunks)

    def role(self, content: str | None = "") -> Self:
        """The opening event of a chat reply, which holds no token."""
        return self.delta({"role": "assistant", "content": content}) if self._is_chat else self

    def tokens(self, count: int = TOKENS, **more: object) -> Self:
        """Events of one token each, the first after FIRST_S unless time has passed already."""
        for _ in range(count):
            self.tick().event(self.chunk(" a", None, **more), 1)
        return self

    def tick(self) -> Self:
        """Move on to the next token's time."""
        return self.pause(GAP_S if self.now_s >= FIRST_S else FIRST_S - self.now_s)

    def finish(self, reason: str = "length", **more: object) -> Self:
        """The event with the finish reason, without content."""
        return self.event(self.chunk("", reason, **more) if not self._is_chat else self._chat_finish(reason, more))

    def _chat_finish(self, reason: str, more: dict[str, object]) -> dict[str, object]:
        choice = {"index": 0, "delta": {}, "finish_reason": reason}
        return {"id": "cmpl-1", "object": self.kind, "choices": [choice], **more}

    def usage(self, count: int = TOKENS) -> Self:
        """The event with empty choices and the server's counts."""
        return self.event({"id": "cmpl-1", "object": self.kind, "choices": [], "usage": usage_of(count)})

    def done(self) -> Self:
        """The closing event and the end of the body."""
        return self.event("[DONE]").raw(LAST_CHUNK)

    def close(self, count: int = TOKENS) -> Self:
        """Finish reason, counts, closing event."""
        return self.finish().usage(count).done()

    def script(self, ending: Ending = Ending.CLOSE, top: bytes | None = None) -> Script:
        """What was written."""
        return Script(head() if top is None else top, tuple(self.steps), ending)


def usage_of(count: int, prompt_tokens: int = 5) -> dict[str, object]:
    """A server's counts for so many output tokens."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
