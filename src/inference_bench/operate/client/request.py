"""What is asked, of whom, and the bytes that go out: a request in the fields of the OpenAI API, written for each endpoint.

In:   the caller's fields, names and Targets, checked before anything is sent
Out:  Upstream, Request, and Letter, which has the bytes for each upstream
Leaves out: sending (opening), which of them is asked (attempts)
Read next by: opening, course, attempts, client.

The caller's fields go out as they are. Added are `stream`, `stream_options` where usage is wanted, the endpoint's own model and extra
fields, and one idempotency key, the same in every attempt. The head of each endpoint's requests is written once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import Final

from inference_bench import __version__
from inference_bench.errors import RequestError
from inference_bench.measure.sender import EVENT_STREAM, JSON_TYPE
from inference_bench.measure.target import STREAM_OPTIONS, Endpoint, Target
from inference_bench.operate.answers import EndpointIdentity
from inference_bench.operate.client.policy import check_budget

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._:/-]{0,62}[A-Za-z0-9])?")
_ID: Final = re.compile(r"[!-~]{1,128}")
_as_json: Final = json.JSONEncoder(allow_nan=False).encode
_OWN_FIELDS: Final = ("stream", "model")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Upstream:
    """An endpoint to ask, by a name of the caller's.

    Where:    the target's key, headers, model and extra fields are used; its route follows the request, unless its address named one
    Raises:   RequestError
    """

    name: str
    target: Target
    manifest_sha256: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise RequestError("an endpoint's name must be 1 to 64 letters, digits and . _ : / - or spaces within")
        if not isinstance(self.target, Target):
            raise RequestError(f"the endpoint {self.name} needs a Target, such as Target('http://127.0.0.1:8080')")
        if not self.target.endpoint.is_openai:
            raise RequestError(
                f"the endpoint {self.name} is of the route {self.target.endpoint}; the client asks OpenAI's routes: "
                f"{Endpoint.CHAT}, {Endpoint.COMPLETIONS}"
            )
        if self.manifest_sha256 is not None and not _SHA256.fullmatch(self.manifest_sha256):
            raise RequestError(f"the manifest of the endpoint {self.name} must be 64 hexadecimal digits")

    def identity(self, model: str | None = None) -> EndpointIdentity:
        """Who is asked, and the model that its reply named, once it has."""
        return EndpointIdentity(self.name, self.target.base_url, model, self.manifest_sha256)

    def path_for(self, route: Endpoint) -> str:
        """Where a request of this route goes, below the address.

        Raises:   RequestError where the address names the other route
        """
        if self.target.path == self.target.endpoint.path:
            return route.path
        if self.target.endpoint is not route:
            raise RequestError(
                f"the endpoint {self.name} is given with the route {self.target.endpoint}, and the request is for {route}"
            )
        return self.target.path


@dataclass(frozen=True, slots=True)
class Request:
    """One request: the fields of the OpenAI API, without `model` and `stream`. They never show in a repr.

    Where:    request_id is one of the caller's, or made up; the idempotency key is the request_id unless another is given; budget_s
              replaces the policy's; application and team are names that the caller controls: they go into records
    Raises:   RequestError, which never repeats what a field holds
    """

    fields: Mapping[str, object] = field(repr=False)
    request_id: str = field(default_factory=lambda: urandom(16).hex())
    idempotency_key: str | None = None
    budget_s: float | None = None
    application: str | None = None
    team: str | None = None

    def __post_init__(self) -> None:
        _check_fields(self.fields)
        for what, value, form in (
            ("request id", self.request_id, _ID),
            ("idempotency key", self.idempotency_key, _ID),
            ("application", self.application, _NAME),
            ("team", self.team, _NAME),
        ):
            if value is not None and (not isinstance(value, str) or not form.fullmatch(value)):
                raise RequestError(f"the {what} must be {_FORMS[form]}")
        if self.budget_s is not None:
            check_budget(self.budget_s)

    @property
    def route(self) -> Endpoint:
        """Chat where there are messages."""
        return Endpoint.CHAT if "messages" in self.fields else Endpoint.COMPLETIONS

    def prompt_text(self) -> str:
        """What was said, to take it out of a server's messages."""
        return "\n".join(_texts(self.fields.get("messages", self.fields.get("prompt"))))


