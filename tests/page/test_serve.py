"""The page on the loopback interface: its files as what they are, and nothing else to nobody else."""

from __future__ import annotations

import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from inference_bench.cli.main import main
from inference_bench.errors import RequestError, ServerStartError
from inference_bench.page import vendor
from inference_bench.page.document import POLICY
from inference_bench.page.serve import serve_page

FILES = {
    "index.html": b"<!doctype html><title>a page</title>" + b"<p>the same again</p>" * 50,
    "assets/0123456789ab/app.js": b"export const one = 1;\n" * 50,
    "assets/0123456789ab/python.mjs": b"export const two = 2;\n" * 50,
    "assets/0123456789ab/code.wasm": b"\0asm\x01\0\0\0" * 50,
    "assets/0123456789ab/core.zip": b"PK\x03\x04",
    "assets/0123456789ab/style.css": b"p { margin: 0 }\n" * 50,
    "licences.txt": "© somebody\n".encode() * 50,
    "sw.js": b"self.x = 1;\n" * 50,
}
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "assets/0123456789ab/app.js": "text/javascript; charset=utf-8",
    "assets/0123456789ab/python.mjs": "text/javascript; charset=utf-8",
    "assets/0123456789ab/code.wasm": "application/wasm",
    "assets/0123456789ab/core.zip": "application/zip",
    "assets/0123456789ab/style.css": "text/css; charset=utf-8",
    "licences.txt": "text/plain; charset=utf-8",
    "sw.js": "text/javascript; charset=utf-8",
    "files.json": "application/json",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a build leaves it, with a file beside it and one in it that are nobody's business."""
    page = tmp_path / "page"
    for name, body in FILES.items():
        (page / name).parent.mkdir(parents=True, exist_ok=True)
        (page / name).write_bytes(body)
    listed = {name: {"sha256": "", "bytes": len(body)} for name, body in FILES.items()}
    (page / "files.json").write_text(json.dumps({"files": listed}))
    (page / "notes.txt").write_text("not listed")
    (tmp_path / "secret.txt").write_text("not of the page")
    return page


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with serve_page(folder) as where:
        yield where


