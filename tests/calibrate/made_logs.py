"""Logs of a server whose constants are known: our own simulator's."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.presets import memory_of_blocks, vllm_settings
from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_sources import Shares, step_time_of
from inference_bench.workload import ClippedLognormal, Poisson, UniformLengths, generate

BLOCKS = 4_000
META: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "vllm_version": "0.19.0",
    "engine_kwargs": {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "tensor_parallel_size": 1,
        "kv_cache_dtype": "auto",
    },
}


def made_rows(
    served: ServedModel,
    machine: HardwareSpec,
    shares: Shares,
    rate: float,
    count: int = 200,
    blocks: int = BLOCKS,
    devices: int = 1,
) -> list[dict[str, Any]]:
    """What a server at these shares would have logged; its clock starts anywhere."""
    workload = generate(Poisson(rate), UniformLengths(200, 3_000), ClippedLognormal(300, 0.8, 2, 1_500), count, 7)
    memory = memory_of_blocks(served.model, served.cache_format, blocks - 1, devices=devices)
    setup = ServerSetup(vllm_settings(64, 2_048), memory)
    outcome = simulate(workload, setup, step_time_of(served, machine, shares, devices))
    began = 479_748.25
    return [
        {
            "request_id": f"bench-{index}",
            "input_toks": workload.requests.prompt_tokens[index],
            "output_toks": workload.requests.output_tokens[index],
            "arrival_time": 1.7e9 + came,
            "queued_ts": began + came,
            "scheduled_ts": began + came,
            "first_token_ts": began + first,
            "last_token_ts": began + last,
        }
        for index, (came, first, last) in enumerate(
            zip(outcome.arrival_s, outcome.first_token_s, outcome.last_token_s, strict=True)
        )
    ]


def write_log(folder: Path, rows: list[dict[str, Any]], meta: Mapping[str, Any] | None = META) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(rows)
    random.Random(3).shuffle(rows)  # a log is not in order
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder
