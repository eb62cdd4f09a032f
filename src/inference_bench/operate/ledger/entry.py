"""What does the ledger know of one request: sizes, times and controlled names, and how each attempt ended.

In:   nothing; these are plain immutable values
Out:  Entry with its EntryAttempts, and which of its tokens were computed, completed and of use
Leaves out: text of any kind, keys, addresses
Read next by: recorder (writes), lines, run_folders, totals, export.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from inference_bench.operate.answers import AttemptEnd
from inference_bench.records import RequestStatus

_TURNED_AWAY: Final = frozenset({AttemptEnd.NOT_REACHED, AttemptEnd.REFUSED, AttemptEnd.BAD_REQUEST})
_WITHOUT_WORK: Final = _TURNED_AWAY | {AttemptEnd.BREAKER_OPEN}
_MOST_WALL_S: Final = 253_402_300_799.0  # the end of the year 9999, beyond which there are no dates


@dataclass(frozen=True, slots=True)
class EntryAttempt:
    """One time that something was sent.

    Unit:   seconds since the request began
    Where:  a token count is None where nobody counted; is_lower_bound says that at least as many came
    """

    endpoint: str | None
    model: str | None
    end: AttemptEnd
    started_s: float
    ended_s: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    http_status: int | None = None
    is_hedge: bool = False
    is_lower_bound: bool = False
    manifest_sha256: str | None = None

    @property
    def is_counted(self) -> bool:
        """Whether what it made a server compute is known: nothing, or a count."""
        return self.end in _WITHOUT_WORK or self.output_tokens is not None

    @property
    def is_turned_away(self) -> bool:
        """Whether it was sent, and a server refused it or was not reached."""
        return self.end in _TURNED_AWAY

    @property
    def in_flight_s(self) -> float:
        """How long it was with a server."""
        return 0.0 if self.end is AttemptEnd.BREAKER_OPEN else max(0.0, self.ended_s - self.started_s)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request.

    Unit:   began_s is seconds on its source's own clock; at_s is the same on the wall clock, seconds since 1970, None where no clock
            is known; the others are seconds since the request began
    Where:  source is the process or the run that wrote it, sequence its place there; tokens are those of the answer that the caller got;
            user_success is what the caller said of it, None where it said nothing; is_warm_up says that nobody waited for it;
            error is one of a few known words; manifest_sha256 is the digest of what whoever answered serves, where that is known
    """

    source: str
    sequence: int
    request_id: str
    status: RequestStatus
    began_s: float
    e2e_s: float
    attempts: tuple[EntryAttempt, ...]
    at_s: float | None = None
    ttft_s: float | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    application: str | None = None
    team: str | None = None
    endpoint: str | None = None
    model: str | None = None
    is_fallback: bool = False
    user_success: bool | None = None
    is_warm_up: bool = False
    is_lower_bound: bool = False
    error: str | None = None
    manifest_sha256: str | None = None

    @property
    def at(self) -> datetime | None:
        """When it began, in UTC; None where no clock is known, or for what is no date."""
        if self.at_s is None or not 0 <= self.at_s <= _MOST_WALL_S:
            return None
        return datetime.fromtimestamp(self.at_s, UTC)

    @property
    def is_completed(self) -> bool:
        """Whether the answer came whole."""
        return self.status is RequestStatus.COMPLETED

    @property
    def is_useful(self) -> bool:
        """Whether a user could use it: whole, waited for by somebody, and not refused by the application afterwards."""
        return self.is_completed and not self.is_warm_up and self.user_success is not False

    def answering(self) -> EntryAttempt | None:
        """The attempt whose text the caller got: the last that brought any from whoever answered; None where nobody did."""
        ends = (AttemptEnd.COMPLETED, AttemptEnd.INTERRUPTED)
        found = [each for each in self.attempts if each.end in ends and self.endpoint in (None, each.endpoint)]
        if not found and self.endpoint is not None:  # the caller stopped it, or its budget did, after tokens had come
            found = [each for each in self.attempts if each.endpoint == self.endpoint and each.output_tokens]
        return found[-1] if found else None
