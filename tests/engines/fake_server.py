"""A server of fixed answers, for tests of what is asked of real ones."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeServer:
    """Answers fixed texts, and remembers what it was sent."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[int, str, bytes]] = {}
        self.waits_s: dict[str, float] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.requests.append((self.command, self.path, dict(self.headers), body))
                time.sleep(fake.waits_s.get(self.path, 0.0))
                status, kind, content = fake.replies.get(self.path, (404, "text/plain", b"no"))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                if status == 302:
                    self.send_header("Location", "/v1/models")
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def say(self, path: str, value: Any) -> None:
        self.replies[path] = (200, "application/json", json.dumps(value).encode())

    def say_text(self, path: str, text: str, kind: str = "text/plain") -> None:
        self.replies[path] = (200, kind, text.encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
