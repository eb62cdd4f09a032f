"""What does a running server say of what it serves?

In:   a Target; its identity and figures, where they were asked for already
Out:  Described: components, each with the answer it was read from
Leaves out: believing it: what it says is beside what the files say, and differs or not (compare)
Read next by: create, run.

What changes from one start to the next without anything having been changed (blocks of the cache, free memory, ports) is left out, so
that the same server has the same digest tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_bench.engines.answers import Asker, Report, inside, text_in, whole_number
from inference_bench.engines.attach import read_report
from inference_bench.engines.base import LLAMA_CPP, EngineFigures, EngineIdentity
from inference_bench.manifest.canonical import plain_value, sha256_of
from inference_bench.manifest.components import ARTIFACT_NAME, SERVED_NAME, Artifact, Component, Group
from inference_bench.manifest.conversation import ids_of_server
from inference_bench.manifest.from_files import Described
from inference_bench.manifest.from_gguf import DEFAULT_TEMPLATE

_MODELS: Final = "/v1/models"
_PROPS: Final = "/props"
_ADAPTERS: Final = "/lora-adapters"
_MOST_LISTED: Final = 256

# figure, group, and what it is called in a manifest
_FIGURES: Final = (
    ("num_params", Group.MODEL, "num_params"),
    ("model_bytes", Group.MODEL, "tensor_bytes"),
    ("n_ctx_train", Group.MODEL, "context_tokens_trained"),
    ("quantization", Group.FORMAT, "weights"),
    ("dtype", Group.FORMAT, "dtype"),
    ("cache_type_k", Group.FORMAT, "cache_keys"),
    ("cache_type_v", Group.FORMAT, "cache_values"),
    ("attention_backend", Group.ENGINE, "attention_backend"),
    ("context_tokens_total", Group.SETTING, "context_tokens_total"),
    ("context_tokens_per_slot", Group.SETTING, "context_tokens_per_slot"),
    ("num_slots", Group.SETTING, "num_slots"),
    ("kv_unified", Group.SETTING, "kv_unified"),
    ("flash_attention", Group.SETTING, "flash_attention"),
    ("max_model_len", Group.SETTING, "max_model_len"),
    ("max_running", Group.SETTING, "max_running"),
    ("token_budget", Group.SETTING, "token_budget"),
    ("micro_batch", Group.SETTING, "micro_batch"),
    ("num_threads", Group.SETTING, "num_threads"),
    ("block_tokens", Group.SETTING, "block_tokens"),
    ("memory_fraction", Group.SETTING, "memory_fraction"),
    ("prefix_cache", Group.SETTING, "prefix_cache"),
    ("speculation", Group.SETTING, "speculation"),
)
# of llama.cpp's default_generation_settings.params: what decides which token comes
_SAMPLING: Final = (
    *(
        "temperature",
        "dynatemp_range",
        "dynatemp_exponent",
        "top_k",
        "top_p",
        "min_p",
        "top_n_sigma",
        "xtc_probability",
    ),
    *("xtc_threshold", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty"),
    *("dry_multiplier", "mirostat", "adaptive_target", "seed", "max_tokens", "samplers", "reasoning_format"),
)


class Said(NamedTuple):
    """What a server says of what it serves, and who it says it is."""

    described: Described
    identity: EngineIdentity


def ask_what_is_served(ask: Asker, report: Report | None = None) -> Said:
    """Everything that a server tells of the model that the target names, or of the first that it lists; and its token ids.

    Where:    report is what was asked already, or is known of a server that was started here
    Raises:   ServerError if it does not even list its models
    """
    target, reported = ask.target, read_report(ask) if report is None else report
    name = reported.identity.model_name if target.model is None else target.model
    identity = replace(reported.identity, model_name=name)
    is_llama_cpp = identity.kind == LLAMA_CPP
    models = inside(ask.json(target.models_path), "data")
    listed = models[:_MOST_LISTED] if isinstance(models, list) else []
    props = ask.json(_PROPS) if is_llama_cpp else None
    adapters, is_all = _loaded_adapters(ask) if is_llama_cpp else (_listed_adapters(listed), False)
    template = inside(props, "chat_template")
    found = (
        *of_engine(identity, reported.figures),
        *_of_list(listed),
        *_of_props(props),
        *{each.key: each for each in adapters}.values(),
        *ids_of_server(ask, name, identity.kind, template if isinstance(template, str) else None),
    )
    if is_llama_cpp:
        why = "llama.cpp loads .gguf files alone"
        found += (Component(Group.MODEL, ARTIFACT_NAME, why, value=Artifact.SERVING_FILE.value),)
    return Said(Described(found, frozenset({Group.ADAPTER} if is_all else ())), identity)


def of_engine(identity: EngineIdentity, figures: EngineFigures) -> Iterator[Component]:
    """The engine, its settings, and the flags it was started with where these are known."""
    build = None if identity.build == identity.version else identity.build
    for name, value in (("name", identity.name), ("version", identity.version), ("build", build)):
        if value is not None:
            yield Component(Group.ENGINE, name, identity.source, value=value)
    if identity.model_name is not None:
        yield Component(Group.MODEL, SERVED_NAME, identity.source, value=identity.model_name)
    for figure, group, name in _FIGURES:
        found = plain_value(getattr(figures, figure))
        if found is not None:
            yield Component(group, name, _read_from(figures, figure), value=found)
    for flag, setting in identity.flags.items():
        if setting is not None:
            yield Component(Group.FLAG, flag, identity.source, value=setting)


def _read_from(figures: EngineFigures, figure: str) -> str:
    """The endpoint that a figure was read from; a line of a log holds more than the figure, and is left out."""
    where = figures.read_from.get(figure, figures.read_from.get("kv_buffers", "the engine"))
    return "the engine's log" if where.startswith("log") else where


def _of_list(listed: list[Any]) -> Iterator[Component]:
    size = whole_number(inside(listed[0], "meta", "n_vocab")) if listed else None
    if size is not None:
        yield Component(Group.MODEL, "vocabulary_size", f"{_MODELS} meta.n_vocab", value=size)


def _of_props(props: Any) -> Iterator[Component]:
    template = inside(props, "chat_template")
    if isinstance(template, str) and template:
        content = template.encode("utf-8", "surrogatepass")
        yield Component(
            Group.CHAT_TEMPLATE, DEFAULT_TEMPLATE, f"{_PROPS} chat_template", sha256_of(content), len(content)
        )
    defaults = inside(props, "default_generation_settings", "params")
    for name in _SAMPLING:
        value = plain_value(inside(defaults, name))
        if value is not None:
            yield Component(Group.SAMPLING, name, f"{_PROPS} default_generation_settings.params.{name}", value=value)
    prompt = inside(props, "system_prompt")
    if isinstance(prompt, str) and prompt:
        yield of_system_prompt(prompt.encode("utf-8", "surrogatepass"), f"{_PROPS} system_prompt")


def of_system_prompt(content: bytes, source: str) -> Component:
    """The hash and the length of a system prompt, and nothing of what it says."""
    return Component(Group.SYSTEM_PROMPT, "text", source, sha256_of(content), len(content))


def _loaded_adapters(ask: Asker) -> tuple[list[Component], bool]:
    """The adapters that llama.cpp has loaded, by the name of their file, and whether these are all of them."""
    answer = ask.json(_ADAPTERS)
    entries = answer[:_MOST_LISTED] if isinstance(answer, list) else []
    return [each for entry in entries for each in _loaded_adapter(entry)], isinstance(answer, list)


def _loaded_adapter(entry: Any) -> Iterator[Component]:
    name = Path(text_in(inside(entry, "path")) or "").name
    scale = inside(entry, "scale")
    is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
    known = plain_value(scale) if is_number else None
    if name:
        yield Component(Group.ADAPTER, name, _ADAPTERS, value=None if known is None else f"scale {known}")


def _listed_adapters(listed: list[Any]) -> list[Component]:
    """The models of a list that name another as the one they change, by their own names."""
    return [
        Component(
            Group.ADAPTER, f"{name}/base_model", f"{_MODELS} parent", value=parent.replace("\\", "/").rpartition("/")[2]
        )
        for entry in listed
        if (name := text_in(inside(entry, "id"))) and (parent := text_in(inside(entry, "parent")))
    ]
