"""What a running SGLang server says about itself over HTTP.

In:   the model it lists, and an Asker for its other answers: /server_info and /model_info (/get_... before 2026)
Out:  Report: EngineFigures and EngineIdentity
Leaves out: everything else that its server info holds, which is all it was started with, keys included
Read next by: attach.

Not run here: SGLang needs a GPU, or a CPU with AMX. The names of its fields are those of its public documentation and source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_bench.engines.answers import (
    Asker,
    Candidate,
    Listed,
    Report,
    fraction_in,
    inside,
    pick_figures,
    text_in,
    whole_number,
)
from inference_bench.engines.base import EngineIdentity, FlagValue

OWNER: Final = "sglang"
_SERVER_INFO: Final = ("/server_info", "/get_server_info")
_MODEL_INFO: Final = ("/model_info", "/get_model_info")

# field of the server info, our field, and how its value is read; the first that is known of ours is taken
_FIELDS: Final = (
    ("max_total_num_tokens", "kv_tokens", whole_number),
    ("page_size", "block_tokens", whole_number),
    ("mem_fraction_static", "memory_fraction", fraction_in),
    ("chunked_prefill_size", "token_budget", whole_number),
    ("max_running_requests", "max_running", whole_number),
    ("context_length", "max_model_len", whole_number),
    ("kv_cache_dtype", "cache_dtype", text_in),
    ("dtype", "dtype", text_in),
    ("quantization", "quantization", text_in),
    ("attention_backend", "attention_backend", text_in),
)
_FLAGS: Final = (
    "tp_size",
    "dp_size",
    "pp_size",
    "schedule_policy",
    "schedule_conservativeness",
    "max_prefill_tokens",
    "enable_mixed_chunk",
    "disable_overlap_schedule",
    "disable_cuda_graph",
)


def read_sglang(listed: Listed, ask: Asker) -> Report | None:
    """The report of an SGLang server; None for another one.

    Source:   SGLang 0.5 python/sglang/srt/entrypoints/http_server.py (server info, model info), srt/server_args.py and
              srt/managers/scheduler.py (max_total_num_tokens, internal states); its documentation, "SGLang Native APIs"
    """
    where, info = ask.first_json(*_SERVER_INFO)
    if listed.owner != OWNER and "internal_states" not in (info or {}) and "mem_fraction_static" not in (info or {}):
        return None
    _, model = ask.first_json(*_MODEL_INFO)
    version = text_in(inside(info, "version"))
    identity = EngineIdentity(
        name="sglang",
        source="reported by the server",
        version=version,
        build=version,
        model_name=listed.name,
        model_path=text_in(inside(model, "model_path")) or text_in(inside(info, "model_path")),
        flags=dict(_flags(info)),
    )
    return Report(identity, pick_figures(_candidates(listed, info, where)))


def _flags(info: Any) -> Iterator[tuple[str, FlagValue]]:
    for name in _FLAGS:
        value = inside(info, name)
        if isinstance(value, bool | int):
            yield name, value
        elif isinstance(value, str | float):
            yield name, text_in(str(value))


def _candidates(listed: Listed, info: Any, where: str) -> Iterator[Candidate]:
    states = inside(info, "internal_states")
    state = states[0] if isinstance(states, list) and states else None
    effective = whole_number(inside(state, "effective_max_running_requests_per_dp"))
    yield Candidate("max_running", effective, f"{where} internal_states[0].effective_max_running_requests_per_dp")
    capacity = whole_number(inside(state, "memory_usage", "token_capacity"))
    for key, name, read in _FIELDS:
        yield Candidate(name, read(inside(info, key)), f"{where} {key}")
    yield Candidate("kv_tokens", capacity, f"{where} internal_states[0].memory_usage.token_capacity")
    yield from listed.limits()
    disabled = inside(info, "disable_radix_cache")
    yield Candidate(
        "prefix_cache", not disabled if isinstance(disabled, bool) else None, f"{where} disable_radix_cache"
    )
    if isinstance(info, dict) and "speculative_algorithm" in info:
        method = text_in(info["speculative_algorithm"]) or "none"
        yield Candidate("speculation", method, f"{where} speculative_algorithm")
