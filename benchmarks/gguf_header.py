"""How long a GGUF header takes to read: this package against the `gguf` package, on one file in one run.

Method:   a file is written with gguf.GGUFWriter: a vocabulary of 150,000 token strings (4 to 16 bytes), as many scores
          and token types, and 100 tensors of one small size. Both readers then open it, in turns, each with a warm file
          cache; the median and the spread of each, and the ratio of the medians, are printed.
          Before timing, both must agree on the tensor table and on the number of tokens, or nothing is printed.
Ignores:  a cold disk; and that GGUFReader also builds an array view of every string, which is more than a header needs.
          The ratio says what counting a model's bytes costs with each, not that one does the other's work faster.
Run:      python benchmarks/gguf_header.py [number of tokens]
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from inference_bench.facts.gguf import GGUFArray, GGUFHeader, read_gguf_header
from inference_bench.units import format_number, format_seconds

DEFAULT_TOKENS = 150_000
NUM_TENSORS = 100
NUM_TURNS = 3
OURS_PER_TURN = 5  # ours is short, so it is repeated to make its median steady


def write_model(path: Path, num_tokens: int) -> None:
    rng = random.Random(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(NUM_TENSORS)
    writer.add_token_list([f"{index:x}".ljust(rng.randint(4, 16), "x") for index in range(num_tokens)])
    writer.add_token_scores([0.0] * num_tokens)
    writer.add_token_types([1] * num_tokens)
    for index in range(NUM_TENSORS):
        writer.add_tensor(f"blk.{index}.attn_q.weight", np.zeros((8, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def time_call(function: Callable[[Path], Any], path: Path) -> float:
    started = time.perf_counter()
    function(path)
    return time.perf_counter() - started


def check_agreement(header: GGUFHeader, reader: gguf.GGUFReader) -> None:
    ours = [(t.name, t.shape, t.ggml_type, header.data_offset + t.offset) for t in header.tensors]
    theirs = [(t.name, tuple(t.shape.tolist()), int(t.tensor_type), t.data_offset) for t in reader.tensors]
    tokens = header.metadata["tokenizer.ggml.tokens"]
    if ours != theirs or tokens != GGUFArray("string", len(reader.fields["tokenizer.ggml.tokens"].data), None):
        raise SystemExit("the two readers disagree about the file; nothing was timed")


def describe(name: str, samples_s: list[float]) -> str:
    median, low, high = statistics.median(samples_s), min(samples_s), max(samples_s)
    spread = f"{format_seconds(low)} to {format_seconds(high)}"
    return f"{name:18} median {format_seconds(median)}  ({spread}, {len(samples_s)} reads)"


def main(num_tokens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.gguf"
        write_model(path, num_tokens)
        check_agreement(read_gguf_header(path), gguf.GGUFReader(path))
        ours_s: list[float] = []
        theirs_s: list[float] = []
        for _ in range(NUM_TURNS):
            ours_s += [time_call(read_gguf_header, path) for _ in range(OURS_PER_TURN)]
            theirs_s.append(time_call(gguf.GGUFReader, path))
        print(f"{num_tokens} tokens, {NUM_TENSORS} tensors, {path.stat().st_size} bytes")
    print(describe("read_gguf_header", ours_s))
    print(describe("gguf.GGUFReader", theirs_s))
    print(f"ratio of medians   {format_number(statistics.median(theirs_s) / statistics.median(ours_s))}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_TOKENS)
