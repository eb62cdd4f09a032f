"""The cache that the embedded engine sets aside for the real model, against our count of it, under several settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.facts.load import load_model
from inference_bench.verify.memory_table import LLAMA_CPP_CASES, memory_table

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")


def test_the_embedded_engine_sets_aside_what_was_counted_under_every_setting(tmp_path: Path) -> None:
    path = ensure_embedded_model().path
    table = memory_table(LLAMA_CPP_CASES, {"llama.cpp": path}, load_model(str(path)).spec, tmp_path)
    assert [(row.setting, row.what, row.difference) for row in table.rows if row.difference != 0] == []
    assert len(table.rows) == 3 * (len(LLAMA_CPP_CASES) - 1)
    (refusal,) = table.refused
    assert "without flash attention" in refusal.case.setting
    assert "quantized V cache requires flash_attn" in refusal.words
    # 4,100 tokens on 4 slots: 1,025 each, in 1,280 cells of 23,040 bytes
    padded = next(row for row in table.rows if row.setting == "4 slots of 1,025 tokens, f16" and row.unit == "bytes")
    assert (padded.predicted, padded.reported) == (117_964_800, "112.50 MiB")
    assert padded.rule.endswith("1,020 cells more than the 4,100 tokens asked for")
