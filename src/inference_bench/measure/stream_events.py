"""What can one payload of an event stream say: small events, which hold counts, and text only to pass it on.

In:   nothing; these are plain immutable values
Out:  StreamEvent, which payload parsers make of text and `Reply` takes in
Read next by: payload_fields, openai_stream, quick_payloads, native_payloads, reply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from inference_bench.records import Channel as Channel
from inference_bench.records import ServerTimings
from inference_bench.units import MEBI

MAX_COUNT: Final = MEBI * MEBI
REASON: Final = re.compile(r"[A-Za-z_]{1,40}")  # anything else might repeat a prompt or a key, and is not kept


@dataclass(frozen=True, slots=True)
class Content:
    """Characters the model generated.

    Where:    text is there for whoever examines an answer as it comes; it shows in no repr and is stored nowhere
    """

    num_chars: int
    channel: Channel
    text: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class RoleOnly:
    """The opening chunk of a chat reply, which carries no token."""


@dataclass(frozen=True, slots=True)
class TokenIds:
    """How many token ids a server wrote beside the text (vLLM's `return_token_ids`); never which."""

    count: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The model stopped: "stop", "length", "tool_calls", ..."""

    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own token counts; None where it did not say."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class Timings:
    """llama.cpp's own timings of one request.

    Where:    prompt_tokens are those computed in prefill_s; cached ones are counted apart. decode_s runs from the
              first output token to the last, so it spans output_tokens - 1 steps
    """

    server: ServerTimings


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """The server reports a failure inside the stream, whatever the HTTP status was."""

    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """The closing [DONE]."""


StreamEvent: TypeAlias = Content | RoleOnly | TokenIds | Finish | Usage | Timings | ErrorObject | Done
