"""Many servers at once and over time: nobody holds up others, and what changes is said."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import Observer, WatchOptions
from inference_bench.operate.watch.states import Alive, Ready, Room, Round
from inference_bench.operate.watch.targets import watched
from operate.watch.fake_servers import QUICK, FakeServer, fake_server, fake_servers, vllm_page
from operate.watch.test_observer import closed_port


class _Seen(Exception):
    """What a test waits for has happened."""


def rounds(
    urls: list[str],
    for_s: float,
    options: WatchOptions = QUICK,
    meanwhile: Callable[[Round], None] | None = None,
    stop: Callable[[list[Round]], bool] | None = None,
) -> tuple[list[Round], Watch]:
    """The rounds of a watch for a time, or until `stop` says that what is waited for has been seen."""
    watch, found = Watch(watched(urls), options), list[Round]()

    def take(each: Round) -> None:
        found.append(each)
        if stop is not None and stop(found):
            raise _Seen
        if meanwhile is not None:
            meanwhile(each)

    with suppress(_Seen):
        watch.run(take, for_s)
    return found, watch


def events(found: list[Round]) -> list[str]:
    return [event for each in found for view in each.views for event in view.events]


def test_a_slow_server_does_not_hold_up_the_others() -> None:
    with fake_servers(FakeServer(page_delay_s=1.0), FakeServer()) as (slow, quick):
        found, _ = rounds([slow.url, quick.url], 1.2, replace(QUICK, timeout_s=0.3))
    assert quick.num_pages >= 6
    assert found[-1].views[1].ready is Ready.YES
    assert found[-1].views[0].alive is not Alive.YES
    assert len(found) >= 5


def test_two_hundred_addresses_of_which_most_are_dead_are_all_judged() -> None:
    with fake_server() as server, closed_port() as port:
        urls = [f"s{number}=http://127.0.0.1:{port}/{number}" for number in range(199)]
        found = Watch(watched([*urls, server.url]), QUICK).once()
    assert len(found.views) == 200
    assert [view.alive for view in found.views[:199]] == [Alive.NO] * 199
    assert found.views[199].ready is Ready.YES


def test_a_dead_name_server_holds_up_nobody_and_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real, hangs, asked = socket.getaddrinfo, threading.Event(), list[str]()

    def look_up(host: Any, *more: Any, **named: Any) -> Any:
        if host == "127.0.0.1":
            return real(host, *more, **named)
        asked.append(host)
        hangs.wait(5)
        raise socket.gaierror(-3, "temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    begin_s = time.monotonic()
    with fake_server() as server:
        found, _ = rounds(["http://dead.invalid", server.url], 0.6, replace(QUICK, timeout_s=0.15))
    hangs.set()
    assert (found[-1].views[0].alive, found[-1].views[1].ready) == (Alive.NO, Ready.YES)
    assert asked == ["dead.invalid"]
    assert time.monotonic() - begin_s < 4


def test_a_restart_is_seen_by_counters_that_go_back_and_no_rate_is_negative() -> None:
    pages = [vllm_page(tokens=tokens) for tokens in (1000, 2000, 3000, 10, 20)]
    with fake_server(FakeServer(pages=pages)) as server:
        found, watch = rounds(
            [server.url], 10, stop=lambda seen: "its counters went back: it began anew" in events(seen)
        )
    assert "its counters went back: it began anew" in events(found)
    assert watch.tallies[0].counts.num_restarts == 1
    rates = [view.figures.output_tokens_per_s for each in found for view in each.views if view.figures is not None]
    assert all(rate is None or rate >= 0 for rate in rates)


def test_a_model_that_changes_between_rounds_is_said_and_counted() -> None:
    def swap(each: Round) -> None:
        if each.number == 3:
            server.model = "other-model"

    with fake_server() as server:
        said = "its model was known-model and is other-model now"
        found, watch = rounds([server.url], 10, meanwhile=swap, stop=lambda seen: said in events(seen))
    assert said in events(found)
    assert watch.tallies[0].counts.num_model_changes == 1


def test_a_server_that_falls_silent_and_comes_back_is_said_both_times() -> None:
    def toggle(each: Round) -> None:
        server.page_delay_s = 0.5 if 3 <= each.number < 6 else 0.0

    with fake_server() as server:
        options = replace(QUICK, timeout_s=0.1)
        found, _ = rounds([server.url], 10, options, toggle, lambda seen: "it answers now" in events(seen))
    told = events(found)
    assert "it stopped answering" in told
    assert "it answers now" in told[told.index("it stopped answering") :]


def test_a_server_that_has_loaded_becomes_ready_without_waiting_for_the_slow_pace() -> None:
    def load(each: Round) -> None:
        if each.number == 3:
            server.page_status = server.list_status = 200

    with fake_server(FakeServer(page_status=503, list_status=503)) as server:
        options = replace(QUICK, probe_s=60.0)
        found, _ = rounds([server.url], 10, options, load, lambda seen: seen[-1].views[0].ready is Ready.YES)
    assert found[0].views[0].ready is Ready.LOADING
    assert found[-1].views[0].ready is Ready.YES


def test_probes_keep_their_pace_and_stop_while_the_server_is_busy() -> None:
    with fake_server() as idle, fake_server(FakeServer(pages=[vllm_page(running=2)])) as busy:
        rounds([idle.url, busy.url], 0.75, replace(QUICK, probe_s=0.3))
    assert 1 <= idle.num_tokens_asked <= 4  # of a dozen looks
    assert busy.num_tokens_asked == 0


def test_tokens_that_others_get_are_proof_enough() -> None:
    pages = [vllm_page(running=2, tokens=100 * number) for number in range(1, 40)]
    with fake_server(FakeServer(pages=pages)) as server:
        found, _ = rounds([server.url], 10, stop=lambda seen: seen[-1].views[0].ready is Ready.YES)
    assert found[-1].views[0].ready is Ready.YES
    assert server.num_tokens_asked == 0


def test_a_wall_clock_that_steps_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([1e9, 5e8, 2e9, 0.0] * 100)
    monkeypatch.setattr(time, "time", lambda: next(steps))
    pages = [vllm_page(tokens=100 * number) for number in range(1, 40)]
    with fake_server(FakeServer(pages=pages)) as server:
        found, _ = rounds([server.url], 0.4)
    figures = found[-1].views[0].figures
    assert figures is not None
    assert 0 < figures.window_s < 1
    assert figures.age_s < 1


def test_a_mistake_of_this_program_ends_the_watch_and_is_not_an_old_state_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("made for this test")

    monkeypatch.setattr(Observer, "scrape", broken)
    with pytest.raises(ZeroDivisionError):
        rounds(["http://127.0.0.1:9"], 5.0, replace(QUICK, timeout_s=0.1))


def test_the_queue_of_late_is_kept_for_its_picture() -> None:
    with fake_server(FakeServer(pages=[vllm_page(waiting=waiting) for waiting in (0, 3, 3, 5)])) as server:
        found, watch = rounds([server.url], 10, stop=lambda seen: seen[-1].views[0].queue[-1:] == (5.0,))
    last = found[-1].views[0]
    assert (last.queue[0], last.queue[-1], last.room) == (0.0, 5.0, Room.FILLING)  # it was empty just before
    assert watch.tallies[0].num_rounds == len(found)


@pytest.mark.parametrize("field", ["interval_s", "timeout_s", "probe_s", "probe_timeout_s", "window_s"])
@pytest.mark.parametrize("value", [0.0, 0.01, 1e6, float("nan")])
def test_times_that_cannot_be_are_refused(field: str, value: float) -> None:
    with pytest.raises(RequestError, match="must lie between"):
        WatchOptions(**{field: value})


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no server is given"),
        (["http://a:1", "http://a:1/v1"], "http://a:1 is given twice"),
        (["x=http://a:1", "x=http://a:2"], "the name x is given twice"),
        (["http://user:pw@a:1"], "user name or password"),
        (["ftp://a"], "must look like"),
        ([f"http://h{number}:1" for number in range(1001)], "at most 1000"),
    ],
)
def test_servers_that_cannot_be_watched_are_refused_in_words(texts: list[str], why: str) -> None:
    with pytest.raises(RequestError, match=why) as refusal:
        watched(texts)
    assert "pw" not in str(refusal.value).replace("password", "")


def test_a_name_is_given_or_else_host_and_port() -> None:
    assert [each.name for each in watched(["big=http://a:1/v1/chat/completions", "http://b:2/v1"])] == ["big", "b:2"]
