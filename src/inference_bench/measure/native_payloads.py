"""What did a server say on its own route: SGLang's /generate and llama.cpp's /completion, payload by payload.

In:   the payload of one event of the stream, as text
Out:  payload_parser: for each request a parser that turns payloads into the same small events as openai_stream
Leaves out: the event stream around the payloads (openai_stream), and the text, of which only the length is kept
Read next by: sender.

Both routes count tokens in every chunk. SGLang repeats in each the whole text so far, or only what is new, as it was
started; which of the two is told from the counts where there are token ids, and from the text otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from inference_bench.errors import StreamError
from inference_bench.measure.openai_stream import (
    DONE_PAYLOAD,
    error_message,
    one_line,
    parse_json,
    parse_payload,
)
from inference_bench.measure.stream_events import (
    MAX_COUNT,
    REASON,
    Channel,
    Content,
    Done,
    ErrorObject,
    Finish,
    StreamEvent,
    Timings,
    TokenIds,
    Usage,
)
from inference_bench.measure.target_body import Endpoint
from inference_bench.records import ServerTimings
from inference_bench.units import KILO, MEBI

PayloadParser: TypeAlias = Callable[[str], tuple[StreamEvent, ...]]

_OTHER: Final = "other"
_LLAMA_STOPS: Final = {"eos": "stop", "word": "stop", "limit": "length"}
_ABORTED: Final = "abort"
_NO_MESSAGE: Final = "the server reported an error without a message"


def payload_parser(endpoint: Endpoint) -> PayloadParser:
    """A parser for the payloads of one request, in order; it may remember what came before."""
    if endpoint is Endpoint.SGLANG:
        return _SglangParser()
    return _parse_llama_cpp if endpoint is Endpoint.LLAMA_CPP else parse_payload


class _SglangParser:
    """Payloads of one /generate stream.

    Where:    with several answers to one prompt (n > 1) each has an index, a text and a count of its own
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._counts: dict[int, int] = {}
        self._repeats = True

    def __call__(self, payload: str) -> tuple[StreamEvent, ...]:
        """What one payload says; () when it says nothing.

        Raises:   StreamError
        """
        if (text := payload.strip()) in ("", DONE_PAYLOAD):
            return (Done(),) if text else ()
        chunk = _object(parse_json(payload), "an event of the stream")
        if chunk.get("error"):
            return (ErrorObject(error_message(chunk) or _NO_MESSAGE),)
        meta = {} if chunk.get("meta_info") is None else _object(chunk["meta_info"], "meta_info")
        answer = _count(chunk, "index") or 0
        ids, counted = _list(chunk, "output_ids"), _count(meta, "completion_tokens")
        events: list[StreamEvent] = []
        if (num_chars := self._count_new_chars(chunk, answer, len(ids), counted)) is not None:
            events.append(num_chars)
        finish = self._finish(meta.get("finish_reason"))
        if counted is None and ids:
            events.append(TokenIds(self._count_new_ids(answer, len(ids))))
        events += () if finish is None else (finish,)
        if counted is not None:
            self._counts[answer] = counted
            cached = _count(meta, "cached_tokens")
            events.append(Usage(_count(meta, "prompt_tokens"), sum(self._counts.values()), cached))
        return tuple(events)

    def _count_new_chars(
        self, chunk: dict[str, object], answer: int, num_ids: int, counted: int | None
    ) -> Content | None:
        """The text that is new in this chunk; where a server sends token ids alone, new ids stand for it."""
        if chunk.get("text") is None:
            is_new = (counted or 0) > self._counts.get(answer, 0) or (counted is None and num_ids > 0)
            return Content(0, Channel.CONTENT) if is_new else None
        text, before = _text(chunk, "text"), self._texts.get(answer)
        if self._repeats and before is not None:
            told = counted is not None and num_ids and counted > 1
            self._repeats = num_ids == counted if told else text.startswith(before)
        new = text[len(before or "") :] if self._repeats else text
        self._texts[answer] = text if self._repeats else ""
        return Content(len(new), Channel.CONTENT, new) if new else None

    def _count_new_ids(self, answer: int, num_ids: int) -> int:
        if not self._repeats:
            return num_ids
        before, self._counts[answer] = self._counts.get(answer, 0), num_ids
        return max(0, num_ids - before)

    def _finish(self, reason: object) -> StreamEvent | None:
        """Why the answer ended; an answer that the server broke off is a failure."""
        if reason is None:
            return None
        if isinstance(reason, str):
            kind, message = reason, ""
        else:
            fields = _object(reason, "finish_reason")
            kind, message = _text(fields, "type"), _text(fields, "message")
        if kind == _ABORTED:
            return ErrorObject(one_line(message) or "the server broke the answer off")
        return Finish(kind if REASON.fullmatch(kind) else _OTHER)


def _parse_llama_cpp(payload: str) -> tuple[StreamEvent, ...]:
    """What one payload of a /completion stream says; the one that stops it stands for [DONE] too, which never comes.

    Raises:   StreamError
    """
    if (text := payload.strip()) in ("", DONE_PAYLOAD):
        return (Done(),) if text else ()
    chunk = _object(parse_json(payload), "an event of the stream")
    if chunk.get("error"):
        return (ErrorObject(error_message(chunk) or _NO_MESSAGE),)
    events: list[StreamEvent] = []
    if content := _text(chunk, "content"):
        events.append(Content(len(content), Channel.CONTENT, content))
    is_last = _flag(chunk, "stop")
    if is_last:
        events.append(Finish(_LLAMA_STOPS.get(_text(chunk, "stop_type"), _OTHER)))
    timings = None if chunk.get("timings") is None else _timings(_object(chunk["timings"], "timings"))
    if (counted := _count(chunk, "tokens_predicted")) is not None:
        # tokens_cached is how full the slot is at the end, and not what was found in a cache
        cached = None if timings is None else timings.cached_prompt_tokens
        events.append(Usage(_count(chunk, "tokens_evaluated"), counted, cached))
    elif ids := _list(chunk, "tokens"):
        events.append(TokenIds(len(ids)))
    if timings is not None:
        events.append(Timings(timings))
    return (*events, Done()) if is_last else tuple(events)


def _timings(fields: dict[str, object]) -> ServerTimings:
    return ServerTimings(
        prompt_tokens=_count(fields, "prompt_n"),
        cached_prompt_tokens=_count(fields, "cache_n"),
        prefill_s=_milliseconds(fields, "prompt_ms"),
        output_tokens=_count(fields, "predicted_n"),
        decode_s=_milliseconds(fields, "predicted_ms"),
    )


def _object(value: object, what: str) -> dict[str, object]:
    return value if isinstance(value, dict) else _refuse(what, "an object", value)


def _list(fields: dict[str, object], name: str) -> list[object]:
    value = fields.get(name)
    if value is None:
        return []
    return value if isinstance(value, list) else _refuse(name, "a list", value)


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else _refuse(name, "text", value)


def _flag(fields: dict[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    return value if isinstance(value, bool) else _refuse(name, "true or false", value)


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
