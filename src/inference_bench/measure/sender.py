"""What did one request do: send it, follow its stream to whatever end it has, and write down what happened.

In:   a Target and an Ask (a prompt, a length, when it was planned)
Out:  one RequestRecord for every request, also for those that fail, time out or are stopped
Leaves out: how many run at once (load), what the numbers mean (metrics); the text that was sent or generated, which is
      held only as long as an Ask wants it examined
Read next by: dispatch, server_tokenizer, engines (fetch_json for what a server says about itself).

planned_s is when the schedule said to send; sent_s is when this program turned to it, just before connecting, so
sent_s - planned_s is this program's own delay and the time to connect belongs to the answer. A chunk's time is when
the last of the read that brought it arrived, by the kernel's clock where there is one; chunks of one read share it, and
`receipts` keeps what that may hide. `error` says why a request did not complete; on a completed one it is a remark (the
stream ended without its closing [DONE]).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inference_bench import __version__
from inference_bench.errors import RequestError, ServerError, StreamError
from inference_bench.measure.http1 import (
    Dialer,
    Exchange,
    ExchangeError,
    FailureKind,
    Head,
    HttpRequest,
    Limits,
    RunClock,
    Timeouts,
    open_exchange,
)
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.native_payloads import payload_parser
from inference_bench.measure.openai_stream import EventStream, PayloadParser, error_message, one_line
from inference_bench.measure.payload_fields import parse_json
from inference_bench.measure.receipts import Receipt, Receipts
from inference_bench.measure.reply import Reply
from inference_bench.measure.stream_follower import ChunkJournal, DecodeRounds, StreamFollower
from inference_bench.measure.target import Endpoint, Target, parse_address
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.units import KIBI, MEBI

if TYPE_CHECKING:
    from inference_bench.measure.text_checks import TextFindings

EVENT_STREAM: Final = "text/event-stream"
JSON_TYPE: Final = "application/json"
MAX_JSON_BYTES: Final = 16 * MEBI
CLOSING_GRACE_S: Final = 1.0  # how long to wait, after [DONE], for the server to end its reply

_MAX_ERROR_BYTES: Final = 64 * KIBI
_REJECTING: Final = frozenset({503, *range(400, 500)})
_FAILURE_STATUS: Final = {FailureKind.TIMED_OUT: RequestStatus.TIMED_OUT}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to send. The prompt never shows in a repr.

    Where:    index is its place in the workload, session and turn the conversation it belongs to; examine, where given,
              is told the text of the answer once it has come, outside the event loop
    """

    request_id: str
    prompt: str = field(repr=False)
    max_output_tokens: int
    planned_s: float
    stage: Stage = Stage.MEASURE
    group: str = ""
    index: int | None = None
    session: int | None = None
    turn: int | None = None
    examine: Callable[[str], TextFindings] | None = None


@dataclass(slots=True)
class _Course:
    """What is known so far about the request on its way."""

    sent_s: float
    reply: Reply = field(default_factory=Reply)
    http_status: int | None = None
    status: RequestStatus = RequestStatus.FAILED
    error: str | None = None
    end_s: float | None = None
    receipt: Receipt = field(default_factory=Receipt)
    first_byte_s: float | None = None
    text: list[str] | None = field(default=None, repr=False)
    findings: TextFindings | None = None

    def end(self, status: RequestStatus, error: str | None) -> None:
        self.status, self.error = status, error

    def break_off(self, failure: ExchangeError) -> None:
        if self.reply.done or failure.kind is FailureKind.LOST:
            self.end(*self.reply.verdict(lost=str(failure)))
        else:
            self.end(_FAILURE_STATUS.get(failure.kind, RequestStatus.FAILED), str(failure))


