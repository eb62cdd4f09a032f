"""A small Hugging Face hub on 127.0.0.1: lists files, answers range requests, keeps account of every byte it sends."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class RemoteFile:
    """`head` then zeros up to `size`; a read past `readable` bytes is refused as a payload read."""

    head: bytes
    size: int | None = None
    readable: int | None = None

    @property
    def num_bytes(self) -> int:
        return len(self.head) if self.size is None else self.size

    @property
    def whole(self) -> bytes:
        return self.content(0, self.num_bytes)

    def content(self, start: int, end: int) -> bytes:
        return self.head[start:end].ljust(end - start, b"\0")


@dataclass
class FakeHub:
    repos: dict[str, dict[str, RemoteFile]] = field(default_factory=dict)
    revisions: tuple[str, ...] = ("main", "v2")
    commit: str = "0" * 40  # of every repository, whatever the revision
    gated: set[str] = field(default_factory=set)
    sha256: dict[str, str] = field(default_factory=dict)  # what the list of files says of a file by that name
    html: bool = False  # every answer is a web page, as behind a captive portal
    ignores_ranges: bool = False
    cuts_after: int | None = None  # closes the connection after so many bytes of a file
    redirects: bool = False
    sent: list[tuple[str, int, int]] = field(default_factory=list)  # file, first byte, end
    refused: list[tuple[str, int, int]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    url: str = ""

    @property
    def num_bytes_sent(self) -> int:
        return sum(end - start for _, start, end in self.sent)


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:  # noqa: C901
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def answer(
            self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)
            if length is not None and length != len(body) and self.command != "HEAD":
                self.close_connection = True

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.authorizations.append(self.headers.get("Authorization"))
            if hub.html:
                return self.answer(
                    200, b"<!doctype html><html>Log in to the network</html>", {"Content-Type": "text/html"}
                )
            parts = path.strip("/").split("/")
            if parts[0] == "api" and parts[1] in ("models", "datasets"):
                return self.info("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
            if parts[0] == "datasets":
                parts = parts[1:]
            if parts[0] == "cdn":
                return self.file("/".join(parts[1:3]), "/".join(parts[3:]))
            return self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

        def known(self, repo: str, revision: str) -> bool:
            if repo not in hub.repos:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            elif revision not in (*hub.revisions, hub.commit):
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            else:
                return True
            return False

        def info(self, repo: str, revision: str) -> None:
            if self.known(repo, revision):
                sizes = "blobs=" in self.path
                siblings = [
                    {"rfilename": name} | (self.listed(name, file) if sizes else {})
                    for name, file in hub.repos[repo].items()
                ]
                body = {
                    "_id": "1",
                    "id": repo,
                    "modelId": repo,
                    "sha": hub.commit,
                    "siblings": siblings,
                    "tags": [],
                    "private": False,
                }
                self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

        def listed(self, name: str, file: RemoteFile) -> dict[str, Any]:
            lfs = {"size": file.num_bytes, "sha256": hub.sha256.get(name), "pointerSize": 134}
            return {"size": file.num_bytes} | ({"lfs": lfs} if name in hub.sha256 else {})

        def resolve(self, repo: str, revision: str, name: str) -> None:
            if not self.known(repo, revision):
                return
            if repo in hub.gated:
                self.answer(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            elif name not in hub.repos[repo]:
                self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            elif hub.redirects:
                self.answer(302, b"", {"Location": f"{hub.url.replace('127.0.0.1', 'localhost')}/cdn/{repo}/{name}"})
            else:
                self.file(repo, name)

        def file(self, repo: str, name: str) -> None:
            file = hub.repos[repo][name]
            wanted = self.headers.get("Range")
            start, end, status = 0, file.num_bytes, 200
            if wanted and not hub.ignores_ranges:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end, status = int(first), min(file.num_bytes, int(last) + 1), 206
            if start >= file.num_bytes:
                return self.answer(416, b"", {"Content-Range": f"bytes */{file.num_bytes}"})
            if not hub.ignores_ranges and file.readable is not None and end > file.readable:
                hub.refused.append((name, start, end))
                return self.answer(403, b"payload")
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{file.num_bytes}"} if status == 206 else {}
            headers |= {"ETag": f'"{zlib.crc32(file.head):08x}-{file.num_bytes}"', "X-Repo-Commit": hub.commit}
            cut = end if hub.cuts_after is None else min(end, start + hub.cuts_after)
            cut = min(cut, start + 16_000_000)  # a whole answer is never sent in full
            if self.command == "HEAD":
                return self.answer(status, b"", headers | {"Accept-Ranges": "bytes"}, end - start)
            hub.sent.append((name, start, cut))
            return self.answer(status, file.content(start, cut), headers, end - start)

        do_HEAD = do_GET

    return Handler


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
