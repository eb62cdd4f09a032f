"""What did the server say, and in which order: the bytes of an OpenAI-style event stream, turned into events.

In:   the bytes of a reply's body, cut anywhere
Out:  per `data:` payload a tuple of small events (content of so many characters, finish reason, usage, ...), and
      `Reply`, which keeps the few facts a RequestRecord needs
Leaves out: sockets, clocks and HTTP (see http1.py), and the text itself: only its length leaves this module

Both routes are read, chat.completion.chunk and text_completion. An event stream is what the WHATWG standard says it
is: lines end in CRLF, LF or CR, comments and unknown fields are skipped, several data lines make one payload, one
leading byte-order mark is skipped, and an event whose closing blank line never came is not an event.
Read next by: sender.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NoReturn

from inference_bench.errors import StreamError
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
from inference_bench.records import RequestStatus, ServerTimings
from inference_bench.units import KILO, MEBI

MAX_EVENT_BYTES: Final = MEBI
MAX_MESSAGE_CHARS: Final = 200
MAX_COUNT: Final = MEBI * MEBI
DONE_PAYLOAD: Final = "[DONE]"

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_REASON: Final = re.compile(r"[A-Za-z_]{1,40}")  # anything else might repeat a prompt or a key, and is not kept
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def one_line(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Foreign text made safe to print: one line, no control or formatting characters, at most `max_chars`."""
    words = "".join(c if c.isprintable() else " " for c in text[: 16 * max_chars]).split()
    line = " ".join(words)
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


class SseDecoder:
    """Bytes of an event stream, cut anywhere, to the payloads of its events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_data_bytes = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[str]:
        """The payloads that these bytes complete; undecodable bytes become U+FFFD, as the standard says.

        Raises:   StreamError when one line or one event is larger than the cap
        """
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        payloads: list[str] = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._extend(data[start : end.start()])
            self._end_line(payloads)
            start = end.end()
        self._extend(data[start:])
        self._after_cr = self._after_cr or data.endswith(b"\r")
        return payloads

    def _extend(self, part: bytes) -> None:
        if len(self._line) + self._num_data_bytes + len(part) > self._max_event_bytes:
            raise StreamError(f"one event of the stream is larger than {self._max_event_bytes} bytes; gave up reading")
        self._line += part

    def _end_line(self, payloads: list[str]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line:
            self._add_field(line)
        elif self._data:
            payloads.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data.clear()
            self._num_data_bytes = 0

    def _add_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._num_data_bytes += len(line)


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
    sizes = ((len(reasoning), Channel.REASONING), (len(content), Channel.CONTENT), (calls, Channel.TOOL_CALL))
    events: list[StreamEvent] = [Content(size, channel) for size, channel in sizes if size]
    finish = _text(choice, "finish_reason")
    if ids := _list(choice.get("token_ids"), "token_ids"):
        events.append(TokenIds(len(ids)))
    if not events and not finish and "role" in delta:
        events.append(RoleOnly())
    if finish:
        events.append(Finish(finish if _REASON.fullmatch(finish) else "other"))
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
    """Bytes of a reply's body to its events, one tuple for each payload; nothing is read after [DONE]."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._decoder = SseDecoder(max_event_bytes)
        self._done = False

    def feed(self, data: bytes) -> list[tuple[StreamEvent, ...]]:
        """The events that these bytes complete.

        Raises:   StreamError
        """
        payloads: list[tuple[StreamEvent, ...]] = []
        for payload in () if self._done else self._decoder.feed(data):
            payloads.append(events := parse_payload(payload))
            if Done() in events:
                self._done = True
                break
        return payloads


@dataclass(slots=True)
class Reply:
    """What one streamed reply has said so far.

    Where:    chunk_times_s has one entry for each payload that carried content, in any channel; counted_upto how many
              tokens there were by then, as usage, timings or token ids in that same payload say, None where none did
    """

    chunk_times_s: list[float] = field(default_factory=list)
    counted_upto: list[int | None] = field(default_factory=list)
    num_token_ids: int = 0
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: ServerTimings | None = None
    error: str | None = None
    done: bool = False

    def add(self, events: Iterable[StreamEvent], time_s: float) -> None:
        """Take in the events of one payload, which arrived at `time_s`; a later usage replaces an earlier one."""
        has_content, upto = False, None
        for event in events:
            match event:
                case Content():
                    has_content = True
                case TokenIds(count):
                    self.num_token_ids += count
                    upto = self.num_token_ids
                case Finish(reason):
                    self.finish_reason = reason
                case Usage():
                    self.usage, upto = event, event.completion_tokens if upto is None else upto
                case Timings(server):
                    self.timings, upto = server, server.output_tokens if upto is None else upto
                case ErrorObject(message):
                    self.error = message
                case Done():
                    self.done = True
        if has_content:
            self.chunk_times_s.append(time_s)
            self.counted_upto.append(upto)

    @property
    def chunk_tokens(self) -> tuple[int, ...]:
        """The tokens that came with each chunk of content; () unless the server counted at every one of them."""
        upto = [count for count in self.counted_upto if count is not None]
        tokens = tuple(after - before for before, after in pairwise([0, *upto]))
        return tokens if len(tokens) == len(self.counted_upto) and min(tokens, default=0) >= 0 else ()

    def verdict(self, lost: str | None = None) -> tuple[RequestStatus, str | None]:
        """How the request ended, now that nothing more will come, and what there is to say about it.

        Where:    `lost` says how the connection broke, None when it ended in order
        Ignores:  nothing: a reply with a finish reason but no [DONE] is complete, with a remark, because every token
                  and the reason have arrived; without either, it is truncated if tokens came and failed if none did
        """
        if self.error is not None:
            return RequestStatus.FAILED, self.error
        if self.done and (self.finish_reason or self.chunk_times_s):
            return RequestStatus.COMPLETED, self._contradiction()
        how = lost or "the stream ended"
        if self.finish_reason:
            return RequestStatus.COMPLETED, f"{how} after the finish reason and before [DONE]"
        if self.chunk_times_s:
            return RequestStatus.TRUNCATED, f"{how} after {len(self.chunk_times_s)} chunks without a finish reason"
        return RequestStatus.FAILED, f"{how} without a single token"

    def _contradiction(self) -> str | None:
        """What to say when the server counts fewer tokens than it sent chunks with content; its count stands."""
        counted = None if self.usage is None else self.usage.completion_tokens
        if counted is None or counted >= len(self.chunk_times_s):
            return None
        return f"the server counts {counted} tokens but sent {len(self.chunk_times_s)} chunks with content"
