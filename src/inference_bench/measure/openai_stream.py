"""What did the server say, and in which order: the bytes of an OpenAI-style event stream, turned into events.

In:   the bytes of a reply's body, cut anywhere
Out:  per `data:` payload a tuple of small events (content of so many characters, finish reason, usage, ...)
Leaves out: sockets, clocks and HTTP (see http1.py), lines and fields (see sse.py), and the text itself, which is kept
      nowhere: an event holds it only for whoever examines it at once

Both routes are read, chat.completion.chunk and text_completion; other routes bring a parser of their own. Payloads of
the usual shape are read by quick_payloads, all others by the strict parser here.
Read next by: stream_follower, native_payloads, sender, text_checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from inference_bench.measure.payload_fields import (
    as_object,
    count_field,
    list_field,
    object_field,
    parse_json,
    text_field,
    timings_field,
)
from inference_bench.measure.quick_payloads import make_quick_parser
from inference_bench.measure.sse import MAX_EVENT_BYTES
from inference_bench.measure.sse import SseDecoder as SseDecoder
from inference_bench.measure.stream_events import REASON
from inference_bench.measure.stream_events import Channel as Channel
from inference_bench.measure.stream_events import Content as Content
from inference_bench.measure.stream_events import Done as Done
from inference_bench.measure.stream_events import ErrorObject as ErrorObject
from inference_bench.measure.stream_events import Finish as Finish
from inference_bench.measure.stream_events import RoleOnly as RoleOnly
from inference_bench.measure.stream_events import StreamEvent as StreamEvent
from inference_bench.measure.stream_events import Timings as Timings
from inference_bench.measure.stream_events import TokenIds as TokenIds
from inference_bench.measure.stream_events import Usage as Usage

MAX_MESSAGE_CHARS: Final = 200
DONE_PAYLOAD: Final = "[DONE]"

PayloadParser: TypeAlias = Callable[[str], tuple[StreamEvent, ...]]


def one_line(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Foreign text made safe to print: one line, no control or formatting characters, at most `max_chars`."""
    words = "".join(c if c.isprintable() else " " for c in text[: 16 * max_chars]).split()
    line = " ".join(words)
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def parse_payload(payload: str) -> tuple[StreamEvent, ...]:
    """What one `data:` payload says, in the order content, finish, usage, timings; () when it says nothing.

    Raises:   StreamError for text that is not JSON, a field of the wrong type, and counts that cannot be
    """
    if (text := payload.strip()) in ("", DONE_PAYLOAD):
        return (Done(),) if text else ()
    chunk = as_object(parse_json(payload), "an event of the stream")
    if chunk.get("error") or chunk.get("object") == "error":
        return (error_object(chunk),)
    events: list[StreamEvent] = []
    for choice in list_field(chunk, "choices"):
        events += _parse_choice(as_object(choice, "choices[]"))
    if (usage := object_field(chunk, "usage")) is not None:
        events.append(_parse_usage(usage))
    if (timings := timings_field(chunk)) is not None:
        events.append(Timings(timings))
    return tuple(events)


def error_object(chunk: dict[str, object]) -> ErrorObject:
    """What a payload that reports an error says of it."""
    return ErrorObject(error_message(chunk) or "the server reported an error without a message")


def error_message(reply: object) -> str | None:
    """The one sentence of a server's error object, in the shapes in use (OpenAI, vLLM, llama.cpp, FastAPI, Ollama).

    Ignores:  every other field: some servers echo the request in theirs
    """
    fields = reply if isinstance(reply, dict) else {}
    for candidate in (fields.get("error"), fields.get("message"), fields.get("detail")):
        if text := _error_text(candidate):
            return one_line(text)
    return None


def _error_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_validation_text, value[:3])))
    named = (value.get("message"), value.get("type")) if isinstance(value, dict) else ()
    return next((text for text in named if isinstance(text, str) and text), "")


def _validation_text(entry: object) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("msg"), str):
        return ""
    where = entry.get("loc")
    name = where[-1] if isinstance(where, list) and where else None
    return f"{name}: {entry['msg']}" if isinstance(name, str) else str(entry["msg"])


def _parse_choice(choice: dict[str, object]) -> list[StreamEvent]:
    delta = object_field(choice, "delta") or {}
    reasoning = text_field(delta, "reasoning_content") or text_field(delta, "reasoning")
    content = text_field(choice, "text") + text_field(delta, "content") + text_field(delta, "refusal")
    calls = sum(_count_call_chars(as_object(call, "tool_calls[]")) for call in list_field(delta, "tool_calls"))
    said = ((reasoning, Channel.REASONING), (content, Channel.CONTENT))
    events: list[StreamEvent] = [Content(len(text), channel, text) for text, channel in said if text]
    if calls:
        events.append(Content(calls, Channel.TOOL_CALL))
    finish = text_field(choice, "finish_reason")
    if ids := list_field(choice, "token_ids"):
        events.append(TokenIds(len(ids)))
    if not events and not finish and "role" in delta:
        events.append(RoleOnly())
    if finish:
        events.append(Finish(finish if REASON.fullmatch(finish) else "other"))
    return events


def _count_call_chars(call: dict[str, object]) -> int:
    function = object_field(call, "function") or {}
    return len(text_field(function, "name")) + len(text_field(function, "arguments"))


def _parse_usage(usage: dict[str, object]) -> Usage:
    details = object_field(usage, "prompt_tokens_details") or {}
    cached = count_field(details, "cached_tokens")
    return Usage(count_field(usage, "prompt_tokens"), count_field(usage, "completion_tokens"), cached)


class EventStream:
    """Bytes of a reply's body to its events, one tuple for each payload; nothing is read after [DONE].

    Where:    parser says what a payload means, where it is not of an OpenAI route; keeps_text asks for the text in every
              Content event
    """

    def __init__(
        self,
        parser: PayloadParser | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        *,
        keeps_text: bool = False,
    ) -> None:
        self._decoder = SseDecoder(max_event_bytes)
        self._parse = parser or parse_payload
        self._quick = make_quick_parser(keeps_text) if parser is None else None
        self._done = False

    def feed(self, data: bytes) -> list[tuple[StreamEvent, ...]]:
        """The events that these bytes complete.

        Raises:   StreamError
        """
        return list(self.events(data))

    def only(self, data: bytes) -> tuple[StreamEvent, ...] | None:
        """The events of bytes that are one payload of the usual shape, as most are; None for `events` to look at."""
        if self._quick is None or self._done or (payload := self._decoder.only(data)) is None:
            return None
        return self._quick(payload)

    def events(self, data: bytes) -> Iterator[tuple[StreamEvent, ...]]:
        """The same one by one, so that those before a broken payload are had.

        Raises:   StreamError
        """
        if self._done:
            return
        quick = self._quick
        for payload in self._decoder.feed_bytes(data):
            events = None if quick is None else quick(payload)
            if events is None:
                events = self._parse(payload.decode("utf-8", "replace"))
                self._done = any(type(event) is Done for event in events)
            yield events
            if self._done:
                return
