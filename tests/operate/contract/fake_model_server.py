"""A model server whose every answer is known, and which misbehaves in exactly the ways it is told to.

Its model writes words that depend only on the prompt; a token is a word, a piece of a document, or a byte of a character. The
scripted truth server of `conform` replays fixed bytes and does not read requests, so it cannot ignore a field of one.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "known-words"
WORDS = [
    f"{first}{second}" for first in ("ba", "co", "du", "fe", "gi") for second in ("lum", "nar", "pet", "ros", "tik")
]
PIECE_S = 0.008  # between the tokens of a stream
DOCUMENTS: dict[str, Any] = {
    "pattern": "zq11", "minLength": "abcdefgh", "maxLength": "", "format": "2026-01-31", "not": "b", "if": "b", "minimum": 4000,
    "multipleOf": 97, "minItems": ["a", "a"], "maxItems": ["a"], "uniqueItems": ["a", "b"], "minProperties": {"p": "x", "q": "y"},
}  # fmt: skip
TIE, WIDE = 0.02, 2.0  # nats between the two likeliest tokens where a batch parts


@dataclass
class Faults:
    """What it does wrong; without any it is a good server that asks for a key where one is set."""

    ignored: set[str] = field(default_factory=set)  # body fields that have no effect
    ignored_keywords: set[str] = field(default_factory=set)
    refused_keywords: set[str] = field(default_factory=set)
    keeps_stop: bool = False
    leaks_stop: bool = False
    lies_in_finish: bool = False
    has_no_usage: bool = False
    refuses_unknown: bool = False
    splits_characters: bool = False
    loses_characters: bool = False
    truncates: bool = False
    batch_gap: float | None = None  # a batch parts, where the top two are so far apart
    shift: float = 0.0  # of every log-probability in a batch
    is_random: bool = False
    works_on: bool = False  # after its reader is gone
    no_metrics: bool = False
    only_completions: bool = False
    injects_system: bool = False
    dies_after: int | None = None  # requests
    key: str | None = None
    no_logprobs: bool = False
    one_choice_usage: bool = False
    writes_b: bool = False  # where a schema leaves the choice, whatever the prompt says


KNOWN = {
    "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "n_predict", "temperature", "stream", "stream_options",
    "stop", "response_format", "guided_json", "structured_outputs", "grammar", "tools", "tool_choice", "logprobs", "top_logprobs",
    "prompt_logprobs", "echo", "seed", "n", "ignore_eos", "cache_prompt",
}  # fmt: skip


class FakeModel:
    """The server's state."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.running = 0
        self.num_requests = 0
        self.at_work = 0
        self.lock = threading.Lock()
        self.seen: set[str] = set()
        self.url = ""

    def count_prompt(self, body: dict[str, Any]) -> int:
        if "prompt" in body:
            return len(body["prompt"].split())
        count = sum(len(each["content"].split()) + 3 for each in body["messages"])
        has_system = any(each["role"] == "system" for each in body["messages"])
        tools = 0 if "tools" in self.faults.ignored else 20 * len(body.get("tools", ()))
        return count + tools + (12 if self.faults.injects_system and not has_system else 0)

    def tokens(self, body: dict[str, Any], *, in_batch: bool, choice: int = 0) -> list[str]:
        prompt = body.get("prompt") or " ".join(each["content"] for each in body["messages"])
        if prompt.startswith("Repeat: "):
            return [char for char in prompt.removeprefix("Repeat: ")]
        document = self.document(body, prompt)
        if document is not None:
            return [document]
        seed = (body.get("seed"), choice) if body.get("temperature") else None
        if self.faults.is_random or ("seed" in self.faults.ignored and seed):
            seed = time.monotonic_ns()
        chosen = random.Random(f"{prompt}{seed}")
        words = [f"{chosen.choice(WORDS)} " for _ in range(500)]
        return [*words[:3], "other ", *words[4:]] if in_batch and self.faults.batch_gap is not None else words

    def document(self, body: dict[str, Any], prompt: str) -> str | None:
        """What a grammar or a schema makes of the answer; None where nothing binds it."""
        body = {name: value for name, value in body.items() if name not in self.faults.ignored}
        if "grammar" in body:
            return "zq7"
        asked = body.get("response_format", {})
        if asked.get("type") == "json_object":
            return "{}"
        schema = (
            asked.get("json_schema", {}).get("schema")
            or body.get("guided_json")
            or body.get("structured_outputs", {}).get("json")
        )
        wanted = prompt.partition("nothing else: ")[2]
        if schema is None:
            return wanted or None
        inner = schema["properties"]["v"]
        if not wanted:
            return json.dumps({"v": inner["enum"][0]})
        if self.faults.writes_b and "enum" in inner and inner["type"] == "string":
            return json.dumps({"v": "b"})
        named = [name for name in DOCUMENTS if name in inner and name not in self.faults.ignored_keywords]
        return json.dumps({"v": DOCUMENTS[named[0]]}) if named else wanted

    def limit(self, body: dict[str, Any]) -> int:
        for name in ("max_completion_tokens", "max_tokens", "n_predict"):
            if name in body and name not in self.faults.ignored:
                return int(body[name])
        return 200

    def refusal(self, body: dict[str, Any]) -> str | None:
        unknown = set(body) - KNOWN
        if unknown and self.faults.refuses_unknown:
            return f"unrecognized field {sorted(unknown)[0]}"
        if body.get("model") != MODEL and self.faults.refuses_unknown:
            return "no such model"
        if refused := self.faults.refused_keywords & set(json.dumps(body).replace('"', " ").split()):
            return f"keyword {sorted(refused)[0]} is not supported"
        if self.count_prompt(body) > 200 and not self.faults.truncates:
            return "the prompt exceeds the context length of 200 tokens"
        return None


