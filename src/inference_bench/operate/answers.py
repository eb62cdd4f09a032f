"""What came of one request that may have been tried more than once, and who answered it: sizes, times and names, never text.

In:   nothing; these are plain immutable values
Out:  Answer, with an Attempt for each time something was sent; which AttemptEnd an HTTP status means
Leaves out: prompt and answer text, keys, addresses with a user name
Read next by: client (writes), drill, ledger, manifest's records of outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.records import RequestStatus

_NOT_NOW: Final = frozenset({408, 429, 503})


class AttemptEnd(StrEnum):
    """How one attempt ended."""

    COMPLETED = "completed"
    BAD_REQUEST = "bad_request"  # HTTP 4xx that asking again cannot change
    REFUSED = "refused"  # HTTP 408, 429 or 503: not now
    SERVER_ERROR = "server_error"  # another HTTP 5xx, or an error object before the first token
    NOT_REACHED = "not_reached"  # no connection, or it was lost before the first token
    GARBAGE = "garbage"  # a reply that is not what it claims to be, before the first token
    TIMED_OUT = "timed_out"  # no first token within what was allowed
    INTERRUPTED = "interrupted"  # tokens came, then the stream broke, stalled or turned to garbage
    CANCELLED = "cancelled"  # this side stopped it: the caller, or a quicker hedge
    BREAKER_OPEN = "breaker_open"  # nothing was sent: this endpoint's breaker is open


def end_of_status(status: int) -> AttemptEnd:
    """What an HTTP status without a token means; a redirect is an address that has to be corrected."""
    if status in _NOT_NOW:
        return AttemptEnd.REFUSED
    if 300 <= status < 500:
        return AttemptEnd.BAD_REQUEST
    return AttemptEnd.SERVER_ERROR if status >= 500 else AttemptEnd.GARBAGE


@dataclass(frozen=True, slots=True)
class EndpointIdentity:
    """Who a request was sent to.

    Where:  name is the caller's own for it; model what the endpoint said it is in its reply, None where it did not; manifest_sha256
            that of the manifest it was started from, where one is known
    """

    name: str
    base_url: str
    model: str | None = None
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that something was sent, or would have been.

    Unit:   seconds since the request began
    Where:  output_tokens are those that arrived, as far as they can be counted, failed attempts' too; is_lower_bound says that the
            server gave no count and the pieces that came were counted, each of which holds a token or more; waited_s is the pause
            before it, retry_after_s how long its reply asked to be left alone
    """

    number: int
    endpoint: EndpointIdentity
    end: AttemptEnd
    started_s: float
    ended_s: float
    waited_s: float = 0.0
    retry_after_s: float | None = None
    http_status: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    is_hedge: bool = False
    error: str | None = None
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One request from its caller's point of view.

    Unit:   seconds since the request began; at is the wall clock when it began, ISO 8601 in UTC
    Where:  answered_by is whoever sent the text that the caller got, in part or whole, None where nobody did; is_fallback says that it
            was not the first of the list; application and team are the caller's own names, from a list it controls;
            user_success is what the caller says of it in the end, None until it does; is_lower_bound is that of its Attempt; error
            says why it is not complete, and on a complete answer it is a remark
    """

    request_id: str
    at: str
    status: RequestStatus
    attempts: tuple[Attempt, ...]
    answered_by: EndpointIdentity | None
    is_fallback: bool
    budget_s: float
    e2e_s: float
    ttft_s: float | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    idempotency_key: str | None = None
    application: str | None = None
    team: str | None = None
    user_success: bool | None = None
    error: str | None = None
    is_lower_bound: bool = False
