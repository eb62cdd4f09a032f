"""What did the stream say, word by word: its pieces for the caller, and the two facts about its sender.

In:   the bytes of a reply's body, cut anywhere
Out:  events for the project's own Reply; pieces of text with their channel, the model's name, the reasoning tokens counted
Leaves out: HTTP and times (opening), what an ending means (failures)
Read next by: opening.

Payloads are read by the load generator's parsers. What is added costs a list entry a piece, and a look into the first payload and the
one with the counts. A piece of a tool call is the JSON of its delta, as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from inference_bench.errors import StreamError
from inference_bench.measure.openai_stream import EventStream, SseDecoder, parse_payload
from inference_bench.measure.payload_fields import parse_json
from inference_bench.measure.quick_payloads import make_quick_parser
from inference_bench.measure.stream_events import MAX_COUNT, Channel, Content, Done, StreamEvent, Usage

# a quotation mark within a JSON string is escaped, so this is a key and never generated text; what does not look like a name might
# repeat a prompt, and is not kept
_MODEL: Final = re.compile(rb'"model" ?: ?"([A-Za-z0-9][A-Za-z0-9 ._:/@+-]{0,199})"')
_REASONING: Final = b'"reasoning_tokens"'


class AnswerEvents(EventStream):
    """The events of one answer; `pieces` has what nobody has taken yet."""

    def __init__(self) -> None:
        super().__init__(parse_payload)
        self.pieces: list[Content] = []
        self.model: str | None = None
        self.reasoning_tokens: int | None = None
        self._lines = SseDecoder()
        self._quick_parse = make_quick_parser(keeps_text=True)
        self._is_first, self._is_done = True, False

    def take_pieces(self) -> list[Content]:
        """The pieces since the last call."""
        pieces, self.pieces = self.pieces, []
        return pieces

    def feed(self, data: bytes) -> list[tuple[StreamEvent, ...]]:
        """See EventStream."""
        return list(self.events(data))

    def only(self, data: bytes) -> tuple[StreamEvent, ...] | None:
        """See EventStream."""
        if self._quick_parse is None or self._is_done or (payload := self._lines.only(data)) is None:
            return None
        events = self._quick_parse(payload)
        if events is not None:
            if len(events) == 1 and type(piece := events[0]) is Content:  # as most are
                self.pieces.append(piece)
            else:
                self._keep(events, payload)
        return events

    def events(self, data: bytes) -> Iterator[tuple[StreamEvent, ...]]:
        """See EventStream.

        Raises:   StreamError
        """
        if self._is_done:
            return
        for payload in self._lines.feed_bytes(data):
            if self._is_first:
                self._is_first = False
                self.model = _model_of(payload)
            events = None if self._quick_parse is None else self._quick_parse(payload)
            if events is None:
                events = _with_tool_calls(payload, parse_payload(payload.decode("utf-8", "replace")))
                self._is_done = any(type(event) is Done for event in events)
            if len(events) == 1 and type(piece := events[0]) is Content:
                self.pieces.append(piece)
            else:
                self._keep(events, payload)
            yield events
            if self._is_done:
                return

    def _keep(self, events: tuple[StreamEvent, ...], payload: bytes) -> None:
        for event in events:
            if type(event) is Content:
                self.pieces.append(event)
            elif type(event) is Usage and _REASONING in payload:
                self.reasoning_tokens = _reasoning_of(payload)


def _fields_of(payload: bytes) -> dict[str, object]:
    try:
        fields = parse_json(payload)
    except StreamError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _model_of(payload: bytes) -> str | None:
    """What the server calls its model."""
    found = _MODEL.search(payload)
    return None if found is None else found[1].decode()


def _reasoning_of(payload: bytes) -> int | None:
    usage = _fields_of(payload).get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    for fields in (details, usage):
        count = fields.get("reasoning_tokens") if isinstance(fields, dict) else None
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_COUNT:
            return count
    return None


def _with_tool_calls(payload: bytes, events: tuple[StreamEvent, ...]) -> tuple[StreamEvent, ...]:
    """The same events, where a piece of a tool call has the JSON of its delta as text."""
    if not any(type(event) is Content and event.channel is Channel.TOOL_CALL for event in events):
        return events
    text = json.dumps(_tool_calls_of(_fields_of(payload)), ensure_ascii=False)
    return tuple(
        replace(event, text=text) if type(event) is Content and event.channel is Channel.TOOL_CALL else event
        for event in events
    )


def _tool_calls_of(fields: dict[str, object]) -> object:
    choices = fields.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return delta.get("tool_calls") if isinstance(delta, dict) else None
