"""What a config says about quantised weights: which modules are stored in which format.

In:   the parsed object of a config.json (or of a hf_quant_config.json)
Out:  Quantization: rules from module names to formats, and the modules left alone
Leaves out: which modules a model has (see accounting/weight_plan.py); activations and the cache, which are not weights
Read next by: accounting.weight_plan.

Modules are named as in Hugging Face Transformers: "model.layers.3.mlp.down_proj", "lm_head". A method that is not known
is an error that names it: a quantised model is never taken for a 16-bit one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.module_patterns import ModulePatterns

_SETTINGS: Final = ("quantization_config", "compression_config", "quantization")


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which modules of a model are stored in which format.

    Where:  rules hold a format and the modules it is for, None being every linear layer; kept are the modules left in
            the plain format, which win; a rule for all linear layers covers the output head only where converts_head
            says so, and never routers
    """

    method: str
    rules: tuple[tuple[NumberFormat, ModulePatterns | None], ...]
    kept: ModulePatterns
    converts_head: bool = False
    converts_embedding: bool = False
    notes: tuple[str, ...] = ()

    def format_of(self, module: str) -> NumberFormat | None:
        """The format of a linear layer's matrix, None for one that was left alone.

        >>> kept = ModulePatterns(["lm_head", "model.layers.0.self_attn*"], "kept")
        >>> fp8 = Quantization("fp8", ((number_format("fp8-b128"), None),), kept)
        >>> fp8.format_of("model.layers.0.self_attn.q_proj"), fp8.format_of("model.layers.1.mlp.up_proj").name
        (None, 'fp8-b128')
        """
        if module in self.kept:
            return None
        for number_format_, targets in self.rules:
            if targets is not None and module in targets:
                return number_format_
        everywhere = next((fmt for fmt, targets in self.rules if targets is None), None)
        return everywhere if self.converts_head or not module.endswith("lm_head") else None


def quantization_from_config(config: Mapping[str, Any], what: str) -> Quantization | None:
    """How the checkpoint that a config.json describes stores its weights; None where nothing is quantised.

    Raises:  ModelConfigError naming a method or setting that is not known
    """
    fields = Fields(config, what)
    section = _section(fields)
    if section is None:
        return None
    from inference_bench.facts.quantization_methods import READERS

    method = section.string("quant_method") or section.string("quant_algo") or _unnamed_method(section)
    reader = READERS.get((method or "").lower().replace("_", "-"))
    if reader is None:
        raise ModelConfigError(
            f"{what}: its weights are quantised by {shown(method)}, which is not known; known: {', '.join(READERS)}; "
            "name the format of the weights to go on"
        )
    return _experts_apart(reader(section), fields)


def _section(fields: Fields) -> Fields | None:
    for holder in (fields, fields.section("text_config")):
        if holder is not None and (key := holder.first(*_SETTINGS)):
            return holder.section(key)
    return None


def _unnamed_method(section: Fields) -> str | None:
    """Older files leave the method out."""
    if "load_in_4bit" in section or "load_in_8bit" in section:
        return "bitsandbytes"
    if "config_groups" in section:
        return "compressed-tensors"
    if "bits" in section and "group_size" in section:
        return "mlx"
    return "awq" if "w_bit" in section else None


def _experts_apart(found: Quantization, fields: Fields) -> Quantization:
    """DeepSeek-V4 stores its experts in 4 bits and the rest in 8, with one-byte scales."""
    expert_format = fields.string("expert_dtype")
    if expert_format is None or found.method != "fp8":
        return found
    if expert_format not in ("fp4", "mxfp4"):
        raise ModelConfigError(f"{fields.what}: expert_dtype {shown(expert_format)} is not known; known: fp4, mxfp4")
    byte_scales = tuple((_with_byte_scales(fmt), targets) for fmt, targets in found.rules)
    experts = (number_format("mxfp4"), ModulePatterns(("mlp.experts",), "expert_dtype"))
    note = "scales taken as one byte each, as scale_fmt ue8m0 says"
    return replace(found, rules=(experts, *byte_scales), notes=(*found.notes, note))


def _with_byte_scales(fmt: NumberFormat) -> NumberFormat:
    return replace(fmt, beside=replace(fmt.beside, tile_bytes=1)) if fmt.beside.tile_bytes else fmt
