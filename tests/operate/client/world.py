"""A world in which nothing waits: an event loop of virtual time, and servers that do as their scripts say, at the times they say.

All but the sockets is the real thing: the wire's time limits, the framing, the parsers, the follower.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inference_bench.measure.http1 import Dialer
from inference_bench.measure.target import Address, Endpoint, Target
from inference_bench.measure.wire import ExchangeError, FailureKind, Read, Timeouts, Wire
from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.client import Client, Policy, Request, Upstream

T = TypeVar("T")
WALL_S = 1_796_000_000.0


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self.loop.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps take no time; `time()` says that they did."""

    def __init__(self) -> None:
        self.now_s = 100.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


CLOSE = "close"
RESET = "reset"
Step = tuple[float, bytes | str]  # seconds after the step before, what comes


@dataclass
class Script:
    """What one connection does for one request. Where: connect_s of None never connects, refused says no at once."""

    steps: Sequence[Step] = ()
    connect_s: float | None = 0.0
    refused: bool = False


@dataclass
class Seen:
    """One attempt as the server sees it."""

    host: str
    connection: int
    at_s: float
    message: bytes
    closed_s: float | None = None
    sent_all: bool = False

    @property
    def headers(self) -> dict[str, str]:
        lines = self.message.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.message.partition(b"\r\n\r\n")[2]))

    @property
    def path(self) -> str:
        return self.message.split(b" ")[1].decode()


class ScriptedWire(Wire):
    def __init__(
        self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int, world: World, script: Script, seen: Seen
    ) -> None:
        super().__init__(clock, timeouts, max_bytes)
        self._world, self._script, self._seen, self._reads = world, script, seen, list[Read]()
        self._handles: list[asyncio.TimerHandle] = []
        self._begin()

    def send(self, data: bytes) -> None:
        if self.is_renewed:
            self._script = self._world.script_for(self._seen.host)
            self._seen = Seen(self._seen.host, self._seen.connection, self._clock(), data)
            self._world.seen.append(self._seen)
        self._seen.message = data
        loop, after_s = asyncio.get_running_loop(), 0.0
        for wait_s, what in self._script.steps:
            after_s += max(wait_s, 1e-6)  # timers of the same time have no order
            self._handles.append(loop.call_later(after_s, self._come, what))

    def _come(self, what: bytes | str) -> None:
        if self.is_over:
            return
        if isinstance(what, bytes):
            now_s = self._clock()
            self._reads.append(Read(now_s, what, now_s, now_s, False))
            self._count(what, now_s)
            return
        self._seen.sent_all = True
        self._end(ConnectionResetError(104, "reset") if what == RESET else None)

    def take(self) -> list[Read]:
        reads, self._reads = self._reads, []
        self._note_taken()
        return reads

    async def close(self) -> None:
        self._abort()

    def _is_clear(self) -> bool:
        return not self.is_over and not self._reads

    def _begin_anew(self, now_s: float) -> None:
        self._stop()  # whatever the last script had in mind for an idle connection

    def _stop(self) -> None:
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def _abort(self) -> None:
        self._stop()
        if self._seen.closed_s is None:
            self._seen.closed_s = self._clock()
        if not self.closed.is_set():
            self._end(None)


@dataclass
class World:
    """Servers by host; each request takes the next script of its host, the last one again and again."""

    servers: dict[str, list[Script]]
    seen: list[Seen] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    num_left: dict[str, int] = field(default_factory=dict)
    num_connections: int = 0
    num_dialers: int = 0

    def script_for(self, host: str) -> Script:
        place = self.num_left.get(host, 0)
        self.num_left[host] = place + 1
        scripts = self.servers[host]
        return scripts[min(place, len(scripts) - 1)]

    def of(self, host: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.host == host]

    def client(self, policy: Policy | None = None, **more: Any) -> Client:
        loop = asyncio.get_running_loop()
        upstreams = [upstream(host) for host in self.servers]
        settings: dict[str, Any] = {
            "clock": loop.time,
            "backoff": lambda number: 0.1 * number,
            "recorder": self.answers.append,
            **more,
        }
        return Client(
            upstreams,
            policy,
            wall_s=lambda: WALL_S,
            dial=lambda address: ScriptedDialer(address, self),
            **settings,
        )


