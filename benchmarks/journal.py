"""Ten million tokens on disk: what they take to write, to read and to summarise, in CPU seconds of one core.

Method: REQUESTS requests of TOKENS tokens about 10 ms apart, WAVE at a time, written as a load run writes them (what is in flight
every 0.4 s of their own time), then read and summarised. CPU time of this process, which a busy machine hardly changes.
Targets: at most 10 bytes a token; read and summarised in at most 5 s.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from inference_bench.measure.journal import USUAL, Journal
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.metrics import summarise
from inference_bench.records import RequestRecord
from inference_bench.units import MEGA

REQUESTS, TOKENS, WAVE, AT_ONCE = 40_000, 250, 50, 40


def paced(number: int, rng: random.Random) -> RequestRecord:
    sent_s = number // WAVE * 2.7 + number % WAVE * 1e-3 + 1e-4
    times_s = [sent_s + 0.05]
    while len(times_s) < TOKENS:
        times_s.append(times_s[-1] + 0.01 + rng.random() * 1e-4)
    return replace(
        USUAL,
        request_id=f"measure-c{WAVE}-{number:05d}",
        group=f"c{WAVE}",
        index=number,
        planned_s=sent_s - 1e-4,
        sent_s=sent_s,
        first_byte_s=times_s[0] - 1e-5,
        end_s=times_s[-1] + 1e-4,
        chunk_times_s=tuple(times_s),
        prompt_tokens=128,
        output_tokens=TOKENS,
        requested_output_tokens=TOKENS,
    )


async def write(journal: Journal, waves: list[list[RequestRecord]]) -> None:
    for wave in waves:
        for r in wave:
            journal.started(r.request_id, r.planned_s, r.sent_s, group=r.group, index=r.index)
        for at in range(0, TOKENS, AT_ONCE):
            for r in wave:
                journal.chunks(r.request_id, r.chunk_times_s[at : at + AT_ONCE])
            journal.flush()
        for r in wave:
            journal.append(r)


def main() -> None:
    rng = random.Random(1)
    write_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder), "journal")
        with run.open_writer() as journal:
            for first in range(0, REQUESTS, WAVE):
                wave = [paced(number, rng) for number in range(first, first + WAVE)]
                begin_s = time.process_time()
                asyncio.run(write(journal, [wave]))
                write_s += time.process_time() - begin_s
        num_bytes = (run.path / "requests.journal").stat().st_size
        begin_s = time.process_time()
        records = read_records(run.path).records
        read_s = time.process_time() - begin_s
    begin_s = time.process_time()
    metrics = summarise(records)
    summary_s = time.process_time() - begin_s
    num_tokens = REQUESTS * TOKENS
    print(
        f"{num_tokens:,} tokens: {num_bytes / num_tokens:.2f} bytes and {write_s / num_tokens * MEGA:.2f} µs a token to write"
    )
    print(f"read in {read_s:.2f} s, summarised in {summary_s:.2f} s (target: 5 s together)")
    print(
        f"ITL p99 {metrics.itl_s.p99 if metrics.itl_s else None} s of {metrics.itl_s.count if metrics.itl_s else 0:,} gaps"
    )


if __name__ == "__main__":
    main()
