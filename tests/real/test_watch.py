"""A watch of a real llama.cpp server: idle, under more requests than it has slots, and killed.

Expected: it has four slots; six requests at once leave two waiting; its counters are those of its own /metrics page.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import WatchOptions
from inference_bench.operate.watch.states import Alive, Ready, Room, Round
from inference_bench.operate.watch.targets import watched

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")

OPTIONS = WatchOptions(interval_s=0.3, timeout_s=2.0, probe_s=0.5, probe_timeout_s=20.0)
SLOTS, WAITING = 4, 2  # not more: its HTTP threads are few, and a look has to get one


@contextmanager
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    model = ensure_embedded_model()
    config = HostConfig(str(model.path), model.path.stem, context_tokens_total=2048, num_slots=SLOTS, num_threads=1)
    log_path = tmp_path_factory.mktemp("engine") / "server.log"
    with LlamaCppServer.start(config, log_path=log_path, startup_timeout_s=120.0, model_sha256=model.sha256) as server:
        yield server


def ask(url: str, num_tokens: int) -> None:
    body = {"prompt": "Count: 1 2 3", "max_tokens": num_tokens, "ignore_eos": True}
    request = Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as reply:
        reply.read()


def wait_for_a_queue(url: str) -> None:
    """A queue that was empty at a look of the last seconds is filling, and not yet saturated."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        with urlopen(f"{url}/metrics", timeout=10) as page:
            if f"llamacpp:requests_deferred {WAITING}\n" in page.read().decode():
                return
        time.sleep(0.02)
    pytest.fail(f"{WAITING} requests were to wait")


def test_idle_it_is_ready_with_four_free_and_full_it_is_ready_and_saturated(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with engine(tmp_path_factory) as server:
        idle = Watch(watched([server.base_url]), OPTIONS).once().views[0]
        assert (idle.alive, idle.ready, idle.room, idle.engine) == (Alive.YES, Ready.YES, Room.ROOM, "llama.cpp")
        assert idle.figures is not None
        assert (idle.figures.running, idle.figures.waiting, idle.figures.free_requests) == (0, 0, SLOTS)

        clients = [threading.Thread(target=ask, args=(server.base_url, 90)) for _ in range(SLOTS + WAITING)]
        for client in clients:
            client.start()
        wait_for_a_queue(server.base_url)
        full: list[Round] = []
        Watch(watched([server.base_url]), OPTIONS).run(full.append, 1.2)
        for client in clients:
            client.join()
        views = [each.views[0] for each in full if each.views[0].room is Room.SATURATED]
        assert views
        assert all(view.alive is Alive.YES for view in views)
        assert any(
            view.ready is Ready.YES and view.figures is not None and view.figures.running == SLOTS for view in views
        )
        assert all(view.counts.num_probes == 0 for view in views)

    gone = Watch(watched([server.base_url]), OPTIONS).once().views[0]
    assert (gone.alive, gone.ready) == (Alive.NO, Ready.NO)
