"""What happened to one request: the one schema that the load generator and the simulator both write.

In:   nothing; these are plain immutable values
Out:  RequestRecord, which metrics, comparison and reports read without knowing who wrote it, except by `origin`
Leaves out: prompt text and generated text, on purpose. Neither is ever stored.
Read next by: metrics, measure (writes), simulate (writes), compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.origin import Origin as Origin


class RequestStatus(StrEnum):
    """How a request ended; everything but COMPLETED stays in the denominator."""

    COMPLETED = "completed"
    FAILED = "failed"  # an error object, a broken reply, a refused or lost connection before the first token
    REJECTED = "rejected"  # HTTP 4xx or 503: the server said no
    TIMED_OUT = "timed_out"
    TRUNCATED = "truncated"  # tokens arrived, then the stream ended without saying it was finished
    CANCELLED = "cancelled"  # this program stopped it (Ctrl-C, end of run); not counted as the server's failure


class Stage(StrEnum):
    """Whether a request warms the server up, is measured, or keeps the load up while the last measured ones end."""

    WARMUP = "warmup"
    MEASURE = "measure"
    COOLDOWN = "cooldown"


class Channel(StrEnum):
    """Where generated characters went. All of them are output tokens; only the reader cares which."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"

    @property
    def letter(self) -> str:
        """The one letter that stands for it in `RequestRecord.channels`."""
        return self.value[0]


class TokenCountSource(StrEnum):
    """Who counted the output tokens, the first that did. Chunks are never silently taken for tokens, nor is what was asked for."""

    SERVER_USAGE = "server_usage"
    SERVER_TOKEN_IDS = "server_token_ids"  # one by one, beside the text of each chunk
    TOKENIZER = "tokenizer"
    SCHEDULER = "scheduler"  # the simulator, which knows
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ServerTimings:
    """What the server itself says about one request, where it does (llama.cpp's `timings`)."""

    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    prefill_s: float | None = None
    output_tokens: int | None = None
    decode_s: float | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as the client saw it.

    Unit:     every `_s` is seconds since the run began, on a monotonic clock
    Where:    planned_s is when the schedule said to send (closed loop: when the slot became free);
              chunk_times_s are the arrivals of chunks that carry content, in any channel: role-only chunks,
              keep-alives and the usage chunk are not in it; end_s is the last byte or the failure; chunk_tokens are the
              output tokens that came with each of these chunks, empty where the server did not say; channels has a
              letter for each of them (Channel.letter), empty where all are content. first_byte_s is the first byte of
              the reply, headers included. document_valid says whether the output was the structured document that was
              asked for, None where none was. index is the request's number in the workload, counted from 0; session
              and turn say which conversation it belongs to, both counted from 0
    Ignores:  what was said: neither prompt nor output text is kept
    """

    request_id: str
    origin: Origin
    stage: Stage
    status: RequestStatus
    planned_s: float
    sent_s: float
    end_s: float
    chunk_times_s: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    requested_output_tokens: int | None = None
    token_count_source: TokenCountSource = TokenCountSource.UNKNOWN
    finish_reason: str | None = None
    http_status: int | None = None
    error: str | None = None
    group: str = ""  # which part of the run it belongs to, such as one point of a sweep
    server_timings: ServerTimings | None = None
    chunk_tokens: tuple[int, ...] = ()
    channels: str = ""
    first_byte_s: float | None = None
    document_valid: bool | None = None
    index: int | None = None
    session: int | None = None
    turn: int | None = None
