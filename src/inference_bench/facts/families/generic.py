"""An architecture nobody here knows: counted only when every field of its config is understood, refused otherwise.

In:   Fields of the text part
Out:  Design of a plain decoder, with what was assumed
Leaves out: any field not listed here; one that is present refuses the config, since it may mean another design
Read next by: config.py.
"""

from __future__ import annotations

from typing import Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.families.architectures import FAMILY_OF
from inference_bench.facts.families.base import Design
from inference_bench.facts.families.plain import build_row
from inference_bench.facts.families.plain_rows import Plain
from inference_bench.facts.families.windows import every_layer
from inference_bench.facts.fields import Fields, shown

_NEEDED: Final = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act"),
)
_HARMLESS: Final = frozenset(
    (
        *("architectures", "model_type", "auto_map", "torch_dtype", "dtype", "transformers_version", "use_cache"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "rms_norm_eps", "layer_norm_eps"),
        *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "max_position_embeddings"),
        *("attention_dropout", "hidden_dropout", "pretraining_tp", "_name_or_path", "quantization_config"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    )
)


def build(_model_type: str, fields: Fields, _top: Fields) -> Design:
    """A plain decoder, when every field that describes one is there and no other is.

    Raises:  ModelConfigError naming the fields that are missing or unknown
    """
    name = shown(fields.values.get("model_type"))
    missing = [key for key in _NEEDED if key not in fields]
    unknown = sorted(str(key) for key in fields.values if key not in _HARMLESS and key not in _NEEDED)
    if missing or unknown:
        gaps = [f"lacks {', '.join(missing[:6])}"] if missing else []
        gaps += [f"has fields nobody here knows: {shown(', '.join(unknown[:6]))}"] if unknown else []
        raise ModelConfigError(
            f"{fields.what}: model_type {name} is not counted yet, and its config {' and '.join(gaps)}; "
            f"counted: {len(FAMILY_OF) - 1} architectures"
        )
    design = build_row(Plain(windows=every_layer, mlp_bias_field="mlp_bias"), fields)
    fields.mark("use_sliding_window", "max_window_layers")
    design.assumptions.append(
        f"model_type {name} is not known here: counted from its fields as a pre-norm decoder with two RMS norms a "
        "layer, a gated feed-forward block and no query-key norms"
    )
    return design
