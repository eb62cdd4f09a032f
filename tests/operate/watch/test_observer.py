"""One server in every state, asked over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from inference_bench.measure.target import ApiKey
from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import WatchOptions
from inference_bench.operate.watch.states import Alive, Ready, Room, View
from inference_bench.operate.watch.targets import watched
from measure.metrics_pages import LLAMA_CPP
from operate.watch.fake_servers import MODEL, QUICK, FakeServer, fake_server, vllm_page


def look(server: FakeServer, options: WatchOptions = QUICK, key: str | None = None, model: str | None = None) -> View:
    with fake_server(server):
        return look_at(server.url, options, key, model)


def look_at(url: str, options: WatchOptions = QUICK, key: str | None = None, model: str | None = None) -> View:
    found = Watch(watched([url], model, None if key is None else ApiKey(key)), options).once()
    return found.views[0]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_server_that_gives_a_token_is_ready_with_room_and_its_figures() -> None:
    view = look(FakeServer())
    assert (view.alive, view.ready, view.room, view.reasons) == (Alive.YES, Ready.YES, Room.ROOM, ())
    assert (view.engine, view.model) == ("vLLM", MODEL)
    assert view.figures is not None
    assert (view.figures.cache_used_fraction, view.figures.cache_headroom_tokens) == (0.1, 14_400.0)
    assert view.proof is not None
    assert view.proof.failure is None


def test_only_one_token_is_asked_for() -> None:
    server = FakeServer()
    look(server)
    assert server.num_tokens_asked == 1


def test_a_server_that_loads_its_model_is_alive_and_not_ready_and_is_asked_for_no_token() -> None:
    server = FakeServer(page_status=503, list_status=503)
    view = look(server)
    assert (view.alive, view.ready, view.room) == (Alive.YES, Ready.LOADING, Room.UNKNOWN)
    assert server.num_tokens_asked == 0


def test_a_full_queue_is_ready_and_saturated_and_is_asked_for_no_token() -> None:
    busy = FakeServer(pages=[vllm_page(running=8, waiting=20, tokens=100 * number) for number in range(1, 5)])
    view = look(busy)
    assert (view.alive, view.ready, view.room) == (Alive.YES, Ready.YES, Room.SATURATED)
    assert busy.num_tokens_asked == 0


def test_a_token_that_was_turned_away_by_a_full_queue_is_no_loading() -> None:
    view = look(FakeServer(token_status=503))
    assert (view.ready, view.room) == (Ready.NO, Room.SATURATED)
    assert "one token was asked for, and none came: it turned it away (HTTP 503)" in view.reasons


def test_no_probe_asks_for_no_token_and_says_that_a_listed_model_is_only_listed() -> None:
    server = FakeServer()
    view = look(server, replace(QUICK, is_probing=False))
    assert (view.ready, server.num_tokens_asked) == (Ready.LISTED, 0)


def test_a_server_without_metrics_can_be_ready_and_its_room_is_unknown() -> None:
    view = look(FakeServer(page_status=404))
    assert (view.alive, view.ready, view.room, view.figures) == (Alive.YES, Ready.YES, Room.UNKNOWN, None)
    assert "SGLang does when started with --enable-metrics" in view.reasons[0]


def test_metrics_of_an_unknown_version_are_unknown_and_not_zero() -> None:
    view = look(FakeServer(pages=["vllm:in_line 3\n"]))
    assert (view.alive, view.ready, view.room, view.figures) == (Alive.YES, Ready.YES, Room.UNKNOWN, None)
    assert "none of which is known here" in view.reasons[0]


def test_a_server_with_only_the_chat_route_is_asked_there() -> None:
    server = FakeServer(only_chat=True)
    assert look(server).ready is Ready.YES
    assert server.asked.count("/v1/chat/completions") == 1


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{"text": ""}]}, [], "text", {"usage": {"completion_tokens": 0}}]
)
def test_an_answer_without_a_token_is_no_proof(answer: object) -> None:
    view = look(FakeServer(token_answer=answer))
    assert view.ready is Ready.NO
    assert "none came: its answer holds no token" in view.reasons[0]


def test_an_error_to_the_probe_is_not_ready_and_names_the_status_only() -> None:
    view = look(FakeServer(token_status=500, token_answer={"error": {"message": "secret prompt text"}}))
    assert view.ready is Ready.NO
    assert "HTTP 500" in view.reasons[0]
    assert "secret" not in str(view)


def test_a_web_server_is_alive_and_no_model_server() -> None:
    view = look(FakeServer(page_status=404, list_status=404))
    assert (view.alive, view.ready) == (Alive.YES, Ready.NO)
    assert "it lists no model (HTTP 404): is this a model server?" in view.reasons


def test_a_model_that_is_not_listed_is_not_ready() -> None:
    view = look(FakeServer(token_status=404), model="other")
    assert view.ready is Ready.NO


def test_a_key_reaches_every_question_and_without_it_readiness_is_unknown() -> None:
    assert look(FakeServer(key="k-123456"), key="k-123456").ready is Ready.YES
    without = look(FakeServer(key="k-123456"))
    assert (without.alive, without.ready) == (Alive.YES, Ready.UNKNOWN)
    assert "it wants an API key that it was not given" in without.reasons


def test_a_list_and_metrics_of_different_models_are_said() -> None:
    view = look(FakeServer(pages=[vllm_page(model="small")], model="large"))
    assert "it lists the model large, and its metrics are of small" in view.reasons


def test_a_server_that_takes_connections_and_never_answers_is_silent() -> None:
    view = look(FakeServer(is_mute=True), replace(QUICK, timeout_s=0.2))
    assert (view.alive, view.ready) == (Alive.SILENT, Ready.NO)
    assert view.counts.num_scrape_timeouts == 1


def test_a_page_that_does_not_come_whole_is_an_answer_and_no_figures() -> None:
    view = look(FakeServer(drips=True), replace(QUICK, timeout_s=0.2))
    assert (view.alive, view.room) == (Alive.YES, Room.UNKNOWN)
    assert "its metrics did not come whole: no whole answer within 200 ms" in view.reasons


def test_nobody_there_is_down_at_once() -> None:
    begin_s = time.monotonic()
    with closed_port() as port:
        view = look_at(f"http://127.0.0.1:{port}", replace(QUICK, timeout_s=5.0))
    assert (view.alive, view.ready) == (Alive.NO, Ready.NO)
    assert "refused" in view.reasons[0]
    assert time.monotonic() - begin_s < 4


def test_our_own_token_is_not_counted_as_traffic() -> None:
    pages = [vllm_page(tokens=100), vllm_page(tokens=101), vllm_page(tokens=101)]
    view = look(FakeServer(pages=pages))
    assert view.figures is not None
    assert view.figures.output_tokens_per_s == 0.0


def test_the_names_of_llama_cpp_give_the_same_answers() -> None:
    view = look(FakeServer(pages=[LLAMA_CPP]))
    assert (view.engine, view.room) == ("llama.cpp", Room.SATURATED)  # three requests are deferred at both looks


def test_a_page_beyond_any_size_is_cut_off_and_the_server_is_alive() -> None:
    view = look(FakeServer(pages=["a 1\n" * 2_200_000]), replace(QUICK, timeout_s=5.0))
    assert (view.alive, view.figures) == (Alive.YES, None)
    assert "its metrics did not come whole: the answer is larger than 8.00 MiB" in view.reasons


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    server = FakeServer(page_status=307)
    view = look(server)
    assert (view.alive, view.figures) == (Alive.YES, None)
    assert "its metrics were answered with HTTP 307" in view.reasons
