"""Which server is asked, and how: an address, a route, keys that never show, and the body of one request.

In:   an address as a person types it
Out:  Target, checked once, so that every later message can print it safely
Leaves out: whether anything answers there (see sender)
Read next by: http1, sender, load.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import urlsplit

from inference_bench.errors import RequestError
from inference_bench.measure.echoes import first_place, without_quote
from inference_bench.measure.payload_fields import strict_json
from inference_bench.measure.prompt_sources import read_text
from inference_bench.measure.target_body import CONTINUOUS_USAGE, Wanted, chunk_count_fields, make_body
from inference_bench.measure.target_body import STREAM_OPTIONS as STREAM_OPTIONS
from inference_bench.measure.target_body import Endpoint as Endpoint
from inference_bench.measure.target_body import Message as Message
from inference_bench.measure.target_body import Said as Said
from inference_bench.measure.target_headers import ApiKey as ApiKey
from inference_bench.measure.target_headers import SecretHeaders as SecretHeaders
from inference_bench.measure.target_headers import parse_header as parse_header
from inference_bench.units import KIBI, MEBI

MAX_EXTRA_BYTES: Final = MEBI

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MOST_SAID_CHARS: Final = 4 * KIBI  # of a server's message
_SHOWN_CHARS: Final = 80
_IGNORE_EOS: Final = "ignore_eos"
# how a URL that names a whole route ends; longest first
_ROUTE_ENDS: Final = {
    "/chat/completions": Endpoint.CHAT,
    "/completions": Endpoint.COMPLETIONS,
    "/completion": Endpoint.LLAMA_CPP,
    "/generate": Endpoint.SGLANG,
}


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

    @property
    def is_this_machine(self) -> bool:
        """Whether the server runs on the machine that asks."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(url: str) -> Address:
    """The server's address from what a person typed; a route at its end, a trailing slash and a trailing /v1 are dropped.

    Raises:   RequestError for anything that is not http(s)://host[:port][/path]; a message never repeats a password
    """
    return _parse_url(url)[0]


def _parse_url(url: str) -> tuple[Address, str | None]:
    """The address, and the route below it where the URL names one."""
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
    path = parts.path.rstrip("/")
    end = next((end for end in _ROUTE_ENDS if path.endswith(end)), "")
    above = path.removesuffix(end).rstrip("/")
    base_path = above.removesuffix("/v1").rstrip("/")
    address = Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], base_path)
    return address, path.removeprefix(base_path) if end else None


@dataclass(frozen=True, slots=True)
class Target:
    """The server, route and model that requests go to.

    Where:    a base_url that ends in a route, such as .../api/v3/chat/completions, is used as given, and names the
              endpoint; extra_body fields join every request body (such as cache_prompt or ignore_eos); asks_usage adds
              stream_options.include_usage, without which many servers do not count tokens; counts_each_chunk asks for a
              count in every chunk, which servers give in several ways; document_schema asks for JSON documents of this
              schema, {} for any, and drops ignore_eos, since a document has an end of its own
    Raises:   RequestError
    """

    base_url: str
    model: str | None = None
    endpoint: Endpoint = Endpoint.COMPLETIONS
    api_key: ApiKey | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
    asks_usage: bool = True
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    counts_each_chunk: bool = False
    document_schema: Mapping[str, object] | None = None
    address: Address = field(init=False)
    path: str = field(init=False)

    def __post_init__(self) -> None:
        address, route = _parse_url(self.base_url)
        endpoint = _choose_endpoint(_parse_endpoint(self.endpoint), route)
        is_usual = route in (None, endpoint.path)
        extra = _check_extra(self.extra_body, endpoint)
        if self.document_schema is not None:
            extra.pop(_IGNORE_EOS, None)
            schema = _as_json(self.document_schema, "schema of the documents")
            object.__setattr__(self, "document_schema", MappingProxyType(schema))
        object.__setattr__(self, "address", address)
        object.__setattr__(self, "base_url", str(address) if is_usual else f"{address}{route}")
        object.__setattr__(self, "endpoint", endpoint)
        object.__setattr__(self, "path", route or endpoint.path)
        object.__setattr__(self, "extra_body", MappingProxyType(extra))
        object.__setattr__(self, "extra_headers", _secret_headers(self.extra_headers, self.api_key))

    @property
    def models_path(self) -> str:
        """Where, below the address, the server lists its models."""
        beside_route = self.endpoint.is_openai and self.path not in (endpoint.path for endpoint in Endpoint)
        return "/models" if beside_route else "/v1/models"

    @property
    def secret_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that hold or may hold secrets: the key's, and those the user added."""
        key = () if self.api_key is None else (("Authorization", self.api_key.authorization()),)
        return (*key, *self.extra_headers.items())

    @property
    def optional_fields(self) -> tuple[str, ...]:
        """The body fields that a request could do without, should a server refuse them."""
        return (*self.extra_body, *self._usage_fields, *self._chunk_count_fields)

    @property
    def first_given_up(self) -> tuple[str, ...]:
        """The optional fields to leave out first when a server refuses a field and does not say which."""
        return self._chunk_count_fields or self.optional_fields

    def without_fields(self, names: Iterable[str]) -> Self:
        """The same target, asking without these optional fields; counts in each chunk go together."""
        dropped = frozenset(names)
        asks_usage = self.asks_usage and STREAM_OPTIONS not in dropped
        return replace(
            self,
            extra_body={name: value for name, value in self.extra_body.items() if name not in dropped},
            asks_usage=asks_usage,
            counts_each_chunk=self.counts_each_chunk and not dropped.intersection(self._chunk_count_fields),
        )

    def build_body(self, prompt: Said, max_output_tokens: int) -> bytes:
        """The JSON body of one streaming request: greedy, capped, with the extra fields."""
        wanted = Wanted(self.asks_usage, self.counts_each_chunk, self.document_schema)
        return json.dumps(
            make_body(self.endpoint, self.model, prompt, max_output_tokens, wanted, self.extra_body)
        ).encode()

    def hide_secrets(self, text: str, prompt: str = "") -> str:
        """A server's message without key or headers, and cut where it begins to quote the prompt.

        Where:    a message that holds a key in another form, as in base64 or with escapes, is cut there; an overlong one is cut
        """
        hidden = self._hide_keys(text if len(text) <= _MOST_SAID_CHARS else f"{text[:_MOST_SAID_CHARS]}…")
        begin = first_place(hidden, self._key_begin)
        return without_quote(hidden if begin is None else f"{hidden[:begin]}[key]", prompt)

    def _hide_keys(self, text: str) -> str:
        hidden = text if self.api_key is None else self.api_key.hide_in(text)
        return self.extra_headers.hide_in(hidden) if isinstance(self.extra_headers, SecretHeaders) else hidden

    def _key_begin(self, text: str) -> int | None:
        """Where a key stands in a text that was decoded."""
        hidden = self._hide_keys(text)
        same = zip(text, hidden, strict=False)
        return None if hidden == text else next((at for at, (one, other) in enumerate(same) if one != other), None)

    @property
    def _usage_fields(self) -> tuple[str, ...]:
        return (STREAM_OPTIONS,) if self.asks_usage and self.endpoint.is_openai else ()

    @property
    def _chunk_count_fields(self) -> tuple[str, ...]:
        if not self.counts_each_chunk:
            return ()
        in_options = (CONTINUOUS_USAGE,) if self._usage_fields else ()
        return (*in_options, *chunk_count_fields(self.endpoint, self.asks_usage))


