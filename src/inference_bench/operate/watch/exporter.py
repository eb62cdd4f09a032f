"""The figures of a watch as Prometheus metrics, on a port of the loopback interface.

In:   Round after Round
Out:  a page of metrics under names of our own, the same for every engine; the only label is the name a server was given
Leaves out: the servers' own metrics, which Prometheus reads from them; what to do about the figures (rule_files)
Read next by: cli.

What is unknown has no series: an absent one can be asked for in a rule, and a zero would lie. The text format, its escapes and the
negotiation of OpenMetrics are prometheus_client's, the format's own library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from inference_bench.errors import MissingExtraError, RequestError, StorageError
from inference_bench.operate.watch.states import Alive, Ready, Room, Round, View

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

LOOPBACK: Final = "127.0.0.1"
LABEL: Final = "target"
PREFIX: Final = "inference_bench_"
_HIGHEST_PORT: Final = 65_535
_MOST_IDLE_S: Final = 10.0  # each connection holds a thread until then: Prometheus asks at once and closes

Read = Callable[[View], float | None]


def _figure(name: str) -> Read:
    return lambda view: None if view.figures is None else getattr(view.figures, name)


def _count(name: str) -> Read:
    return lambda view: float(getattr(view.counts, name))


def _alive(view: View) -> float | None:
    return None if view.alive is Alive.UNKNOWN else float(view.alive is Alive.YES)


def _ready(view: View) -> float | None:
    """1 where a token proved it, 0 where it is not; nothing where it is not known."""
    return None if view.ready in (Ready.UNKNOWN, Ready.LISTED) else float(view.ready is Ready.YES)


def _saturated(view: View) -> float | None:
    return None if view.room is Room.UNKNOWN else float(view.room is Room.SATURATED)


GAUGES: Final[dict[str, tuple[str, Read]]] = {
    "up": ("1 when the server answers over HTTP, whatever it says.", _alive),
    "ready": ("1 when it gave a token lately, 0 when it is known not to.", _ready),
    "saturated": ("1 when it cannot take more: requests wait, are preempted or turned away.", _saturated),
    "requests_running": ("Requests that it computes.", _figure("running")),
    "requests_waiting": ("Requests in its queue.", _figure("waiting")),
    "requests_free": ("How many more requests it could compute at once.", _figure("free_requests")),
    "queue_growth_requests_per_second": ("Slope of its queue over the window.", _figure("queue_growth_per_s")),
    "cache_used_ratio": ("Share of its cache that is used, of the fullest.", _figure("cache_used_fraction")),
    "cache_headroom_tokens": ("Tokens that its cache could still hold.", _figure("cache_headroom_tokens")),
    "preemptions_per_second": ("Requests thrown out of its cache.", _figure("preemptions_per_s")),
    "prefix_hit_ratio": ("Share of prompt tokens found in its cache over the window.", _figure("prefix_hit_fraction")),
    "output_tokens_per_second": ("Output tokens over the window, as it counts.", _figure("output_tokens_per_s")),
    "prompt_tokens_per_second": ("Prompt tokens over the window, as it counts.", _figure("prompt_tokens_per_s")),
    "ttft_mean_seconds": ("Mean time to the first token over the window, as it measures.", _figure("ttft_mean_s")),
    "last_token_age_seconds": ("Time since a token is known to have come out of it.", lambda view: view.token_age_s),
    "metrics_age_seconds": ("Age of its last page of metrics.", _figure("age_s")),
    "probe_seconds": (
        "How long the last request for one token took.",
        lambda view: None if view.proof is None else view.proof.took_s,
    ),
}
COUNTERS: Final[dict[str, tuple[str, Read]]] = {
    "scrapes": ("Looks at its metrics.", _count("num_scrapes")),
    "scrape_failures": ("Looks that brought no figures.", _count("num_scrape_failures")),
    "scrape_timeouts": ("Looks that brought no whole answer in time.", _count("num_scrape_timeouts")),
    "probes": ("Requests for one token.", _count("num_probes")),
    "probe_failures": ("Of these, without a token.", _count("num_probe_failures")),
    "probe_timeouts": ("Of these, without an answer in time.", _count("num_probe_timeouts")),
    "restarts": ("Times that its counters went back.", _count("num_restarts")),
    "model_changes": ("Times that its model was another one.", _count("num_model_changes")),
}
ROUNDS: Final = "watch_rounds"
EXPORTED: Final = frozenset(
    {f"{PREFIX}{name}" for name in GAUGES} | {f"{PREFIX}{name}_total" for name in (*COUNTERS, ROUNDS)}
)


def _impatient(handler: Any) -> Any:
    """A handler that leaves a connection on which nothing comes, without a word."""

    class Impatient(handler):  # type: ignore[misc]  # a class that is known only when prometheus_client is there
        timeout = _MOST_IDLE_S

        def handle(self) -> None:
            with suppress(TimeoutError):
                super().handle()

    return Impatient


class Exporter:
    """Serves the last round while the `with` block runs.

    Where:    `port` is the one that was taken, also where 0 asked for any that is free
    Raises:   MissingExtraError; RequestError for a number that is no port; StorageError where the port is taken
    """

    def __init__(self, port: int = 0) -> None:
        if not 0 <= port <= _HIGHEST_PORT:
            raise RequestError(f"the port is {port}; it must lie between 0, a free one, and {_HIGHEST_PORT}")
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MissingExtraError(
                "metrics are exported by prometheus_client, which is not installed; install it with: "
                "pip install 'inference-bench[watch]'"
            ) from None
        self._round: Round | None = None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise StorageError(
                f"port {port} of {LOOPBACK} cannot be taken: {(error.strerror or 'in use').lower()}"
            ) from None
        self._server.RequestHandlerClass = _impatient(self._server.RequestHandlerClass)
        self.port = int(self._server.server_port)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.port}/metrics"

    def take(self, found: Round) -> None:
        """Show this round from now on."""
        self._round = found

    def collect(self) -> Iterator[Metric]:
        """The last round as prometheus_client wants it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self._round
        if found is None:
            return
        rounds: Any = CounterMetricFamily(f"{PREFIX}{ROUNDS}", "Rounds of this watch, which stand still when it hangs.")
        rounds.add_metric([], float(found.number))
        yield rounds
        for kind, families in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for name, (what, read) in families.items():
                family: Any = kind(f"{PREFIX}{name}", what, labels=[LABEL])
                for view in found.views:
                    if (value := read(view)) is not None:
                        family.add_metric([view.name], value)
                yield family

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)
