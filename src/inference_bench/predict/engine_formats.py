"""What an engine can store: the smaller formats worth trying in place of those that were asked for.

In:   an engine family, None for no engine
Out:  names of weight formats and of cache formats, the one with the most bits first
Leaves out: what rounding costs in quality; versions of an engine
Read next by: plan, remedies.
"""

from __future__ import annotations

from typing import Final

_LLAMA_CPP: Final = ("llama.cpp", "ik_llama.cpp")
_SERVERS: Final = ("vllm", "sglang", "tensorrt-llm")


def smaller_weights(family: str | None) -> tuple[str, ...]:
    """Weight formats that an engine runs.

    >>> smaller_weights("llama.cpp"), smaller_weights("vllm")
    (('q8_0', 'q6_k', 'q5_k_m', 'q4_k_m'), ('fp8', 'awq'))
    """
    if family in _LLAMA_CPP:
        return ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
    return ("fp8", "awq") if family in _SERVERS else ("fp8", "int8", "int4-g128")


def smaller_caches(family: str | None) -> tuple[str, ...]:
    """Cache formats below 16 bits that an engine takes; without an engine those that any of them does.

    >>> smaller_caches("llama.cpp"), smaller_caches("sglang"), smaller_caches("exllamav2"), smaller_caches(None)
    (('q8_0', 'q4_0'), ('fp8',), ('int8', 'fp8'), ('int8', 'q8_0', 'q4_0'))
    """
    if family is None:
        return ("int8", "q8_0", "q4_0")
    if family in _LLAMA_CPP:
        return ("q8_0", "q4_0")
    return ("fp8",) if family in _SERVERS else ("int8", "fp8")