def ask(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request with its path as it is written, which a browser would tidy."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("name", TYPES)
def test_a_file_comes_whole_as_what_it_is(address: str, folder: Path, name: str) -> None:
    status, headers, body = ask(address, f"/{name}")
    assert (status, headers["Content-Type"], body) == (200, TYPES[name], (folder / name).read_bytes())
    assert headers["Content-Length"] == str(len(body))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize("path", ["/", "/?a=b", "/index.html?x=/../secret.txt", "//"])
def test_the_root_is_the_document_whatever_is_asked_behind_it(address: str, path: str) -> None:
    status, _, body = ask(address, path)
    assert (status, body) == (200, FILES["index.html"])


@pytest.mark.parametrize("name", ["index.html", "assets/0123456789ab/code.wasm", "assets/0123456789ab/app.js"])
def test_what_shrinks_is_compressed_for_whoever_can_read_that(address: str, name: str) -> None:
    _, headers, body = ask(address, f"/{name}", Accept_Encoding="br, gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(body) == FILES[name]
    assert len(body) < len(FILES[name])


def test_an_archive_is_not_compressed_again(address: str) -> None:
    _, headers, body = ask(address, "/assets/0123456789ab/core.zip", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] is None
    assert body == FILES["assets/0123456789ab/core.zip"]


def test_head_gives_the_same_headers_without_the_file(address: str) -> None:
    status, headers, body = ask(address, "/licences.txt", "HEAD")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(len(FILES["licences.txt"]))


@pytest.mark.parametrize(
    "path",
    [
        "/notes.txt",
        "/secret.txt",
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/..\\secret.txt",
        "/assets/",
        "/assets/0123456789ab",
        "/index.html/",
        "/index.html%00.txt",
        "/%69ndex.html",
        "/etc/passwd",
        "//etc/passwd",
        "/.",
        "/favicon.ico",
        "/" + "a" * 5000,
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_the_page_does_not_list_is_not_found(address: str, path: str, method: str) -> None:
    status, _, body = ask(address, path, method)
    assert status == 404
    assert b"not listed" not in body
    assert b"not of the page" not in body
    assert b"root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_nothing_but_reading_is_possible(address: str, method: str) -> None:
    assert ask(address, "/index.html", method)[0] == 501


def test_what_never_changes_may_be_kept_and_the_document_is_asked_for_again(address: str) -> None:
    assert "immutable" in ask(address, "/assets/0123456789ab/app.js")[1]["Cache-Control"]
    for path in ("/", "/sw.js", "/files.json", "/licences.txt"):
        assert ask(address, path)[1]["Cache-Control"] == "no-cache"


def test_it_listens_on_the_loopback_interface_alone(address: str) -> None:
    where = urlsplit(address)
    assert where.hostname == "127.0.0.1"
    port = where.port
    assert port is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; says which of our addresses would be used
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("this machine has no other interface to try")
    with pytest.raises(OSError, match=r"\w"):
        socket.create_connection((own, port), timeout=3).close()


def test_junk_and_silence_on_one_connection_leave_others_served(address: str) -> None:
    where = urlsplit(address)
    with (
        socket.create_connection((where.hostname, where.port), timeout=10) as silent,
        socket.create_connection((where.hostname, where.port), timeout=10) as junk,
    ):
        silent.send(b"GET / HT")
        junk.send(b"\x16\x03\x01\x02\0\xff\xfe\r\n\r\n")
        assert ask(address, "/")[0] == 200


def test_a_folder_that_is_rebuilt_meanwhile_is_served_as_it_was(address: str, folder: Path) -> None:
    (folder / "index.html").write_text("another build")
    assert ask(address, "/")[2] == FILES["index.html"]


@pytest.mark.parametrize("damage", ["no list", "half a list", "another list", "a missing file", "no folder"])
def test_a_folder_that_holds_no_whole_page_is_refused(folder: Path, damage: str) -> None:
    listed = folder / "files.json"
    if damage == "no list":
        listed.unlink()
    if damage == "half a list":
        listed.write_text(listed.read_text()[:20])
    if damage == "another list":
        listed.write_text("[1]")
    if damage == "a missing file":
        (folder / "sw.js").unlink()
    place = folder / "nowhere" if damage == "no folder" else folder
    with pytest.raises(RequestError, match="holds no page, or a damaged one; build it first"), serve_page(place):
        pass


def test_a_port_that_is_taken_is_said_with_what_to_do(folder: Path, address: str) -> None:
    port = urlsplit(address).port
    assert port is not None
    with (
        pytest.raises(ServerStartError, match=rf"port {port} cannot be served on .*name another, or 0 for a free one"),
        serve_page(folder, port),
    ):
        pass


def test_the_port_is_free_again_when_the_block_is_left(folder: Path) -> None:
    with serve_page(folder) as address:
        port = urlsplit(address).port
        assert port is not None
        assert ask(address, "/")[0] == 200
    with serve_page(folder, port) as again:
        assert ask(again, "/")[0] == 200


# ── the command line ─────────────────────────────────────────────────────────────────────────────


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "inference_bench", "page", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_ends_the_server_cleanly(folder: Path, number: signal.Signals) -> None:
    serving = start("--out", str(folder), "--json")
    try:
        assert serving.stdout is not None
        said = json.loads("".join(iter(serving.stdout.readline, "}\n")) + "}")
        assert said["schema"] == "inference-bench/page-serve/1"
        assert said["folder"] == str(folder)
        with urlopen(said["address"], timeout=10) as reply:
            assert reply.read() == FILES["index.html"]
        serving.send_signal(number)
        rest, complaints = serving.communicate(timeout=20)
    finally:
        serving.kill()
        serving.wait()
    assert (serving.returncode, rest, complaints) == (0, "", "")


def test_the_server_says_in_a_sentence_where_the_page_is_and_how_it_ends(folder: Path) -> None:
    serving = start("--out", str(folder))
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
    finally:
        serving.kill()
        serving.communicate()
    assert line.startswith("the page is at http://127.0.0.1:")
    assert line.endswith("/ (Ctrl-C ends it)\n")


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("port", ["70000", "-1", "http", "1.5", "", "NaN", "9" * 400])
def test_a_port_that_is_none_is_exit_2_and_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, port: str
) -> None:
    assert main(["page", "serve", "--out", str(folder), f"--port={port}"]) == 2
    assert "port" in one_line(capsys)


def test_a_taken_port_is_exit_3_and_one_line(capsys: pytest.CaptureFixture[str], folder: Path, address: str) -> None:
    assert main(["page", "serve", "--out", str(folder), "--port", str(urlsplit(address).port)]) == 3
    assert "cannot be served on" in one_line(capsys)


def test_a_damaged_page_is_exit_2_and_one_line(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "sw.js").unlink()
    assert main(["page", "serve", "--out", str(folder)]) == 2
    assert "build it first" in one_line(capsys)


@pytest.mark.parametrize("command", [["page"], ["page", "paint"], ["page", "build", "--colour"]])
def test_a_wrong_page_command_is_exit_2(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_building_over_something_else_is_exit_2_and_leaves_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    assert main(["page", "build", "--out", str(tmp_path)]) == 2
    assert "is not of a page built here" in one_line(capsys)
    assert (tmp_path / "thesis.txt").read_text() == "three years"


@pytest.mark.parametrize("command", ["build", "serve"])
def test_without_npm_and_archives_it_is_exit_3_and_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vendor, "which", lambda _name: None)
    assert main(["page", command, "--out", str(tmp_path / "page")]) == 3
    said = one_line(capsys)
    assert "npm is not installed; it comes with Node.js" in said
    assert str(tmp_path / "cache" / "npm" / "pyodide-314.0.7.tgz") in said
    assert not (tmp_path / "page").exists()


def test_what_was_built_is_said_with_its_size_and_what_a_first_visit_loads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from inference_bench.page import build
    from page.sample import few_files

    def quick(folder: Path, progress: Any = None) -> build.BuiltPage:
        return build.build_page(folder, progress, vendored=few_files)

    monkeypatch.setattr("inference_bench.cli.page.build_page", quick)
    monkeypatch.setattr(build, "document", lambda *_parts: "<!doctype html>")
    assert main(["page", "build", "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    num_files = sum(path.is_file() for path in (tmp_path / "page").rglob("*"))
    assert said.out.startswith(f"{num_files} files, ")
    assert "put the folder on any static host" in said.out
    assert "A first visit loads" in said.out
