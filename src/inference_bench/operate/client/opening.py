"""One attempt at one endpoint: send on a new or a kept connection, wait until a stream begins, and read it; or say why there is none.

In:   Connections, the bytes of a request, limits
Out:  OpenReply, which may be read to its first token or to its end, or AttemptFailure
Leaves out: whether to try again (attempts)
Read next by: hedge, attempts, client.

The wire, the framing, the parsers and the follower are the load generator's. Its wire watches the whole time that is left, and drops
the connection when it is over, whether or not anybody reads; a timer here watches the time to the first token and from token to token, so
that a server that sends comments and no tokens stalls like a silent one. Where the caller wants the whole answer and not its pieces,
nobody is woken for the first token: what comes piles up, and whether there was a token is looked at when it matters. Leaving an
OpenReply closes the connection, which is how a server learns that nobody wants the rest; one that ended in order is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from inference_bench.errors import StreamError
from inference_bench.measure.framing import ReplyReader
from inference_bench.measure.http1 import Exchange, ExchangeError, FailureKind, Head, Timeouts
from inference_bench.measure.receipts import Receipt
from inference_bench.measure.reply import Reply
from inference_bench.measure.sender import EVENT_STREAM, read_error
from inference_bench.measure.stream_events import Content
from inference_bench.measure.stream_follower import DecodeRounds, StreamFollower
from inference_bench.measure.wire import Wire
from inference_bench.operate.answers import AttemptEnd, end_of_status
from inference_bench.operate.client.backoff import parse_retry_after
from inference_bench.operate.client.connections import Connections
from inference_bench.operate.client.reading import AnswerEvents


class AttemptFailure(Exception):
    """An attempt that got no token; stays inside this package.

    Where:    is_cut_short says that it had less time than the policy gives; is_stale that a kept connection ended before anything came
    """

    def __init__(
        self,
        end: AttemptEnd,
        message: str,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        *,
        is_cut_short: bool = False,
        is_stale: bool = False,
    ) -> None:
        super().__init__(message)
        self.end, self.http_status, self.retry_after_s = end, http_status, retry_after_s
        self.is_cut_short, self.is_stale = is_cut_short, is_stale


class Stalled(Exception):
    """No token came for as long as a stream may pause; stays inside this package."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one attempt may take. Unit: seconds."""

    connect_s: float
    first_token_s: float
    stall_s: float
    left_s: float
    max_reply_bytes: int

    @property
    def token_within_s(self) -> float:
        """For the first token, from the start of the attempt."""
        return min(self.first_token_s, self.left_s)


class OpenReply:
    """A reply of which the head has come; `end` or `close` it in any case.

    Where:    failure is how the stream broke off, None where it ended in order or has not ended; first_due_s is when there has to be a
              token
    """

    def __init__(
        self,
        wire: Wire,
        exchange: Exchange,
        connections: Connections,
        clock: Callable[[], float],
        stall_s: float,
        first_due_s: float,
    ) -> None:
        self.reply, self.events = Reply(), AnswerEvents()
        self.http_status: int | None = None
        self._wire, self._exchange, self._connections = wire, exchange, connections
        self._is_given_back = False
        self._clock, self._stall_s, self._first_due_s = clock, stall_s, first_due_s
        self._follower = StreamFollower(exchange, self.events, self.reply, Receipt())
        self._timer: asyncio.TimerHandle | None = None

    @property
    def failure(self) -> Exception | None:
        """How it broke off."""
        return self._follower.failure

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._follower.is_over

    @property
    def first_token_s(self) -> float | None:
        """When the first token came."""
        times_s = self.reply.chunk_times_s
        return times_s[0] if times_s else None

    @property
    def last_read_s(self) -> float:
        """When what was read last came."""
        return self._exchange.time_s

    async def begin(self) -> None:
        """Until there is a token, or there will be none."""
        follower, exchange, times_s = self._follower, self._exchange, self.reply.chunk_times_s
        self._watch()
        while not times_s and not follower.is_over:
            await exchange.wait()
            follower.decode()

    async def read_all(self, rounds: DecodeRounds) -> None:
        """Until the reply is over, read as the load generator reads: what comes piles up, and is decoded a little at a time."""
        self._watch()
        if not self.is_over:
            with suppress(ExchangeError, StreamError, Stalled):  # it is in `failure`
                await self._follower.follow(rounds)

    async def next_pieces(self) -> list[Content]:
        """What has come; nothing once all of it was taken, however the reply ended."""
        while not (pieces := self.events.take_pieces()):
            if self.is_over:
                break
            await self._exchange.wait()
            self._follower.decode()
        return pieces

    async def end(self) -> None:
        """The caller wants nothing more: give the connection back after a whole answer, else drop it."""
        reply = self.reply
        is_whole = self.is_over and self.failure is None and reply.error is None and reply.finish_reason is not None
        if self._is_given_back:  # it may serve another request by now
            return
        if not is_whole or not self._connections.keep_alive_s:
            await self.close()
            return
        self._is_given_back = True
        self._rest()
        self._connections.give_back(self._wire, self._exchange)

    async def close(self) -> None:
        """Drop the connection."""
        self._rest()
        await self._wire.close()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        """Look whether there is the token there has to be by now, and come again; where there is none, the reply is over."""
        follower, times_s = self._follower, self.reply.chunk_times_s
        follower.decode()
        if follower.is_over:
            self._exchange.wake()
            return
        wait_s = (times_s[-1] + self._stall_s if times_s else self._first_due_s) - self._clock()
        if wait_s > 0:
            self._timer = asyncio.get_running_loop().call_later(min(wait_s, self._stall_s), self._watch)
            return
        follower.failure = Stalled(f"no token came for {self._stall_s:g} s")
        self._exchange.wake()


