"""Write the tables of docs/efficiency.md from the parameters that ship.

    python scripts/write_efficiency.py [--check]

Each table stands between `<!-- NAME -->` and `<!-- end -->`; everything else of the page is left as it is. Run it after
scripts/fit_efficiency.py. --check writes nothing and exits 1 where the page is not what the parameters say.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_weights
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_model
from inference_bench.predict.efficiency import (
    Calibration,
    Familiarity,
    Phase,
    Setting,
    engine_setting,
    fitted,
    is_served,
)
from inference_bench.predict.efficiency.effects import serving_effects
from inference_bench.predict.efficiency.expectation import term_factor
from inference_bench.predict.efficiency.setting import LLAMA_CPP_FAMILY
from inference_bench.predict.fit import cache_format
from inference_bench.predict.step_cost import ServedModel

PAGE = Path(__file__).parents[1] / "docs/efficiency.md"
MODEL = "llama-3.1-8b"
# one machine for each pool, and the formats that are common on it
POOLS = {
    "nvidia-hbm": ("H100 SXM5 80GB", ("bf16", "fp8", "int4-g128", "q4_k_m")),
    "nvidia-gddr": ("RTX 4090", ("fp16", "int4-g128", "q4_k_m")),
    "nvidia-soc": ("Jetson AGX Orin 64GB", ("fp16", "int4-g128", "q4_k_m")),
    "amd-hbm": ("Instinct MI300X", ("bf16",)),
    "apple": ("Apple M2 Max (30-core GPU)", ("fp16", "q4_k_m")),
    "cpu": ("Ryzen 9 7950X", ("bf16", "q4_k_m")),
}


def settings() -> Iterator[tuple[str, str, Setting]]:
    """An engine, a pool it was measured on, and a model served there, in each format it was measured in anywhere."""
    spec = known_model(MODEL)
    engines = fitted().engines
    for pool, (machine, formats) in POOLS.items():
        for engine in (name for name in engines if fitted().has(f"{name}/{pool}")):
            for name in formats:
                served = ServedModel(spec, count_weights(spec, weight_plan(name)), cache_format(None))
                setting = engine_setting(served, hardware(machine), engine)
                if was_measured(setting, name):
                    yield pool, name, setting


def was_measured(setting: Setting, name: str) -> bool:
    """Whether an engine was measured in formats like this one; GGUF formats are those of llama.cpp's family alone."""
    engine, group = setting.engine, setting.format_group
    is_gguf = name.startswith("q")
    if group != "16bit" and is_gguf != (engine in LLAMA_CPP_FAMILY):
        return False
    kinds = ("bandwidth", "compute-decode", "compute-prefill")
    return any(f"{kind}|engine+format:{engine}/{group}" in fitted().alone.values for kind in kinds)


def factor(setting: Setting, term: str, *, is_decode: bool) -> float:
    """What a term is multiplied by where steps are timed alone."""
    return term_factor(setting, term, False, is_decode, fitted().alone, {})


def efficiencies() -> Iterator[str]:
    """Shares of the peaks, by pool, engine and format."""
    yield "| machines | engine | weights | of the bandwidth, decode | of the peak, prefill | cache reads |"
    yield "|---|---|---|---:|---:|---:|"
    for pool, name, setting in settings():
        shares = [
            1 / factor(setting, term, is_decode=is_decode)
            for term, is_decode in (("weights", True), ("products", False), ("cache", True))
        ]
        yield f"| {pool} | {setting.engine} | {name} | {' | '.join(f'{share * 100:.0f} %' for share in shares)} |"


def overheads() -> Iterator[str]:
    """Fixed times, by pool and engine."""
    yield "| machines | engine | us a layer, decode | ms a step, decode | us a layer, prefill | ms a step, prefill |"
    yield "|---|---|---:|---:|---:|---:|"
    told = set()
    for pool, _, setting in settings():
        if (pool, setting.engine) in told:
            continue
        told.add((pool, setting.engine))
        values = [
            factor(setting, term, is_decode=is_decode) for is_decode in (True, False) for term in ("layers", "step")
        ]
        yield f"| {pool} | {setting.engine} | {' | '.join(f'{value:.3g}' for value in values)} |"


def serving() -> Iterator[str]:
    """What a token and a first token wait for under load, as multiples of a prompt or a step."""
    yield "| engine | prompts in each token | own prompt | burst of each other | first step | wait |"
    yield "|---|---:|---:|---:|---:|---:|"
    spec, (machine, _) = known_model(MODEL), POOLS["nvidia-hbm"]
    served = ServedModel(spec, count_weights(spec, weight_plan("bf16")), cache_format(None))
    for engine in fitted().engines:
        if not is_served(engine, fitted()):
            continue
        setting = engine_setting(served, hardware(machine), engine)
        values = [
            math.exp(fitted().serving.log_factor(serving_effects(setting, term, has_experts=False)))
            for term in ("interference", "own_prompt", "burst", "first_step", "wait")
        ]
        yield f"| {engine} | {' | '.join(f'{value:.3g}' for value in values)} |"


def widths() -> Iterator[str]:
    """Half-widths of the 80 % intervals, as factors."""
    columns = [(familiar, own) for familiar in Familiarity for own in Calibration]
    yield f"| phase | {' | '.join(f'{familiar}, {own}' for familiar, own in columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for phase in Phase:
        cells = [f"×{math.exp(fitted().width(phase.value, familiar, own)):.2f}" for familiar, own in columns]
        yield f"| {phase} | {' | '.join(cells)} |"


def provenance() -> Iterator[str]:
    """Where the parameters come from."""
    known = fitted()
    yield f"{known.source.title}; as of {known.source.as_of}. {len(known.alone.values)} effects of steps timed alone"
    yield f"(memory and compute overlap with p = {known.alone.norm:g}) and {len(known.serving.values)} of servers"
    yield f"(p = {known.serving.norm:g}). Engines: {', '.join(known.engines)}."


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "provenance": provenance,
    "efficiencies": efficiencies,
    "overheads": overheads,
    "serving": serving,
    "widths": widths,
}


def written(page: str) -> str:
    """The page with its tables as the parameters say."""
    for name, lines in TABLES.items():
        block = f"<!-- {name} -->\n{chr(10).join(lines())}\n<!-- end -->"
        page, found = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, block=block: block, page, flags=re.DOTALL)
        if found != 1:
            sys.exit(f"{PAGE.name}: the table {name} stands there {found} times; it must stand there once")
    return page


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page differs")
    options = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = written(before)
    if options.check:
        sys.exit(0 if before == after else f"{PAGE.name} is not what the parameters say; run this without --check")
    PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
