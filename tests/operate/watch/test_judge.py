"""The rules for the three answers, each with what would break it."""

from __future__ import annotations

from inference_bench.operate.watch.evidence import Evidence
from inference_bench.operate.watch.judge import Verdict, judge
from inference_bench.operate.watch.page import PageRead, read_metrics
from inference_bench.operate.watch.states import Alive, Ready, Room
from operate.watch.fake_servers import vllm_page

READY_FOR_S = 45.0


def answering(**facts: object) -> Evidence:
    found = Evidence(
        asked=True, was_connected=True, was_answered=True, scrape_status=200, engine="vLLM", list_status=200, model="m"
    )
    for name, value in facts.items():
        setattr(found, name, value)
    return found


def pages(*each: PageRead) -> list[PageRead]:
    return list(each)


def page(at_s: float, **values: float) -> PageRead:
    return read_metrics(vllm_page(**values), at_s, 0.0)


def verdict(found: Evidence, *seen: PageRead, now_s: float = 100.0) -> Verdict:
    return judge(found, pages(*seen), now_s, READY_FOR_S)


def test_nothing_is_known_before_the_first_answer() -> None:
    assert verdict(Evidence())[:3] == (Alive.UNKNOWN, Ready.UNKNOWN, Room.UNKNOWN)


def test_no_connection_is_down_and_a_connection_without_an_answer_is_silent() -> None:
    down = verdict(Evidence(asked=True, silence="no connection (refused)"))
    silent = verdict(Evidence(asked=True, was_connected=True, silence="no whole answer within 2 s"))
    assert (down.alive, down.ready, silent.alive, silent.ready) == (Alive.NO, Ready.NO, Alive.SILENT, Ready.NO)
    assert silent.reasons == ("it takes connections and gives no answer: no whole answer within 2 s",)


def test_a_server_that_loads_is_alive_and_not_ready() -> None:
    found = verdict(answering(scrape_status=503, list_status=None, engine=None, page_trouble="HTTP 503"))
    assert found[:3] == (Alive.YES, Ready.LOADING, Room.UNKNOWN)
    assert found.reasons == ("HTTP 503: it may still be loading its model",)


def test_a_listed_model_is_not_ready_before_a_token_came() -> None:
    assert verdict(answering()).ready is Ready.LISTED
    assert verdict(answering(token_s=99.0)).ready is Ready.YES


def test_a_token_proves_readiness_for_a_while_and_no_longer() -> None:
    assert verdict(answering(token_s=60.0)).ready is Ready.YES
    assert verdict(answering(token_s=50.0)).ready is Ready.LISTED


def test_a_probe_without_a_token_is_not_ready_unless_a_token_came_after_it() -> None:
    failed = {"probed_s": 90.0, "probe_failure": "HTTP 500"}
    assert verdict(answering(token_s=80.0, **failed)).ready is Ready.NO
    assert verdict(answering(token_s=95.0, **failed)).ready is Ready.YES


def test_a_busy_server_that_gives_no_token_is_unknown_and_says_since_when() -> None:
    found = verdict(answering(token_s=30.0), page(99.0, running=4), page(100.0, running=4))
    assert found.ready is Ready.UNKNOWN
    assert found.reasons[0] == "busy with 4 requests, and no token was seen for 70.0 s"


def test_a_key_that_was_not_given_is_unknown_and_a_list_without_models_is_not_ready() -> None:
    assert verdict(answering(list_status=401, model=None)).ready is Ready.UNKNOWN
    assert (
        verdict(answering(list_status=404, model=None, list_trouble="it lists no model (HTTP 404)")).ready is Ready.NO
    )


def test_a_full_queue_is_ready_and_saturated() -> None:
    found = verdict(answering(token_s=99.0), page(98.0, waiting=40, running=8), page(100.0, waiting=41, running=8))
    assert found[:3] == (Alive.YES, Ready.YES, Room.SATURATED)
    assert found.reasons == ("41 requests wait, and some did at every look",)


def test_a_queue_that_was_empty_just_before_is_filling_and_not_saturated() -> None:
    assert verdict(answering(), page(98.0, waiting=0), page(100.0, waiting=5)).room is Room.FILLING


def test_a_queue_of_long_ago_does_not_count() -> None:
    seen = [page(at_s, waiting=5) for at_s in (10.0, 20.0)] + [page(at_s) for at_s in (98.0, 100.0)]
    assert verdict(answering(), *seen).room is Room.ROOM


def test_a_nearly_full_cache_is_filling_and_preemptions_are_saturation() -> None:
    assert verdict(answering(), page(98.0), page(100.0, cache=0.93)).room is Room.FILLING
    assert verdict(answering(), page(98.0, preemptions=2), page(100.0, preemptions=3)).room is Room.SATURATED
    assert verdict(answering(), page(98.0, preemptions=3), page(100.0, preemptions=3)).room is Room.ROOM


def test_a_request_turned_away_is_saturation_for_a_while() -> None:
    turned = verdict(answering(turned_away_s=95.0, token_s=90.0), page(98.0), page(100.0))
    assert (turned.ready, turned.room) == (Ready.YES, Room.SATURATED)
    assert verdict(answering(turned_away_s=50.0), page(98.0), page(100.0)).room is Room.ROOM


def test_a_refused_probe_of_a_server_that_shows_its_metrics_is_not_loading() -> None:
    assert verdict(answering(probe_status=503, token_s=99.0), page(100.0)).ready is Ready.YES
    assert verdict(answering(probe_status=503, engine=None)).ready is Ready.LOADING


def test_room_without_metrics_is_unknown() -> None:
    found = verdict(answering(page_trouble="it shows no metrics", engine=None, token_s=99.0))
    assert (found.room, found.reasons) == (Room.UNKNOWN, ("it shows no metrics",))
