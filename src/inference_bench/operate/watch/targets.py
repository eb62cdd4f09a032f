"""Which servers are watched, and what are they called? Addresses with names, each once.

In:   NAME=URL or URL, as a person types them
Out:  Watched, a name and a Target each
Leaves out: whether anything answers there (observer)
Read next by: observer, flow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.measure.target import ApiKey, Endpoint, Target

MAX_TARGETS: Final = 1_000
_NAMED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})=(https?://.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Watched:
    """One server; the name is the only label that its exported metrics have."""

    name: str
    target: Target


def watched(texts: Iterable[str], model: str | None = None, api_key: ApiKey | None = None) -> tuple[Watched, ...]:
    """The servers, in order.

    Raises:   RequestError for an address that is none, one that is given twice, a name that two have, none at all, or too many
    """
    found = [_one(text, model, api_key) for text in texts]
    if not found:
        raise RequestError("no server is given to watch; give addresses such as http://127.0.0.1:8080, or NAME=ADDRESS")
    if len(found) > MAX_TARGETS:
        raise RequestError(f"{len(found)} servers are given; at most {MAX_TARGETS} can be watched at once")
    _require_once([each.target.base_url for each in found], "the address")
    _require_once([each.name for each in found], "the name")
    return tuple(found)


def _one(text: str, model: str | None, api_key: ApiKey | None) -> Watched:
    match = _NAMED.fullmatch(text)
    given = Target(text if match is None else match.group(2), model=model, api_key=api_key)
    # a route at the end names how to ask for a token; chat is the other one, and the native ones are not asked
    endpoint = Endpoint.CHAT if given.endpoint is Endpoint.CHAT else Endpoint.COMPLETIONS
    target = Target(str(given.address), model=model, api_key=api_key, endpoint=endpoint)
    return Watched(
        f"{target.address.host_header}{target.address.base_path}" if match is None else match.group(1), target
    )


def _require_once(values: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise RequestError(f"{what} {value} is given twice; give each server once, under a name of its own")
        seen.add(value)
