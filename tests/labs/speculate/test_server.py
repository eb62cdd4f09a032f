"""A server's own speculation off and on: what is asked of it, and what is made of its answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.labs.speculate import server
from inference_bench.labs.speculate.result import ServerResult
from inference_bench.labs.speculate.server import Asked, measure_server

ASKED = Asked({"list": "a, b, a,"}, num_tokens=4, draft_tokens=3, num_threads=1, concurrencies=(1, 2))
OFF, ON = "http://127.0.0.1:1", "http://127.0.0.1:2"
PLAIN = [7, 8, 9, 7]


class FakeServer:
    """A server that is running."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.identity = SimpleNamespace(version="1")

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        return


class FakeEngine:
    """Two servers that answer from a script, and everything that was asked of them."""

    def __init__(self, drafted: list[int]) -> None:
        self.tokens = {OFF: PLAIN, ON: drafted}
        self.flags: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.loads: list[Any] = []

    def start(self, _name: str, _model: Path, settings: Any, **_: Any) -> FakeServer:
        self.flags.append(dict(settings.flags))
        return FakeServer(ON if settings.flags else OFF)

    def answer(self, target: Any, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        url = target.base_url
        timings = {"predicted_per_token_ms": 8.0 if url == OFF else 4.0}
        if url == ON:
            timings |= {"draft_n": 6, "draft_n_accepted": 5}
        reply = {"tokens": self.tokens[url], "content": str(self.tokens[url]), "timings": timings}
        if "n_probs" in body:
            two = [{"logprob": -0.60}, {"logprob": -0.65}]
            reply["completion_probabilities"] = [{"top_logprobs": two} for _ in PLAIN]
        return reply

    def load(self, request: Any, _say: Any) -> Any:
        self.loads.append(request)
        return SimpleNamespace(metrics=SimpleNamespace(output_tokens_per_s=100.0 if request.url == OFF else 150.0))


def measured(monkeypatch: pytest.MonkeyPatch, drafted: list[int]) -> tuple[FakeEngine, ServerResult]:
    engine = FakeEngine(drafted)
    monkeypatch.setattr(server, "start_engine", engine.start)
    monkeypatch.setattr(server, "post_json", engine.answer)
    monkeypatch.setattr(server, "measure_load", engine.load)
    return engine, measure_server(Path("m.gguf"), ASKED, lambda _line: None)


def test_one_server_is_started_without_the_option_and_one_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = measured(monkeypatch, PLAIN)
    assert engine.flags == [
        {},
        {"speculation": "ngram_simple", "speculation_tokens": 3, "speculation_match_tokens": 3},
    ]


def test_every_answer_is_greedy_of_one_length_and_new_to_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = measured(monkeypatch, PLAIN)
    wanted = {"temperature": 0, "n_predict": 4, "ignore_eos": True, "cache_prompt": False}
    assert all(wanted.items() <= body.items() for body in engine.bodies)


def test_the_same_answer_has_the_servers_own_counts_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    _, result = measured(monkeypatch, PLAIN)
    (answer,) = result.answers
    assert (answer.is_same_text, answer.first_difference, answer.gap_nats) == (True, None, None)
    assert (answer.off_s_per_token, answer.on_s_per_token) == (0.008, 0.004)
    assert (answer.num_proposed, answer.num_accepted) == (6, 5)


def test_another_answer_is_told_by_its_first_token_and_how_near_the_plain_choice_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, result = measured(monkeypatch, [7, 8, 5, 7])
    (answer,) = result.answers
    assert (answer.is_same_text, answer.first_difference) == (False, 2)
    assert answer.gap_nats == pytest.approx(0.05)


def test_both_servers_get_the_same_closed_loop_at_every_concurrency(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, result = measured(monkeypatch, PLAIN)
    assert [(each.url, each.workload.arrival.concurrency) for each in engine.loads] == [
        (OFF, 1), (ON, 1), (OFF, 2), (ON, 2),
    ]  # fmt: skip
    assert {len(each.workload) for each in engine.loads} == {1}
    assert [(each.off_tokens_per_s, each.on_tokens_per_s) for each in result.loads] == [(100.0, 150.0)] * 2
