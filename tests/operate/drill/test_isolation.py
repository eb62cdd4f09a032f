"""The probe of the prefix cache, on servers whose caches are known: shared, salted, none, and one that refuses the salt."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from inference_bench.errors import RequestError, ServerError
from inference_bench.operate.drill.isolation import (
    IsolationRequest,
    IsolationResult,
    Verdict,
    chance_of,
    probe_isolation,
)
from inference_bench.report.isolation_report import isolation_json, isolation_text

WORDS = 20
NEW_S = 0.012
SALTED_S = 0.004  # a look-up that finds nothing: what a salt costs here, so that noise cannot look like a gain


class CachingServer:
    """Answers one token, later where it has not seen the prefix under the same salt."""

    def __init__(self, owner: str, *, has_cache: bool = True, refuses_salt: bool = False, counts: bool = True) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.owner, self.has_cache, self.refuses_salt, self.counts = owner, has_cache, refuses_salt, counts
        seen: set[tuple[str, str]] = set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_list = self.path == "/v1/models"
                models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": fake.owner}]}
                self.reply(200 if is_list else 404, json.dumps(models if is_list else {}), "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.bodies.append(body)
                salt = body.get("cache_salt", "")
                if salt and fake.refuses_salt:
                    self.reply(400, json.dumps({"error": {"message": "extra field cache_salt"}}), "application/json")
                    return
                prefix = " ".join(body["messages"][0]["content"].split()[:WORDS])
                is_known = fake.has_cache and body.get("cache_prompt", True) and (salt, prefix) in seen
                is_others = salt and any(text == prefix and other != salt for other, text in seen)
                seen.add((salt, prefix))
                time.sleep(0.0 if is_known else NEW_S + (SALTED_S if is_others else 0.0))
                self.reply(200, fake.events(WORDS if is_known else 0), "text/event-stream")

            def reply(self, status: int, text: str, kind: str) -> None:
                content = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def events(self, cached: int) -> str:
        usage: dict[str, Any] = {"prompt_tokens": 30, "completion_tokens": 1}
        if self.counts:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "length"}
        parts = [{"choices": [choice]}, {"choices": [end]}, {"choices": [], "usage": usage}]
        return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def servers() -> Iterator[list[CachingServer]]:
    running: list[CachingServer] = []
    yield running
    for each in running:
        each.close()


def probed(servers: list[CachingServer], owner: str, **more: bool) -> IsolationResult:
    servers.append(CachingServer(owner, **more))
    return probe_isolation(IsolationRequest(servers[-1].url, rounds=6, words=WORDS), lambda line: None)


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
def test_a_shared_prefix_is_seen_and_the_engines_salt_is_tried_and_works(
    servers: list[CachingServer], owner: str
) -> None:
    found = probed(servers, owner)
    assert found.option == "cache_salt"
    assert [arm.verdict for arm in found.arms] == [Verdict.SHARED, Verdict.NOT_SEEN]
    shared = found.arms[0].other
    assert shared is not None
    assert (shared.known_cached_tokens, shared.new_cached_tokens) == (WORDS, 0)
    assert not found.is_isolated
    salts = {body.get("cache_salt") for body in servers[0].bodies}
    assert len(salts) == 3  # none, and one for each tenant
    assert {body["user"] for body in servers[0].bodies} == {"tenant-a", "tenant-b"}


def test_times_alone_tell_where_the_server_counts_nothing(servers: list[CachingServer]) -> None:
    found = probed(servers, "somebody", counts=False)
    assert found.option is None
    (arm,) = found.arms
    assert arm.verdict is Verdict.SHARED
    assert arm.other is not None
    assert arm.other.known_cached_tokens is None
    assert arm.other.interval is not None
    assert 0 < arm.other.interval.low < arm.other.median_s < 50 * NEW_S


def test_without_a_cache_the_probe_does_not_say_that_tenants_are_kept_apart_by_one(
    servers: list[CachingServer],
) -> None:
    found = probed(servers, "somebody", has_cache=False, counts=False)
    assert found.arms[0].other is not None
    assert not found.arms[0].other.is_told
    assert found.arms[0].verdict is not Verdict.NOT_SEEN


def test_a_server_that_refuses_the_salt_is_named(servers: list[CachingServer]) -> None:
    found = probed(servers, "vllm", refuses_salt=True)
    assert found.arms[1].verdict is Verdict.REFUSED
    assert "does not take this field" in " ".join(isolation_text(found).split())


def test_llama_cpp_has_no_salt_and_giving_up_the_cache_is_tried(servers: list[CachingServer]) -> None:
    found = probed(servers, "llamacpp")
    assert found.option is None
    assert [arm.name for arm in found.arms] == ["as usual", "cache_prompt: false"]
    assert found.arms[0].verdict is Verdict.SHARED
    assert found.arms[1].other is not None
    assert not found.arms[1].other.is_told
    said = isolation_json(found)["cache_isolation"]
    assert (said["engine"], said["option"]) == (found.engine, None)


def test_prefixes_are_of_random_words_and_stand_in_no_result(servers: list[CachingServer]) -> None:
    found = probed(servers, "somebody")
    prefixes = [" ".join(body["messages"][0]["content"].split()[:WORDS]) for body in servers[0].bodies]
    assert len(set(prefixes)) >= 6 * 4
    shown = repr(found) + json.dumps(isolation_json(found)) + isolation_text(found)
    assert not any(word in shown for prefix in prefixes for word in prefix.split() if len(word) > 6)


def test_the_questions_of_a_round_come_in_an_order_of_their_own(servers: list[CachingServer]) -> None:
    probed(servers, "somebody")
    asked = [body["user"] for body in servers[0].bodies[2::2]]  # after the first, each is primed for by tenant A
    rounds = {tuple(asked[place : place + 4]) for place in range(0, len(asked), 4)}
    assert len(rounds) > 1
    assert all(sorted(each) == ["tenant-a"] * 2 + ["tenant-b"] * 2 for each in rounds)


def test_chance_is_small_for_one_sign_and_large_for_none() -> None:
    assert chance_of([1.0] * 12, random.Random(1)) < 0.002
    assert chance_of([1.0, -1.0] * 6, random.Random(1)) > 0.3
    assert chance_of([5.0] * 40, random.Random(1)) > 0  # as many draws as were made cannot show that it never happens


def test_too_few_pairs_and_a_server_that_is_not_there_are_refused() -> None:
    with pytest.raises(RequestError, match="at least 6"):
        IsolationRequest("http://127.0.0.1:1", rounds=5)
    with pytest.raises(ServerError):
        probe_isolation(IsolationRequest("http://127.0.0.1:1", rounds=6), lambda line: None)
