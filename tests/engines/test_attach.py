from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engines.fake_server import FakeServer
from inference_bench.engines.answers import ask_server
from inference_bench.engines.attach import attach
from inference_bench.engines.base import EngineFigures
from inference_bench.errors import RequestError, ServerError
from inference_bench.measure.target import ApiKey, Target

# the answers of a real server, shortened: xllamacpp 2026.10.11549, SmolLM2-135M-Instruct Q4_1, 4096 tokens, 4 slots
MODELS = {
    "object": "list",
    "data": [
        {
            "id": "SmolLM2-135M-Instruct.Q4_1",
            "object": "model",
            "owned_by": "llamacpp",
            "meta": {"n_vocab": 49152, "n_ctx": 1024, "n_ctx_train": 8192, "n_params": 134515008, "size": 96576768},
        }
    ],
}
PROPS = {
    "default_generation_settings": {"n_ctx": 1024, "params": {"speculative.types": "none", "temperature": 0.8}},
    "total_slots": 4,
    "model_ftype": "Q4_1",
    "model_path": "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "build_info": "b0-unknown",
}
SLOTS = [{"id": number, "n_ctx": 1024, "is_processing": False} for number in range(4)]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


def test_a_llama_cpp_server_is_identified_with_the_figures_it_reports(server: FakeServer) -> None:
    for path, value in (("/v1/models", MODELS), ("/props", PROPS), ("/slots", SLOTS)):
        server.say(path, value)
    attached = attach(server.url)
    assert (attached.identity.name, attached.identity.model_name) == ("llama.cpp", "SmolLM2-135M-Instruct.Q4_1")
    assert attached.identity.model_path == "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (attached.identity.build, attached.identity.model_sha256) == (None, None), "unknown is not a name"
    figures = attached.figures
    assert (figures.num_slots, figures.context_tokens_per_slot, figures.n_ctx_train) == (4, 1024, 8192)
    assert (figures.num_params, figures.model_bytes) == (134_515_008, 96_576_768)
    assert figures.context_tokens_total is None, (
        "it depends on whether the slots share one cache, which is not reported"
    )
    assert (figures.quantization, figures.speculation) == ("Q4_1", "none")
    assert (figures.prefix_cache, figures.token_budget) == (None, None), "it does not say"
    assert figures.read_from["num_slots"] == "/props total_slots"
    assert attached.is_running()


def test_a_build_that_knows_its_number_is_reported(server: FakeServer) -> None:
    server.say("/v1/models", MODELS)
    server.say("/props", {**PROPS, "build_info": "b6123-79c1160b"})
    identity = attach(server.url).identity
    assert (identity.build, identity.version) == ("b6123-79c1160b", "b6123-79c1160b")


def test_slots_are_counted_where_the_properties_are_closed(server: FakeServer) -> None:
    server.say("/v1/models", MODELS)
    server.say("/slots", SLOTS)
    attached = attach(server.url)
    assert attached.identity.name == "llama.cpp"
    assert (attached.figures.num_slots, attached.figures.read_from["num_slots"]) == (4, "/slots")


def test_a_server_that_is_not_llama_cpp_is_named_by_what_it_says(server: FakeServer) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 2048}]})
    attached = attach(server.url)
    assert (attached.identity.name, attached.identity.model_name) == ("vllm", "m")
    assert attached.figures.context_tokens_per_slot == 2048


@pytest.mark.parametrize(
    ("name", "props"),
    [
        ("wrong types", {"total_slots": "4", "default_generation_settings": [], "build_info": 7}),
        ("no counts", {"total_slots": True, "default_generation_settings": {"n_ctx": -1}}),
        ("not an object", ["total_slots"]),
    ],
)
def test_answers_of_the_wrong_shape_give_no_figure(server: FakeServer, name: str, props: Any) -> None:
    server.say("/v1/models", {"data": [{"id": "m", "meta": {"n_params": 1.5, "size": None}}]})
    server.say("/props", props)
    assert attach(server.url).figures == EngineFigures()


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/html", b"<html>hello</html>"),
        ("application/json", json.dumps(PROPS).encode()[:-9]),
        ("application/json", b"[" + b"0," * 9_000_000 + b"0]"),  # 18 MB
        ("application/json", b""),
        ("application/json", b'{"total_slots": NaN}'),
        ("application/json", b"\xff\xfe\x00"),
    ],
    ids=["a page", "half an answer", "18 MB", "nothing", "no number", "no text"],
)
def test_an_answer_that_is_none_costs_its_figures_and_nothing_else(
    server: FakeServer, kind: str, content: bytes
) -> None:
    server.say("/v1/models", MODELS)
    server.replies["/props"] = (200, kind, content)
    attached = attach(server.url)
    assert (attached.identity.name, attached.identity.model_path) == ("llama.cpp", None)
    assert set(attached.figures.read_from) == {"num_params", "model_bytes", "n_ctx_train"}


