"""The layers of a GGUF file: what each block is, by the tensors it has and the sizes its metadata states.

In:   GGUFMetadata and the tensors of each block
Out:  one Layer for each block
Leaves out: architectures and tensors nobody here knows; the first are refused, the second counted as "other"
Read next by: gguf_model.

Source: llama.cpp, src/models and gguf-py tensor names (2026-11)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inference_bench.facts.gguf_metadata import Block, GGUFMetadata
from inference_bench.facts.models import (
    Attention,
    FeedForward,
    Layer,
    Mixer,
    MixtureOfExperts,
    OutputGate,
    QueryKeyNorm,
)

# every how many layers one attends the full context, where the file does not list them; 1 is every layer
FULL_ATTENTION_PERIOD: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        [
            "llama",
            "mistral3",
            "qwen2",
            "qwen2vl",
            "qwen2moe",
            "qwen3",
            "qwen3vl",
            "qwen3moe",
            "qwen3vlmoe",
            "phi2",
            "phi3",
            "gemma",
            "deepseek",
            "deepseek2",
            "falcon",
            "starcoder",
            "starcoder2",
            "stablelm",
            "gpt2",
            "gptneox",
            "olmo",
            "olmoe",
            "internlm2",
            "baichuan",
            "minicpm",
            "minicpm3",
            "glm4",
            "glm4moe",
            "chatglm",
            "command-r",
            "smollm3",
            "granite",
            "granitemoe",
            "minimax-m2",
            "hunyuan-dense",
            "hunyuan-moe",
            "nemotron",
            "exaone",
            "arcee",
            "dots1",
            "ernie4_5",
            "ernie4_5-moe",
            "seed_oss",
            "bailingmoe",
            "bailingmoe2",
            "dbrx",
            "mpt",
            "bloom",
            "orion",
            "xverse",
            "refact",
            "codeshell",
            "mamba",
            "mamba2",
            "jamba",
            "nemotron_h",
            "nemotron_h_moe",
            "granitehybrid",
            "falcon-h1",
            "lfm2",
            "lfm2moe",
            "qwen3next",
            "qwen35",
            "qwen35moe",
        ],
        1,
    ),
    **{"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gemma4": 6, "gpt-oss": 2, "olmo2": 4, "exaone4": 4, "cohere2": 4},
    **{"llama4": 4, "afmoe": 4, "mimo2": 1, "step35": 1},
}
_LISTS_WINDOWS: Final = ("gemma4", "mimo2", "step35")  # the list of windowed layers must be in the file
_DEFAULT_WINDOW: Final = {"gemma2": 4096}
_CHUNK: Final = {"llama4": 8192}  # positions of a chunk, which the file does not state
_GEMMA3N_OWN_CACHE: Final = 20  # layers of Gemma 3n that keep keys and values; the rest read theirs


class LayerReader:
    """Builds the layers of one file, block by block."""

    def __init__(self, metadata: GGUFMetadata, num_layers: int) -> None:
        self.metadata = metadata
        self.num_layers = num_layers
        self.hidden_size = metadata.integer("embedding_length")
        self.heads = metadata.per_layer("attention.head_count", num_layers, 0)
        kv_heads = metadata.optional("attention.head_count_kv", minimum=0)
        same = kv_heads is None
        self.kv_heads = self.heads if same else metadata.per_layer("attention.head_count_kv", num_layers)
        self.windows = self._windows()
        self.first_shared = self._first_shared()

    def layer(self, index: int, block: Block) -> Layer:
        """The layer a block is.

        Raises:  ModelFileError where sizes contradict each other
        """
        mixers = self._mixers(index, block)
        feed_forward = self._feed_forward(block)
        if not mixers and feed_forward is None:
            raise self.metadata.error(f"block {index} holds neither a mixer nor a feed-forward block that is known")
        norm_params, other_params = block.rest()
        return Layer(mixers, feed_forward, norm_params, other_params)

    def _mixers(self, index: int, block: Block) -> tuple[Mixer, ...]:
        from inference_bench.facts import gguf_rare_layers as rare

        found: list[Mixer] = []
        if "attn_kv_a_mqa.weight" in block:
            found.append(rare.latent(self.metadata, block, self.heads[index]))
        elif "attn_output.weight" in block:
            found.append(self._attention(index, block))
        if "shortconv.in_proj.weight" in block:
            found.append(rare.short_convolution(self.metadata, block, self.hidden_size))
        elif "ssm_ba.weight" in block or "ssm_beta.weight" in block:
            found.append(rare.gated_delta(self.metadata, block))
        elif "ssm_in.weight" in block:
            read = rare.mamba if "ssm_x.weight" in block else rare.mamba2
            found.append(read(self.metadata, block))
        return tuple(found)

    # --- attention ------------------------------------------------------------------------------------------------

    def _attention(self, index: int, block: Block) -> Attention:
        heads, kv_heads = self.heads[index], self.kv_heads[index]
        if not heads or not kv_heads or heads % kv_heads:
            raise self.metadata.error(
                f"block {index} attends, but has {heads} query heads and {kv_heads} key-value heads"
            )
        key_size, value_size = self._head_sizes(index, block, heads, kv_heads)
        window = self.windows[index]
        shares = index >= self.first_shared
        chunked = self.metadata.architecture in _CHUNK
        gate = OutputGate.NONE
        if block.shape("attn_q.weight")[0] == 2 * heads * key_size:  # queries and the output gate in one matrix
            gate = OutputGate.PER_VALUE
        fused_bias = "attn_qkv.bias" in block
        attention = Attention(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=key_size,
            value_head_dim=None if value_size == key_size else value_size,
            sliding_window=None if chunked else window,
            attention_chunk=window if chunked else None,
            query_bias=fused_bias or "attn_q.bias" in block,
            key_bias=fused_bias or "attn_k.bias" in block,
            value_bias=fused_bias or "attn_v.bias" in block,
            output_bias="attn_output.bias" in block,
            query_key_norm=self._query_key_norm(block, heads * key_size, kv_heads * key_size, key_size),
            output_gate=gate,
            sinks="attn_sinks.weight" in block,
            shared_kv_from=self._owner(index) if shares else None,
            projects_key_value="attn_k.weight" in block or "attn_qkv.weight" in block,
            value_projection="attn_v.weight" in block or "attn_qkv.weight" in block,
        )
        block.take(*(f"attn_{part}.{kind}" for part in ("q", "k", "v", "qkv", "output") for kind in ("weight", "bias")))
        block.take("attn_sinks.weight")
        return attention

    def _head_sizes(self, index: int, block: Block, heads: int, kv_heads: int) -> tuple[int, int]:
        """Widths of one key and one value head: those of the matrices, which the metadata must not contradict."""
        swa = "_swa" if self.windows[index] is not None else ""
        key_size = self.metadata.one(f"attention.key_length{swa}") or self.metadata.one("attention.key_length")
        value_size = self.metadata.one(f"attention.value_length{swa}") or self.metadata.one("attention.value_length")
        if key_size is None:
            if self.hidden_size % heads:
                raise self.metadata.error(
                    f"there is no {self.metadata.name_of('attention.key_length')}, and embedding_length "
                    f"{self.hidden_size} is not a multiple of head_count {heads}"
                )
            key_size = self.hidden_size // heads
        value_size = value_size or key_size
        for name, size in (("attn_k.weight", key_size), ("attn_v.weight", value_size)):
            rows = block.shape(name)[0]
            if rows and rows != kv_heads * size:
                raise self.metadata.error(
                    f"blk.{index}.{name} has {rows} rows, not {kv_heads} heads of {size}; the metadata contradicts it"
                )
        return key_size, value_size

    def _query_key_norm(self, block: Block, query_width: int, key_width: int, head_size: int) -> QueryKeyNorm:
        """The kind of norm on queries and keys; one of another shape is left to be counted as a norm."""
        names = ("attn_q_norm.weight", "attn_k_norm.weight")
        sizes = tuple(block.size(name) for name in names)
        projects = block.shape("attn_k.weight")[0] > 0
        if sizes[0] == head_size and sizes[1] == (head_size if projects else 0):
            block.take(*names)
            return QueryKeyNorm.PER_HEAD
        if sizes == (query_width, key_width):
            block.take(*names)
            return QueryKeyNorm.PER_WIDTH
        return QueryKeyNorm.NONE

    def _windows(self) -> tuple[int | None, ...]:
        """The window of each layer, by the file's list or period, or by the architecture's own."""
        architecture, num_layers = self.metadata.architecture, self.num_layers
        period = FULL_ATTENTION_PERIOD[architecture]
        listed = self.metadata.flags("attention.sliding_window_pattern", num_layers)
        if listed is None:
            period = self.metadata.one("attention.sliding_window_pattern", period) or period
            listed = tuple((index + 1) % period != 0 for index in range(num_layers))
        window = self.metadata.one("attention.sliding_window", _DEFAULT_WINDOW.get(architecture), minimum=0)
        if architecture in _CHUNK and window is None:
            window = _CHUNK[architecture]
        if not window or (FULL_ATTENTION_PERIOD[architecture] == 1 and architecture not in _LISTS_WINDOWS):
            return (None,) * num_layers
        if (
            architecture in _LISTS_WINDOWS
            and self.metadata.flags("attention.sliding_window_pattern", num_layers) is None
        ):
            raise self.metadata.error(f"there is no list {self.metadata.name_of('attention.sliding_window_pattern')}")
        return tuple(window if windowed else None for windowed in listed)

    def _first_shared(self) -> int:
        """The first layer that reads another's keys and values; the number of layers where none does."""
        if self.metadata.architecture == "gemma3n":
            return min(self.num_layers, _GEMMA3N_OWN_CACHE)
        shared = self.metadata.one("attention.shared_kv_layers", 0, minimum=0) or 0
        if shared >= self.num_layers:
            raise self.metadata.error(f"{shared} of {self.num_layers} layers share keys and values; one must own them")
        return self.num_layers - shared

    def _owner(self, index: int) -> int:
        """The last layer of the same kind that keeps its own keys and values."""
        kind = self.windows[index] is None
        same = [layer for layer in range(self.first_shared) if (self.windows[layer] is None) == kind]
        if not same:
            raise self.metadata.error(f"block {index} shares keys and values, but no layer like it keeps any")
        return same[-1]

    # --- feed-forward ---------------------------------------------------------------------------------------------

    def _feed_forward(self, block: Block) -> FeedForward | MixtureOfExperts | None:
        dense = self._dense(block)
        if "ffn_down_exps.weight" not in block:
            if "ffn_down.0.weight" in block:
                raise self.metadata.error("its experts are stored one by one, an old layout; convert the model again")
            return dense
        names = [f"ffn_{part}_exps" for part in ("gate", "up", "down", "gate_up")]
        block.take(*(f"{name}.{kind}" for name in names for kind in ("weight", "bias")))
        block.take("ffn_gate_inp.weight", "ffn_gate_inp.bias", "exp_probs_b.bias", "ffn_gate_inp_shexp.weight")
        block.take(*(f"ffn_{part}_shexp.weight" for part in ("gate", "up", "down")))
        num_experts, width = self.metadata.integer("expert_count"), block.shape("ffn_down_exps.weight")[1]
        used = self.metadata.integer("expert_used_count")
        if used > num_experts:
            raise self.metadata.error(f"a token uses {used} of {num_experts} experts")
        shared = block.shape("ffn_up_shexp.weight")[0]
        return MixtureOfExperts(
            num_experts=num_experts,
            experts_per_token=used,
            intermediate_size=width,
            gated="ffn_gate_exps.weight" in block or "ffn_gate_up_exps.weight" in block,
            bias="ffn_down_exps.bias" in block,
            shared_intermediate_size=shared,
            shared_gate="ffn_gate_inp_shexp.weight" in block,
            router_bias="ffn_gate_inp.bias" in block,
            dense=dense,
            shared_gated=None if not shared else "ffn_gate_shexp.weight" in block,
        )

    def _dense(self, block: Block) -> FeedForward | None:
        if "ffn_up.weight" not in block or "ffn_down.weight" not in block:
            return None
        width = block.shape("ffn_down.weight")[1]
        fused = block.shape("ffn_up.weight")[0] == 2 * width
        block.take(*(f"ffn_{part}.{kind}" for part in ("gate", "up", "down") for kind in ("weight", "bias")))
        return FeedForward(width, gated=fused or "ffn_gate.weight" in block, bias="ffn_up.bias" in block)
