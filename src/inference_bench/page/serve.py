"""A server for the page on this machine: for looking at it, and for the tests.

In:   a built folder
Out:  HTTP on the loopback interface
Leaves out: the world; a page for others belongs on a static host
Read next by: cli, benchmarks, the browser tests.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from inference_bench.errors import RequestError, ServerStartError
from inference_bench.page.build import MANIFEST
from inference_bench.page.document import POLICY

LOOPBACK: Final = "127.0.0.1"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
    ".txt": "text/plain; charset=utf-8",
}
_COMPRESSED: Final = frozenset({".html", ".js", ".mjs", ".css", ".json", ".wasm", ".txt"})
_LOOKS_UP_S: Final = 0.05  # how long an end of the server may take to be noticed
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class _Handler(http.server.BaseHTTPRequestHandler):
    """Hands out the files of one folder that its manifest lists, and nothing else."""

    protocol_version = "HTTP/1.1"
    server_version = "inference-bench"
    sys_version = ""
    timeout = 30

    def __init__(self, *details: object, files: PageFiles) -> None:
        self._files = files
        super().__init__(*details)  # type: ignore[arg-type]  # what socketserver hands over

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        name = _asked(self.path)
        found = None if name is None else self._files.get(name)
        if found is None or name is None:
            self.send_error(404)
            return
        packed = found.packed if "gzip" in self.headers.get("Accept-Encoding", "") else None
        body = found.body if packed is None else packed
        self.send_response(200)
        self.send_header("Content-Type", found.kind)
        self.send_header("Content-Length", str(len(body)))
        if packed is not None:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Vary", "Accept-Encoding")
        self.send_header("Cache-Control", _FOR_EVER if name.startswith("assets/") else "no-cache")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_details: object) -> None:
        """Nothing is logged: who looks at what stays with them."""


def _asked(path: str) -> str | None:
    """The name of the file that an address asks for; None for what is no address."""
    try:
        return urlsplit(path).path.lstrip("/") or "index.html"
    except ValueError:
        return None


class _File:
    def __init__(self, name: str, body: bytes) -> None:
        suffix = Path(name).suffix
        self.kind = _TYPES.get(suffix, "application/octet-stream")
        self.body = body
        self.packed = gzip.compress(body, 6, mtime=0) if suffix in _COMPRESSED else None


class PageFiles:
    """The files of a page, read once: the folder may be rebuilt while it is served."""

    def __init__(self, folder: Path) -> None:
        """Raises:  RequestError for a folder that holds no page."""
        try:
            listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
            self._files = {name: _File(name, _own(folder, name).read_bytes()) for name in [*listed, MANIFEST]}
        except (OSError, ValueError, KeyError, TypeError):
            raise RequestError(f"{str(folder)[:120]!r} holds no page, or a damaged one; build it first") from None

    def get(self, name: str) -> _File | None:
        """The file of that name; None for what the page has not."""
        return self._files.get(name)


def _own(folder: Path, name: str) -> Path:
    """A file that lies in the folder itself.

    Raises:  ValueError for one that a name or a link leads to elsewhere
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(name)
    return path


@contextmanager
def serve_page(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a built page on the loopback interface until the block is left; the address is given, port 0 takes a free one.

    Raises:  RequestError for a folder that holds no page, ServerStartError for a port that is taken
    """
    handler = functools.partial(_Handler, files=PageFiles(folder))
    try:
        server = http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
    except (OSError, OverflowError) as error:
        raise ServerStartError(
            f"port {port} cannot be served on ({error}); name another, or 0 for a free one"
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_LOOKS_UP_S,), name="page", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
