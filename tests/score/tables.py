"""Small tables of measurements, written by hand."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from inference_bench.score.query import Case, case
from inference_bench.score.rows import read_rows

PLAIN = {
    "source": "by hand",
    "date": "2026-01",
    "model": "Llama-3.1-8B",
    "params": "8.03",
    "weight_format": "BF16",
    "kv_format": "",
    "hardware": "H100 SXM",
    "n_devices": "1",
    "parallelism": "",
    "engine": "vLLM",
    "engine_version": "0.10.1",
    "phase": "decode",
    "batch_or_concurrency": "1",
    "input_len": "1024",
    "output_len": "0",
    "metric": "tpot_ms",
    "value": "7",
    "unit": "ms",
    "notes": "",
}
SERVING = {"notes": "batch column = concurrency", "output_len": "128", "batch_or_concurrency": "8"}
PROMPTS = {"phase": "prefill", "metric": "ttft_ms", "value": "40"}
WHOLE = {"phase": "e2e", "metric": "e2e_latency_s", "unit": "s", "output_len": "128", "value": "1.2"}


def write_table(path: Path, *rows: dict[str, str], columns: Sequence[str] = tuple(PLAIN)) -> Path:
    """A table of these rows, each the plain one with something else in it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**PLAIN, **row} for row in rows)
    return path


def cases_of(folder: Path, *rows: dict[str, str]) -> list[Case]:
    return [case(row) for row in read_rows(write_table(folder / "by_hand.csv", *rows))]


def the_case(folder: Path, **row: str) -> Case:
    (found,) = cases_of(folder, row)
    return found
