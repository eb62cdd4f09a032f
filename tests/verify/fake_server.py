"""A server that speaks as llama.cpp does and computes nothing: every token takes a known time, and it can go wrong on purpose.

Requests in different slots do not wait for one another, so that a step takes the same time whatever the batch.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP_S = 0.004
TOKEN_S = 0.0001  # of a prompt
NUM_PARAMS = 134_515_008


@dataclass
class Fake:
    """What the server does, and what it was asked.

    Where:    renamed_after: the number of answers after which it serves another model; dead_after: those after which it closes
              every connection of a request, is_gone every one at all; owner is who it says owns the model; refuses_all is what it says
              to every request with status 429; the factors are what its counts are too large by; is_silent leaves out all text
    """

    num_slots: int = 4
    context_tokens: int = 512
    name: str = "smollm2-135m"
    owner: str = "llamacpp"
    renamed_after: int | None = None
    dead_after: int | None = None
    refuses: str | None = None
    is_gone: bool = False
    refuses_all: str | None = None
    prompt_factor: int = 1
    answer_factor: int = 1
    is_silent: bool = False
    says_usage: bool = True
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    cached: dict[int, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_dead(self) -> bool:
        return self.dead_after is not None and len(self.asked) >= self.dead_after

    @property
    def served_name(self) -> str:
        renamed = self.renamed_after is not None and len(self.asked) > self.renamed_after
        return "another-model" if renamed else self.name

    def tell(self, path: str) -> Any:
        """What it says of itself at a path; None for a path it does not have."""
        is_llama = self.owner == "llamacpp"
        if path == "/v1/models":
            meta = {"n_params": NUM_PARAMS, "size": 96_576_768, "n_ctx_train": 8192} if is_llama else {}
            return {"data": [{"id": self.served_name, "owned_by": self.owner, "meta": meta}]}
        if path == "/props" and is_llama:
            return {"total_slots": self.num_slots, "default_generation_settings": {"n_ctx": self.context_tokens}}
        if path == "/slots" and is_llama:
            return [{"id": slot, "n_ctx": self.context_tokens} for slot in range(self.num_slots)]
        return None

    def read(self, body: dict[str, Any]) -> int:
        """Take a prompt in, and say how many of its tokens are in its slot's cache already."""
        words = str(body["prompt"]).split()
        with self.lock:
            self.asked.append(body)
            before = self.cached.get(body.get("id_slot", -1), []) if body.get("cache_prompt") else []
            self.cached[body.get("id_slot", -1)] = words
        same = next(
            (i for i, (a, b) in enumerate(zip(before, words, strict=False)) if a != b), min(len(before), len(words))
        )
        return min(same, len(words) - 1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: Fake

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.fake.is_gone:
            self.close_connection = True
            return
        found = self.fake.tell(self.path)
        self._json(404 if found is None else 200, found or {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "completions" not in self.path:
            self._json(404, {"error": {"message": "no such path"}})
            return
        if self.fake.refuses is not None and self.fake.refuses in body:
            self.fake.asked.append(body)
            self._json(400, {"error": {"message": f"unknown field {self.fake.refuses}"}})
            return
        if self.fake.refuses_all is not None:
            self._json(429, {"error": {"message": self.fake.refuses_all}})
            return
        if self.fake.is_dead or self.fake.is_gone:
            self.close_connection = True
            return
        self._answer(body, self.fake.read(body))

    def _answer(self, body: dict[str, Any], cached: int) -> None:
        num_prompt = len(str(body["prompt"]).split())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        time.sleep(TOKEN_S * (num_prompt - cached))
        for number in range(body["max_tokens"]):
            if number:
                time.sleep(STEP_S)
            if not self.fake.is_silent:
                self._event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        if self.fake.says_usage:
            fake = self.fake
            counts = {
                "prompt_tokens": num_prompt * fake.prompt_factor,
                "completion_tokens": body["max_tokens"] * fake.answer_factor,
            }
            self._event({"choices": [], "usage": {**counts, "prompt_tokens_details": {"cached_tokens": cached}}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, payload: object) -> None:
        self.wfile.write(f"data: {json.dumps(payload)}\n\n".encode())

    def _json(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running(fake: Fake) -> Iterator[Fake]:
    """The server on a free port of the loopback interface, for as long as the block lasts."""
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
