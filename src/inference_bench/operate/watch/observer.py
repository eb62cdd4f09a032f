"""One server, asked again and again: its metrics at every interval, its model and a token at a slow pace.

In:   Watched, WatchOptions, a monotonic clock
Out:  View whenever one is asked for; nothing that goes wrong with a server gets out of here
Leaves out: the other servers (flow), and what the facts mean (judge)
Read next by: flow.

A token is asked for only while the server computes nothing, by its own metrics, and has not shown by its own count that tokens come
out of it: what watches must not take room from what it watches. A server without metrics cannot say that it is busy, and is asked at
the slow pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.engines.answers import Asker, inside, text_in
from inference_bench.engines.attach import read_report
from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.measure.server_metrics_watch import require_page_path
from inference_bench.measure.target import Endpoint
from inference_bench.operate.watch.evidence import Evidence
from inference_bench.operate.watch.fetch import Fetcher, Reply, Unanswered, in_own_thread
from inference_bench.operate.watch.history import History
from inference_bench.operate.watch.judge import judge
from inference_bench.operate.watch.page import PageRead, read_metrics
from inference_bench.operate.watch.states import Counts, Proof, View
from inference_bench.operate.watch.targets import Watched
from inference_bench.units import format_seconds

_OK: Final = 200
_NO_ROUTE: Final = (404, 405, 501)
_LOADING: Final = 503
_TURNED_AWAY: Final = (429, 503)
_LONGEST_NAME: Final = 120
_MOST_EVENTS: Final = 20
_QUEUE_SHOWN: Final = 60
_NO_PAGE: Final = {
    401: "its metrics want a key that it was not given",
    403: "it does not show its metrics to this client",
    404: "it shows no metrics at that path: SGLang does when started with --enable-metrics",
    501: "it shows no metrics: llama.cpp does when started with --metrics",
}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How often, and how patiently.

    Where:    probe_s is the pace of the list of models and of the one token, which is_probing allows; window_s is what rates and means
              are taken over
    Raises:   RequestError
    """

    interval_s: float = 2.0
    timeout_s: float = 2.0
    probe_s: float = 15.0
    probe_timeout_s: float = 10.0
    window_s: float = 60.0
    is_probing: bool = True
    metrics_path: str = "/metrics"

    def __post_init__(self) -> None:
        require_page_path(self.metrics_path)
        for what in ("interval_s", "timeout_s", "probe_s", "probe_timeout_s", "window_s"):
            if not 0.05 <= getattr(self, what) <= 86_400.0:
                raise RequestError(
                    f"the {what.removesuffix('_s').replace('_', ' ')} is {getattr(self, what):g} s; it must lie between 0.05 s and a day"
                )

    @property
    def ready_for_s(self) -> float:
        """How long one token is proof: two probes may be missed."""
        return 3 * self.probe_s + self.probe_timeout_s


