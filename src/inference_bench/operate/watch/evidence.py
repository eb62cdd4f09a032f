"""What has one server shown so far? Facts with the time of each, and nothing concluded from them.

In:   answers and failures, as the observer gets them
Out:  Evidence
Leaves out: what it means (judge)
Read next by: judge, observer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inference_bench.operate.watch.states import Counts


@dataclass(slots=True)
class Evidence:
    """Facts about one server; times are on the watch's monotonic clock, and None means never.

    Where:    asked is whether any question has ended; was_connected and was_answered are of the last scrape, silence is what kept
              it from being answered, page_trouble why its metrics cannot be used though it answers. token_s is when a token is known
              to have come out, tokens_told that this was by its own count. list_status and probe_status are of the last list of
              models and the last probe; probe_failure says why it had no token, model_doubt that the list and the metrics are of
              different models
    """

    asked: bool = False
    was_connected: bool = False
    was_answered: bool = False
    silence: str | None = None
    scrape_status: int | None = None
    page_trouble: str | None = None
    engine: str | None = None
    version: str | None = None
    model: str | None = None
    label_models: tuple[str, ...] = ()
    list_status: int | None = None
    list_trouble: str | None = None
    model_doubt: str | None = None
    cache_tokens: float | None = None
    most_running: float | None = None
    token_s: float | None = None
    tokens_told: bool = False
    probed_s: float | None = None
    probe_took_s: float = 0.0
    probe_status: int | None = None
    probe_failure: str | None = None
    turned_away_s: float | None = None  # when it last turned a request away, as its queue was full
    events: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def begin_anew(self) -> None:
        """The server began anew: what it proved before, it has to prove again."""
        self.token_s = self.probed_s = self.turned_away_s = None
        self.probe_failure = self.probe_status = None
        self.list_status = None
        self.version = self.cache_tokens = self.most_running = None
