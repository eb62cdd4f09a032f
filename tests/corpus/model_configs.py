"""Where the shared model configurations lie, and how one is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.models import ModelSpec
from inference_bench.facts.source import Source

SHARED = Path(os.environ.get("INFERENCE_BENCH_SHARED", Path(__file__).parents[2] / ".." / "shared"))
CONFIGS = SHARED / "data" / "model-configs"
MISSING = "the shared model configurations are not beside this checkout"


def config_names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.json") if path.stem != "expected-params")


def expected_params() -> dict[str, dict[str, Any]]:
    path = CONFIGS / "expected-params.json"
    return json.loads(path.read_text(encoding="utf-8"))["models"] if path.is_file() else {}


def read_model(name: str) -> ModelSpec:
    text = (CONFIGS / f"{name}.json").read_text(encoding="utf-8")
    return model_from_config(
        parse_json_object(text, name), name, Source("the shared model configurations", "2026-11-29")
    )


def index_rows() -> dict[str, str]:
    """What each layer keeps, by file name, from the table of INDEX.md."""
    path = CONFIGS / "INDEX.md"
    if not path.is_file():
        return {}
    rows = [line.split(" | ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {row[0].removeprefix("| ").replace("/", "--"): row[2] for row in rows if "/" in row[0]}
