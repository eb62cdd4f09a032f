"""What is wrong with a server is said in one line before anything is measured."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from inference_bench.errors import InferenceBenchError, RequestError, ServerError
from inference_bench.loadtest.preflight import explain, listing, preflight
from inference_bench.loadtest.preflight_probe import Reply, Unanswered, ask
from inference_bench.measure.target import ApiKey, Endpoint, Target

KEY = "sk-a-secret-of-tests"
CHUNK = {"choices": [{"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": "length"}]}
NATIVE_CHUNK = {
    "text": "a",
    "meta_info": {"finish_reason": {"type": "length"}, "completion_tokens": 1, "prompt_tokens": 1},
}


class Plan:
    """What a small server answers: models it lists, routes it has, and what else is asked of it."""

    def __init__(
        self,
        models: list[str] | None = None,
        routes: tuple[str, ...] = ("/v1/completions",),
        accepts: tuple[str, ...] | None = None,
        html: bool = False,
        key: str | None = None,
        status: int = 200,
    ) -> None:
        self.models, self.routes, self.accepts = models, routes, accepts
        self.html, self.key, self.status = html, key, status
        self.asked: list[tuple[str, str, int]] = []

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, str]:
        self.asked.append((method, path, len(body)))
        if self.html:
            return 200, "text/html; charset=utf-8", "<html>please log in</html>"
        if self.status != 200:
            return self.status, "application/json", json.dumps({"error": {"message": "Loading model"}})
        if self.key is not None and headers.get("Authorization") != f"Bearer {self.key}":
            said = f"bad key {headers.get('Authorization')}"
            return 401, "application/json", json.dumps({"error": {"message": said}})
        if method == "GET" and path == "/v1/models" and self.models is not None:
            return 200, "application/json", json.dumps({"data": [{"id": name} for name in self.models]})
        if path not in self.routes:
            return 404, "application/json", json.dumps({"detail": "Not Found"})
        if method != "POST":
            return 405, "application/json", json.dumps({"detail": "Method Not Allowed"})
        if not body:
            return 422, "application/json", json.dumps({"detail": "Field required"})
        if self.accepts is not None and json.loads(body).get("model") not in self.accepts:
            return 404, "application/json", json.dumps({"error": {"message": "the model does not exist"}})
        chunk = NATIVE_CHUNK if path == "/generate" else CHUNK
        return 200, "text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"


@contextmanager
def serving(plan: Plan, certificate: Path | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, text = plan.reply(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that hangs up is what is tested

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listening(first: bytes | None) -> Iterator[str]:
    """Something that accepts connections and says these bytes, again and again, or nothing at all."""
    stopping = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    kept: list[socket.socket] = []

    def accept() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
                kept.append(connection)
            except TimeoutError:
                pass
            for each in kept:
                with suppress(OSError):
                    each.sendall(first or b"")

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopping.set()
        thread.join()
        listener.close()
        for each in kept:
            each.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key and a self-signed certificate for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
    )
    return folder


def said_of(target: Target, timeout_s: float = 5.0) -> str:
    """The message of the failure: one line, without the key and without a command line's options."""
    with pytest.raises(InferenceBenchError) as failure:
        preflight(target, timeout_s)
    said = str(failure.value)
    assert said.isprintable()
    assert KEY not in said
    assert " --" not in said
    return said


def test_the_first_model_that_is_listed_is_taken_and_nothing_is_generated() -> None:
    plan = Plan(models=["tiny", "large"])
    with serving(plan) as url:
        assert preflight(Target(url)).model == "tiny"
        assert preflight(Target(url, "large")).model == "large"
    assert plan.asked == [("GET", "/v1/models", 0)] * 2


def test_a_server_that_lists_nothing_and_answers_is_believed() -> None:
    with serving(Plan(models=None)) as url:
        assert preflight(Target(url)).model is None
        assert preflight(Target(url, "any")).model == "any"


def test_a_server_that_takes_any_name_is_believed() -> None:
    with serving(Plan(models=["/models/tiny.gguf"])) as url:
        assert preflight(Target(url, "mine")).model == "mine"


def test_a_wrong_model_names_the_served_ones_nearest_first() -> None:
    names = ["other-70b", "qwen3-8b-instruct", "qwen3-8b"]
    with serving(Plan(models=names, accepts=tuple(names))) as url:
        said = said_of(Target(url, "qwen3-8B"))
    assert "serves no model 'qwen3-8B'" in said
    assert said.index("'qwen3-8b'") < said.index("'qwen3-8b-instruct'") < said.index("'other-70b'")


def test_foreign_names_are_shown_harmlessly_and_not_all() -> None:
    shown = listing([f"model-{number}" for number in range(20)] + ["evil\x1b[31m\n"], "evil")
    assert shown.startswith("'evil\\x1b[31m\\n'")
    assert shown.endswith(" and 13 more")


def test_a_wrong_route_says_which_ones_answer() -> None:
    plan = Plan(models=["tiny"], routes=("/v1/chat/completions", "/generate"))
    with serving(plan) as url:
        failure = explain(Target(url, "tiny"), 5.0)
        said = said_of(Target(url, "other"))
    assert isinstance(failure, RequestError)
    assert "has no route /v1/completions (HTTP 404)" in str(failure)
    assert "/v1/chat/completions" in str(failure)
    assert "/generate" in str(failure)
    assert "/completion," not in str(failure)
    assert said == str(failure)
    assert all(length == 0 for method, path, length in plan.asked if path != "/v1/completions")


