"""What did the server say, and in which order: the bytes of an OpenAI-style event stream, turned into events.

In:   the bytes of a reply's body, cut anywhere
Out:  per `data:` payload a tuple of small events (content of so many characters, finish reason, usage, ...)
Leaves out: sockets, clocks and HTTP (see http1.py), lines and fields (see sse.py), and the text itself, which is kept
      nowhere: an event holds it only for whoever examines it at once

Both routes are read, chat.completion.chunk and text_completion; other routes bring a parser of their own. Payloads of
the usual shape are read by quick_payloads, all others by the strict parser here.
Read next by: stream_follower, reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, NoReturn, TypeAlias

from inference_bench.errors import StreamError
from inference_bench.measure.quick_payloads import make_quick_parser
from inference_bench.measure.sse import MAX_EVENT_BYTES
from inference_bench.measure.sse import SseDecoder as SseDecoder
from inference_bench.measure.stream_events import MAX_COUNT, REASON
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
from inference_bench.records import ServerTimings
from inference_bench.units import KILO, MEBI

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
    chunk = _object(parse_json(payload), "an event of the stream")
    if chunk.get("error") or chunk.get("object") == "error":
        return (ErrorObject(error_message(chunk) or "the server reported an error without a message"),)
    events: list[StreamEvent] = []
    for choice in _list(chunk.get("choices"), "choices"):
        events += _parse_choice(_object(choice, "choices[]"))
    if chunk.get("usage") is not None:
        events.append(_parse_usage(_object(chunk["usage"], "usage")))
    if chunk.get("timings") is not None:
        events.append(_parse_timings(_object(chunk["timings"], "timings")))
    return tuple(events)


def parse_json(text: str | bytes) -> object:
    """JSON from a server, strictly: no NaN, no infinity, no nesting without end.

    Raises:   StreamError
    """
    try:
        return _JSON.decode(text) if isinstance(text, str) else json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise StreamError(f"the server sent {len(text)} characters that are not JSON") from None


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
    delta = {} if choice.get("delta") is None else _object(choice["delta"], "delta")
    reasoning = _text(delta, "reasoning_content") or _text(delta, "reasoning")
    content = _text(choice, "text") + _text(delta, "content") + _text(delta, "refusal")
    calls = sum(
        _count_call_chars(_object(call, "tool_calls[]")) for call in _list(delta.get("tool_calls"), "tool_calls")
    )
    said = ((reasoning, Channel.REASONING), (content, Channel.CONTENT))
    events: list[StreamEvent] = [Content(len(text), channel, text) for text, channel in said if text]
    if calls:
        events.append(Content(calls, Channel.TOOL_CALL))
    finish = _text(choice, "finish_reason")
    if ids := _list(choice.get("token_ids"), "token_ids"):
        events.append(TokenIds(len(ids)))
    if not events and not finish and "role" in delta:
        events.append(RoleOnly())
    if finish:
        events.append(Finish(finish if REASON.fullmatch(finish) else "other"))
    return events


def _count_call_chars(call: dict[str, object]) -> int:
    function = {} if call.get("function") is None else _object(call["function"], "function")
    return len(_text(function, "name")) + len(_text(function, "arguments"))


def _parse_usage(usage: dict[str, object]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = None if details is None else _count(_object(details, "prompt_tokens_details"), "cached_tokens")
    return Usage(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), cached)


def _parse_timings(timings: dict[str, object]) -> Timings:
    return Timings(
        ServerTimings(
            prompt_tokens=_count(timings, "prompt_n"),
            cached_prompt_tokens=_count(timings, "cache_n"),
            prefill_s=_milliseconds(timings, "prompt_ms"),
            output_tokens=_count(timings, "predicted_n"),
            decode_s=_milliseconds(timings, "predicted_ms"),
        )
    )


def _object(value: object, what: str) -> dict[str, object]:
    return value if isinstance(value, dict) else _refuse(what, "an object", value)


def _list(value: object, what: str) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else _refuse(what, "a list", value)


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else _refuse(name, "text", value)


def _count(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return _refuse(name, "a plausible count", value)


def _milliseconds(fields: dict[str, object], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value / KILO
    return _refuse(name, "a plausible number of milliseconds", value)


def _refuse(what: str, expected: str, value: object) -> NoReturn:
    shown = value if isinstance(value, int | float) and abs(value) < MEBI else f"a {type(value).__name__}"
    raise StreamError(f"the server sent {shown} as {what}, which must be {expected}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)  # made once: json.loads would make one for every chunk


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