_FORMS: Final = {
    _ID: "1 to 128 printable ASCII characters without spaces",
    _NAME: "1 to 64 letters, digits and . _ : / - or spaces within",
}


def _check_fields(fields: Mapping[str, object]) -> None:
    if not isinstance(fields, Mapping):
        raise RequestError('the fields of a request must be an object such as {"messages": [...], "max_tokens": 100}')
    if taken := next((name for name in _OWN_FIELDS if name in fields), None):
        raise RequestError(f"the field {taken!r} is set by the client; a model is named with the endpoint's Target")
    if ("messages" in fields) == ("prompt" in fields):
        raise RequestError("a request needs either messages or a prompt")
    if fields.get("n", 1) != 1 or fields.get("best_of", 1) != 1:
        raise RequestError("a request is for one answer; leave out n and best_of, and ask again for another")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in (value.get("content"), value.get("text")):
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


class Letter:
    """One request as bytes, written for an upstream when that is first asked.

    Raises:   RequestError for fields that are no JSON, or that have no place at one of the upstreams
    """

    def __init__(self, request: Request, heads: Mapping[str, RequestHead], header: str | None) -> None:
        self.idempotency_key = None if header is None else request.idempotency_key or request.request_id
        self._request, self._heads = request, heads
        self._more = "" if header is None else f"{header}: {self.idempotency_key}\r\n"
        self._bodies: dict[str, bytes] = {}
        try:
            self._fields = _as_json(dict(request.fields))[1:-1].encode()
        except (TypeError, ValueError, RecursionError):
            raise RequestError("the fields of the request cannot be written as JSON") from None

    def bytes_for(self, name: str) -> bytes:
        """What goes over the wire to this upstream, the same each time."""
        if (written := self._bodies.get(name)) is None:
            head = self._heads[name]
            body = b"{%b, %b}" % (self._fields, head.fields_beside(self._request.fields))
            written = self._bodies[name] = head.write(self._request.route, self._more, body)
        return written


class RequestHead:
    """What is the same in every request to one upstream.

    Where:    is_last says that the connection is of no use after it
    """

    def __init__(self, upstream: Upstream, header: str | None, *, is_last: bool = True) -> None:
        self._upstream, target = upstream, upstream.target
        if header is not None and any(name.lower() == header.lower() for name in target.extra_headers):
            raise RequestError(
                f"the endpoint {upstream.name} has a header {header} of its own, which the client sets for each request"
            )
        headers = (
            ("Host", target.address.host_header),
            *((("Connection", "close"),) if is_last else ()),
            ("User-Agent", f"inference-bench/{__version__}"),
            ("Accept", EVENT_STREAM),
            ("Accept-Encoding", "identity"),
            ("Content-Type", JSON_TYPE),
            *target.secret_headers,
        )
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        fields: dict[str, object] = {"stream": True}
        if target.model is not None:
            fields["model"] = target.model
        if target.asks_usage:
            fields[STREAM_OPTIONS] = {"include_usage": True}
        self._own, self._extra = fields, dict(target.extra_body)
        self._usual = json.dumps(fields | self._extra)[1:-1].encode()

    def fields_beside(self, given: Mapping[str, object]) -> bytes:
        """The client's and the endpoint's fields, without those that the request has itself."""
        if given.keys().isdisjoint(self._extra) and STREAM_OPTIONS not in given:
            return self._usual
        beside = {name: value for name, value in (self._own | self._extra).items() if name not in given}
        return json.dumps(beside)[1:-1].encode()

    def write(self, route: Endpoint, more: str, body: bytes) -> bytes:
        """Head and body."""
        path = self._upstream.target.address.base_path + self._upstream.path_for(route)
        top = f"POST {path} HTTP/1.1\r\n{self._lines}{more}Content-Length: {len(body)}\r\n\r\n"
        return top.encode("latin-1") + body
