"""The server under examination: what works there is found once, and every question is phrased with it.

In:   an address, a key, the name of a model
Out:  Server, opened: with a route, an output limit that it honours, and the model it serves
Leaves out: judging
Read next by: every module that asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from inference_bench.engines.answers import inside, whole_number
from inference_bench.errors import ServerError, StreamError
from inference_bench.loadtest.preflight import MOST_WAIT_S, explain, reach
from inference_bench.measure.target import ApiKey, Endpoint, Target, parse_address
from inference_bench.operate.contract.reading import Streamed, error_words
from inference_bench.operate.contract.wire import NoReplyError, Reply, SilentError, Stream, Wire

COUNTING: Final = "Count from one to one hundred in words, one number after the other."
GREETING: Final = "Say hello."
LIMIT_FIELDS: Final = ("max_tokens", "max_completion_tokens", "n_predict")
MANY_PIECES: Final = 40
"""Pieces of a stream beyond which a limit of 8 tokens or fewer was ignored."""

_OPENING_TOKENS: Final = 4
_NO_ROUTE: Final = (404, 405, 501)
Fields = Mapping[str, Any]
Item = TypeVar("Item")
Got = TypeVar("Got")


@dataclass(slots=True)
class Server:
    """One server, and what is known of it so far.

    Where:    base_fields go into every request for text; context_tokens is the length that it states, or that was given;
              listed and props are its own answers about itself
    """

    wire: Wire
    is_quick: bool = False
    context_tokens: int | None = None
    is_chat: bool = True
    limit_field: str = LIMIT_FIELDS[0]
    base_fields: dict[str, Any] = field(default_factory=lambda: {"temperature": 0})
    listed: Any = None
    props: Any = None
    last_prompt: str = ""

    @property
    def target(self) -> Target:
        """Where it is asked, and under which name and key."""
        return self.wire.target

    @property
    def path(self) -> str:
        """The route that text is asked from."""
        return (Endpoint.CHAT if self.is_chat else Endpoint.COMPLETIONS).path

    @property
    def named(self) -> dict[str, Any]:
        """The field that names the model."""
        return {} if self.target.model is None else {"model": self.target.model}

    def get(self, path: str) -> Reply:
        """A whole reply to a GET."""
        return self.wire.ask("GET", path)

    def post(self, path: str, body: object) -> Reply:
        """A whole reply to a POST of JSON."""
        return self.wire.ask("POST", path, _encode(body))

    def body(self, prompt: str, max_tokens: int, fields: Fields, *, is_chat: bool | None = None) -> dict[str, Any]:
        """The body of a request for text; a field of None is left out."""
        as_chat = self.is_chat if is_chat is None else is_chat
        self.last_prompt = prompt
        said = {"messages": [{"role": "user", "content": prompt}]} if as_chat else {"prompt": prompt}
        whole = {**self.named, **said, self.limit_field: max_tokens, **self.base_fields, **fields}
        return {name: value for name, value in whole.items() if value is not None}

    def generate(self, prompt: str, max_tokens: int = 16, *, is_chat: bool | None = None, **fields: Any) -> Reply:
        """A whole reply with text."""
        as_chat = self.is_chat if is_chat is None else is_chat
        path = (Endpoint.CHAT if as_chat else Endpoint.COMPLETIONS).path
        return self.post(path, self.body(prompt, max_tokens, fields, is_chat=as_chat))

    def streamed(
        self, prompt: str, max_tokens: int = 16, *, cut_after: int | None = MANY_PIECES, **fields: Any
    ) -> tuple[Stream, Streamed]:
        """A stream, given up after so many pieces of text."""
        body = self.body(prompt, max_tokens, {"stream": True, **fields})
        with self.wire.stream(self.path, _encode(body)) as (found, payloads):
            num_pieces = 0
            for payload in payloads:
                num_pieces += b'"content"' in payload or b'"text"' in payload
                if cut_after is not None and num_pieces > cut_after:
                    found.was_cut = True
                    break
        return found, Streamed.of(found)

    def words(self, reply: Reply | Stream) -> str:
        """The server's words about an error, without secrets and without the prompt."""
        return self.target.hide_secrets(error_words(reply), self.last_prompt)

    def is_alive(self) -> bool:
        """Whether anything still takes a connection and answers."""
        try:
            self.get(self.target.models_path)
        except ServerError:
            return False
        return True


def at_once(server: Server, do: Callable[[Item], Got], items: Sequence[Item]) -> list[Got]:
    """What is done with each item, all at once; an interruption breaks off those that are under way."""
    with ThreadPoolExecutor(len(items)) as pool:
        try:
            return list(pool.map(do, items))
        except BaseException:
            server.wire.abandon()
            raise


def target_of(url: str, model: str | None, key: ApiKey | None) -> Target:
    """The server as it will be asked; a route at the end of its address is dropped, since all are tried.

    Raises:   RequestError
    """
    return Target(str(parse_address(url)), model=model, endpoint=Endpoint.CHAT, api_key=key)


def open_server(server: Server) -> None:
    """Find the model, a route that gives text, and an output limit that it honours.

    Raises:   RequestError for a model that is not there; ServerError where nothing usable answers
    """
    server.wire.target, listed = reach(server.target, server.wire.timeout_s)
    server.listed = listed if isinstance(listed, dict) else None
    server.props = _props(server)
    if server.context_tokens is None:
        server.context_tokens = _stated_context(server)
    try:
        is_open = any(_opens(server, is_chat) for is_chat in (True, False))
    except SilentError:  # it had a whole time limit at one route: the next is not given another
        is_open = False
    if not is_open:
        raise explain(server.target, server.wire.timeout_s)


def _props(server: Server) -> Any:
    try:
        reply = server.wire.ask("GET", "/props", most_s=MOST_WAIT_S)
    except NoReplyError:
        return None
    return reply.value if reply.is_ok else None


def _stated_context(server: Server) -> int | None:
    """The longest request, prompt and answer, that the server says it takes."""
    entries = inside(server.listed, "data")
    entry = entries[0] if isinstance(entries, list) and entries else None
    stated = (
        inside(server.props, "default_generation_settings", "n_ctx"),
        inside(entry, "max_model_len"),
        inside(entry, "meta", "n_ctx"),
        inside(entry, "context_length"),
        inside(entry, "context_window"),
    )
    return next((count for count in map(whole_number, stated) if count is not None), None)


def _opens(server: Server, is_chat: bool) -> bool:
    """Whether this route gives text; keeps the limit that it honours, and goes without temperature where that is refused."""
    server.is_chat = is_chat
    is_open = False
    for name in LIMIT_FIELDS:
        server.limit_field = name
        try:
            found, said = server.streamed(COUNTING, _OPENING_TOKENS)
        except SilentError:
            if is_open:
                return True
            raise
        except (NoReplyError, StreamError):
            return is_open
        if found.status in _NO_ROUTE:
            return False
        if found.status == 400 and server.base_fields:
            retried = _without_temperature(server)
            found, said = retried or (found, said)
        if found.status == 200 and said.values:
            is_open = True
            if not found.was_cut and (said.count("completion_tokens") or 0) <= MANY_PIECES:
                return True
    server.limit_field = LIMIT_FIELDS[0]
    return is_open


def _without_temperature(server: Server) -> tuple[Stream, Streamed] | None:
    kept = dict(server.base_fields)
    server.base_fields.clear()
    found, said = server.streamed(COUNTING, _OPENING_TOKENS)
    if found.status == 200:
        return found, said
    server.base_fields.update(kept)
    return None


def _encode(body: object) -> bytes:
    return json.dumps(body).encode()
