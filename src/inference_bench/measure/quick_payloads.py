"""What does a payload of the usual shape say: the same events as the strict parser gives, at a tenth of the time.

In:   the bytes of one `data:` payload
Out:  its events, or None for whatever is not of a shape that is written out here: the strict parser looks at that one
Leaves out: errors, unusual fields, and every judgement; without msgspec, everything
Read next by: openai_stream.

The shapes are closed: a field that is not listed, or a value of another type, is not of the usual shape. So nothing is
read here that the strict parser would refuse. Events of plain text are made once and shared. Most payloads of a stream
differ from the one before in nothing but their text: those are not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from inference_bench.measure.stream_events import (
    MAX_COUNT,
    REASON,
    Channel,
    Content,
    Finish,
    RoleOnly,
    StreamEvent,
    TokenIds,
    Usage,
)

Events: TypeAlias = tuple[StreamEvent, ...]
QuickParser: TypeAlias = Callable[[bytes], Events | None]

_MAX_SHARED_CHARS: Final = 64
_TEXT_KEY: Final = re.compile(rb'"(?:content|text)"[ ]?:[ ]?')  # as servers write it; anything else is just not learnt
_QUOTE, _BACKSLASH = 34, 92
_NOWHERE: Final = b"\x00"  # no payload begins with it
_MOST_LEARNT: Final = 1000  # of a stream: one whose payloads all differ is not worth the trouble
_SHARED: Final = tuple((Content(number, Channel.CONTENT),) for number in range(_MAX_SHARED_CHARS))

_Decoder: TypeAlias = tuple[Callable[[bytes], Any], tuple[type[Exception], ...]]


def make_quick_parser(keeps_text: bool = False) -> QuickParser | None:
    """A parser of the usual payloads; None where msgspec is not installed.

    Where:    keeps_text says that somebody examines the text; without it no event holds any
    """
    if (decoder := _make_decoder()) is None:
        return None
    decode, failures = decoder
    form = _Form()

    def parse(payload: bytes) -> Events | None:
        if text := form.text_of(payload):
            return _content(text, keeps_text)
        try:
            chunk = decode(payload)
        except failures:
            return None
        choices = chunk.choices
        if choices is not None and len(choices) == 1 and chunk.usage is None and (text := _plain_text(choices[0])):
            form.learn(payload, text)
            return _content(text, keeps_text)
        return _all_events(chunk, keeps_text)

    return parse


class _Form:
    """What the payloads of one stream have around their text, as the last one that was parsed had it.

    Where:    JSON stays the same JSON when a string within it is replaced by another that needs no escapes
    """

    def __init__(self) -> None:
        self._before, self._after = _NOWHERE, b""
        self._least = 0  # bytes, of one with some text
        self._num_learnt = 0

    def text_of(self, payload: bytes) -> str | None:
        """The text of a payload that differs from the one learnt in nothing else; None where that cannot be said."""
        if len(payload) < self._least or not (payload.startswith(self._before) and payload.endswith(self._after)):
            return None
        text = payload[len(self._before) : -len(self._after)]
        if _QUOTE in text or _BACKSLASH in text:
            return None
        try:
            said = text.decode()
        except UnicodeDecodeError:
            return None
        return said if said.isprintable() else None

    def learn(self, payload: bytes, text: str) -> None:
        """This one was parsed, and says this and nothing else; nothing is learnt where the text might stand elsewhere."""
        if self._num_learnt >= _MOST_LEARNT or not text.isprintable():
            return
        quoted = b'"%b"' % text.encode("utf-8", "replace")
        found = _TEXT_KEY.search(payload)
        if found is None or not payload.startswith(quoted, found.end()) or _TEXT_KEY.search(payload, found.end()):
            return
        self._num_learnt += 1
        self._before, self._after = payload[: found.end() + 1], payload[found.end() + len(quoted) - 1 :]
        self._least = len(self._before) + len(self._after) + 1


def _content(text: str, keeps_text: bool) -> Events:
    num_chars = len(text)
    if num_chars < _MAX_SHARED_CHARS and not keeps_text:
        return _SHARED[num_chars]
    return (Content(num_chars, Channel.CONTENT, text if keeps_text else ""),)


def _plain_text(choice: Any) -> str | None:
    """The text of a choice that says nothing else."""
    if choice.finish_reason is not None or choice.token_ids is not None:
        return None
    if (delta := choice.delta) is None:
        return choice.text  # type: ignore[no-any-return]
    if choice.text is None and delta.reasoning is None and delta.reasoning_content is None and delta.refusal is None:
        return delta.content  # type: ignore[no-any-return]
    return None


def _all_events(chunk: Any, keeps_text: bool) -> Events:
    events: list[StreamEvent] = []
    for choice in chunk.choices or ():
        events += _events_of(choice, keeps_text)
    if (usage := chunk.usage) is not None:
        details = usage.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        events.append(Usage(usage.prompt_tokens, usage.completion_tokens, cached))
    return tuple(events)


def _events_of(choice: Any, keeps_text: bool) -> list[StreamEvent]:
    delta, finish, reasoning, has_role = choice.delta, choice.finish_reason, "", False
    text = choice.text or ""
    if delta is not None:
        reasoning = delta.reasoning_content or delta.reasoning or ""
        text += (delta.content or "") + (delta.refusal or "")
        has_role = delta.role is not None
    said = ((reasoning, Channel.REASONING), (text, Channel.CONTENT))
    events: list[StreamEvent] = [
        Content(len(part), channel, part if keeps_text else "") for part, channel in said if part
    ]
    if choice.token_ids:
        events.append(TokenIds(len(choice.token_ids)))
    if not events and not finish and has_role:
        events.append(RoleOnly())
    if finish:
        events.append(Finish(finish if REASON.fullmatch(finish) else "other"))
    return events


@cache
def _make_decoder() -> _Decoder | None:
    """The shapes of vLLM, SGLang, llama.cpp and OpenAI, without logprobs, tool calls and llama.cpp's timings."""
    try:
        import msgspec
    except ImportError:
        return None

    def shape(name: str, **fields: Any) -> Any:
        members = [(field, kind, None) for field, kind in fields.items()]
        return msgspec.defstruct(name, members, forbid_unknown_fields=True, gc=False)

    text, number, nothing, many = str | None, int | None, None, cast(Any, list)
    usage = _usage_shape(shape, Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None)
    delta = shape(
        "Delta",
        role=str,  # null is unusual: the key alone says that it is there
        content=text,
        reasoning_content=text,
        reasoning=text,
        refusal=text,
        tool_calls=nothing,
        function_call=nothing,
    )
    choice: Any = shape(
        "Choice",
        index=number,
        text=text,
        delta=delta | None,
        logprobs=nothing,
        finish_reason=text,
        stop_reason=int | text,
        matched_stop=int | text,
        token_ids=list[int] | None,
        prompt_logprobs=nothing,
        prompt_token_ids=nothing,
        hidden_states=nothing,
    )
    chunk = shape(
        "Chunk",
        id=text,
        object=Literal["text_completion", "chat.completion.chunk", "chat.completion"] | None,
        created=float | number,
        model=text,
        system_fingerprint=text,
        service_tier=text,
        obfuscation=text,
        choices=many[choice] | None,
        usage=usage | None,
        error=nothing,
        metadata=nothing,
        prompt_token_ids=nothing,
        kv_transfer_params=nothing,
    )
    return msgspec.json.Decoder(chunk).decode, (msgspec.DecodeError, ValueError, RecursionError)


def _usage_shape(shape: Callable[..., Any], count: Any) -> Any:
    """The token counts of a reply."""
    read = shape("Read", cached_tokens=count, audio_tokens=int | None)
    written = shape(
        "Written",
        reasoning_tokens=int | None,
        audio_tokens=int | None,
        accepted_prediction_tokens=int | None,
        rejected_prediction_tokens=int | None,
    )
    return shape(
        "Usage",
        prompt_tokens=count,
        completion_tokens=count,
        total_tokens=int | None,
        reasoning_tokens=int | None,
        prompt_tokens_details=read | None,
        completion_tokens_details=written | None,
    )
