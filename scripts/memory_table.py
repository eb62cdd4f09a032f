"""The table of docs/closed-loop.md on memory: what was counted beside what the engines say.

    python scripts/memory_table.py MODEL.gguf
    python scripts/memory_table.py MODEL.gguf --vllm FOLDER     the same model as Transformers writes it

Prints Markdown, after starting each engine with each setting: seconds for llama.cpp, most of a minute for each of vLLM's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from inference_bench.facts.load import load_model
from inference_bench.units import format_count
from inference_bench.verify.closed_loop import MemoryRow
from inference_bench.verify.memory_table import LLAMA_CPP_CASES, VLLM_CASES, MemoryTable, memory_table


def main() -> int:
    """Start, ask, print; 1 where a figure differs."""
    parser = argparse.ArgumentParser(description="what was counted of a cache, beside what the engines say")
    parser.add_argument("gguf", type=Path, help="the model for llama.cpp")
    parser.add_argument("--vllm", type=Path, help="the same model as a folder, for vLLM")
    parser.add_argument("--only", choices=("llama.cpp", "vllm"), help="one of the engines")
    asked = parser.parse_args()
    models = {"llama.cpp": asked.gguf} | ({"vllm": asked.vllm} if asked.vllm else {})
    cases = [case for case in (*LLAMA_CPP_CASES, *VLLM_CASES) if case.engine in models]
    if asked.only:
        cases = [case for case in cases if case.engine == asked.only]
    with tempfile.TemporaryDirectory() as logs:
        model = load_model(str(asked.gguf)).spec
        table = memory_table(cases, models, model, Path(logs), lambda text: print(text, file=sys.stderr))
    print("\n".join(_lines(table)))
    return 0 if table.agrees else 1


def _lines(table: MemoryTable) -> list[str]:
    lines = ["| engine | setting | what | counted | the engine says | difference |", "|---|---|---|---:|---:|---:|"]
    lines += [_line(row) for row in table.rows]
    lines += [f"\n{refusal.case.engine}, {refusal.case.setting}: refused. {refusal.words}" for refusal in table.refused]
    rules: dict[str, list[str]] = {}
    for row in table.rows:
        settings = rules.setdefault(row.rule, [])
        if row.setting not in settings:
            settings.append(row.setting)
    return [*lines, "", *(f"- {rule} ({'; '.join(settings)})" for rule, settings in rules.items())]


def _line(row: MemoryRow) -> str:
    cells = (
        row.engine,
        row.setting,
        f"{row.what}, {row.unit}",
        format_count(row.predicted),
        row.reported,
        format_count(row.difference),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
