"""Is it alive, is it ready, has it room? The rules, each a few lines, with the words that say why.

In:   Evidence and the pages of late
Out:  Verdict
Leaves out: asking (observer)
Read next by: observer.

Unknown is its own answer: a server that was not asked, or does not say, is neither ready nor out of room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from inference_bench.measure.server_metrics import ServerSample, counter_change
from inference_bench.operate.watch.evidence import Evidence
from inference_bench.operate.watch.page import PageRead
from inference_bench.operate.watch.states import Alive, Ready, Room
from inference_bench.units import format_count, format_fraction, format_seconds

LATELY_S: Final = 15.0
NEARLY_FULL: Final = 0.9  # of the cache: engines admit by what a prompt needs now, and what runs grows
_LOADING: Final = 503
_WANTS_KEY: Final = (401, 403)


class Verdict(NamedTuple):
    """The three answers, and why."""

    alive: Alive
    ready: Ready
    room: Room
    reasons: tuple[str, ...]


def judge(found: Evidence, pages: Sequence[PageRead], now_s: float, ready_for_s: float) -> Verdict:
    """What the evidence comes to.

    Where:    a token proves that a server is ready for `ready_for_s`
    """
    alive = _alive(found)
    lately = _lately(pages, now_s)
    ready, why_ready = _ready(found, alive, lately, now_s, ready_for_s)
    room, why_room = _room(found, alive, lately, now_s)
    remarks = (found.page_trouble, found.model_doubt) if alive is Alive.YES and ready is not Ready.LOADING else ()
    reasons = (_why_not_alive(found, alive), why_ready, why_room, *remarks)
    return Verdict(alive, ready, room, tuple(reason for reason in reasons if reason))


def _alive(found: Evidence) -> Alive:
    if not found.asked:
        return Alive.UNKNOWN
    if found.was_answered:
        return Alive.YES
    return Alive.SILENT if found.was_connected else Alive.NO


def _why_not_alive(found: Evidence, alive: Alive) -> str | None:
    if alive is Alive.SILENT:
        return f"it takes connections and gives no answer: {found.silence}"
    return found.silence if alive is Alive.NO else None


def _lately(pages: Sequence[PageRead], now_s: float) -> list[PageRead]:
    """The pages of the last seconds, and the last two however old, with their samples."""
    known = [page for page in pages if page.sample is not None]
    return [
        page
        for number, page in enumerate(known, start=1)
        if number > len(known) - 2 or (page.sample is not None and now_s - page.sample.at_s <= LATELY_S)
    ]


# ── ready ──────────────────────────────────────────────────────────────────────────────────────────


def _ready(
    found: Evidence, alive: Alive, lately: Sequence[PageRead], now_s: float, ready_for_s: float
) -> tuple[Ready, str | None]:
    if alive is Alive.UNKNOWN:
        return Ready.UNKNOWN, None
    if alive is not Alive.YES:
        return Ready.NO, None
    if _is_loading(found):
        return Ready.LOADING, f"HTTP {_LOADING}: it may still be loading its model"
    token_age_s = None if found.token_s is None else now_s - found.token_s
    if found.probe_failure is not None and not _is_later(found.token_s, found.probed_s):
        return Ready.NO, f"one token was asked for, and none came: {found.probe_failure}"
    if token_age_s is not None and token_age_s <= ready_for_s:
        return Ready.YES, None
    if busy := _num_busy(lately):
        since = "since it was first asked" if token_age_s is None else f"for {format_seconds(token_age_s)}"
        return Ready.UNKNOWN, f"busy with {format_count(busy)} requests, and no token was seen {since}"
    return _as_listed(found)


def _as_listed(found: Evidence) -> tuple[Ready, str | None]:
    """What can be said of a server that has not given a token."""
    if found.list_status in _WANTS_KEY or found.probe_status in _WANTS_KEY:
        return Ready.UNKNOWN, "it wants an API key that it was not given"
    if found.list_trouble is not None:
        return Ready.NO, found.list_trouble
    if found.model is not None:
        return Ready.LISTED, "it lists its model; no token was asked for"
    return Ready.UNKNOWN, None


def _is_loading(found: Evidence) -> bool:
    """Whether a question was answered as servers answer while they load; a full queue refuses work, and shows its metrics."""
    if _LOADING in (found.scrape_status, found.list_status):
        return True
    return found.probe_status == _LOADING and found.engine is None


def _is_later(first_s: float | None, second_s: float | None) -> bool:
    return first_s is not None and (second_s is None or first_s > second_s)


def _num_busy(lately: Sequence[PageRead]) -> int:
    last = lately[-1].sample if lately else None
    return 0 if last is None else round((last.running or 0) + (last.waiting or 0))


# ── room ───────────────────────────────────────────────────────────────────────────────────────────


def _room(found: Evidence, alive: Alive, lately: Sequence[PageRead], now_s: float) -> tuple[Room, str | None]:
    samples = [page.sample for page in lately if page.sample is not None]
    if alive is not Alive.YES or found.page_trouble is not None or not samples:
        return Room.UNKNOWN, None
    if (why := _why_saturated(found, lately, samples, now_s)) is not None:
        return Room.SATURATED, why
    last = samples[-1]
    if last.waiting is None and last.cache_used_fraction is None:
        return Room.UNKNOWN, "its metrics say nothing of its queue or its cache"
    if last.waiting:
        return Room.FILLING, f"{format_count(round(last.waiting))} requests wait"
    if last.cache_used_fraction is not None and last.cache_used_fraction >= NEARLY_FULL:
        return Room.FILLING, f"{format_fraction(last.cache_used_fraction)} of the cache is used"
    return Room.ROOM, None


def _why_saturated(
    found: Evidence, lately: Sequence[PageRead], samples: Sequence[ServerSample], now_s: float
) -> str | None:
    """What says that no more can be admitted, None where nothing does."""
    turned_away = found.turned_away_s is not None and now_s - found.turned_away_s <= LATELY_S
    if turned_away or _rose([page.rejected for page in lately]):
        return "it turned a request away"
    if counter_change(samples, "preemptions"):
        return "it throws requests out of its cache and begins them again (preemptions)"
    waiting = [each.waiting for each in samples if each.waiting is not None]
    if len(waiting) > 1 and min(waiting) > 0:
        return f"{format_count(round(waiting[-1]))} requests wait, and some did at every look"
    return None


def _rose(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return len(known) > 1 and known[-1] > known[0]
