"""Which server is asked, and how: an address, a route, a key that never shows, and the body of one request.

In:   an address as a person types it
Out:  Target, checked once, so that every later message can print it safely
Leaves out: whether anything answers there (see sender)
Read next by: http1, sender, load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from inference_bench.errors import RequestError

STREAM_OPTIONS: Final = "stream_options"
_OWN_FIELDS: Final = ("model", "prompt", "messages", "max_tokens", "stream", STREAM_OPTIONS)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HIDDEN_KEY: Final = "[key]"
_SHORTEST_PIECE_CHARS: Final = 6
_QUOTE_CHARS: Final = 24
_SHOWN_CHARS: Final = 80


class ApiKey:
    """A secret that goes into one header and nowhere else: not into repr, errors, files or comparisons."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise RequestError("the API key must be printable ASCII without spaces; check how it was copied")
        self._secret = secret

    def __repr__(self) -> str:
        return "ApiKey(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("an API key cannot be copied or stored")

    def authorization(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self._secret}"

    def hide_in(self, text: str) -> str:
        """The text without the key, in case a server echoes it; a key that was cut off at the end goes too."""
        hidden = text.replace(self._secret, _HIDDEN_KEY)
        kept = hidden.removesuffix("…")
        for num_chars in range(len(self._secret) - 1, _SHORTEST_PIECE_CHARS - 1, -1):
            if kept.endswith(self._secret[:num_chars]):
                return kept[:-num_chars] + _HIDDEN_KEY
        return hidden


class Endpoint(StrEnum):
    """The two OpenAI routes that stream tokens."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """The route below the server's address."""
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. `base_path` is what a proxy puts before /v1: "" or "/some/path"."""

    scheme: str
    host: str
    port: int
    base_path: str = ""

    @property
    def host_header(self) -> str:
        """Host and port as HTTP and addresses write them; a default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.base_path}"


def parse_address(url: str) -> Address:
    """The server's address from what a person typed; a trailing slash and a trailing /v1 are dropped.

    Raises:   RequestError for anything that is not http(s)://host[:port][/path]; a message never repeats a password
    """
    if "@" in url:
        raise RequestError("the server address holds a user name or password; give an API key instead")
    if "?" in url or "#" in url:
        raise RequestError("the server address must end after its path, without ? or #")
    shown = repr(url[:_SHOWN_CHARS])
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # what a broken port, bracket or label raises
        raise RequestError(
            f"the server address {shown} cannot be read; write for example http://127.0.0.1:8080"
        ) from None
    readable = url.isascii() and url.isprintable() and " " not in url
    if not readable or parts.scheme not in _DEFAULT_PORTS or not host or port == 0:
        raise RequestError(f"the server address {shown} must look like http://127.0.0.1:8080 or https://host/path")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], path)


@dataclass(frozen=True, slots=True)
class Target:
    """The server, route and model that requests go to.

    Where:    extra_body fields join every request body (such as cache_prompt or ignore_eos); asks_usage adds
              stream_options.include_usage, without which many servers do not count tokens
    Raises:   RequestError
    """

    base_url: str
    model: str | None = None
    endpoint: Endpoint = Endpoint.COMPLETIONS
    api_key: ApiKey | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
    asks_usage: bool = True
    address: Address = field(init=False)

    def __post_init__(self) -> None:
        address = parse_address(self.base_url)
        object.__setattr__(self, "address", address)
        object.__setattr__(self, "base_url", str(address))
        object.__setattr__(self, "endpoint", _parse_endpoint(self.endpoint))
        object.__setattr__(self, "extra_body", MappingProxyType(_check_extra(self.extra_body)))

    def build_body(self, prompt: str, max_output_tokens: int) -> bytes:
        """The JSON body of one streaming request: greedy, capped, with the extra fields."""
        body: dict[str, object] = {} if self.model is None else {"model": self.model}
        if self.endpoint is Endpoint.CHAT:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        body |= {"max_tokens": max_output_tokens, "temperature": 0, "stream": True}
        if self.asks_usage:
            body[STREAM_OPTIONS] = {"include_usage": True}
        return json.dumps(body | dict(self.extra_body)).encode()

    def hide_secrets(self, text: str, prompt: str = "") -> str:
        """A server's message without the key, and cut where it begins to quote the prompt."""
        hidden = text if self.api_key is None else self.api_key.hide_in(text)
        said = " ".join(prompt.split())
        num_chars = min(_QUOTE_CHARS, len(said))
        for start in range(len(hidden) - num_chars + 1 if said else 0):
            if hidden[start : start + num_chars] in said:
                return hidden[:start] + "[prompt]"
        return hidden


def _parse_endpoint(value: str) -> Endpoint:
    try:
        return Endpoint(value)
    except ValueError:
        raise RequestError(f"the endpoint {value!r} is not known; known: {', '.join(Endpoint)}") from None


def _check_extra(extra: Mapping[str, object]) -> dict[str, object]:
    if taken := sorted(set(extra) & set(_OWN_FIELDS)):
        raise RequestError(f"the extra field {taken[0]!r} is set by this program; it sets {', '.join(_OWN_FIELDS)}")
    try:
        copied = json.loads(json.dumps(dict(extra), allow_nan=False))
    except (TypeError, ValueError):
        raise RequestError("the extra body fields cannot be written as JSON") from None
    return {str(name): value for name, value in copied.items()}