async def open_reply(
    connections: Connections,
    message: bytes,
    limits: Limits,
    clock: Callable[[], float],
    wall_s: Callable[[], float],
) -> OpenReply:
    """Send a request, and wait until an event stream begins.

    Raises:   AttemptFailure
    """
    first_due_s = clock() + limits.token_within_s
    timeouts = Timeouts(min(limits.connect_s, limits.token_within_s), limits.left_s, limits.left_s)
    try:
        wire = await connections.connect(timeouts, limits.max_reply_bytes)
    except ExchangeError as failure:
        is_cut_short = failure.kind is FailureKind.TIMED_OUT and timeouts.connect_s < limits.connect_s
        raise AttemptFailure(AttemptEnd.NOT_REACHED, str(failure), is_cut_short=is_cut_short) from None
    try:
        wire.send(message)
        exchange = Exchange(wire, ReplyReader())
        opened = OpenReply(wire, exchange, connections, clock, limits.stall_s, first_due_s)
        async with asyncio.timeout(max(0.0, first_due_s - clock())):
            await _read_head(opened, exchange, wall_s, is_kept=wire.is_renewed)
    except BaseException as error:
        await wire.close()
        if isinstance(error, TimeoutError):
            raise _too_late(limits) from None
        raise
    return opened


def _too_late(limits: Limits, status: int | None = None) -> AttemptFailure:
    is_cut_short = limits.left_s < limits.first_token_s
    message = f"no token within {limits.token_within_s:.3g} s"
    return AttemptFailure(AttemptEnd.TIMED_OUT, message, status, is_cut_short=is_cut_short)


async def _read_head(opened: OpenReply, exchange: Exchange, wall_s: Callable[[], float], *, is_kept: bool) -> None:
    try:
        head = await exchange.head()
        opened.http_status = head.status
        if head.status != 200 or head.content_type != EVENT_STREAM or head.content_encoding != "identity":
            raise await _refusal(exchange, head, parse_retry_after(head.retry_after, wall_s(), head.date))
    except ExchangeError as failure:
        if is_kept and failure.kind is FailureKind.LOST and exchange.first_byte_s is None:
            message = f"a kept connection had been closed: {failure}"
            raise AttemptFailure(AttemptEnd.NOT_REACHED, message, is_stale=True) from None
        raise _broken(failure, opened.http_status) from None


def check_begun(opened: OpenReply, limits: Limits) -> None:
    """A reply without a token is an answer where it gives a reason to end.

    Raises:   AttemptFailure for every other one
    """
    if opened.first_token_s is not None:
        return
    failure, reply, status = opened.failure, opened.reply, opened.http_status
    if reply.error is not None:
        raise AttemptFailure(AttemptEnd.SERVER_ERROR, reply.error, status)
    if reply.finish_reason is not None:
        return
    if isinstance(failure, Stalled):
        raise _too_late(limits, status)
    if isinstance(failure, ExchangeError):
        raise _broken(failure, status)
    if failure is not None:
        raise AttemptFailure(AttemptEnd.GARBAGE, str(failure), status)
    raise AttemptFailure(AttemptEnd.GARBAGE, "the stream ended without a single token", status)


def _broken(failure: ExchangeError, status: int | None) -> AttemptFailure:
    """An exchange that broke off before the first token; what the wire calls timed out is the end of the whole budget."""
    if failure.kind is FailureKind.TIMED_OUT:
        return AttemptFailure(AttemptEnd.TIMED_OUT, str(failure), status, is_cut_short=True)
    is_lost = failure.kind in (FailureKind.LOST, FailureKind.UNREACHABLE)
    return AttemptFailure(AttemptEnd.NOT_REACHED if is_lost else AttemptEnd.GARBAGE, str(failure), status)


async def _refusal(exchange: Exchange, head: Head, retry_after_s: float | None) -> AttemptFailure:
    said = await read_error(exchange, head)
    kind = head.content_type or "no content type"
    if head.status != 200:
        what = "redirected; give the final address" if 300 <= head.status < 400 else said or kind
        return AttemptFailure(end_of_status(head.status), f"HTTP {head.status}: {what}", head.status, retry_after_s)
    if said is not None:
        return AttemptFailure(AttemptEnd.SERVER_ERROR, said, head.status)
    how = kind if head.content_encoding == "identity" else f"a reply encoded as {head.content_encoding}"
    message = f"the server answered with {how} instead of {EVENT_STREAM}"
    return AttemptFailure(AttemptEnd.GARBAGE, message, head.status)