def upstream(host: str, **more: Any) -> Upstream:
    return Upstream(host, Target(f"http://{host}:8000", endpoint=Endpoint.CHAT, model="asked", **more))


class ScriptedDialer(Dialer):
    def __init__(self, address: Address, world: World) -> None:
        super().__init__(address)
        self._world = world
        world.num_dialers += 1

    async def connect(self, clock: Callable[[], float], timeouts: Timeouts, max_bytes: int) -> Wire:
        script, host = self._world.script_for(self.address.host), self.address.host
        self._world.num_connections += 1
        seen = Seen(host, self._world.num_connections, clock(), b"")
        self._world.seen.append(seen)
        if script.refused:
            raise ExchangeError(FailureKind.UNREACHABLE, f"could not connect to {host} (connection refused)")
        try:
            async with asyncio.timeout(min(timeouts.connect_s, timeouts.total_s)):
                await asyncio.sleep(1e6 if script.connect_s is None else script.connect_s)
        except TimeoutError:
            raise ExchangeError(FailureKind.TIMED_OUT, f"could not connect to {host} in time") from None
        return ScriptedWire(clock, timeouts, max_bytes, self._world, script, seen)


def event(payload: object) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {text}\n\n".encode()


def token(text: str, **delta: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}
    return event({"id": "1", "object": "chat.completion.chunk", "model": "served", "choices": [choice]})


FINISH = event({"id": "1", "model": "served", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
USAGE = event({
    "id": "1",
    "model": "served",
    "choices": [],
    "usage": {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
})  # fmt: skip
DONE = event("[DONE]")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
END = FINISH + USAGE + DONE


def says(
    *texts: str, first_s: float = 0.1, gap_s: float = 0.1, then: Sequence[Step] = ((0.0, END), (0.0, CLOSE))
) -> Script:
    """A stream of these pieces; then what follows them."""
    tokens = [(first_s if not number else gap_s, token(text)) for number, text in enumerate(texts)]
    return Script([(0.0, STREAM_HEAD), *tokens, *then])


CHUNKED_HEAD = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def keeps(*texts: str, first_s: float = 0.1, gap_s: float = 0.1, idle: Sequence[Step] = (), head: str = "") -> Script:
    """A stream of these pieces with an end of its own, after which the connection stays; what then happens to it while it is idle."""
    lines = CHUNKED_HEAD.replace(b"\r\n\r\n", f"\r\n{head}\r\n\r\n".encode()) if head else CHUNKED_HEAD
    tokens = [(first_s if not number else gap_s, chunk(token(text))) for number, text in enumerate(texts)]
    return Script([(0.0, lines), *tokens, (0.0, chunk(END) + LAST_CHUNK), *idle])


def refuses(status: int, *headers: str, body: bytes = b'{"error": {"message": "no"}}', after_s: float = 0.0) -> Script:
    lines = [
        f"HTTP/1.1 {status} Status",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return Script([(after_s, "\r\n".join(lines).encode() + body), (0.0, CLOSE)])


SILENT = Script()
NEVER_CONNECTS = Script(connect_s=None)
REFUSES_CONNECTIONS = Script(refused=True)
GARBAGE = Script([(0.0, STREAM_HEAD), (0.1, b'data: {"choices": [\n\n'), (0.0, CLOSE)])
WELL = says("one ", "two ", "three")


def ask(text: str = "a question of the caller", **more: Any) -> Request:
    return Request({"messages": [{"role": "user", "content": text}], "max_tokens": 8}, **more)


async def get(client: Client, kind: str = "complete", **more: Any) -> Answer:
    """What came of one request, read whole or piece by piece."""
    if kind == "complete":
        return (await client.complete(ask(**more))).answer
    async with client.stream(ask(**more)) as reply:
        async for _ in reply:
            pass
    return reply.answer


def ends(answer: Answer) -> list[tuple[str, AttemptEnd]]:
    """Who was asked, and what came of it."""
    return [(attempt.endpoint.name, attempt.end) for attempt in answer.attempts]


async def elapsed(work: Awaitable[T]) -> tuple[float, T | Exception]:
    """How long it took, and its result or error."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    try:
        result: T | Exception = await work
    except Exception as error:
        result = error
    return loop.time() - begin_s, result
