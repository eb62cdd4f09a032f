"""How is a stream read without keeping the next one waiting: its bytes pile up, and are decoded a little at a time.

In:   Exchanges whose reply is an event stream
Out:  for each its Reply and Receipt, complete when `follow` returns; for a journal, what has come so far
Leaves out: receiving (wire), what bytes mean (openai_stream), what becomes of it (sender)
Read next by: sender.

Receiving costs a few microseconds a token and must happen at once; decoding costs as much again and can wait. So a
stream is decoded when it may have ended, when much of it has piled up, and otherwise in turn with the others, every
`ROUND_S`, so that memory is bounded, an error within a stream is seen, and a journal knows what came. No turn takes
longer than a few hundred tokens do, and between two turns sockets are read.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from inference_bench.errors import InferenceBenchError, StreamError
from inference_bench.measure.http1 import Exchange, ExchangeError
from inference_bench.measure.openai_stream import EventStream
from inference_bench.measure.receipts import Receipt
from inference_bench.measure.reply import Reply
from inference_bench.measure.stream_events import Channel, Content, StreamEvent
from inference_bench.records import Stage

ROUND_S: Final = 0.4
COLLECT_S: Final = 10.0

_TURN_S: Final = 0.0005  # as long as another stream's turn may follow without the loop in between
_REST_S: Final = 0.001  # the shortest sleep of an event loop
_SPREAD: Final = 0.618034  # first turns by the golden ratio: streams that begin together do not keep step


class ChunkJournal(Protocol):
    """Who is told of a request while it goes on."""

    def started(
        self,
        request_id: str,
        planned_s: float,
        sent_s: float,
        *,
        stage: Stage,
        group: str,
        index: int | None,
        session: int | None,
        turn: int | None,
        requested_output_tokens: int | None,
    ) -> None:
        """A request was sent."""

    def chunks(self, request_id: str, times_s: Sequence[float], chunk_tokens: Sequence[int], channels: str) -> None:
        """What came since the last call."""


class StreamFollower:
    """One event stream on its way into `reply` and `receipt`.

    Where:    failure is why it broke off; text takes the pieces of the answer where somebody is to examine it; on_chunks
              gets the number of the first chunk that it has not been told of
    """

    def __init__(
        self,
        exchange: Exchange,
        stream: EventStream,
        reply: Reply,
        receipt: Receipt,
        on_chunks: Callable[[int], None] | None = None,
        text: list[str] | None = None,
    ) -> None:
        self.reply, self.receipt = reply, receipt
        self.failure: Exception | None = None
        self.due_s = 0.0  # for DecodeRounds
        self._exchange, self._stream = exchange, stream
        self._on_chunks, self._text = on_chunks, text
        self._num_told = 0

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to decode."""
        has_said_all = self.reply.done or self.reply.error is not None
        return has_said_all or self.failure is not None or self._exchange.is_over

    async def follow(self, rounds: DecodeRounds) -> None:
        """Until the reply has ended.

        Raises:   ExchangeError, StreamError; what on_chunks raises
        """
        self._exchange.let_pile_up()
        rounds.join(self)
        try:
            self.decode()
            while not self.is_over:
                await self._exchange.wait()
                self.decode()
        finally:
            rounds.leave(self)
            self.receipt.gather_s = self._exchange.gather_s
            self.decode()  # what had come when this was cancelled
        if self.failure is not None:
            raise self.failure

    def decode(self) -> None:
        """Take in what has arrived."""
        if self.is_over:
            return
        reply, note, text = self.reply, self.receipt.note, self._text
        only_of, events_of = self._stream.only, self._stream.events
        try:
            for part in self._exchange.take_parts():
                time_s, data = part[:2]
                only = only_of(data)
                num_before = 0
                for events in events_of(data) if only is None else (only,):
                    num_before = len(reply.chunk_times_s)
                    reply.add(events, time_s)
                    if text is not None:
                        text += _said(events)
                num_chunks = len(reply.chunk_times_s)
                note(part, num_chunks, num_chunks > num_before)
                if reply.done or reply.error is not None:
                    break
        except (ExchangeError, StreamError) as failure:
            self.failure = failure

    def take_turn(self) -> None:
        """Take in what has arrived, and tell of it."""
        self.decode()
        num_chunks = len(self.reply.chunk_times_s)
        if self._on_chunks is not None and num_chunks > self._num_told:
            first, self._num_told = self._num_told, num_chunks
            try:
                self._on_chunks(first)
            except InferenceBenchError as failure:  # such as a full disk; `follow` raises it
                self.failure = failure
        if self.is_over:
            self._exchange.wake()


def _said(events: tuple[StreamEvent, ...]) -> list[str]:
    return [event.text for event in events if type(event) is Content and event.channel is Channel.CONTENT]


class DecodeRounds:
    """The streams of one load, each of which gets a turn every ROUND_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[StreamFollower] = deque()  # by when they are due
        self._joined: set[StreamFollower] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._num_joined = 0
        self._collected_s = clock()

    def join(self, follower: StreamFollower) -> None:
        """From now on this stream has its turns."""
        self._num_joined += 1
        self._joined.add(follower)
        follower.due_s = self._clock() + ROUND_S * (0.5 + 0.5 * (self._num_joined * _SPREAD % 1))
        self._waiting.append(follower)
        if self._timer is None:
            self._rest()

    def leave(self, follower: StreamFollower) -> None:
        """This stream has ended."""
        self._joined.discard(follower)
        if not self._joined and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waiting.clear()

    def _rest(self) -> None:
        wait_s = max(_REST_S, self._waiting[0].due_s - self._clock())
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._take_turns)

    def _take_turns(self) -> None:
        begin_s = now_s = self._clock()
        while self._waiting and now_s - begin_s < _TURN_S and self._waiting[0].due_s <= now_s + _REST_S:
            follower = self._waiting.popleft()
            if follower in self._joined:
                follower.take_turn()
                now_s = self._clock()
                follower.due_s = now_s + ROUND_S
                self._waiting.append(follower)
        self._collect(now_s)
        self._timer = None
        if self._waiting:
            self._rest()

    def _collect(self, now_s: float) -> None:
        """Where Python does not collect garbage by itself, have it look through the young, now and then."""
        if now_s - self._collected_s > COLLECT_S:
            self._collected_s = now_s
            if not gc.isenabled():
                gc.collect(1)
