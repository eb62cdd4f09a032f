"""What is the right answer of a case: by hand what kind and how many, by the server's own log when.

In:   a case's name and what the truth server wrote down about its requests
Out:  Answer, and by `compare` the names of the figures in which an Observed differs from it
Leaves out: how any client reads a stream: nothing of `measure` or `metrics` is imported here, and a test holds that
Read next by: suite.

Times are compared with a tolerance, since client and server share a machine: 5 %, but at least 20 ms of a wait and
1 ms of a mean pause. Counts and endings have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from inference_bench.units import GIGA

COMPLETED: Final = "completed"
NOT_COMPLETED: Final = "not completed"  # all that some tools say about any other ending
LOST: Final = "lost"
ENDED: Final = "ended"
NEVER_ASKED: Final = "requests"  # the figure in which a client is wrong that sent none

_RELATIVE: Final = 0.05
_WAIT_S: Final = 0.02
_PAUSE_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Right:
    """What is right about a case beside its times.

    Where:    is_stated says that the server said how many tokens; else a client may leave the count unknown. chunks
              are those with text. ending tells a broken connection from a stream that ended; None where it does not
              matter. has_remark: a completed request about which there is something to say. has_pauses is whether it is
              clear what the pauses between chunks are: some count the events of tokens without text, some do not
    """

    status: str = COMPLETED
    tokens: int = 8
    is_stated: bool = True
    chunks: int = 8
    ending: str | None = None
    has_remark: bool = False
    has_pauses: bool = True


def _four(status: str, ending: str | None = None) -> Right:
    """Four tokens came, and the server did not say how many."""
    return Right(status, 4, False, 4, ending)


def _none(status: str) -> Right:
    """Nothing came."""
    return Right(status, 0, False, 0)


# every case that is not named here: completed, eight tokens that the server states, in eight chunks
_RIGHT: Final[Mapping[str, Right]] = {
    "several_tokens_a_chunk": Right(tokens=9, chunks=3),
    "held_characters": Right(tokens=16, chunks=5),
    "empty_tokens": Right(chunks=6, has_pauses=False),
    "usage_null": Right(is_stated=False),
    "usage_missing": Right(is_stated=False),
    "usage_contradicting": Right(tokens=3, is_stated=False, has_remark=True),
    "two_choices": Right(tokens=16, chunks=16),
    "stops_early": _four(COMPLETED),
    "zero_tokens": Right(tokens=0, chunks=0),
    "until_close": Right(is_stated=False),
    "error_first": _none("failed"),
    "error_midway": _four("failed"),
    "error_event": _four("failed"),
    "error_after_finish": Right("failed", is_stated=False),
    "reset_midway": _four("truncated", LOST),
    "ends_midway": _four("truncated", ENDED),
    "closes_midway": _four("truncated", LOST),
    "until_close_midway": _four("truncated", ENDED),
    "ends_after_finish": Right(has_remark=True),
    "reset_at_once": _none("failed"),
    "broken_json": _four("failed"),
    "html": _none("failed"),
    "json_error": _none("failed"),
    "mislabelled_error": _none("failed"),
    "busy": _none("rejected"),
    "unavailable": _none("rejected"),
    "too_long": _none("rejected"),
    "internal_error": _none("failed"),
    "never_finishes": _four("timed_out"),
    "only_keep_alives": _none("timed_out"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The right answer of one case; times are means over the requests that the server saw.

    Unit:     seconds
    Where:    ttft_s, e2e_s and close_s run from when the connection was accepted; tpot_s is None where a first chunk
              of several tokens makes it a matter of definition
    """

    right: Right
    requests: int
    ttft_s: float | None = None
    gap_mean_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    close_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a client said about the same requests; None where it says nothing."""

    status: str
    tokens: int | None = None
    chunks: int | None = None
    ending: str | None = None
    has_remark: bool | None = None
    ttft_s: float | None = None
    gap_mean_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    close_s: float | None = None


def known_names() -> tuple[str, ...]:
    """The cases that differ from the ordinary one."""
    return tuple(_RIGHT)


def right_answer(name: str, log: Sequence[Mapping[str, Any]]) -> Answer:
    """What a client should say about the requests in a server's log, all of one case.

    Where:    a client that leaves before the stream is over knows no closing time, and none is expected
    """
    right = _RIGHT.get(name, Right())
    stamps = [_stamps(entry) for entry in log]
    closes = [_since(entry, entry["ended_ns"]) for entry in log if entry["is_whole"] and entry["ended_ns"]]
    is_over = right.status in (COMPLETED, "truncated") and len(closes) == len(log)
    return Answer(
        right,
        len(log),
        ttft_s=_mean_of(stamps, lambda times: times[0]),
        gap_mean_s=_mean_of(stamps, _mean_gap_s) if right.has_pauses else None,
        tpot_s=_tpot_s(right, log, stamps),
        e2e_s=_mean_of(stamps, lambda times: times[-1]),
        close_s=fmean(closes) if closes and is_over else None,
    )


def _since(entry: Mapping[str, Any], time_ns: int) -> float:
    return (time_ns - int(entry["accepted_ns"])) / GIGA


def _stamps(entry: Mapping[str, Any]) -> list[float]:
    """When each chunk with text left; several of one send left together."""
    return [_since(entry, time_ns) for time_ns, _, chunks in entry["sends"] for _ in chunks]


def _mean_gap_s(times_s: list[float]) -> float | None:
    return (times_s[-1] - times_s[0]) / (len(times_s) - 1) if times_s[1:] else None


def _mean_of(stamps: Sequence[list[float]], figure: Callable[[list[float]], float | None]) -> float | None:
    found = [value for times in stamps if times and (value := figure(times)) is not None]
    return fmean(found) if found else None


def _tpot_s(right: Right, log: Sequence[Mapping[str, Any]], stamps: Sequence[list[float]]) -> float | None:
    firsts = {next((chunks[0] for _, _, chunks in entry["sends"] if chunks), 1) for entry in log}
    is_doubtful = right.has_remark or not right.is_stated or right.tokens < 2
    if right.status != COMPLETED or is_doubtful or firsts != {1}:
        return None
    return _mean_of(stamps, lambda times: (times[-1] - times[0]) / (right.tokens - 1))


def compare(answer: Answer, got: Observed) -> tuple[str, ...]:
    """The figures in which a client is wrong, in the order they are told; none: it is right.

    Where:    NEVER_ASKED stands alone
    """
    if not answer.requests:
        return (NEVER_ASKED,)
    right = answer.right
    wrong = [] if _same_status(right.status, got.status) else ["status"]
    if not _same_tokens(right, got):
        wrong.append("tokens")
    for name in ("chunks", "ending", "has_remark"):
        expected, said = getattr(right, name), getattr(got, name)
        if expected is not None and said is not None and expected != said:
            wrong.append(name)
    for name, least in (
        ("ttft_s", _WAIT_S),
        ("gap_mean_s", _PAUSE_S),
        ("tpot_s", _PAUSE_S),
        ("e2e_s", _WAIT_S),
        ("close_s", _WAIT_S),
    ):
        if not _is_near(getattr(answer, name), getattr(got, name), least):
            wrong.append(name)
    return tuple(wrong)


def is_timing_alone(wrong: Sequence[str]) -> bool:
    """Whether only times differ, as a busy machine can make them."""
    return bool(wrong) and all(name.endswith("_s") for name in wrong)


def _same_status(expected: str, said: str) -> bool:
    return said == expected or (said == NOT_COMPLETED and expected != COMPLETED)


def _same_tokens(right: Right, got: Observed) -> bool:
    """A count has to be the true one; it may be left unknown where the server did not state it."""
    if got.status == NOT_COMPLETED:
        return True
    if got.tokens is None:
        return not right.is_stated
    return got.tokens == right.tokens


def _is_near(expected: float | None, said: float | None, least_s: float) -> bool:
    if expected is None or said is None:
        return True
    return abs(said - expected) <= max(least_s, _RELATIVE * expected)


def answer_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON."""
    fields = asdict(answer)
    return {**fields.pop("right"), **fields}