def parse_extra_body(text: str) -> dict[str, object]:
    """Extra body fields as a person gives them: a JSON object, or @FILE that holds one.

    Raises:   RequestError, without repeating what was given
    """
    return parse_json_object(text, "extra body fields")


def parse_json_object(text: str, what: str) -> dict[str, object]:
    """A JSON object that stands in the text, or in the file whose name follows an @.

    Raises:   RequestError
    """
    if text.startswith("@"):
        text = read_text(Path(text[1:]), f"file of the {what}", MAX_EXTRA_BYTES)
    try:
        value = strict_json(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise RequestError(f'the {what} are not JSON{where}; write an object such as {{"seed": 1}}, or @FILE') from None
    if not isinstance(value, dict):
        raise RequestError(f'the {what} must be a JSON object such as {{"seed": 1}}, and this is a {_kind(value)}')
    return value


def _kind(value: object) -> str:
    return {list: "list", str: "text", bool: "truth value", type(None): "null"}.get(type(value), "number")


def _parse_endpoint(value: str) -> Endpoint:
    try:
        return Endpoint(value)
    except ValueError:
        raise RequestError(f"the endpoint {value!r} is not known; known: {', '.join(Endpoint)}") from None


def _choose_endpoint(asked: Endpoint, route: str | None) -> Endpoint:
    """What the route in the URL says, if it names one; only the default may differ from it.

    Raises:   RequestError when the URL names another route than was asked for
    """
    if route is None:
        return asked
    named = next(endpoint for end, endpoint in _ROUTE_ENDS.items() if route.endswith(end))
    if asked not in (named, Endpoint.COMPLETIONS):
        raise RequestError(f"the address ends in {route}, which is the endpoint {named}, and {asked} is asked for")
    return named


def _secret_headers(headers: Mapping[str, str], api_key: ApiKey | None) -> SecretHeaders:
    secret = headers if isinstance(headers, SecretHeaders) else SecretHeaders(headers)
    if api_key is not None and any(name.lower() == "authorization" for name in secret):
        raise RequestError("both an API key and a header Authorization are given; give one of them")
    return secret


def _check_extra(extra: Mapping[str, object], endpoint: Endpoint) -> dict[str, object]:
    own = endpoint.own_fields
    if taken := sorted(set(extra) & set(own)):
        raise RequestError(f"the extra field {taken[0]!r} is set by this program; it sets {', '.join(own)}")
    return _as_json(extra, "extra body fields")


def _as_json(fields: Mapping[str, object], what: str) -> dict[str, object]:
    """A copy that nothing outside can change."""
    try:
        copied = json.loads(json.dumps(dict(fields), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise RequestError(f"the {what} cannot be written as JSON") from None
    return {str(name): value for name, value in copied.items()}
