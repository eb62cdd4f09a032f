"""What does the caller catch? Two errors: nobody answered, and an answer that broke off with part of it said.

In:   how a stream ended
Out:  Interrupted and RequestFailed, both with the Answer; Cause
Leaves out: what is tried before either is raised (attempts)
Read next by: client.

The partial text is handed to whoever catches the error. It is in no message and no repr, and the error cannot be pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from inference_bench.errors import ServerError, StreamError
from inference_bench.measure.http1 import ExchangeError, FailureKind
from inference_bench.measure.stream_events import Channel, Content
from inference_bench.operate.answers import Answer
from inference_bench.operate.client.opening import OpenReply, Stalled


class Cause(StrEnum):
    """Why an answer broke off after it had begun."""

    LOST = "lost"  # the connection
    STALLED = "stalled"  # no token for too long
    GARBAGE = "garbage"  # what came was no event of a stream
    SERVER_ERROR = "server_error"  # the server said so, within the stream
    UNFINISHED = "unfinished"  # it ended in order, and gave no reason to end
    BUDGET = "budget"  # the time for the request was over


class RequestFailed(ServerError):
    """Nobody answered, and no text came."""

    def __init__(self, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.answer = answer

    def __reduce__(self) -> str:
        raise TypeError("an error of the client belongs to one caller, and cannot be stored")


class Interrupted(StreamError):
    """The answer broke off; nothing was asked again, since another attempt might say something else.

    Where:    pieces is what came, in order; answer.output_tokens how many tokens that is, as far as they can be counted
    """

    def __init__(self, message: str, answer: Answer, cause: Cause, pieces: Sequence[Content]) -> None:
        super().__init__(message)
        self.answer, self.cause, self.pieces = answer, cause, tuple(pieces)

    @property
    def text(self) -> str:
        """The part of the answer that came, without reasoning and tool calls."""
        return "".join(piece.text for piece in self.pieces if piece.channel is Channel.CONTENT)

    def __reduce__(self) -> str:
        raise TypeError("an error that holds text cannot be stored")


def why_incomplete(opened: OpenReply) -> tuple[Cause, str] | None:
    """Why a reply that is over is no whole answer; None for one that is.

    Ignores:  what happens after the reason to end: nothing of the text can be missing then
    """
    reply, failure = opened.reply, opened.failure
    if reply.error is not None:
        return Cause.SERVER_ERROR, reply.error
    if reply.finish_reason is not None:
        return None
    if failure is None:
        return Cause.UNFINISHED, "the stream ended without a finish reason"
    return _cause_of(failure), str(failure)


def remark_on(opened: OpenReply) -> str | None:
    """What there is to say about a whole answer."""
    if opened.failure is not None:
        return f"complete, though after the finish reason: {opened.failure}"
    return None if opened.reply.done else "complete, though the stream ended without its closing [DONE]"


def _cause_of(failure: Exception) -> Cause:
    if isinstance(failure, Stalled):
        return Cause.STALLED
    if not isinstance(failure, ExchangeError):
        return Cause.GARBAGE
    return {FailureKind.LOST: Cause.LOST, FailureKind.TIMED_OUT: Cause.BUDGET}.get(failure.kind, Cause.GARBAGE)
