"""Model servers that are in exactly the state they are told: what they list, what their metrics say, how they answer for a token."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from inference_bench.operate.watch.observer import WatchOptions

MODEL = "known-model"
QUICK = WatchOptions(interval_s=0.06, timeout_s=1.0, probe_s=0.1, probe_timeout_s=1.0)


def vllm_page(
    running: float = 0,
    waiting: float = 0,
    cache: float = 0.1,
    tokens: float = 100,
    preemptions: float = 0,
    model: str = MODEL,
    **more: float,
) -> str:
    """A page of vLLM's, as short as it can be."""
    labels = f'{{engine="0",model_name="{model}"}}'
    values = {
        "num_requests_running": running,
        "num_requests_waiting": waiting,
        "kv_cache_usage_perc": cache,
        "generation_tokens_total": tokens,
        "num_preemptions_total": preemptions,
        **more,
    }
    config = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000",model_name="{model}"}} 1.0\n'
    return "".join(f"vllm:{name}{labels} {value}\n" for name, value in values.items()) + config


@dataclass
class FakeServer:
    """What it answers; every field can be changed while it runs."""

    pages: list[str] = field(default_factory=lambda: [vllm_page()])  # one after another, the last again and again
    page_status: int = 200
    page_delay_s: float = 0.0
    drips: bool = False  # the head of a page, and then nothing
    model: str | None = MODEL
    list_status: int = 200
    token_status: int = 200
    only_chat: bool = False
    token_answer: object = None  # instead of a good one
    is_mute: bool = False  # takes connections and never answers
    key: str | None = None
    url: str = ""
    asked: list[str] = field(default_factory=list)
    num_pages: int = 0

    def count(self, path: str) -> int:
        return self.asked.count(path)

    @property
    def num_tokens_asked(self) -> int:
        return sum(path.endswith("completions") for path in self.asked)


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, fake: FakeServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake, self.ended = fake, threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Listening

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, value: object) -> None:
        is_page = isinstance(value, str)
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        drips = is_page and self.server.fake.drips
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_page else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:10] if drips else body)
            self.server.ended.wait(5 if drips else 0)

    def _is_let_in(self) -> bool:
        fake = self.server.fake
        fake.asked.append(self.path)
        if fake.is_mute:
            self.server.ended.wait(5)
            return False
        if fake.key is not None and self.headers.get("Authorization") != f"Bearer {fake.key}":
            self._answer(401, {})
            return False
        return True

    def do_GET(self) -> None:
        fake = self.server.fake
        if not self._is_let_in():
            return
        if self.path == "/metrics":
            time.sleep(fake.page_delay_s)
            page = fake.pages[min(fake.num_pages, len(fake.pages) - 1)]
            fake.num_pages += 1
            self._answer(fake.page_status, page)
        elif self.path == "/v1/models":
            entries = [] if fake.model is None else [{"id": fake.model, "object": "model", "owned_by": "vllm"}]
            self._answer(fake.list_status, {"object": "list", "data": entries})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        fake = self.server.fake
        if not self._is_let_in():
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if fake.only_chat and self.path != "/v1/chat/completions":
            self._answer(404, {})
            return
        usage = {"completion_tokens": asked["max_tokens"]}
        good = {"choices": [{"text": "1", "finish_reason": "length"}], "usage": usage}
        self._answer(fake.token_status, good if fake.token_answer is None else fake.token_answer)


@contextmanager
def fake_server(server: FakeServer | None = None) -> Iterator[FakeServer]:
    """One that listens while the block runs."""
    server = server or FakeServer()
    listening = _Listening(server)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield server
    finally:
        listening.ended.set()
        listening.shutdown()
        listening.server_close()
        thread.join()


@contextmanager
def fake_servers(*servers: FakeServer) -> Iterator[list[FakeServer]]:
    """Several."""
    with ExitStack() as stack:
        yield [stack.enter_context(fake_server(server)) for server in servers]
