"""A server is asked beside a run: what it says is kept as it comes, and whatever it does, the run ends in time."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inference_bench.errors import RequestError, ServerError
from inference_bench.measure.http1 import RunClock
from inference_bench.measure.server_metrics import SERVER_METRICS_FILE, ServerMetrics, read_server_metrics
from inference_bench.measure.server_metrics_watch import PageFetcher, ServerWatch
from inference_bench.measure.target import ApiKey, Target
from measure.metrics_pages import LLAMA_CPP, VLLM

PATIENCE_S = 20.0
Answer = Callable[[socket.socket, int], None]


@dataclass
class MetricsServer:
    """Answers each connection as told, with what was asked."""

    url: str
    asked: list[bytes] = field(default_factory=list)


@contextmanager
def serving(answer: Answer) -> Iterator[MetricsServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        server = MetricsServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                with suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(PATIENCE_S)
                        server.asked.append(connection.recv(65536))
                        answer(connection, len(server.asked))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            stopping.set()
            with suppress(OSError), socket.create_connection(listener.getsockname(), 1.0) as last:
                last.sendall(b"stop")
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def page(text: str, status: str = "200 OK") -> bytes:
    body = text.encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def chunked(text: str) -> bytes:
    body, half = text.encode(), len(text) // 2
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:]))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"


def watch(url: str, folder: Path | None, until: Callable[[ServerMetrics], bool], **options: float) -> ServerMetrics:
    """Watch until that holds, a hundred times as often as usual, and no longer than the patience of a test."""
    settings = {"period_s": 0.01, "timeout_s": 0.3, "settle_s": 0.0, **options}
    with ServerWatch(Target(url), RunClock(), folder, **settings) as watching:  # type: ignore[arg-type]
        deadline = time.monotonic() + PATIENCE_S
        while not until(watching.result) and time.monotonic() < deadline:
            time.sleep(0.005)
    assert time.monotonic() < deadline
    return watching.result


def several(result: ServerMetrics) -> bool:
    return len(result.samples) >= 3


@pytest.mark.parametrize("write", [page, chunked])
def test_each_answer_is_a_sample_in_order_of_time_and_in_the_run_folder(
    tmp_path: Path, write: Callable[[str], bytes]
) -> None:
    with serving(lambda connection, _: connection.sendall(write(VLLM))) as server:
        result = watch(server.url, tmp_path, several)
    assert (result.server, result.num_failed, result.trouble) == ("vLLM", 0, None)
    assert all(sample.running == 21 and sample.output_tokens_total == 900 for sample in result.samples)
    times_s = [sample.at_s for sample in result.samples]
    assert times_s == sorted(times_s)
    assert all(sample.took_s > 0 for sample in result.samples)
    assert result.cpu_s > 0
    stored = read_server_metrics(tmp_path)
    assert stored is not None
    assert (stored.server, stored.samples) == ("vLLM", result.samples)


def test_the_last_sample_is_taken_after_the_run_and_the_first_before_it() -> None:
    counters = iter(range(1000))

    def answer(connection: socket.socket, _: int) -> None:
        connection.sendall(page(f"llamacpp:tokens_predicted_total {next(counters)}\n"))

    with (
        serving(answer) as server,
        ServerWatch(Target(server.url), RunClock(), period_s=60, settle_s=0.0) as watching,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while not watching.result.samples and time.monotonic() < deadline:
            time.sleep(0.005)
    assert [sample.output_tokens_total for sample in watching.result.samples] == [0, 1]


def test_it_asks_below_the_base_path_with_the_key_and_never_shows_that() -> None:
    with serving(lambda connection, _: connection.sendall(page(LLAMA_CPP))) as server:
        target = Target(f"{server.url}/proxy/v1", api_key=ApiKey("sk-very-secret"), extra_headers={"X-Tenant": "seven"})
        assert PageFetcher(target)() == LLAMA_CPP
    head = server.asked[0].decode().split("\r\n")
    assert head[0] == "GET /proxy/metrics HTTP/1.1"
    assert "Authorization: Bearer sk-very-secret" in head
    assert "X-Tenant: seven" in head
    assert f"Host: {target.address.host_header}" in head


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("404 Not Found", "SGLang shows them when started with --enable-metrics"),
        ("501 Not Implemented", "llama.cpp does when started with --metrics"),
        ("401 Unauthorized", "wants a key"),
    ],
)
def test_a_server_that_shows_none_is_asked_once_and_what_would_help_is_said(
    tmp_path: Path, status: str, says: str
) -> None:
    with serving(lambda connection, _: connection.sendall(page("secret words", status))) as server:
        result = watch(server.url, tmp_path, lambda found: found.num_failed > 0)
        time.sleep(0.05)
        num_asked = len(server.asked)
    assert (num_asked, result.samples, result.num_failed) == (1, (), 1)
    assert says in (result.trouble or "")
    assert "secret words" not in (result.trouble or "")
    assert not (tmp_path / SERVER_METRICS_FILE).exists()


def test_failures_between_answers_are_counted_and_the_first_is_said() -> None:
    def answer(connection: socket.socket, number: int) -> None:
        texts = {
            2: page("vllm:num_requests_running{ broken\n"),
            3: page("busy", "503 Service Unavailable"),
            4: b"what?\r\n\r\n",
        }
        connection.sendall(texts.get(number, page(VLLM)))

    with serving(answer) as server:
        result = watch(server.url, None, lambda found: len(found.samples) >= 3)
    assert result.num_failed == 3
    assert result.trouble == "the server's own metrics: line 1 of the page of metrics has labels that cannot be read"


def trickle(connection: socket.socket, _: int) -> None:
    """A byte now and then, without end, in the head already."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(2000):
            connection.sendall(b"y")
            time.sleep(0.01)


