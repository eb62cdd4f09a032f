"""The page that Prometheus reads: what is known, under names that follow its conventions, and nothing that is not."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess

import pytest

from inference_bench.errors import RequestError, StorageError
from inference_bench.measure.prometheus_text import Series, parse_prometheus
from inference_bench.operate.watch import exporter as module
from inference_bench.operate.watch.exporter import EXPORTED, Exporter
from inference_bench.operate.watch.states import Round
from operate.watch.made import DOWN, UNSURE, WELL, a_round, named

pytest.importorskip("prometheus_client")


def page(found: Round | None) -> str:
    with Exporter() as exporter:
        if found is not None:
            exporter.take(found)
        connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def series(found: Round | None) -> dict[tuple[str, str | None], float]:
    lines: tuple[Series, ...] = parse_prometheus(page(found))
    return {(each.name, each.labels.get("target")): each.value for each in lines if not each.name.endswith("_created")}


def test_figures_are_exported_in_base_units_under_the_name_of_the_server() -> None:
    found = series(a_round())
    expected = {
        "up": 1, "ready": 1, "saturated": 1, "requests_running": 8, "requests_waiting": 12, "requests_free": 0,
        "queue_growth_requests_per_second": 0.25, "cache_used_ratio": 0.95, "cache_headroom_tokens": 800, "preemptions_per_second": 0.125,
        "prefix_hit_ratio": 0.5, "output_tokens_per_second": 1234.5, "ttft_mean_seconds": 1.5, "last_token_age_seconds": 2,
        "probe_seconds": 0.25, "scrapes_total": 40, "scrape_failures_total": 3, "scrape_timeouts_total": 2, "restarts_total": 1,
    }  # fmt: skip
    assert {name: found[f"inference_bench_{name}", "big"] for name in expected} == expected
    assert found["inference_bench_watch_rounds_total", None] == 7


def test_a_server_that_is_down_is_0_and_its_figures_are_absent() -> None:
    found = series(a_round(DOWN))
    assert (found["inference_bench_up", "gone"], found["inference_bench_ready", "gone"]) == (0, 0)
    assert ("inference_bench_requests_waiting", "gone") not in found
    assert ("inference_bench_saturated", "gone") not in found


def test_what_is_unknown_has_no_series_and_is_not_0() -> None:
    found = series(a_round(UNSURE))
    assert found["inference_bench_up", "unsure"] == 1
    assert ("inference_bench_ready", "unsure") not in found


def test_the_only_label_is_the_target_and_no_model_or_address_is_told() -> None:
    text = page(a_round())
    assert {label for each in parse_prometheus(text) for label in each.labels} == {"target"}
    assert "127.0.0.1" not in text
    assert '"m"' not in text


def test_before_the_first_round_there_is_nothing() -> None:
    assert series(None) == {}


def test_a_name_with_quotes_stays_one_label() -> None:
    strange = 'a"} 1\nup{x="\\'
    assert ("inference_bench_up", strange) in series(a_round(named(WELL, strange)))


def test_every_exported_name_is_declared() -> None:
    assert {name for name, _ in series(a_round())} == EXPORTED


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_to_say_about_the_names() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(a_round()), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_listens_on_the_loopback_interface_only_and_gives_the_port_back() -> None:
    with Exporter() as exporter:
        assert exporter.url == f"http://127.0.0.1:{exporter.port}/metrics"
        with pytest.raises(StorageError, match="cannot be taken"):
            Exporter(exporter.port)
        port = exporter.port
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(RequestError, match="between 0, a free one, and 65535"):
        Exporter(port)


def test_a_connection_on_which_nothing_comes_is_closed_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_MOST_IDLE_S", 0.1)
    with Exporter() as exporter, socket.create_connection(("127.0.0.1", exporter.port), timeout=5) as idle:
        assert idle.recv(1) == b""
    assert capfd.readouterr() == ("", "")
