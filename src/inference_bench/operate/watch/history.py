"""What do the pages of one server come to over a window? Rates, growth and means, from its last start on.

In:   PageRead after PageRead, each with its time on a monotonic clock
Out:  Figures; whether a page shows that the server began anew
Leaves out: what they mean (judge)
Read next by: observer.

A counter that goes back means that the server began anew: what came before is forgotten, and no rate is negative. Times are those of
the monotonic clock, so that a wall clock that steps changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from inference_bench.measure.server_metrics import ServerSample, counter_change, summarise_server
from inference_bench.operate.watch.page import PageRead
from inference_bench.operate.watch.states import Figures

MAX_PAGES: Final = 600
_COUNTERS: Final = ("prompt_tokens_total", "output_tokens_total", "preemptions", "prefix_hit_tokens", "ttft_count")
_LEAST_SPAN_S: Final = 1e-3


class History:
    """The last pages of one server."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._pages: deque[PageRead] = deque(maxlen=MAX_PAGES)

    @property
    def pages(self) -> Sequence[PageRead]:
        """Those within the window, the oldest first; all have a sample."""
        return self._pages

    @property
    def samples(self) -> list[ServerSample]:
        """Theirs."""
        return [page.sample for page in self._pages if page.sample is not None]

    def add(self, page: PageRead) -> bool:
        """Take a page with a sample; whether it shows that the server began anew."""
        last = self._pages[-1] if self._pages else None
        began_anew = last is not None and _went_back(last, page)
        if began_anew:
            self._pages.clear()
        self._pages.append(page)
        newest_s = _at_s(page)
        while newest_s - _at_s(self._pages[0]) > self._window_s:
            self._pages.popleft()
        return began_anew

    def forget(self) -> None:
        """The server is gone: what it does next is no continuation."""
        self._pages.clear()

    def figures(self, now_s: float, cache_tokens: float | None, most_running: float | None) -> Figures | None:
        """What it comes to; None without a page.

        Where:    cache_tokens and most_running are the server's limits, where it states them
        """
        if not self._pages:
            return None
        samples = self.samples
        last, span_s = samples[-1], samples[-1].at_s - samples[0].at_s
        summary = summarise_server(samples)
        used, running = last.cache_used_fraction, last.running
        return Figures(
            age_s=now_s - last.at_s,
            window_s=span_s,
            running=running,
            waiting=last.waiting,
            cache_used_fraction=used,
            cache_headroom_tokens=_left(cache_tokens, used),
            free_requests=None if running is None or most_running is None else max(0.0, most_running - running),
            queue_growth_per_s=_slope(samples),
            output_tokens_per_s=_rate(samples, "output_tokens_total", span_s),
            prompt_tokens_per_s=_rate(samples, "prompt_tokens_total", span_s),
            preemptions_per_s=_rate(samples, "preemptions", span_s),
            prefix_hit_fraction=None if summary is None else _share(summary.prefix_hit_fraction),
            ttft_mean_s=None if summary is None else summary.mean_ttft_s,
        )


def _at_s(page: PageRead) -> float:
    return page.sample.at_s if page.sample is not None else -math.inf


def _went_back(before: PageRead, after: PageRead) -> bool:
    """Whether a counter is lower than it was, or the server is another one."""
    if before.engine != after.engine:
        return True
    for name in _COUNTERS:
        was, now = getattr(before.sample, name), getattr(after.sample, name)
        if was is not None and now is not None and now < was:
            return True
    return False


def _left(cache_tokens: float | None, used: float | None) -> float | None:
    return None if cache_tokens is None or used is None else cache_tokens * (1 - min(1.0, max(0.0, used)))


def _share(value: float | None) -> float | None:
    """A share of what was asked for; counters of two moments can make it come out a little beside 0 and 1."""
    return None if value is None else min(1.0, max(0.0, value))


def _rate(samples: Sequence[ServerSample], name: str, span_s: float) -> float | None:
    change = counter_change(samples, name)
    return None if change is None or span_s < _LEAST_SPAN_S else change / span_s


def _slope(samples: Sequence[ServerSample]) -> float | None:
    """Requests a second by which the queue grows: of the line with the least squares through the numbers waiting.

    Source:   least squares of one variable: sum of (t - mean t)(w - mean w) over the sum of (t - mean t) squared
    """
    points = [(each.at_s, each.waiting) for each in samples if each.waiting is not None]
    if len(points) < 2 or points[-1][0] - points[0][0] < _LEAST_SPAN_S:
        return None
    mean_t = math.fsum(at for at, _ in points) / len(points)
    mean_w = math.fsum(waiting for _, waiting in points) / len(points)
    spread = math.fsum((at - mean_t) ** 2 for at, _ in points)
    return math.fsum((at - mean_t) * (waiting - mean_w) for at, waiting in points) / spread
