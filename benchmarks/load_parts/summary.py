"""How long does a summary of ten million tokens take, from the run folder on?"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from inference_bench.measure.store import RunFolder, read_records
from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from load_parts.findings import Finding, Plan, at_most

REQUESTS, TOKENS, TARGET_S, MOST_BYTES = 10_000, 1000, 5.0, 10.0


def measure_summary(_plan: Plan) -> list[Finding]:
    """Write a run as a load writes it, read it back, and summarise it."""
    print(f"summary: {REQUESTS:,} requests of {TOKENS:,} tokens in a run folder, read and summarised")
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder), "load")
        with run.open_writer() as writer:
            for record in synthetic_records():
                writer.append(record)
        num_bytes = sum(file.stat().st_size for file in run.path.iterdir())
        begin_s = time.perf_counter()
        stored = read_records(run.path)
        read_s = time.perf_counter() - begin_s
        metrics = summarise(stored.records)
        all_s = time.perf_counter() - begin_s
    if metrics.requests.completed != REQUESTS:
        raise SystemExit("a record was lost")
    per_token = num_bytes / (REQUESTS * TOKENS)
    print(f"  read in {read_s:.2f} s, summarised in {all_s - read_s:.2f} s")
    return [
        at_most("ten million tokens read and summarised", all_s, TARGET_S, "s"),
        at_most("size of the journal", per_token, MOST_BYTES, "bytes a token"),
    ]


def synthetic_records() -> Iterator[RequestRecord]:
    chance = random.Random(7)
    for number in range(REQUESTS):
        at_s = sent_s = number * 0.1
        times_s = []
        for _ in range(TOKENS):
            at_s += 0.01 + chance.random() * 0.001
            times_s.append(at_s)
        yield RequestRecord(
            request_id=f"measure-{number:05d}",
            origin=Origin.MEASURED,
            stage=Stage.MEASURE,
            planned_s=sent_s,
            sent_s=sent_s,
            end_s=at_s,
            status=RequestStatus.COMPLETED,
            chunk_times_s=tuple(times_s),
            output_tokens=TOKENS,
            token_count_source=TokenCountSource.SERVER_USAGE,
        )
