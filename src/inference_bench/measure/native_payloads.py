"""What did a server say on its own route: SGLang's /generate and llama.cpp's /completion, payload by payload.

In:   the payload of one event of the stream, as text
Out:  payload_parser: for each request a parser that turns payloads into the same small events as openai_stream
Leaves out: the event stream around the payloads (openai_stream), and keeping text: an event holds it only for whoever
      examines it at once, and of /generate's the last is remembered, to tell what is new
Read next by: sender.

Both routes count tokens in every chunk. SGLang repeats in each the whole text so far, or only what is new, as it was
started; which of the two is told from the counts where there are token ids, and from the text otherwise.
"""

from __future__ import annotations

from typing import Final

from inference_bench.measure.openai_stream import DONE_PAYLOAD, PayloadParser, error_object, one_line, parse_payload
from inference_bench.measure.payload_fields import (
    as_object,
    count_field,
    flag_field,
    list_field,
    object_field,
    parse_json,
    text_field,
    timings_field,
)
from inference_bench.measure.stream_events import (
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

_OTHER: Final = "other"
_LLAMA_STOPS: Final = {"eos": "stop", "word": "stop", "limit": "length"}
_ABORTED: Final = "abort"


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
        chunk = as_object(parse_json(payload), "an event of the stream")
        if chunk.get("error"):
            return (error_object(chunk),)
        meta = object_field(chunk, "meta_info") or {}
        answer = count_field(chunk, "index") or 0
        ids, counted = list_field(chunk, "output_ids"), count_field(meta, "completion_tokens")
        events: list[StreamEvent] = []
        if (content := self._new_content(chunk, answer, len(ids), counted)) is not None:
            events.append(content)
        finish = self._finish(meta.get("finish_reason"))
        if counted is None and ids:
            events.append(TokenIds(self._count_new_ids(answer, len(ids))))
        events += () if finish is None else (finish,)
        if counted is not None:
            self._counts[answer] = counted
            cached = count_field(meta, "cached_tokens")
            events.append(Usage(count_field(meta, "prompt_tokens"), sum(self._counts.values()), cached))
        return tuple(events)

    def _new_content(self, chunk: dict[str, object], answer: int, num_ids: int, counted: int | None) -> Content | None:
        """The text that is new in this chunk; where a server sends token ids alone, new ids stand for it."""
        if chunk.get("text") is None:
            is_new = (counted or 0) > self._counts.get(answer, 0) or (counted is None and num_ids > 0)
            return Content(0, Channel.CONTENT) if is_new else None
        text, before = text_field(chunk, "text"), self._texts.get(answer)
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
            fields = as_object(reason, "finish_reason")
            kind, message = text_field(fields, "type"), text_field(fields, "message")
        if kind == _ABORTED:
            return ErrorObject(one_line(message) or "the server broke the answer off")
        return Finish(kind if REASON.fullmatch(kind) else _OTHER)


def _parse_llama_cpp(payload: str) -> tuple[StreamEvent, ...]:
    """What one payload of a /completion stream says; the one that stops it stands for [DONE] too, which never comes.

    Raises:   StreamError
    """
    if (text := payload.strip()) in ("", DONE_PAYLOAD):
        return (Done(),) if text else ()
    chunk = as_object(parse_json(payload), "an event of the stream")
    if chunk.get("error"):
        return (error_object(chunk),)
    events: list[StreamEvent] = []
    if content := text_field(chunk, "content"):
        events.append(Content(len(content), Channel.CONTENT, content))
    is_last = flag_field(chunk, "stop")
    if is_last:
        events.append(Finish(_LLAMA_STOPS.get(text_field(chunk, "stop_type"), _OTHER)))
    timings = timings_field(chunk)
    if (counted := count_field(chunk, "tokens_predicted")) is not None:
        # tokens_cached is how full the slot is at the end, and not what was found in a cache
        cached = None if timings is None else timings.cached_prompt_tokens
        events.append(Usage(count_field(chunk, "tokens_evaluated"), counted, cached))
    elif ids := list_field(chunk, "tokens"):
        events.append(TokenIds(len(ids)))
    if timings is not None:
        events.append(Timings(timings))
    return (*events, Done()) if is_last else tuple(events)
