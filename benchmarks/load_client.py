"""What a paced token costs the load client, and how far its percentiles are from the truth, with and without kernel stamps.

Method: a server in a process of its own paces 64 streams at 10 ms a token to absolute times and logs every send on the clock the
client uses (perf_counter, which processes of a Linux machine share). The same requests go through this client with the kernel's
stamps, with its own, and through a plain asyncio reader that stamps lines and parses nothing. Processor time is that of 256 tokens a
stream less that of 64, over the tokens between: connecting cancels. The three take turns in each of 3 rounds and medians are printed.
The ratio to the plain reader is the figure to keep: all feel the same machine. Target: within 50 µs at ITL p99 with
kernel stamps on a machine that is otherwise idle; beside other work reads bring several tokens, and `load` marks such runs invalid.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median

from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.load import LoadOptions, LoadResult, send_load
from inference_bench.measure.target import Target
from inference_bench.records import RequestStatus
from inference_bench.stats import quantile
from inference_bench.workload import RequestShape, closed_loop

STREAMS, FEW, MANY, ROUNDS = 64, 64, 256, 3
FIRST_S, PACE_S = 0.25, 0.01
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
Streams = list[list[float]]


def framed(*payloads: str) -> bytes:
    data = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunk(text: str, finish: str | None) -> str:
    """As long as vLLM's, about 230 bytes with its frame."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    head = {"id": "cmpl-0123456789abcdef0123456789abcdef", "object": "text_completion", "created": 1796000000}
    return json.dumps({**head, "model": "truth", "choices": [choice], "usage": None})


TOKEN, FINISH = framed(chunk(" a", None)), framed(chunk("", "length"), "[DONE]") + b"0\r\n\r\n"


def read_request(connection: socket.socket) -> int:
    """How many tokens are asked for."""
    received = b""
    while not received.endswith(b"}"):
        received += connection.recv(65536)
    return int(json.loads(received.partition(b"\r\n\r\n")[2])["max_tokens"])


def serve(port_to: Connection) -> None:
    """One wave of streams after another; each wave's log goes to the parent."""
    with socket.create_server(("127.0.0.1", 0), backlog=STREAMS) as listener:
        port_to.send(listener.getsockname()[1])
        while port_to.recv() == "wave":
            port_to.send(serve_wave(listener))


def serve_wave(listener: socket.socket) -> Streams:
    connections, left, log = [], [], [[] for _ in range(STREAMS)]
    for _ in range(STREAMS):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        left.append(read_request(connection))
        connection.sendall(HEAD)
        connections.append(connection)
    begin_s = time.perf_counter() + FIRST_S
    due = [(begin_s + PACE_S * index / STREAMS, index) for index in range(STREAMS)]
    gc.disable()
    while due:
        due_s, index = heapq.heappop(due)
        if (wait_s := due_s - time.perf_counter()) > 0:
            time.sleep(wait_s)
        log[index].append(time.perf_counter())
        connections[index].sendall(TOKEN)
        left[index] -= 1
        if left[index]:
            heapq.heappush(due, (due_s + PACE_S, index))
        else:
            connections[index].sendall(FINISH)
            connections[index].close()
    gc.enable()
    return log


async def with_client(port: int, num_tokens: int, stamps: StampSource) -> Streams:
    workload = closed_loop("paced", [RequestShape(16, num_tokens)], STREAMS, STREAMS)
    options = LoadOptions(clock=time.perf_counter, stamps=stamps)
    result: LoadResult = await send_load(Target(f"http://127.0.0.1:{port}"), workload, options)
    if any(record.status is not RequestStatus.COMPLETED for record in result.records):
        raise SystemExit("a request failed")
    if result.health.stamp_source is not stamps:
        print(f"this machine gives no {stamps} stamps; those lines are of {result.health.stamp_source} stamps")
    return [list(record.chunk_times_s) for record in result.records]


async def with_plain_reader(port: int, num_tokens: int) -> Streams:
    body = json.dumps({"prompt": "a", "max_tokens": num_tokens}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def one() -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        times_s = []
        while (line := await reader.readline()) and not line.startswith(b"data: [DONE]"):
            if line.startswith(b"data: "):
                times_s.append(time.perf_counter())
        writer.close()
        return times_s[:-1]  # the last is the finish chunk

    return list(await asyncio.gather(*(one() for _ in range(STREAMS))))


def measure(pipe: Connection, reader: Callable[[], Coroutine[None, None, Streams]]) -> tuple[float, Streams, Streams]:
    """Processor time of one wave, what the client saw and what was sent."""
    pipe.send("wave")
    begin_s = time.process_time()
    seen = asyncio.run(reader())
    return time.process_time() - begin_s, seen, pipe.recv()


def errors_s(seen: Streams, sent: Streams) -> tuple[float, float, float]:
    """ITL p50 and p99 less the truth's, and the 99th percentile of how late first tokens are stamped."""
    gaps = [sorted(b - a for times in streams for a, b in pairwise(times)) for streams in (seen, sent)]
    p50, p99 = (quantile(gaps[0], q) - quantile(gaps[1], q) for q in (0.5, 0.99))
    firsts = [sorted(times[0] for times in streams) for streams in (seen, sent)]
    return p50, p99, quantile([a - b for a, b in zip(*firsts, strict=True)], 0.99)


def one_round(pipe: Connection, port: int, way: str) -> tuple[float, ...]:
    def reader(num_tokens: int) -> Callable[[], Coroutine[None, None, Streams]]:
        if way == "plain":
            return lambda: with_plain_reader(port, num_tokens)
        return lambda: with_client(port, num_tokens, StampSource(way))

    few_cpu_s, _, _ = measure(pipe, reader(FEW))
    many_cpu_s, seen, sent = measure(pipe, reader(MANY))
    return (many_cpu_s - few_cpu_s) / (STREAMS * (MANY - FEW)), *errors_s(seen, sent)


def main() -> None:
    pipe, other = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(other,), daemon=True)
    server.start()
    port = pipe.recv()
    ways = ("plain", *StampSource)
    rounds: dict[str, list[tuple[float, ...]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            rounds[way].append(one_round(pipe, port, way))
    pipe.send("stop")
    server.join(5)
    show(rounds)


def show(rounds: dict[str, Sequence[tuple[float, ...]]]) -> None:
    names = {"plain": "a plain asyncio reader", "kernel": "kernel stamps", "user": "this program's stamps"}
    for way, rows in rounds.items():
        cpu_s, p50_s, p99_s, first_s = (median(column) for column in zip(*rows, strict=True))
        ratio = median(row[0] / plain[0] for row, plain in zip(rows, rounds["plain"], strict=True))
        worst_s = max(abs(row[2]) for row in rows)
        print(
            f"{names[way]}: {cpu_s * 1e6:.0f} µs a token ({ratio:.2f} × plain); off by {p50_s * 1e6:+.0f} µs at ITL p50, "
            f"{p99_s * 1e6:+.0f} µs at p99 (worst of {len(rows)}: {worst_s * 1e6:.0f} µs); first tokens {first_s * 1e6:.0f} µs late at p99"
        )


if __name__ == "__main__":
    main()
