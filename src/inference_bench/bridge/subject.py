"""Which model, on which machine? The fields that every view but the article begins with.

In:   Values
Out:  LoadedModel, HardwareSpec, and the files that the same command line would need beside it
Leaves out: what is asked of them
Read next by: the views.

A dropped file wins over a pasted config.json, and that over a name. Files are read where they lie: the page hands over
paths of files whose bytes are fetched when they are read, so only the header of a model file is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from inference_bench.accounting.weights import WeightCount
from inference_bench.bridge.fields import Field, FieldError, Group, Values, at, memory_bytes
from inference_bench.errors import RequestError
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.hardware import KNOWN_PEAKS, HardwareSpec, hardware, hardware_from_description
from inference_bench.facts.load import known_hub_id, known_loaded_model, load_model
from inference_bench.facts.model_files import model_of_config, servable_path
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.units import parse_rate

DEFAULT_MODEL: Final = "Qwen3-8B"
DEFAULT_MACHINE: Final = "B200"
OWN_MACHINE: Final = "own"
PASTED: Final = "config.json"
MACHINE_FILE: Final = "machine.toml"
_MOST_NUMBER_CHARS: Final = 60

MODEL_GROUP: Final = Group(
    "Model",
    (
        Field("model", "Model", DEFAULT_MODEL, "a name or a Hugging Face id from the list", listed="models"),
        Field("weights", "Weights", "", "bf16, fp8, q4_k_m; empty: its own", "--weights", listed="weight-formats"),
        Field("kv", "Cache", "", "fp16, fp8, q8_0, or q8_0/fp16", "--kv", listed="cache-formats"),
    ),
)
OWN_MODEL_GROUP: Final = Group(
    "Your own model",
    (Field("config", "its config.json", hint="paste the whole file", is_text_area=True),),
    is_folded=True,
)
_OWN: Final = f"on={OWN_MACHINE}"
MACHINE_GROUP: Final = Group(
    "Machine",
    (
        Field("on", "Machine", DEFAULT_MACHINE, "a name from the list, or own for your own numbers", listed="machines"),
        Field("devices", "How many", "1", "that share the model", "--devices", "1"),
        Field("memory", "Memory", "24GB", "such as 24GB or 24GiB", when=_OWN),
        Field("bandwidth", "Bandwidth", "1.8TB/s", "such as 1.8TB/s", when=_OWN),
        Field("peak", "Dense compute", "165 TFLOP/s", "such as 165 TFLOP/s", when=_OWN),
        Field("peak_format", "of format", "bf16", options=tuple((name, name) for name in KNOWN_PEAKS), when=_OWN),
        Field("interconnect", "Interconnect", "", "such as 900GB/s, both directions", when=_OWN),
    ),
)
COMPUTE_FIELD: Final = Field(
    "compute",
    "Compute at the peak of",
    "fp8",
    "where the machine has it; empty: what the weights allow",
    "--compute",
    listed="peaks",
    is_example=True,
)


def model_of(values: Values) -> LoadedModel:
    """The model that was dropped, pasted or named.

    Raises:  FieldError
    """
    if values.file is not None:
        return _dropped_model(values.file)
    pasted = values.text("config")
    if pasted:
        with at("config"):
            return _pasted_model(pasted)
    name = values.text("model")
    if not name:
        raise FieldError("model", "name a model, paste its config.json, or drop a GGUF or safetensors file")
    with at("model"):
        return _known(name)


def _dropped_model(path: str) -> LoadedModel:
    """The model in a file, whose name is said without the place where this program keeps it."""
    try:
        return load_model(path)
    except RequestError as error:
        raise FieldError("file", str(error).replace(f"{Path(path).parent}/", "")) from None


@lru_cache(maxsize=8)
def _known(name: str) -> LoadedModel:
    return known_loaded_model(name)


@lru_cache(maxsize=2)
def _pasted_model(text: str) -> LoadedModel:
    """The model as if it had been read from a file of that name."""
    return model_of_config(parse_json_object(text, PASTED), Path(PASTED).stem, Source(PASTED, "read now"))


def machine_of(values: Values) -> HardwareSpec | None:
    """The machine that was named or described; None where none was.

    Raises:  FieldError
    """
    name = values.text("on")
    if not name:
        return None
    if name == OWN_MACHINE:
        return _own_machine(values)
    with at("on"):
        return hardware(name)


def _own_machine(values: Values) -> HardwareSpec:
    for name, unit in (("memory", "B"), ("bandwidth", "B/s"), ("peak", "FLOP/s"), ("interconnect", "B/s")):
        text = values.text(name)
        if not text and name in {"memory", "bandwidth"}:
            raise FieldError(name, f"the {name} is empty; give it with a unit")
        if len(text) > _MOST_NUMBER_CHARS:
            raise FieldError(
                name, f"the {name} is longer than any number; such as 24GB, 1.8TB/s or 165 TFLOP/s is needed"
            )
        with at(name):
            if text:
                memory_bytes(text, name) if unit == "B" else parse_rate(text, unit, name)
    with at("on"):
        return hardware_from_description(_description(values), MACHINE_FILE)


def compute_format_of(values: Values, machine: HardwareSpec | None) -> str | None:
    """The format whose peak is used: the one asked for where the machine has it, None for what the weights allow.

    Raises:  FieldError for one that no machine has
    """
    name = values.text("compute")
    if name and name not in KNOWN_PEAKS:
        raise FieldError("compute", f"{name[:40]!r} is no peak known here; known: {', '.join(KNOWN_PEAKS)}")
    return name if machine is not None and name in machine.peak_flops_per_s else None


def has_own_peak(values: Values, machine: HardwareSpec | None) -> bool:
    """Whether the machine has the peak that was asked for."""
    return machine is not None and values.text("compute") in machine.peak_flops_per_s


def compute_note(values: Values, machine: HardwareSpec | None, weights: WeightCount) -> tuple[str, ...]:
    """What to know of the peak that was asked for: that the machine lacks it, or that the weights would take another."""
    name = values.text("compute")
    if machine is None or not name:
        return ()
    own = machine.compute_format(weights.linear_format)
    if not has_own_peak(values, machine):
        return (f"{machine.name} has no {name} peak known here: the one that the weights allow is used",)
    if own is not None and own != name:
        return (f"the {name} peak was asked for; {weights.format_name} weights alone would compute at {own}",)
    return ()


def _description(values: Values) -> dict[str, Any]:
    described: dict[str, Any] = {"name": "your own machine"}
    described |= {name: values.text(name) for name in ("memory", "bandwidth", "interconnect") if values.text(name)}
    if values.text("peak"):
        described["peak"] = {values.choice("peak_format"): values.text("peak")}
    return described


def files_of(values: Values) -> dict[str, str]:
    """The files that the equivalent command line names: their texts by their names."""
    files = {}
    if values.file is None and values.text("config"):
        files[PASTED] = values.text("config")
    if "on" in values.texts and values.text("on") == OWN_MACHINE:
        files[MACHINE_FILE] = _toml(_description(values))
    return files


def _toml(described: Mapping[str, Any]) -> str:
    lines = [f"{name} = {_quoted(text)}" for name, text in described.items() if isinstance(text, str)]
    peaks = described.get("peak", {})
    return "\n".join([*lines, *(f"peak.{name} = {_quoted(text)}" for name, text in peaks.items())]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def model_argument(values: Values) -> str:
    """What the command line would call the model."""
    if values.file is not None:
        return Path(values.file).name
    return PASTED if values.text("config") else values.text("model")


def served_as(values: Values) -> str | None:
    """What an engine would look the model up by; None for a name without a published id."""
    if values.file is not None or values.text("config"):
        return servable_path(model_argument(values))
    return known_hub_id(values.text("model"))


def machine_argument(values: Values) -> str | None:
    """What the command line would call the machine; None without one."""
    name = values.optional("on")
    return MACHINE_FILE if name == OWN_MACHINE else name