def test_routes_that_are_silent_share_about_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []

    def silent(target: Target, method: str, path: str, timeout_s: float) -> Reply:
        if (method, path) == ("GET", target.models_path) and not waits_s:
            return Reply(404, "application/json")
        if (method, path) == ("POST", target.path) and not waits_s:
            return Reply(404, "application/json")
        waits_s.append(timeout_s)
        raise Unanswered("no answer", is_late=True)

    monkeypatch.setattr("inference_bench.loadtest.preflight.ask", silent)
    assert "nothing answers at" in str(explain(Target("http://127.0.0.1:1"), 10.0))
    assert len(waits_s) == 5
    assert sum(waits_s) <= 15.0


def test_a_server_without_any_known_route_says_so() -> None:
    with serving(Plan(models=None, routes=())) as url:
        said = said_of(Target(url, endpoint=Endpoint.CHAT))
    assert "/v1/chat/completions (HTTP 404)" in said
    assert "check the path" in said


def test_a_native_route_is_checked_where_no_models_are_listed() -> None:
    with serving(Plan(models=None, routes=("/generate",))) as url:
        assert preflight(Target(url, endpoint=Endpoint.SGLANG)).model is None


def test_a_web_page_is_taken_for_a_proxy() -> None:
    with serving(Plan(html=True)) as url:
        said = said_of(Target(url))
    assert "web page instead of JSON" in said
    assert "proxy" in said


@pytest.mark.parametrize(
    ("key", "words"), [(None, "a request without an API key"), (KEY, "the API key that was given")]
)
def test_a_missing_or_wrong_key_is_said_without_the_key(key: str | None, words: str) -> None:
    with serving(Plan(models=["tiny"], key="another")) as url:
        said = said_of(Target(url, api_key=None if key is None else ApiKey(key)))
    assert f"refuses {words} (HTTP 401)" in said
    assert "environment variable" in said


def test_the_right_key_is_used() -> None:
    with serving(Plan(models=["tiny"], key=KEY)) as url:
        assert preflight(Target(url, api_key=ApiKey(KEY))).model == "tiny"


def test_a_server_that_still_loads_is_told_from_a_wrong_one() -> None:
    with serving(Plan(status=503)) as url:
        assert "may still be loading" in said_of(Target(url))


def test_nothing_listening_says_what_to_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = said_of(Target(f"http://127.0.0.1:{port}"))
    assert said == f"nothing listens at http://127.0.0.1:{port}; start the server, or check the port"


def test_a_host_that_does_not_exist_is_named() -> None:
    assert "there is no host 'no-such-host.invalid'" in said_of(Target("http://no-such-host.invalid"))


@pytest.mark.parametrize("first", [None, b"H", b"HTTP/1.1 200 OK\r\nX-A: b\r\n"], ids=["silent", "a byte", "headers"])
def test_a_server_that_never_answers_is_given_up(first: bytes | None) -> None:
    with listening(first) as url:
        begin_s = time.monotonic()
        with pytest.raises(ServerError) as failure:
            preflight(Target(url), 0.5)
        assert time.monotonic() - begin_s < 10
        assert str(failure.value).startswith(url)


def test_something_that_is_not_http_is_said_to_be_that() -> None:
    with listening(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        assert "does not speak HTTP" in said_of(Target(url), 0.5)


def test_a_certificate_that_is_not_trusted_says_how_to_trust_it(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Plan(models=["tiny"]), certificate) as url:
        said = said_of(Target(url))
        assert "self-signed certificate" in said or "self signed certificate" in said
        assert "SSL_CERT_FILE" in said
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        assert preflight(Target(url)).model == "tiny"
        with pytest.raises(ServerError, match="write https://"):
            preflight(Target(url.replace("https", "http")), 2.0)


def test_plain_http_behind_https_is_said_to_be_that() -> None:
    with serving(Plan(models=["tiny"])) as url:
        assert "write http://" in said_of(Target(url.replace("http", "https")))


def test_a_model_whose_name_repeats_the_key_is_passed_over() -> None:
    with serving(Plan(models=[f"my-{KEY}", "plain"], key=KEY, accepts=("plain",))) as url:
        assert preflight(Target(url, api_key=ApiKey(KEY))).model == "plain"
    with serving(Plan(models=[KEY], key=KEY)) as url, suppress(InferenceBenchError):
        assert preflight(Target(url, api_key=ApiKey(KEY))).model is None
    with serving(Plan(models=[KEY], key=KEY, accepts=("plain",))) as url:
        with pytest.raises(InferenceBenchError) as refused:
            preflight(Target(url, "other", api_key=ApiKey(KEY)))
        assert KEY not in str(refused.value)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_a_reply_without_an_end_is_waited_for_no_longer_than_any_other(kind: str) -> None:
    endless = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    with listening(endless.encode()) as url:
        began_s = time.monotonic()
        with pytest.raises(Unanswered, match=r"did not answer within 0\.5 s"):
            ask(Target(url), "POST", "/v1/completions", 0.5)
        assert "did not answer" in str(explain(Target(url), 0.5))
        assert time.monotonic() - began_s < 5


def test_a_chunk_of_a_size_below_0_is_a_broken_reply() -> None:
    chunk = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n"
    with listening(chunk) as url:
        assert "a chunk has no size" in said_of(Target(url), 1.0)
