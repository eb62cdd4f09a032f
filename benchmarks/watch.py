"""How many servers can one core watch? Looks a second of processor time, beside a bare loop of http.client GETs in the same run.

Method: a process of its own serves pages of metrics such as vLLM writes them (histograms with their buckets, so hundreds of lines) on
many ports of the loopback interface, each page with counters that rise. This process does two things in turn: it GETs the pages one
after another with http.client and throws them away (`bare`), and it watches the servers with the library as `watch` does (`watch`:
connecting, reading, parsing, history, verdicts, a round and its table a second). What counts is this process's own processor time, user
and system, a look; printed are the medians of the turns, their range, and the ratio of neighbours in time, then the share of one core
that the watch took. The first round is apart (`start`): in it every server is asked for its models and its limits, too. Looks that
failed or came late are printed: they make a run worthless.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import os
import platform
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple

from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import WatchOptions
from inference_bench.operate.watch.states import Round
from inference_bench.operate.watch.targets import watched
from inference_bench.report.watch_report import watch_text

HISTOGRAMS = (
    "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
    "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
    "request_generation_tokens", "request_time_per_output_token_seconds", "iteration_tokens_total", "request_params_max_tokens",
)  # fmt: skip
BUCKETS = ("0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "7.5",
           "10.0", "20.0", "40.0", "80.0", "160.0", "640.0", "2560.0", "+Inf")  # fmt: skip
LABELS = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
LINE_END = b"\n"
LIST = b'{"object":"list","data":[{"id":"meta-llama/Llama-3.1-8B-Instruct","object":"model","owned_by":"vllm"}]}'


def page(count: int) -> bytes:
    """A page of vLLM's, whose counters have come to `count`."""
    lines = []
    for name, kind, value in (
        ("num_requests_running", "gauge", 24.0),
        ("num_requests_waiting", "gauge", 3.0),
        ("kv_cache_usage_perc", "gauge", 0.61),
        ("prefix_cache_queries_total", "counter", 400.0 * count),
        ("prefix_cache_hits_total", "counter", 100.0 * count),
        ("prompt_tokens_total", "counter", 400.0 * count),
        ("generation_tokens_total", "counter", 90.0 * count),
        ("num_preemptions_total", "counter", 2.0),
    ):
        lines += [f"# HELP vllm:{name} What it is.", f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{LABELS}}} {value}"]
    for name in HISTOGRAMS:
        lines += [f"# HELP vllm:{name} Histogram of it.", f"# TYPE vllm:{name} histogram"]
        lines += [f'vllm:{name}_bucket{{{LABELS},le="{edge}"}} {float(count)}' for edge in BUCKETS]
        lines += [f"vllm:{name}_count{{{LABELS}}} {float(count)}", f"vllm:{name}_sum{{{LABELS}}} {0.2 * count}"]
    lines += [f'python_gc_objects_collected_total{{generation="{number}"}} 17.0' for number in range(3)]
    return "\n".join([*lines, ""]).encode()


async def _serve(num_ports: int, out: Connection) -> None:
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        head = await reader.readuntil(b"\r\n\r\n")
        count += 1
        body = page(count) if head.startswith(b"GET /metrics ") else LIST
        kind = b"text/plain" if head.startswith(b"GET /metrics ") else b"application/json"
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (kind, len(body))
            + body
        )
        await writer.drain()
        writer.close()

    servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(num_ports)]
    out.send([server.sockets[0].getsockname()[1] for server in servers])
    await asyncio.Event().wait()


def serve(num_ports: int, out: Connection) -> None:
    """The other process."""
    asyncio.run(_serve(num_ports, out))


def bare(ports: list[int], num_looks: int) -> float:
    """Processor time of a GET that is read and thrown away."""
    begin_s = time.process_time()
    for number in range(num_looks):
        connection = http.client.HTTPConnection("127.0.0.1", ports[number % len(ports)], timeout=5)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()
    return (time.process_time() - begin_s) / num_looks


class Turn(NamedTuple):
    """One turn of the watch."""

    look_s: float  # of processor time
    core_share: float
    start_s: float  # of processor time, until the first round
    looks: int
    failed: int
    late: int


def watching(ports: list[int], for_s: float) -> Turn:
    """Watch all of them, a look a second each, without asking for tokens."""
    servers = watched(f"http://127.0.0.1:{port}" for port in ports)
    watch = Watch(servers, WatchOptions(interval_s=1.0, timeout_s=2.0, is_probing=False))
    marks: list[tuple[float, float, int]] = []
    begin_s = time.process_time()

    def mark(found: Round) -> None:
        watch_text(found)
        looks = sum(view.counts.num_scrapes for view in found.views)
        marks.append((time.process_time(), time.monotonic(), looks))

    watch.run(mark, for_s)
    (from_cpu_s, from_s, from_looks), (to_cpu_s, to_s, to_looks) = marks[1], marks[-1]
    counts = [tally.counts for tally in watch.tallies]
    return Turn(
        (to_cpu_s - from_cpu_s) / (to_looks - from_looks),
        (to_cpu_s - from_cpu_s) / (to_s - from_s),
        marks[0][0] - begin_s,
        to_looks - from_looks,
        sum(each.num_scrape_failures for each in counts),
        sum(each.num_late for each in counts),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn of the watch")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(options.servers, theirs), daemon=True)
    process.start()
    try:
        ports = ours.recv()
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(f"{len(ports)} servers, pages of {page(1).count(LINE_END)} lines, {len(page(1)):,} bytes")
        report([(bare(ports, len(ports) * 8), watching(ports, options.seconds)) for _ in range(options.turns)])
    finally:
        process.kill()
        process.join()


def report(rows: list[tuple[float, Turn]]) -> None:
    """Medians, ranges and what went wrong."""
    turns = [turn for _, turn in rows]
    ratios = [turn.look_s / plain for plain, turn in rows]
    for name, values in (("bare", [plain for plain, _ in rows]), ("watch", [turn.look_s for turn in turns])):
        rates = sorted(1 / value for value in values)
        each_ms = median(values) * 1_000
        print(
            f"{name}: {1 / median(values):,.0f} looks a second of processor time ({rates[0]:,.0f} to {rates[-1]:,.0f})",
            end="",
        )
        print(f", {each_ms:.2f} ms each")
    print(f"ratio, watch over bare: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    shares = [turn.core_share for turn in turns]
    print(f"at a look a second and server: {median(shares):.1%} of one core, at most {max(shares):.1%}")
    print(f"start: {median(turn.start_s for turn in turns):.2f} s of processor time")
    totals = (sum(turn.looks for turn in turns), sum(turn.failed for turn in turns), sum(turn.late for turn in turns))
    print("looks {:,}, failed {}, late {}".format(*totals))


if __name__ == "__main__":
    main()
