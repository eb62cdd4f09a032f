"""Two loops such as people write themselves: `python readers.py plain|httpx URL STREAMS REQUESTS TOKENS`.

`plain` reads lines with asyncio's own streams, stamps each and parses nothing; `httpx` reads lines with httpx and parses
each with json.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit


def body_of(tokens: int) -> bytes:
    asked = {"model": "conform", "messages": [{"role": "user", "content": "a"}], "max_tokens": tokens, "stream": True}
    return json.dumps(asked).encode()


def plain(url: str, tokens: int) -> Callable[[], Awaitable[int]]:
    where = urlsplit(url)
    body = body_of(tokens)
    head = f"POST {where.path}/v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"

    async def one() -> int:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(head.encode() + body)
        times_s = []
        while (line := await reader.readline()) and not line.startswith(b"data: [DONE]"):
            if line.startswith(b"data: "):
                times_s.append(time.perf_counter())
        writer.close()
        return len(times_s)

    return one


def with_httpx(url: str, tokens: int) -> Callable[[], Awaitable[int]]:
    import httpx

    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60)
    body = body_of(tokens)

    async def one() -> int:
        times_s = []
        async with client.stream("POST", f"{url}/v1/chat/completions", content=body) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        times_s.append(time.perf_counter())
        return len(times_s)

    return one


async def send(one: Callable[[], Awaitable[int]], streams: int, requests: int, tokens: int) -> None:
    left = iter(range(requests))

    async def slot() -> None:
        for _ in left:
            if await one() < tokens:
                sys.exit("a stream was short")

    await asyncio.gather(*(slot() for _ in range(streams)))


if __name__ == "__main__":
    way, url, *numbers = sys.argv[1:]
    streams, requests, tokens = map(int, numbers)

    async def main() -> None:
        await send((plain if way == "plain" else with_httpx)(url, tokens), streams, requests, tokens)

    asyncio.run(main())
