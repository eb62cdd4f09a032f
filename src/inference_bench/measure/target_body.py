"""How is a request put to each of the four routes: the JSON that each wants to read.

In:   an Endpoint, a prompt or messages, how many tokens at most, and what else is asked for
Out:  a body as plain dict
Leaves out: where it is sent (target), what comes back (openai_stream, native_payloads)
Read next by: target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

STREAM_OPTIONS: Final = "stream_options"
CONTINUOUS_USAGE: Final = "continuous_usage_stats"
RESPONSE_FORMAT: Final = "response_format"
SAMPLING_PARAMS: Final = "sampling_params"

# what SGLang's native route reads inside sampling_params and not beside it
_SGLANG_SAMPLING: Final = frozenset({
    "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "stop_regex", "min_new_tokens", "n", "seed",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "ignore_eos", "skip_special_tokens", "logit_bias",
    "spaces_between_special_tokens", "no_stop_trim", "regex", "ebnf", "custom_params", "sampling_seed",
})  # fmt: skip


class Endpoint(StrEnum):
    """The routes that stream tokens: OpenAI's two, SGLang's own and llama.cpp's own."""

    COMPLETIONS = "completions"
    CHAT = "chat"
    SGLANG = "sglang"
    LLAMA_CPP = "llama.cpp"

    @property
    def path(self) -> str:
        """The route below the server's address."""
        return _PATHS[self]

    @property
    def is_openai(self) -> bool:
        """Whether the route is one of OpenAI's."""
        return self in (Endpoint.COMPLETIONS, Endpoint.CHAT)

    @property
    def own_fields(self) -> tuple[str, ...]:
        """The body fields that this program sets itself."""
        return _OWN_FIELDS[self]


_PATHS: Final = {
    Endpoint.COMPLETIONS: "/v1/completions",
    Endpoint.CHAT: "/v1/chat/completions",
    Endpoint.SGLANG: "/generate",
    Endpoint.LLAMA_CPP: "/completion",
}
_OPENAI_FIELDS: Final = ("model", "prompt", "messages", "max_tokens", "stream", STREAM_OPTIONS)
_OWN_FIELDS: Final = {
    Endpoint.COMPLETIONS: _OPENAI_FIELDS,
    Endpoint.CHAT: _OPENAI_FIELDS,
    Endpoint.SGLANG: ("text", "input_ids", "stream", "max_new_tokens"),
    Endpoint.LLAMA_CPP: ("prompt", "n_predict", "max_tokens", "stream"),
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. What it says never shows in a repr."""

    role: str
    content: str = field(repr=False)


Said = str | Sequence[Message]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for beside tokens.

    Where:    a schema of {} is any JSON document; None is free text
    """

    usage: bool = True
    chunk_counts: bool = False
    schema: Mapping[str, object] | None = None


def chunk_count_fields(endpoint: Endpoint, has_usage: bool) -> tuple[str, ...]:
    """The body fields, other than stream options, that ask for a token count in every chunk.

    Where:    SGLang's own route always gives one. Token ids are asked for only where usage is not, because the prompt's
              come with them, in the first chunk
    """
    if endpoint is Endpoint.SGLANG:
        return ()
    return (
        ("timings_per_token",)
        if has_usage or endpoint is Endpoint.LLAMA_CPP
        else ("return_token_ids", "timings_per_token")
    )


def make_body(
    endpoint: Endpoint,
    model: str | None,
    said: Said,
    max_output_tokens: int,
    wanted: Wanted,
    extra: Mapping[str, object],
) -> dict[str, object]:
    """The body of one streaming request: greedy, capped, with the extra fields."""
    if endpoint is Endpoint.SGLANG:
        return _sglang_body(said, max_output_tokens, wanted, extra)
    named: dict[str, object] = {} if model is None else {"model": model}
    if endpoint is Endpoint.LLAMA_CPP:
        body = named | {"prompt": plain_text(said), "n_predict": max_output_tokens, "temperature": 0, "stream": True}
        if wanted.schema is not None:
            body["json_schema"] = dict(wanted.schema)
    else:
        body = named | _openai_body(endpoint, said, max_output_tokens, wanted)
    if wanted.chunk_counts:
        body |= dict.fromkeys(chunk_count_fields(endpoint, wanted.usage), True)
    return body | dict(extra)


def plain_text(said: Said) -> str:
    """A prompt as one text; the messages of a conversation follow each other, for routes that know no roles."""
    return said if isinstance(said, str) else "\n".join(message.content for message in said)


def _openai_body(endpoint: Endpoint, said: Said, max_output_tokens: int, wanted: Wanted) -> dict[str, object]:
    body: dict[str, object] = {}
    if endpoint is Endpoint.CHAT:
        messages = [Message("user", said)] if isinstance(said, str) else said
        body["messages"] = [{"role": message.role, "content": message.content} for message in messages]
    else:
        body["prompt"] = plain_text(said)
    body |= {"max_tokens": max_output_tokens, "temperature": 0, "stream": True}
    if wanted.usage:
        options = {"include_usage": True} | ({CONTINUOUS_USAGE: True} if wanted.chunk_counts else {})
        body[STREAM_OPTIONS] = options
    if wanted.schema is not None:
        body[RESPONSE_FORMAT] = _response_format(wanted.schema)
    return body


def _response_format(schema: Mapping[str, object]) -> dict[str, object]:
    if not schema:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "document", "strict": True, "schema": dict(schema)}}


def _sglang_body(said: Said, max_output_tokens: int, wanted: Wanted, extra: Mapping[str, object]) -> dict[str, object]:
    sampling: dict[str, object] = {"temperature": 0}
    given = extra.get(SAMPLING_PARAMS)
    sampling |= dict(given) if isinstance(given, Mapping) else {}
    sampling |= {name: value for name, value in extra.items() if name in _SGLANG_SAMPLING}
    sampling["max_new_tokens"] = max_output_tokens
    if wanted.schema is not None:
        sampling["json_schema"] = json.dumps(dict(wanted.schema) or {"type": "object"})
    beside = {name: value for name, value in extra.items() if name != SAMPLING_PARAMS and name not in _SGLANG_SAMPLING}
    return {"text": plain_text(said), SAMPLING_PARAMS: sampling, "stream": True} | beside