def test_a_list_of_models_beyond_reason_is_refused_in_one_line(server: FakeServer) -> None:
    server.replies["/v1/models"] = (200, "application/json", b'{"data": [' + b"0," * 9_000_000 + b"0]}")
    with pytest.raises(ServerError) as caught:
        attach(server.url)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_address_may_end_in_v1_or_a_slash_and_keep_a_path(server: FakeServer) -> None:
    server.say("/v1/models", MODELS)
    assert attach(server.url + "/v1/").base_url == server.url
    server.say("/engine/v1/models", MODELS)
    assert attach(server.url + "/engine/").base_url == server.url + "/engine"


def test_a_web_page_is_not_a_model_server(server: FakeServer) -> None:
    server.replies["/v1/models"] = (200, "text/html", b"<html>hello</html>")
    with pytest.raises(ServerError, match="text/html instead of JSON"):
        attach(server.url)


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": ["m"]}, {"data": [{"id": 7}]}, [], "x", None])
def test_a_server_without_a_model_is_said_to_have_none(server: FakeServer, models: Any) -> None:
    server.say("/v1/models", models)
    with pytest.raises(ServerError, match="lists no model"):
        attach(server.url)


def test_json_nested_beyond_reason_is_refused(server: FakeServer) -> None:
    server.replies["/v1/models"] = (200, "application/json", b"[" * 100_000)
    with pytest.raises(ServerError, match="not JSON"):
        attach(server.url)


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_an_error_status_is_told(server: FakeServer, status: int) -> None:
    server.replies["/v1/models"] = (status, "application/json", b"{}")
    with pytest.raises(ServerError, match=f"HTTP {status}"):
        attach(server.url)


def test_redirects_are_not_followed(server: FakeServer) -> None:
    server.replies["/elsewhere"] = (302, "text/plain", b"")
    with pytest.raises(ServerError, match="HTTP 302"):
        ask_server(Target(server.url), "/elsewhere", 30)


def test_proxies_of_the_environment_are_not_used(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.say("/v1/models", MODELS)
    assert attach(server.url).identity.name == "llama.cpp"


def test_nothing_listening_is_said_in_one_line() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ServerError, match="connection refused") as caught:
            attach(url)
    assert "\n" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerError, match=r"within 0\.1 s"):
        attach(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)


def test_a_server_that_hangs_up_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as rude:

        def hang_up() -> None:
            rude.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ServerError, match=r"lost|closed the connection"):
            attach(f"http://127.0.0.1:{rude.getsockname()[1]}", timeout_s=30)
        thread.join()


def test_a_server_that_goes_away_is_no_longer_running(server: FakeServer) -> None:
    server.say("/v1/models", MODELS)
    attached = attach(server.url)
    attached.stop()
    assert attached.is_running(), "somebody else's server is left running"
    del server.replies["/v1/models"]
    assert not attached.is_running()


def test_a_body_is_posted_as_json(server: FakeServer) -> None:
    server.say("/v1/completions", {"ok": True})
    assert ask_server(Target(server.url), "/v1/completions", 30, {"prompt": "x"}) == {"ok": True}
    method, path, headers, body = server.requests[-1]
    assert (method, path, json.loads(body)) == ("POST", "/v1/completions", {"prompt": "x"})
    assert headers["Content-Type"] == "application/json"


def test_the_key_is_sent_and_never_shown(server: FakeServer) -> None:
    server.replies["/v1/models"] = (401, "application/json", b"{}")
    with pytest.raises(ServerError) as caught:
        attach(server.url, api_key=ApiKey("sk-secret"))
    assert server.requests[-1][2]["Authorization"] == "Bearer sk-secret"
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Target(server.url, api_key=ApiKey("sk-secret")))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://host",
        "file:///etc/passwd",
        "http://",
        "http://[::1",
        "http://host:99999",
        "http://h:x",
    ],
)
def test_an_address_that_is_none_is_a_question_asked_wrongly(url: str) -> None:
    with pytest.raises(RequestError, match="http"):
        attach(url)
