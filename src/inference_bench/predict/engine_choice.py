"""Which engine a person named: whose rule lays the cache out, and whose measured efficiencies the speeds are from.

In:   a name as people write it
Out:  EngineChoice
Read next by: fit, scenario.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.predict.placement import ENGINES

NO_ENGINE = "none"
_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine as the two models know it.

    Where:  allocation is the engine whose rule counts the cache, "none" where none is known; family is the one whose
            efficiencies were fitted, None for no engine
    """

    allocation: str
    family: str | None


def choose_engine(name: str) -> EngineChoice:
    """The engine of that name.

    Raises:  RequestError with the names that are known

    >>> choose_engine("vllm"), choose_engine("TensorRT-LLM").allocation, choose_engine("none").family
    (EngineChoice(allocation='vllm', family='vllm'), 'none', None)
    """
    if name == NO_ENGINE:
        return EngineChoice(NO_ENGINE, None)
    if name in ENGINES:
        return EngineChoice(name, name)
    from inference_bench.predict.efficiency.setting import engine_family, known_families

    family = engine_family(name)
    if family not in known_families():
        others = ", ".join(other for other in known_families() if other not in ENGINES)
        raise RequestError(f"engine {name[:40]!r} is not known; known: {', '.join(ENGINES)}; for speeds alone {others}")
    return EngineChoice(family if family in ENGINES else NO_ENGINE, family)


def engine_title(name: str) -> str:
    """An engine's name as its makers write it.

    >>> engine_title("vllm"), engine_title("llama.cpp")
    ('vLLM', 'llama.cpp')
    """
    return _TITLES.get(name, name)


def no_rule(family: str) -> str:
    """What is said of an engine that only speeds are known of."""
    return f"how {family} lays its cache out is not known here: the cache is the logical count"