class Sender:
    """Sends streaming requests to one target, which may change its body fields but not its address.

    Where:    journal is told of each request from its start on
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        stamps: StampSource = StampSource.KERNEL,
        journal: ChunkJournal | None = None,
    ) -> None:
        self.target = target
        self.receipts = Receipts()
        self._clock = clock
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or Limits()
        self._journal = journal
        self._dialer = Dialer(target.address, stamps)
        self._rounds = DecodeRounds(clock)
        self._examining = asyncio.Lock()  # one text at a time: the event loop needs the interpreter too

    async def send(self, ask: Ask, body: bytes, on_end: Callable[[RequestRecord], None] | None = None) -> RequestRecord:
        """Send one request and follow it to its end.

        Where:    `on_end` gets the record in every case; a cancelled request hands it a CANCELLED record and then
                  lets the cancellation pass on
        """
        course = _Course(sent_s=self._clock(), text=None if ask.examine is None else [])
        try:
            await self._follow(ask, body, course)
            course.end_s = self._clock() if course.end_s is None else course.end_s
            await self._examine(ask, course)
        except asyncio.CancelledError:
            if course.end_s is None:
                course.end(RequestStatus.CANCELLED, "stopped by this program")
            self._finish(ask, course, on_end)
            raise
        return self._finish(ask, course, on_end)

    async def _follow(self, ask: Ask, body: bytes, course: _Course) -> None:
        request = HttpRequest("POST", self.target.path, _headers(self.target, EVENT_STREAM), body)
        try:
            async with open_exchange(self._dialer, request, self._clock, self._timeouts, self._limits) as exchange:
                if self._journal is not None:
                    _tell_start(self._journal, ask, course)
                try:
                    await self._receive(ask, exchange, course)
                except StreamError as error:
                    course.end(RequestStatus.FAILED, str(error))
                    course.end_s = exchange.time_s
                except ExchangeError as failure:  # what breaks the rules ended when it came, not when it was seen
                    course.end_s = exchange.time_s if failure.kind is FailureKind.BROKEN else None
                    raise
                finally:
                    course.first_byte_s = exchange.first_byte_s
        except ExchangeError as failure:
            course.break_off(failure)

    async def _receive(self, ask: Ask, exchange: Exchange, course: _Course) -> None:
        head = await exchange.head()
        course.http_status = head.status
        if head.status != 200 or head.content_type != EVENT_STREAM or head.content_encoding != "identity":
            course.end(*await _refusal(exchange, head))
            return
        reply = course.reply

        def tell(first: int) -> None:
            if self._journal is not None:
                times_s, tokens = reply.chunk_times_s[first:], reply.tokens_since(first)
                self._journal.chunks(ask.request_id, times_s, tokens, reply.channels_since(first))

        stream = EventStream(_parser_of(self.target.endpoint), keeps_text=course.text is not None)
        on_chunks = None if self._journal is None else tell
        follower = StreamFollower(exchange, stream, reply, course.receipt, on_chunks, course.text)
        await follower.follow(self._rounds)
        course.end(*reply.verdict())
        if not reply.done or await _wait_for_close(exchange):
            course.end_s = exchange.time_s

    async def _examine(self, ask: Ask, course: _Course) -> None:
        if ask.examine is None or course.text is None or not (course.text or course.status is RequestStatus.COMPLETED):
            return
        text, course.text = "".join(course.text), None
        async with self._examining:
            course.findings = await asyncio.to_thread(ask.examine, text)

    def _finish(self, ask: Ask, course: _Course, on_end: Callable[[RequestRecord], None] | None) -> RequestRecord:
        end_s = self._clock() if course.end_s is None else course.end_s
        error = None if course.error is None else one_line(self.target.hide_secrets(course.error, ask.prompt))
        record = _build_record(ask, course, end_s, error)
        self.receipts.add(record.request_id, course.receipt)
        if on_end is not None:
            on_end(record)
        return record


def _parser_of(endpoint: Endpoint) -> PayloadParser | None:
    """None for the routes whose payloads EventStream knows."""
    return None if endpoint.is_openai else payload_parser(endpoint)


def _tell_start(journal: ChunkJournal, ask: Ask, course: _Course) -> None:
    journal.started(
        ask.request_id,
        ask.planned_s,
        course.sent_s,
        stage=ask.stage,
        group=ask.group,
        index=ask.index,
        session=ask.session,
        turn=ask.turn,
        requested_output_tokens=ask.max_output_tokens,
    )


def _build_record(ask: Ask, course: _Course, end_s: float, error: str | None) -> RequestRecord:
    """The record, with the token counts of whoever counted first (see `_count_output`)."""
    reply, findings = course.reply, course.findings
    output_tokens, source = _count_output(course)
    return RequestRecord(
        request_id=ask.request_id,
        origin=Origin.MEASURED,
        stage=ask.stage,
        status=course.status,
        planned_s=ask.planned_s,
        sent_s=course.sent_s,
        end_s=end_s,
        chunk_times_s=tuple(reply.chunk_times_s),
        prompt_tokens=reply.prompt_tokens,
        cached_prompt_tokens=reply.cached_prompt_tokens,
        output_tokens=output_tokens,
        requested_output_tokens=ask.max_output_tokens,
        token_count_source=source,
        finish_reason=reply.finish_reason,
        http_status=course.http_status,
        error=error,
        group=ask.group,
        server_timings=reply.timings,
        chunk_tokens=reply.chunk_tokens,
        channels=reply.channels_since(0),
        first_byte_s=course.first_byte_s,
        document_valid=None if findings is None else findings.is_valid,
        index=ask.index,
        session=ask.session,
        turn=ask.turn,
    )


def _count_output(course: _Course) -> tuple[int | None, TokenCountSource]:
    """The server's count, else the tokenizer's.

    Where:    text that is not all of the output (reasoning, tool calls) is no ground to count from
    Ignores:  how many tokens were asked for
    """
    counted, source = course.reply.count_output()
    findings = course.findings
    if counted is None and findings is not None and findings.num_tokens is not None and not course.reply.other_channels:
        return findings.num_tokens, TokenCountSource.TOKENIZER
    return counted, source


def _headers(target: Target, accept: str) -> tuple[tuple[str, str], ...]:
    """Headers of every request; a coding such as gzip is never asked for: it would hide when tokens came."""
    return (
        ("User-Agent", f"inference-bench/{__version__}"),
        ("Accept", accept),
        ("Accept-Encoding", "identity"),
        ("Content-Type", JSON_TYPE),
        *target.secret_headers,
    )


async def _wait_for_close(exchange: Exchange) -> bool:
    with suppress(TimeoutError, ExchangeError):
        async with asyncio.timeout(CLOSING_GRACE_S):
            while await exchange.next_part() is not None:
                pass
            return True
    return False


async def _refusal(exchange: Exchange, head: Head) -> tuple[RequestStatus, str]:
    """What it means that the reply is not an event stream."""
    said = await read_error(exchange, head)
    kind = head.content_type or "no content type"
    if head.status in _REJECTING:
        return RequestStatus.REJECTED, f"HTTP {head.status}: {said or kind}"
    if 300 <= head.status < 400:
        where = _describe_location(head.location)
        return RequestStatus.FAILED, f"HTTP {head.status}: redirected to {where}; give the final address"
    if head.status != 200:
        return RequestStatus.FAILED, f"HTTP {head.status}: {said or kind}"
    if head.content_encoding != "identity":
        return RequestStatus.FAILED, f"the reply is encoded as {head.content_encoding}, which was not asked for"
    remark = f" ({said})" if said else ""
    return RequestStatus.FAILED, f"the server answered with {kind} instead of {EVENT_STREAM}{remark}"


async def read_error(exchange: Exchange, head: Head) -> str | None:
    """What a JSON reply says went wrong; None for any other."""
    if not _is_json(head):
        return None
    try:
        return error_message(parse_json(await _read_body(exchange, _MAX_ERROR_BYTES)))
    except (ExchangeError, StreamError):
        return None


async def _read_body(exchange: Exchange, max_bytes: int) -> bytes:
    body = bytearray()
    while (part := await exchange.next_part()) is not None:
        body += part.data
        if len(body) > max_bytes:
            raise StreamError(f"the reply is larger than {max_bytes} bytes; gave up reading")
    return bytes(body)


def _describe_location(location: str) -> str:
    try:
        return str(parse_address(location))
    except RequestError:
        return "another address"


def _is_json(head: Head) -> bool:
    is_json = head.content_type == JSON_TYPE or head.content_type.endswith("+json")
    return is_json and head.content_encoding == "identity"


def _strange_kind(head: Head) -> str:
    """What a reply is that is not plain JSON."""
    if head.content_encoding != "identity":
        return f"a reply that is encoded as {head.content_encoding}, which was not asked for"
    return f"{head.content_type or 'no content type'} instead of JSON"


def get_json(target: Target, path: str, timeouts: Timeouts | None = None) -> object:
    """What a server says about itself at `path`, such as /v1/models; not for use inside an event loop.

    Raises:   ServerError when it cannot be reached or refuses, StreamError when the reply is not JSON
    """
    return asyncio.run(fetch_json(target, path, timeouts=timeouts))


def post_json(target: Target, path: str, body: object, timeouts: Timeouts | None = None) -> object:
    """The JSON reply to a JSON body; see `get_json`."""
    return asyncio.run(fetch_json(target, path, json.dumps(body, allow_nan=False).encode(), timeouts))


async def fetch_json(target: Target, path: str, body: bytes = b"", timeouts: Timeouts | None = None) -> object:
    """One JSON exchange: GET without a body, POST with one.

    Raises:   ServerError when it cannot be reached or refuses, StreamError when the reply is not JSON
    """
    request = HttpRequest("POST" if body else "GET", path, _headers(target, JSON_TYPE), body)
    limits = Limits(max_reply_bytes=MAX_JSON_BYTES)
    where = f"{target.address}{path}"
    try:
        async with open_exchange(
            Dialer(target.address), request, RunClock(), timeouts or Timeouts(), limits
        ) as exchange:
            head = await exchange.head()
            if head.status != 200:
                _, message = await _refusal(exchange, head)
                raise ServerError(one_line(target.hide_secrets(f"{where} answered {message}")))
            if not _is_json(head):
                raise StreamError(one_line(f"{where} answered with {_strange_kind(head)}"))
            try:
                return parse_json(await _read_body(exchange, MAX_JSON_BYTES))
            except StreamError as failure:
                raise StreamError(one_line(target.hide_secrets(f"{where}: {failure}"))) from None
    except ExchangeError as failure:
        raise ServerError(f"{where}: {failure}") from None
