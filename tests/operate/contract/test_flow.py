"""A check of a server that goes away, is slow, is none, or is interrupted: what was found stays, and every question has an answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest

from engines.fake_server import FakeServer
from inference_bench.errors import RequestError, ServerError, UnknownNameError
from inference_bench.measure.target import ApiKey
from inference_bench.operate.contract.catalog import GROUPS, MET_BY_PARTLY, NEEDS, QUESTIONS, group_of
from inference_bench.operate.contract.flow import Wish, check_contract
from inference_bench.operate.contract.rows import Contract, Row, Verdict, rows_needed
from inference_bench.operate.contract.server import Server, at_once, target_of
from inference_bench.operate.contract.wire import NoReplyError, Wire
from operate.contract.fake_model_server import MODEL, Faults, fake_model_server


def ids(found: Contract) -> list[str]:
    return [row.id for row in found.rows]


def test_a_server_that_dies_midway_leaves_what_was_found_and_an_answer_to_every_question() -> None:
    with fake_model_server(Faults(dies_after=24)) as model:
        found = check_contract(model.url, Wish(timeout_s=5))
    assert ids(found) == list(QUESTIONS)
    assert found.row("limits.max_tokens") == Row(
        "limits.max_tokens",
        Verdict.YES,
        "asked for 6 tokens, 6 came, finish_reason length",
        figures={"completion_tokens": 6},
    )
    assert found.lost is not None
    assert "stopped answering at stop strings" in found.lost
    last = found.row("greedy.batched")
    assert last is not None
    assert (last.verdict, last.seen) == (Verdict.UNKNOWN, "not asked: the server had stopped answering")


def test_nothing_that_listens_is_an_error_that_says_where() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ServerError, match=f"nothing listens at http://127.0.0.1:{port}"):
        check_contract(f"http://127.0.0.1:{port}")


def test_a_server_that_never_answers_costs_its_time_and_no_more() -> None:
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerError, match="did not answer within"):
        check_contract(f"http://127.0.0.1:{silent.getsockname()[1]}", Wish(timeout_s=0.3))
    assert time.monotonic() - began < 5


def test_a_server_that_lists_its_model_and_is_silent_otherwise_is_given_up_at_the_first_route() -> None:
    silent = FakeServer()
    silent.say("/v1/models", {"data": [{"id": MODEL}]})
    silent.waits_s = dict.fromkeys(("/props", "/v1/chat/completions", "/v1/completions"), 3.0)
    try:
        with pytest.raises(ServerError, match="did not answer within"):
            check_contract(silent.url, Wish(timeout_s=0.5))
        texts = [path for _, path, _, body in silent.requests if body]
        models = [path for _, path, _, _ in silent.requests if path == "/v1/models"]
    finally:
        silent.close()
    assert texts == ["/v1/chat/completions"]
    assert len(models) == 2, "when it began, and to say why it ended"


def test_the_properties_have_ten_seconds_however_patient_the_check_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []
    ask = Wire.ask

    def noted(self: Wire, method: str, path: str, body: bytes | None = None, **more: Any) -> Any:
        asked.append((path, more.get("most_s", self.timeout_s)))
        return ask(self, method, path, body, **more)

    monkeypatch.setattr(Wire, "ask", noted)
    with fake_model_server() as model:
        check_contract(model.url, Wish(only=("limits",), timeout_s=30))
    assert dict(asked)["/props"] == 10.0


def test_the_time_for_the_whole_check_ends_it_and_the_rest_is_not_asked() -> None:
    with fake_model_server(Faults(works_on=True)) as model:
        found = check_contract(model.url, Wish(only=("cancellation", "errors"), budget_s=0.6))
    assert found.lost is None
    assert [row.verdict for row in found.rows if row.group == "errors"] == [Verdict.UNKNOWN] * 5
    assert "time for the whole check was used up" in found.rows[-1].seen


def test_an_interruption_keeps_the_rows_so_far_and_says_so() -> None:
    def interrupt_at_tools(doing: str) -> None:
        if doing == "tool calls":
            raise KeyboardInterrupt

    with fake_model_server() as model:
        found = check_contract(model.url, Wish(only=("limits", "tools")), progress=interrupt_at_tools)
    assert found.is_interrupted
    assert [row.verdict for row in found.rows] == [Verdict.YES] * 4 + [Verdict.UNKNOWN] * 3
    assert found.rows[-1].seen == "not asked: interrupted"


def test_a_key_is_sent_and_shows_nowhere_and_a_missing_or_wrong_one_is_seen_to_be_refused() -> None:
    secret = "sk-very-secret-0123456789"
    with fake_model_server(Faults(key=secret)) as model:
        found = check_contract(model.url, Wish(only=("routes", "limits")), ApiKey(secret))
        with pytest.raises(ServerError, match="HTTP 401"):
            check_contract(model.url, Wish(only=("limits",)))
    assert secret not in json.dumps(asdict(found))
    assert [found.row(f"routes.{name}_key").verdict for name in ("absent", "wrong")] == [Verdict.YES] * 2  # type: ignore[union-attr]


def test_no_text_that_was_sent_or_written_is_in_what_is_found() -> None:
    with fake_model_server() as model:
        found = json.dumps(asdict(check_contract(model.url, Wish(is_quick=True))))
    assert not [
        word for word in ("balum", "conar", "dupet", "one to one hundred", "apple apple", "lighthouse") if word in found
    ]


@pytest.mark.parametrize(
    ("wish", "error", "said"),
    [
        (Wish(only=("nothing",)), UnknownNameError, "groups: routes, limits"),
        (Wish(model="another"), RequestError, MODEL),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_what_can(wish: Wish, error: type[Exception], said: str) -> None:
    with fake_model_server(Faults(refuses_unknown=True)) as model, pytest.raises(error, match=said):
        check_contract(model.url, wish)


def test_an_address_that_ends_in_a_route_is_taken_for_its_server() -> None:
    with fake_model_server() as model:
        assert check_contract(f"{model.url}/v1/completions", Wish(only=("limits",))).base_url == model.url


def test_a_page_for_people_is_no_model_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_pages, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises((ServerError, RequestError)):
            check_contract(f"http://127.0.0.1:{listener.getsockname()[1]}", Wish(timeout_s=3))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _serve_pages(listener: socket.socket) -> None:
    page = b"<html>hello</html>"
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\nConnection: close\r\n\r\n" + page
            )


def contract(*rows: Row) -> Contract:
    return Contract("http://127.0.0.1:1", None, "/v1/completions", "", 1.0, 1, False, tuple(GROUPS), rows)


def test_a_need_is_met_by_yes_alone_but_for_greedy_up_to_ties() -> None:
    rows = [Row(row_id, Verdict.PARTLY, "seen") for row_id in NEEDS["greedy"]]
    met = {need.name: need.is_met for need in contract(*rows).needs(["greedy", "greedy_up_to_ties", "seed"])}
    assert met == {"greedy": False, "greedy_up_to_ties": True, "seed": False}
    (unknown,) = contract(Row("sampling.seed", Verdict.UNKNOWN, "why not")).needs(["seed"])
    assert (unknown.is_met, unknown.why) == (False, "sampling.seed: unknown, why not")


def test_every_question_has_a_group_and_every_need_a_question() -> None:
    assert {group_of(row_id) for row_id in QUESTIONS} == set(GROUPS)
    assert {row_id for ids in NEEDS.values() for row_id in ids} <= set(QUESTIONS)
    assert set(NEEDS) >= MET_BY_PARTLY
    assert rows_needed("structured.pattern") == ("structured.pattern",)
    with pytest.raises(UnknownNameError, match="streaming"):
        rows_needed("streeming")


def test_an_interruption_of_requests_at_once_breaks_off_those_that_wait() -> None:
    def ask(item: int) -> None:
        if item == 0:
            waiting.wait(5)
            raise KeyboardInterrupt
        with suppress(NoReplyError):
            waiting.set()
            server.get("/never")

    waiting, began = threading.Event(), time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = target_of(f"http://127.0.0.1:{silent.getsockname()[1]}", None, None)
        server = Server(Wire(target, timeout_s=15, budget_s=60))
        with pytest.raises(KeyboardInterrupt):
            at_once(server, ask, range(3))
    assert time.monotonic() - began < 10
