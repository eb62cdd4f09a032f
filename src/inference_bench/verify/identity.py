"""The identity of a verification: what was served, and whether that stays so while it is measured.

In:   a Target; the model and its weights; the engine's figures
Out:  ModelIdentity, a Watch over what is served, the cache format
Leaves out: everything measured; every component by hash (manifest)
Read next by: flow.
"""

from __future__ import annotations

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import WeightCount
from inference_bench.engines.attach import attach
from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.errors import MeasurementError, UnknownNameError
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import LoadedModel
from inference_bench.measure.target import Target
from inference_bench.verify.result import ModelIdentity


class Watch:
    """Whether a server goes on serving what it served when it was first asked.

    Raises:  ServerError where it does not answer
    """

    def __init__(self, target: Target) -> None:
        self._server = attach(target.base_url, api_key=target.api_key)
        self._target = target

    def check(self) -> None:
        """Ask again.

        Raises:  MeasurementError where the model is another one now, ServerError where nothing answers
        """
        then, now = self._server, attach(self._target.base_url, api_key=self._target.api_key)
        was, became = _said(then.identity, then.figures), _said(now.identity, now.figures)
        if was != became:
            raise MeasurementError(
                f"the server changed what it serves during the run: {was} before, {became} now; measure again while nobody "
                "changes it"
            )


def _said(identity: EngineIdentity, figures: EngineFigures) -> str:
    """What a server says it serves, in words."""
    params = "" if figures.num_params is None else f" of {figures.num_params:,} parameters"
    version = "" if identity.version is None else f" {identity.version}"
    return f"{identity.model_name!r}{params} on {identity.name or 'an unknown engine'}{version}"


def identify_model(model: LoadedModel, weights: WeightCount, sha256: str | None) -> ModelIdentity:
    """What is served: shape, weights, and the file when there is one here."""
    return ModelIdentity(
        spec=model.spec,
        params=count_params(model.spec),
        weights=weights,
        file_name=model.path.name if model.path else None,
        file_bytes=model.path.stat().st_size if model.path else None,
        sha256=sha256,
    )


def engine_cache_format(figures: EngineFigures) -> CacheFormat | None:
    """The cache format the engine says it uses; None when it does not say or it is not one we know."""
    if figures.cache_type_k is None or figures.cache_type_v is None:
        return None
    try:
        return CacheFormat(number_format(figures.cache_type_k), number_format(figures.cache_type_v))
    except UnknownNameError:
        return None