class Observer:
    """What is known of one server."""

    def __init__(self, watched: Watched, options: WatchOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.watched = watched
        self._options, self._clock = options, clock
        self._fetch = Fetcher(watched.target)
        self._history = History(options.window_s)
        self._found = Evidence()
        self._endpoint = watched.target.endpoint
        self._looking: asyncio.Task[None] | None = None
        self._looked_s: float | None = None
        self._is_reported = False
        self.has_begun = asyncio.Event()  # the first answer is judged

    async def run(self, offset_s: float = 0.0) -> None:
        """Ask until cancelled; `offset_s` moves all looks but the first, so that many servers are not asked at the same moment."""
        begin_s, tick = self._clock() - self._options.interval_s + offset_s, 0
        try:
            while True:
                await self.scrape()
                self._look_if_due()
                if self._looking is None:
                    self.has_begun.set()
                elapsed_s = self._clock() - begin_s
                due = max(tick + 1, int(elapsed_s / self._options.interval_s) + 1)
                self._count(num_late=due - tick - 1 if tick else 0)  # the first look moves the grid
                tick = due
                await asyncio.sleep(max(0.0, begin_s + tick * self._options.interval_s - self._clock()))
        finally:
            if self._looking is not None:
                self._looking.cancel()

    async def observe_once(self) -> None:
        """Everything, once: two looks at the metrics an interval apart, so that there are rates, and before them a token of ours."""
        await self.scrape()
        if not self._found.was_answered:
            return
        await self.look()
        if self._history.pages:
            self._history.forget()  # our own token is no traffic
            await self.scrape()
            await asyncio.sleep(self._options.interval_s)
            await self.scrape()

    # ── metrics ────────────────────────────────────────────────────────────────────────────────────

    async def scrape(self) -> None:
        """One look at the metrics; any HTTP answer says that it is alive."""
        at_s = self._clock()
        self._count(num_scrapes=1)
        try:
            reply = await self._fetch(self._options.metrics_path, self._options.timeout_s)
        except Unanswered as failure:
            self._take_silence(failure)
            return
        found = self._found
        if found.silence is not None:
            self._tell("it answers now")
        found.asked = found.was_connected = found.was_answered = True
        found.silence, found.scrape_status = None, reply.status
        if reply.status != _OK:
            self._take_no_page(_NO_PAGE.get(reply.status, f"its metrics were answered with HTTP {reply.status}"))
            return
        page = read_metrics(reply.body.decode("utf-8", "replace"), at_s, reply.took_s)
        if page.sample is None:
            self._take_no_page(page.trouble or "its page of metrics cannot be used")
        else:
            self._take_page(page)

    def _take_silence(self, failure: Unanswered) -> None:
        found = self._found
        self._count(num_scrape_failures=1, num_scrape_timeouts=int(failure.timed_out))
        if found.was_answered and not failure.was_answered:
            self._tell("it stopped answering")
        found.asked, found.scrape_status = True, None
        found.silence = None if failure.was_answered else str(failure)
        found.was_connected, found.was_answered = failure.was_connected, failure.was_answered
        if not failure.was_connected:  # gone: whatever answers there next has to prove itself
            self._history.forget()
            self._begin_anew()
        elif failure.was_answered:
            found.page_trouble = f"its metrics did not come whole: {failure}"

    def _take_no_page(self, why: str) -> None:
        self._found.page_trouble, self._found.engine = why, None
        self._history.forget()
        if self._found.scrape_status not in _NO_PAGE:
            self._count(num_scrape_failures=1)

    def _take_page(self, page: PageRead) -> None:
        found, before = self._found, self._history.pages[-1] if self._history.pages else None
        if found.engine is None:
            self._looked_s = None  # it has just come up, perhaps
        found.page_trouble, found.engine = None, page.engine
        if self._history.add(page):
            self._count(num_restarts=1)
            self._tell("its counters went back: it began anew")
            self._begin_anew()
        elif before is not None and page.progress is not None and page.progress > (before.progress or 0.0):
            found.token_s, found.tokens_told = self._clock(), True
        found.cache_tokens = page.cache_tokens or found.cache_tokens
        found.label_models = page.models

    def _begin_anew(self) -> None:
        self._found.begin_anew()
        self._looked_s, self._is_reported = None, False

    # ── model and token ────────────────────────────────────────────────────────────────────────────

    def _look_if_due(self) -> None:
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()  # a mistake of this program ends the watch and is said
        is_due = self._looked_s is None or self._clock() - self._looked_s >= self._options.probe_s
        if self._found.was_answered and is_due:
            self._looking = asyncio.create_task(self.look())

    async def look(self) -> None:
        """The list of models, the server's own limits once, and a token where that disturbs nobody."""
        try:
            await self._look()
        finally:
            self.has_begun.set()

    async def _look(self) -> None:
        self._looked_s = self._clock()
        await self._list_models()
        if not self._is_reported and self._found.list_status == _OK:
            self._is_reported = True
            await self._read_limits()
        if self._may_probe():
            await self._probe()
        if self._found.token_s is None and (self._found.list_status != _OK or self._found.scrape_status == _LOADING):
            self._looked_s = (
                self._clock() - self._options.probe_s + min(self._options.probe_s, 1.0)
            )  # loading: soon again

    async def _list_models(self) -> None:
        target = self.watched.target
        try:
            reply = await self._fetch(target.models_path, self._options.timeout_s)
        except Unanswered as failure:
            self._found.list_status, self._found.list_trouble = None, f"its list of models did not come: {failure}"
            return
        self._found.list_status = reply.status
        names = _names(reply.json()) if reply.status == _OK else []
        self._found.list_trouble = _list_trouble(reply.status, names, target.model)
        chosen = target.model if target.model is not None else names[0] if names else None
        if chosen is not None and self._found.model not in (None, chosen):
            self._count(num_model_changes=1)
            self._tell(f"its model was {self._found.model} and is {chosen} now")
        self._found.model = chosen or self._found.model
        self._compare_labels(names)

    def _compare_labels(self, names: list[str]) -> None:
        """A server whose list names one model and whose metrics another lies in one of them."""
        labels, differs = self._found.label_models, None
        if names and labels and not set(names) & set(labels):
            differs = f"it lists the model {names[0]}, and its metrics are of {labels[0]}"
        self._found.model_doubt = differs

    async def _read_limits(self) -> None:
        timeout_s = self._options.timeout_s
        try:
            report = await in_own_thread(lambda: read_report(Asker(self.watched.target, timeout_s)))
        except (InferenceBenchError, OSError, ValueError, RecursionError):
            return
        figures, found = report.figures, self._found
        found.version = report.identity.version
        found.most_running = figures.num_slots or figures.max_running
        found.cache_tokens = found.cache_tokens or figures.kv_tokens

    def _may_probe(self) -> bool:
        found = self._found
        if not self._options.is_probing or found.model is None or _LOADING in (found.scrape_status, found.list_status):
            return False
        last = self._history.samples[-1] if self._history.pages else None
        if last is not None and ((last.running or 0) > 0 or (last.waiting or 0) > 0):
            return False
        return not (
            found.tokens_told and found.token_s is not None and self._clock() - found.token_s < self._options.probe_s
        )

    async def _probe(self) -> None:
        """Ask for one token; on the other of OpenAI's routes where this one is not there."""
        self._count(num_probes=1)
        found, begin_s = self._found, self._clock()
        try:
            reply = await self._ask_token()
            if reply.status in _NO_ROUTE:
                self._endpoint = Endpoint.COMPLETIONS if self._endpoint is Endpoint.CHAT else Endpoint.CHAT
                reply = await self._ask_token()
        except Unanswered as failure:
            found.probe_status, found.probe_failure = None, str(failure)
            self._count(num_probe_failures=1, num_probe_timeouts=int(failure.timed_out))
        else:
            found.probe_status, found.probe_failure = reply.status, _why_no_token(reply)
            self._take_probe(reply)
        found.probed_s, found.probe_took_s = self._clock(), self._clock() - begin_s
        if found.probe_failure is None and found.probe_status == _OK:
            found.token_s = found.probed_s

    def _take_probe(self, reply: Reply) -> None:
        if reply.status in _TURNED_AWAY and self._found.engine is not None:
            self._found.turned_away_s = self._clock()
            self._found.probe_failure = (
                None if self._found.token_s is not None else f"it turned it away (HTTP {reply.status})"
            )
        if self._found.probe_failure is not None:
            self._count(num_probe_failures=1)

    async def _ask_token(self) -> Reply:
        body: dict[str, object] = {"model": self._found.model, "max_tokens": 1, "temperature": 0, "stream": False}
        if self._endpoint is Endpoint.CHAT:
            body["messages"] = [{"role": "user", "content": "1"}]
        else:
            body["prompt"] = "1"
        return await self._fetch(self._endpoint.path, self._options.probe_timeout_s, body)

    # ── what is known ──────────────────────────────────────────────────────────────────────────────

    def view(self) -> View:
        """What is known now; events are told once."""
        now_s, found = self._clock(), self._found
        verdict = judge(found, self._history.pages, now_s, self._options.ready_for_s)
        events, found.events = tuple(found.events), []
        proof = None
        if found.probed_s is not None:
            proof = Proof(now_s - found.probed_s, found.probe_took_s, found.probe_failure)
        return View(
            name=self.watched.name,
            base_url=self.watched.target.base_url,
            alive=verdict.alive,
            ready=verdict.ready,
            room=verdict.room,
            reasons=verdict.reasons,
            events=events,
            engine=found.engine,
            version=found.version,
            model=found.model,
            figures=self._history.figures(now_s, found.cache_tokens, found.most_running),
            proof=proof,
            token_age_s=None if found.token_s is None else now_s - found.token_s,
            queue=tuple(each.waiting for each in self._history.samples if each.waiting is not None)[-_QUEUE_SHOWN:],
            counts=found.counts,
        )

    def _tell(self, event: str) -> None:
        if event not in self._found.events and len(self._found.events) < _MOST_EVENTS:
            self._found.events.append(event)

    def _count(self, **more: int) -> None:
        counts: Counts = self._found.counts
        self._found.counts = replace(counts, **{name: getattr(counts, name) + by for name, by in more.items()})


def _names(value: Any) -> list[str]:
    """The models that a list names; nothing else of it is believed."""
    entries = inside(value, "data")
    if not isinstance(entries, list):
        return []
    found = (text_in(inside(entry, "id")) for entry in entries[:100])
    return [name[:_LONGEST_NAME] for name in found if name is not None]


def _list_trouble(status: int, names: list[str], wanted: str | None) -> str | None:
    """Why its list of models says that it is not ready, None where it does not."""
    if status == _OK and names:
        is_there = wanted is None or wanted in names
        return None if is_there else f"it does not list the model {wanted!r}; the first it lists is {names[0]!r}"
    if status in (401, 403, 503):
        return None  # a key, or loading: said elsewhere
    return f"it lists no model (HTTP {status}): is this a model server?"


def _why_no_token(reply: Reply) -> str | None:
    """Why the answer to a probe is none, None where it is."""
    if reply.status != _OK:
        return f"HTTP {reply.status} after {format_seconds(reply.took_s)}"
    value = reply.json()
    choices = inside(value, "choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    counted = inside(value, "usage", "completion_tokens")
    has_count = isinstance(counted, int) and not isinstance(counted, bool) and counted >= 1
    texts = (inside(first, "text"), inside(first, "message", "content"))
    has_text = any(isinstance(text, str) and text for text in texts)
    if has_count or has_text or inside(first, "finish_reason") == "length":
        return None
    return "its answer holds no token"
