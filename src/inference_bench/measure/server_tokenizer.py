"""How many tokens is a text, by the server's own tokenizer, where it has a route for that.

In:   Target, texts
Out:  counts, without a single token being generated
Leaves out: what a chat template adds: only a real request's usage tells
Read next by: warmup.

vLLM and SGLang read {"model", "prompt"} at /tokenize and say `count`; llama.cpp reads {"content"} and gives the tokens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from inference_bench.errors import ServerError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.sender import fetch_json
from inference_bench.measure.target import Target

TOKENIZE_PATH: Final = "/tokenize"
ASK_S: Final = 10.0

_AT_ONCE: Final = 16
_SAMPLE: Final = "time and place"
_TEXT_FIELDS: Final = ("prompt", "content")


@dataclass(frozen=True, slots=True)
class ServerTokenizer:
    """The /tokenize route of a server that has one; `text_field` is what it calls the text."""

    target: Target
    text_field: str

    @classmethod
    def find(cls, target: Target) -> Self | None:
        """The server's tokenizer; None when it has no such route, or none that answers with tokens."""
        for text_field in _TEXT_FIELDS:
            tokenizer = cls(target, text_field)
            (counted,) = tokenizer.count([_SAMPLE])
            if counted:
                return tokenizer
        return None

    def count(self, texts: Sequence[str]) -> list[int | None]:
        """The tokens of each text, with those it adds to every text; None where the server would not say."""
        return asyncio.run(self._count_all(texts))

    async def _count_all(self, texts: Sequence[str]) -> list[int | None]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def count(text: str) -> int | None:
            async with turns:
                return await self._count_one(text)

        return await asyncio.gather(*map(count, texts))

    async def _count_one(self, text: str) -> int | None:
        named = {} if self.target.model is None else {"model": self.target.model}
        body = json.dumps(named | {self.text_field: text}).encode()
        try:
            reply = await fetch_json(self.target, TOKENIZE_PATH, body, Timeouts(total_s=ASK_S))
        except ServerError:
            return None
        return _read_count(reply)


def _read_count(reply: object) -> int | None:
    if not isinstance(reply, dict):
        return None
    counted = reply.get("count")
    if isinstance(counted, int) and not isinstance(counted, bool) and counted >= 0:
        return counted
    tokens = reply.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None
