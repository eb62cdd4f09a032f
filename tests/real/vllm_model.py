"""What the tests of a real vLLM share: when they run, and the embedded model as a folder that it serves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference_bench.convert.cached import kept_conversion
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.start import EngineSettings
from inference_bench.engines.vllm import VENV_VARIABLE

ONLY_WHERE_IT_IS = [
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get(VENV_VARIABLE),
        reason=f"{VENV_VARIABLE} names no environment with vLLM; make test-vllm makes one and names it",
    ),
]


SETTINGS = EngineSettings(context_tokens=2048, num_slots=8, dtype="float32")


def model_folder() -> Path:
    """Made once and kept."""
    model = ensure_embedded_model()
    return kept_conversion(model.path, model.sha256, "hf", "float32").path
