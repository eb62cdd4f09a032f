"""What has happened to one request so far: its budget, its attempts, and in the end its Answer.

In:   a Request and its Budget; the start and end of each attempt
Out:  Trial, which becomes an Attempt; Answer
Leaves out: deciding anything (attempts), the text
Read next by: attempts, client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

from inference_bench.measure.openai_stream import one_line
from inference_bench.operate.answers import Answer, Attempt, AttemptEnd, EndpointIdentity
from inference_bench.operate.client.budget import Budget
from inference_bench.operate.client.opening import AttemptFailure, OpenReply
from inference_bench.operate.client.request import Letter, Request, Upstream
from inference_bench.records import RequestStatus

STATUS_OF_END: Final = {
    AttemptEnd.BAD_REQUEST: RequestStatus.REJECTED,
    AttemptEnd.REFUSED: RequestStatus.REJECTED,
    AttemptEnd.TIMED_OUT: RequestStatus.TIMED_OUT,
    AttemptEnd.CANCELLED: RequestStatus.CANCELLED,
}


@dataclass(slots=True)
class Trial:
    """An attempt that is going on."""

    number: int
    upstream: Upstream
    started_s: float
    waited_s: float
    is_hedge: bool


@dataclass(slots=True)
class Course:
    """One request on its way.

    Where:    is_read_whole says that nobody wants the pieces as they come; num_begun counts the attempts, num_sent those that were sent,
              without those on a kept connection that had been closed; is_answered says that one has its first token; remark is why an
              endpoint was given up although it might have been asked again
    """

    request: Request = field(repr=False)
    letter: Letter = field(repr=False)
    budget: Budget
    wall_s: float
    is_read_whole: bool
    attempts: list[Attempt] = field(default_factory=list)
    num_begun: int = 0
    num_sent: int = 0
    is_answered: bool = False
    is_hedged: bool = False
    remark: str | None = None

    def begin(self, upstream: Upstream, waited_s: float, *, is_hedge: bool = False) -> Trial:
        """Something is about to be sent."""
        self.num_begun += 1
        self.num_sent += 1
        return Trial(self.num_begun, upstream, self.budget.elapsed_s(), waited_s, is_hedge)

    def note_open_breaker(self, upstream: Upstream, open_for_s: float, waited_s: float) -> None:
        """Nothing is sent to this one."""
        self.num_begun += 1
        now_s = self.budget.elapsed_s()
        error = f"left alone after failures; it may be asked again in {open_for_s:.2g} s"
        self.attempts.append(
            Attempt(
                self.num_begun,
                upstream.identity(),
                AttemptEnd.BREAKER_OPEN,
                now_s,
                now_s,
                waited_s,
                error=error,
            )
        )

    def fail(self, trial: Trial, failure: AttemptFailure) -> None:
        """An attempt got no token."""
        self.num_sent -= failure.is_stale
        error = self._clean(trial.upstream, str(failure))
        self._end(trial, failure.end, self.budget.elapsed_s(), error, failure.http_status, failure.retry_after_s)

    def stop(self, trial: Trial, why: str) -> None:
        """This side stopped an attempt that had nothing to count."""
        self._end(trial, AttemptEnd.CANCELLED, self.budget.elapsed_s(), why)

    def finish(self, trial: Trial, opened: OpenReply, end: AttemptEnd, ended_s: float, error: str | None) -> None:
        """An attempt whose stream had begun is over."""
        tokens, is_lower_bound = count_tokens(opened)
        self._end(
            trial,
            end,
            ended_s,
            None if error is None else self._clean(trial.upstream, error),
            opened.http_status,
            model=opened.events.model,
            prompt_tokens=opened.reply.prompt_tokens,
            output_tokens=tokens,
            is_lower_bound=is_lower_bound,
        )

    def _end(
        self,
        trial: Trial,
        end: AttemptEnd,
        ended_s: float,
        error: str | None,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        *,
        model: str | None = None,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
        is_lower_bound: bool = False,
    ) -> None:
        self.attempts.append(
            Attempt(
                trial.number,
                trial.upstream.identity(model),
                end,
                trial.started_s,
                ended_s,
                trial.waited_s,
                retry_after_s,
                http_status,
                prompt_tokens,
                output_tokens,
                trial.is_hedge,
                error,
                is_lower_bound,
            )
        )

    def _clean(self, upstream: Upstream, text: str) -> str:
        """A server's words without key, headers, prompt and what a terminal would obey."""
        return one_line(upstream.target.hide_secrets(text, self.request.prompt_text()))

    def answer(
        self,
        status: RequestStatus,
        e2e_s: float,
        error: str | None,
        answered_by: EndpointIdentity | None = None,
        is_fallback: bool = False,
        opened: OpenReply | None = None,
    ) -> Answer:
        """What came of it."""
        request, usage = self.request, None if opened is None else opened.reply.usage
        tokens, is_lower_bound = (None, False) if opened is None else count_tokens(opened)
        first_s = None if opened is None else opened.first_token_s
        return Answer(
            request_id=request.request_id,
            at=datetime.fromtimestamp(self.wall_s, UTC).isoformat(timespec="milliseconds"),
            status=status,
            attempts=tuple(sorted(self.attempts, key=attrgetter("number"))),
            answered_by=answered_by,
            is_fallback=is_fallback,
            budget_s=self.budget.total_s,
            e2e_s=e2e_s,
            ttft_s=None if first_s is None else self.budget.since_begin_s(first_s),
            finish_reason=None if opened is None else opened.reply.finish_reason,
            prompt_tokens=None if opened is None else opened.reply.prompt_tokens,
            cached_prompt_tokens=None if opened is None else opened.reply.cached_prompt_tokens,
            output_tokens=tokens,
            reasoning_tokens=None if usage is None or opened is None else opened.events.reasoning_tokens,
            idempotency_key=self.letter.idempotency_key,
            application=request.application,
            team=request.team,
            error=error,
            is_lower_bound=is_lower_bound,
        )


def count_tokens(opened: OpenReply) -> tuple[int | None, bool]:
    """The server's count, else the pieces that came, which is a lower bound: each holds a token or more."""
    counted, _ = opened.reply.count_output()
    if counted is not None:
        return counted, False
    num_pieces = len(opened.reply.chunk_times_s)
    return (num_pieces, True) if num_pieces else (None, False)
