"""Every model of the shared configs is known by name, counted as expected, and built as its whole config says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from corpus.model_configs import CONFIGS, MISSING, config_names, expected_params, read_model
from corpus.test_params_corpus import EXCEPTIONS
from inference_bench.accounting.params import count_params
from inference_bench.facts.load import known_loaded_model, known_models

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CONFIGS.is_dir(), reason=MISSING)]


@pytest.mark.parametrize("stem", expected_params())
def test_a_model_found_by_its_id_counts_as_expected(stem: str) -> None:
    model = known_loaded_model(stem.replace("--", "/")).spec
    params, wanted, difference = count_params(model), expected_params()[stem], EXCEPTIONS.get(stem, 0)
    assert params.total == wanted["total"] + difference
    assert params.active == wanted["active_per_token"] + difference
    assert model.tie_word_embeddings == wanted["tied_embeddings"]


@pytest.mark.parametrize("stem", config_names())
def test_the_fields_kept_of_a_config_say_all_that_is_counted(stem: str) -> None:
    known = known_loaded_model(stem.replace("--", "/"))
    built = read_model(stem)
    assert replace(known.spec, assumptions=()) == replace(
        built, name=known.spec.name, source=known.spec.source, assumptions=()
    )
    whole = json.loads((CONFIGS / f"{stem}.json").read_text(encoding="utf-8"))
    assert known.config is not None
    assert known.config.get("quantization_config") == whole.get("quantization_config")


def test_every_shared_config_has_a_row() -> None:
    assert len(config_names()) == 66
    names = {known_loaded_model(stem.replace("--", "/")).spec.name for stem in config_names()}
    assert names <= {model.name for model in known_models()}
