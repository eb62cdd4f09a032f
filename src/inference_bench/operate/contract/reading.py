"""What stands in a reply: text, finish reason, counts, log-probabilities, an error's words.

In:   JSON values of a server, of whatever types it chose; Stream
Out:  plain values, None for what is not there or is not what it should be
Leaves out: what should stand there (the modules that judge)
Read next by: server, and every module that judges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from inference_bench.engines.answers import inside
from inference_bench.operate.contract.wire import Reply, Stream
from inference_bench.units import GIGA, plain_number

_Given = TypeVar("_Given")
_SAID_CHARS: Final = 90
_MOST_COUNT: Final = GIGA  # tokens: of more than any context holds nothing can be said


def choice_of(value: Any, index: int = 0) -> dict[str, Any]:
    """One of a reply's choices; {} where there is none."""
    choices = inside(value, "choices")
    found = choices[index] if isinstance(choices, list) and len(choices) > index else None
    return found if isinstance(found, dict) else {}


def text_of(value: Any, index: int = 0) -> str | None:
    """The text of a choice, of a chat or a completion, whole or a piece of a stream."""
    choice = choice_of(value, index)
    message, delta = choice.get("message"), choice.get("delta")
    places = (
        inside(message, "content"),
        choice.get("text"),
        inside(delta, "content"),
        inside(message, "reasoning_content"),
        inside(delta, "reasoning_content"),
    )
    texts = [text for text in places if isinstance(text, str)]
    return next(filter(None, texts), texts[0] if texts else None)


def finish_of(value: Any) -> str | None:
    """Why the first choice ended."""
    found = choice_of(value).get("finish_reason")
    return found[:40] if isinstance(found, str) else None


def usage_count(value: Any, name: str) -> int | None:
    """A count of a reply's usage."""
    return _count(inside(value, "usage", name))


def cached_tokens(value: Any) -> int | None:
    """How much of the prompt came from a cache, if the server says."""
    return _count(inside(value, "usage", "prompt_tokens_details", "cached_tokens"))


def _count(found: Any) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _MOST_COUNT else None


def error_words(reply: Reply | Stream) -> str:
    """The status, and the server's own words about the error in short."""
    value = reply.value
    details = inside(value, "detail")
    first = details[0] if isinstance(details, list) and details else None
    for found in (
        inside(first, "msg"),
        inside(value, "error", "message"),
        inside(value, "message"),
        inside(value, "detail"),
        inside(value, "error"),
    ):
        if isinstance(found, str) and found:
            said = " ".join(found.split())
            return f"HTTP {reply.status}: {said[:_SAID_CHARS]}{'…' if len(said) > _SAID_CHARS else ''}"
    return f"HTTP {reply.status}"


@dataclass(frozen=True, slots=True)
class Streamed:
    """What the events of a stream hold together."""

    values: tuple[Any, ...]
    pieces: tuple[str, ...]
    num_broken: int

    @classmethod
    def of(cls, stream: Stream) -> Streamed:
        """Read every event, or the whole reply where it was no stream."""
        values, num_broken = [], 0
        for payload in stream.payloads:
            try:
                values.append(json.loads(payload))
            except (ValueError, RecursionError):
                num_broken += 1
        if not stream.is_stream and stream.value is not None:
            values.append(stream.value)
        pieces = tuple(text for text in map(text_of, values) if text)
        return cls(tuple(values), pieces, num_broken)

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.pieces)

    @property
    def finish(self) -> str | None:
        """The last finish reason that was given."""
        return _last(map(finish_of, self.values))

    def count(self, name: str) -> int | None:
        """The last count that was given."""
        return _last(usage_count(value, name) for value in self.values)


def _last(values: Iterable[_Given | None]) -> _Given | None:
    return next((value for value in reversed(list(values)) if value is not None), None)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token, how likely it was (in nats), and the likeliest ones at its place, best first."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()

    def logprob_of(self, token: str) -> float | None:
        """That of this token or of another that was listed at its place."""
        return self.logprob if token == self.token else dict(self.top).get(token)


def logprobs_of(value: Any, index: int = 0) -> tuple[TokenLogprob, ...]:
    """The tokens of a choice with their log-probabilities, in any of the shapes that servers use; () where there are none."""
    found = choice_of(value, index).get("logprobs")
    content = inside(found, "content")
    read = [_from_content(item) for item in content] if isinstance(content, list) else _from_columns(found)
    return tuple(item for item in read if item is not None) if None not in read else ()


def _from_content(item: Any) -> TokenLogprob | None:
    pair = _pair(item)
    if pair is None:
        return None
    listed = item.get("top_logprobs")
    top = [_pair(other) for other in listed] if isinstance(listed, list) else []
    return TokenLogprob(*pair, tuple(other for other in top if other is not None))


def _pair(item: Any) -> tuple[str, float] | None:
    """A token's name and log-probability; its number is its name where that is given, since texts of broken characters are alike."""
    token, logprob = inside(item, "token"), plain_number(inside(item, "logprob"))
    if not isinstance(token, str) or logprob is None:
        return None
    number = inside(item, "id")
    return (f"#{number}" if isinstance(number, int) else token), logprob


def _from_columns(found: Any) -> list[TokenLogprob | None]:
    tokens, logprobs, tops = (inside(found, name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(tokens, list) or not isinstance(logprobs, list) or len(tokens) != len(logprobs):
        return []
    tops = tops if isinstance(tops, list) and len(tops) == len(tokens) else [None] * len(tokens)
    return [
        None if logprob is None else TokenLogprob(str(token), logprob, _best_first(top))
        for token, logprob, top in zip(tokens, map(plain_number, logprobs), tops, strict=True)
    ]


def _best_first(top: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(top, Mapping):
        return ()
    found = [(str(token), logprob) for token, value in top.items() if (logprob := plain_number(value)) is not None]
    return tuple(sorted(found, key=lambda pair: -pair[1]))
