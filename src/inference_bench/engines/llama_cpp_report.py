"""What a running llama.cpp server says about itself over HTTP.

In:   the model it lists, and an Asker for its other answers: /props and /slots
Out:  Report: EngineFigures and EngineIdentity
Leaves out: load and timing (measure); buffer sizes, which llama.cpp only logs
Read next by: attach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_bench.engines.answers import (
    Asker,
    Candidate,
    Listed,
    Report,
    inside,
    pick_figures,
    text_in,
    whole_number,
)
from inference_bench.engines.base import EngineIdentity

OWNER: Final = "llamacpp"
_UNNAMED_BUILD: Final = "b0-unknown"  # what llama.cpp prints when it was built outside its repository


def read_llama_cpp(listed: Listed, ask: Asker) -> Report | None:
    """The report of a llama.cpp server; None for another one.

    Source:   llama.cpp tools/server/README.md, GET /props, /slots and /v1/models
    """
    props = ask.json("/props")
    if listed.owner != OWNER and whole_number(inside(props, "total_slots")) is None:
        return None
    slots = ask.json("/slots")
    build = text_in(inside(props, "build_info"))
    build = None if build == _UNNAMED_BUILD else build
    identity = EngineIdentity(
        name="llama.cpp",
        source="reported by the server",
        version=build,
        build=build,
        model_name=listed.name,
        model_path=text_in(inside(props, "model_path")),
    )
    return Report(identity, pick_figures(_candidates(listed, props, slots)))


def _candidates(listed: Listed, props: Any, slots: Any) -> Iterator[Candidate]:
    meta = inside(listed.entry, "meta")
    defaults = inside(props, "default_generation_settings")
    for name, key in (("num_params", "n_params"), ("model_bytes", "size"), ("n_ctx_train", "n_ctx_train")):
        yield Candidate(name, whole_number(inside(meta, key)), f"/v1/models meta.{key}")
    yield Candidate("num_slots", whole_number(inside(props, "total_slots")), "/props total_slots")
    yield Candidate("num_slots", len(slots) or None if isinstance(slots, list) else None, "/slots")
    where = "/props default_generation_settings"
    yield Candidate("context_tokens_per_slot", whole_number(inside(defaults, "n_ctx")), f"{where}.n_ctx")
    yield Candidate("quantization", text_in(inside(props, "model_ftype")), "/props model_ftype")
    kinds = text_in(inside(defaults, "params", "speculative.types"))
    yield Candidate("speculation", kinds, f"{where}.params.speculative.types")