def _cut(model: FakeModel, body: dict[str, Any], tokens: list[str]) -> tuple[list[str], str]:
    """The tokens up to the limit or a stop string, and why they end."""
    limit = model.limit(body)
    finish = "length" if len(tokens) > limit else "stop"
    tokens = tokens[:limit]
    stops = body.get("stop", []) if "stop" not in model.faults.ignored else []
    for stop in filter(None, [stops] if isinstance(stops, str) else stops):
        text = "".join(tokens)
        at = text.find(stop)
        if at >= 0:
            kept = text[: at + (len(stop) if model.faults.keeps_stop else 2 if model.faults.leaks_stop else 0)]
            tokens, finish = [word for word in _words(kept)], "stop"
    if model.faults.lies_in_finish:
        finish = "stop" if finish == "length" else "length"
    return tokens, finish


def _words(text: str) -> Iterator[str]:
    while text:
        head, space, text = text.partition(" ")
        yield head + space


def _handler(model: FakeModel) -> type[BaseHTTPRequestHandler]:  # noqa: C901
    faults = model.faults

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def say(self, status: int, value: Any, kind: str = "application/json") -> None:
            content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def fail(self, status: int, message: str) -> None:
            self.say(status, {"error": {"message": message, "type": "invalid_request_error"}})

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.say(200, {"data": [{"id": MODEL, "max_model_len": 200}]})
            elif self.path == "/metrics" and not faults.no_metrics:
                self.say(200, f"llamacpp:requests_processing {model.running}\n", "text/plain")
            else:
                self.fail(404, "no such page")

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            model.num_requests += 1
            if faults.dies_after is not None and model.num_requests > faults.dies_after:
                threading.Thread(target=_end, args=(self.server,), daemon=True).start()
                self.close_connection = True
                return
            if faults.key is not None and self.headers.get("Authorization") != f"Bearer {faults.key}":
                return self.fail(401, "a key is needed")
            routes = {"/v1/completions", *([] if faults.only_completions else ["/v1/chat/completions"])}
            if self.path == "/tokenize" and content:
                return self.say(200, {"count": model.count_prompt(json.loads(content))})
            if self.path not in routes:
                return self.fail(404, "no such route")
            try:
                body = json.loads(content)
                _ = body["messages" if "chat" in self.path else "prompt"]
            except (ValueError, KeyError):
                return self.fail(400, "not a request")
            if message := model.refusal(body):
                return self.fail(400, message)
            with model.lock:
                model.running += 1
            try:
                self.answer(body)
            finally:
                with model.lock:
                    model.running -= 1

        def answer(self, body: dict[str, Any]) -> None:
            is_greedy_batch = bool(body.get("logprobs")) and body.get("temperature") == 0 and self.waits()
            chosen = [
                _cut(model, body, model.tokens(body, in_batch=is_greedy_batch, choice=i))
                for i in range(body.get("n", 1))
            ]
            tokens, finish = chosen[0]
            num = len(tokens) if faults.one_choice_usage else sum(len(each) for each, _ in chosen)
            prompt = min(model.count_prompt(body), 200)
            usage = {} if faults.has_no_usage else {"usage": {"prompt_tokens": prompt, "completion_tokens": num}}
            if body.get("stream"):
                return self.stream(body, tokens, finish, usage)
            listed = (
                {"logprobs": self.logprobs(tokens, is_greedy_batch)}
                if body.get("logprobs") and not faults.no_logprobs
                else {}
            )
            is_chat, echoed = "messages" in body, body.get("prompt", "") if body.get("echo") else ""
            choices = [
                {
                    "index": index, "finish_reason": end, **listed,
                    **({"message": self.message(body, words)} if is_chat else {"text": echoed + "".join(words)}),
                }
                for index, (words, end) in enumerate(chosen)
            ]  # fmt: skip
            if body.get("tool_choice") == "required" and "tool_choice" not in faults.ignored:
                choices[0]["finish_reason"] = "tool_calls"
            self.say(200, {"choices": choices, "model": MODEL, **usage})

        def message(self, body: dict[str, Any], words: list[str]) -> dict[str, Any]:
            if body.get("tool_choice") == "required" and "tool_choice" not in faults.ignored:
                return {
                    "content": None,
                    "tool_calls": [{"function": {"name": "set_level", "arguments": '{"level": 3}'}}],
                }
            return {"content": "".join(words)}

        def waits(self) -> bool:
            """Whether others are there at the same time."""
            until = time.monotonic() + 0.03
            while model.running < 2 and time.monotonic() < until:
                time.sleep(0.002)
            return model.running > 1

        def logprobs(self, tokens: list[str], in_batch: bool) -> dict[str, Any]:
            listed = []
            moved = faults.shift if in_batch else 0.0
            for index, token in enumerate(tokens):
                gap = faults.batch_gap if index == 3 and faults.batch_gap is not None else 1.5
                first = -0.5 - moved
                second = ("other " if token != "other " else "first ", first - gap)
                top = [
                    {"token": name, "logprob": value} for name, value in ((token, first), second, ("third ", first - 4))
                ]
                listed.append({"token": token, "logprob": first, "top_logprobs": top})
            return {"content": listed}

        def stream(self, body: dict[str, Any], tokens: list[str], finish: str, usage: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            is_chat, options = "messages" in body, body.get("stream_options") or {}
            events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}] if is_chat else []
            events += [{"choices": [{"delta": {"content": word}} if is_chat else {"text": word}]} for word in tokens]
            if options.get("continuous_usage_stats") and "stream_options" not in faults.ignored:
                events = [{**event, **usage} for event in events]
            events.append({"choices": [{"delta": {}, "text": "", "finish_reason": finish}]})
            if options.get("include_usage") and "stream_options" not in faults.ignored:
                events.append({"choices": [], **usage})
            for event in events:
                try:
                    self.wfile.write(self.framed(event))
                except OSError:
                    if not faults.works_on:
                        return
                time.sleep(PIECE_S if len(tokens) >= 100 else 0)
            with suppress(OSError):
                self.wfile.write(b"data: [DONE]\n\n")

        def framed(self, event: dict[str, Any]) -> bytes:
            text = json.dumps(event, ensure_ascii=False)
            if faults.loses_characters:
                text = "".join("\ufffd" if char > "\x7f" else char for char in text)
            data = text.encode()
            if faults.splits_characters and not text.isascii():
                at = next(index for index, byte in enumerate(data) if byte > 0x7F) + 1
                return (
                    b"data: "
                    + data[:at]
                    + b'"}}]}\n\n'
                    + b'data: {"choices":[{"delta":{"content":"'
                    + data[at:]
                    + b"\n\n"
                )
            return b"data: " + data + b"\n\n"

    return Handler


def _end(server: Any) -> None:
    server.shutdown()
    server.server_close()


@contextmanager
def fake_model_server(faults: Faults | None = None) -> Iterator[FakeModel]:
    """The server while the block runs."""
    model = FakeModel(faults or Faults())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield model
    finally:
        _end(server)
        thread.join(5)
