"""Models as they are served, for tests of step times."""

from __future__ import annotations

from inference_bench.facts.load import known_loaded_model
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.step_cost import ServedModel


def served_model(name: str, weights: str | None = None) -> ServedModel:
    model = known_loaded_model(name)
    return ServedModel(model.spec, loaded_weights(model, weights), cache_format(None))