def hang(connection: socket.socket, _: int) -> None:
    with suppress(OSError):
        connection.recv(1)


@pytest.mark.parametrize("answer", [trickle, hang])
def test_a_server_that_never_finishes_costs_a_sample_and_not_the_run(answer: Answer) -> None:
    with serving(answer) as server:
        begin_s = time.monotonic()
        result = watch(server.url, None, lambda found: found.num_failed >= 2, timeout_s=0.1)
        elapsed_s = time.monotonic() - begin_s
    assert result.samples == ()
    assert result.num_late > 0
    assert result.trouble == "the server's own metrics: no whole answer within 100 ms"
    assert elapsed_s < PATIENCE_S


def test_a_dead_server_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = watch(f"http://127.0.0.1:{port}", None, lambda found: found.num_failed >= 2)
    assert result.trouble == "the server's own metrics: connection refused"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"", "it closed without an answer"),
        (b"nonsense", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "the answer was cut short"),
        (page("tgi_queue_size 3\n"), "no figure of a server that is known here"),
        (page(f"vllm:num_requests_running {'9' * 400}\nvllm:num_requests_waiting 1\n"), None),
    ],
)
def test_other_answers_are_said_for_what_they_are(reply: bytes, says: str | None) -> None:
    with serving(lambda connection, _: connection.sendall(reply)) as server:
        result = watch(server.url, None, lambda found: found.num_failed + len(found.samples) > 0)
    if says is None:  # a number beyond all numbers is not one
        assert (result.samples[0].running, result.samples[0].waiting) == (None, 1)
    else:
        assert says in (result.trouble or "")


def test_a_page_without_end_is_cut_off() -> None:
    def answer(connection: socket.socket, _: int) -> None:
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(40):
                connection.sendall(b"a 1\n" * 250_000)

    with serving(answer) as server, pytest.raises(ServerError, match="larger than 8 MiB"):
        PageFetcher(Target(server.url), timeout_s=PATIENCE_S)()


def test_a_server_of_another_kind_is_not_asked_for_ever() -> None:
    with serving(lambda connection, _: connection.sendall(page("tgi_queue_size 3\n"))) as server:
        watch(server.url, None, lambda found: found.num_failed >= 10)
        num_asked = len(server.asked)
        time.sleep(0.05)
        assert len(server.asked) == num_asked == 10


def test_what_cannot_be_written_is_said_and_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / SERVER_METRICS_FILE).mkdir()
    with serving(lambda connection, _: connection.sendall(page(VLLM))) as server:
        result = watch(server.url, tmp_path, several)
    assert len(result.samples) >= 3
    assert "could not be written to the run folder" in (result.trouble or "")


def test_an_interrupted_run_does_not_wait_for_a_last_sample() -> None:
    def answer(connection: socket.socket, number: int) -> None:
        connection.sendall(page(VLLM)) if number == 1 else hang(connection, number)

    with serving(answer) as server:
        begin_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt), ServerWatch(Target(server.url), RunClock(), timeout_s=9.0, settle_s=9.0):
            raise KeyboardInterrupt
        assert time.monotonic() - begin_s < 8


def test_the_run_begins_once_the_first_answer_has_come() -> None:
    def answer(connection: socket.socket, _: int) -> None:
        time.sleep(0.1)
        connection.sendall(page(VLLM))

    with serving(answer) as server, ServerWatch(Target(server.url), RunClock(), settle_s=0.0) as watching:
        assert len(watching.result.samples) == 1


def test_lines_are_there_while_the_run_goes_on(tmp_path: Path) -> None:
    with (
        serving(lambda connection, _: connection.sendall(page(VLLM))) as server,
        ServerWatch(Target(server.url), RunClock(), tmp_path, period_s=0.01, settle_s=0.0),
    ):
        path, deadline = tmp_path / SERVER_METRICS_FILE, time.monotonic() + PATIENCE_S
        while (not path.exists() or path.read_bytes().count(b"\n") < 2) and time.monotonic() < deadline:
            time.sleep(0.005)
        first = path.read_bytes().split(b"\n")[0]
    assert json.loads(first)["running"] == 21


@pytest.mark.parametrize("path", ["", "metrics", "/a b", "/a\r\nX-Evil: 1", "/caf\u00e9", "http://other/metrics"])
def test_a_path_that_cannot_stand_in_a_request_is_refused(path: str) -> None:
    with pytest.raises(RequestError, match="must begin with /"):
        PageFetcher(Target("http://127.0.0.1:1"), path)
