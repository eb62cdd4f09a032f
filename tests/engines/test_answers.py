"""A server that is silent costs little more than one time limit, and nothing is asked twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.engines import answers
from inference_bench.engines.answers import Asker, Listed
from inference_bench.errors import ServerError
from inference_bench.manifest.from_server import ask_what_is_served
from inference_bench.measure.target import Target
from manifest.answers import MODELS, PROPS

LIMIT_S = 10.0


class Server:
    """Takes time for each path, or says nothing for as long as it is waited for; time passes nowhere else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: dict[str, Any], takes_s: float = 0.0) -> None:
        self.says, self.takes_s = says, takes_s
        self.now_s = 0.0
        self.asked: list[tuple[str, float]] = []
        monkeypatch.setattr(answers, "ask_server", self.answer)
        monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def answer(self, _: Target, path: str, timeout_s: float, body: object = None) -> Any:
        self.asked.append((path, timeout_s))
        is_in_time = path in self.says and self.takes_s <= timeout_s
        self.now_s += self.takes_s if is_in_time else timeout_s
        if not is_in_time:
            raise ServerError("it did not answer in time")
        return self.says[path]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


def ask() -> Asker:
    return Asker(Target("http://here"), LIMIT_S)


def test_routes_that_are_silent_cost_one_time_limit_and_a_tenth_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {"/v1/models": MODELS})
    said = ask_what_is_served(ask())
    assert said.identity.name == "llama.cpp"
    assert len(server.asked) == 6, "models, properties, slots, adapters, and two conversations"
    assert [timeout_s for _, timeout_s in server.asked] == [LIMIT_S, LIMIT_S, 1.0, 1.0, 1.0, 1.0]
    assert server.now_s <= 1.5 * LIMIT_S


def test_a_server_that_is_dead_costs_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {})
    with pytest.raises(ServerError):
        ask_what_is_served(ask())
    assert server.now_s == LIMIT_S


def test_a_route_that_refuses_at_once_takes_no_time_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {"/v1/models": MODELS, "/slots": []})
    monkeypatch.setattr(answers, "ask_server", refusing(server, "/props"))
    ask_what_is_served(ask())
    assert dict(server.asked)["/slots"] == LIMIT_S


def refusing(server: Server, refused: str) -> Any:
    def answer(target: Target, path: str, timeout_s: float, body: object = None) -> Any:
        if path == refused:
            raise ServerError("HTTP 404")
        return server.answer(target, path, timeout_s, body)

    return answer


def test_a_slow_server_is_heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    says = {
        "/v1/models": MODELS,
        "/props": PROPS,
        "/slots": [],
        "/lora-adapters": [],
        "/apply-template": {"prompt": "p"},
    }
    server = Server(monkeypatch, {**says, "/tokenize": {"tokens": [1]}}, takes_s=0.5 * LIMIT_S)
    found = ask_what_is_served(ask()).described
    assert len([each for each in found.components if each.source.startswith("the server's own template")]) == 2
    assert server.now_s == 0.5 * LIMIT_S * len(server.asked)


def test_a_server_that_takes_its_time_with_every_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {f"/{number}": {} for number in range(100)}, takes_s=LIMIT_S)
    asker = ask()
    for number in range(100):
        asker.json(f"/{number}")
    assert server.now_s == 6 * LIMIT_S


def test_each_page_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {"/v1/models": MODELS, "/props": PROPS, "/slots": []})
    asker = ask()
    ask_what_is_served(asker)
    ask_what_is_served(asker)
    gets = [path for path in server.paths if path not in ("/apply-template", "/tokenize")]
    assert sorted(gets) == ["/lora-adapters", "/props", "/slots", "/v1/models"]


def test_what_is_known_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, {})
    assert Listed.read(Asker(Target("http://here"), LIMIT_S, {"/v1/models": MODELS})).name == "tiny"
    assert server.asked == []
