"""The page of one layer in vLLM: how many bytes a block takes in it, and how many blocks a request may hold.

In:   ModelSpec, CacheFormat, VllmSettings
Out:  layers by page
Leaves out: how pages are made equal and layers are grouped: see vllm.py
Read next by: vllm.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from inference_bench.accounting.allocation import INDEX_KEYS, KEYS_AND_VALUES, LATENTS, STATE
from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, State, count_state
from inference_bench.errors import RequestError
from inference_bench.facts.models import Attention, LayerType, Mixer, ModelSpec

if TYPE_CHECKING:
    from inference_bench.accounting.allocation.vllm import VllmSettings
    from inference_bench.facts.mixers import LatentAttention

_BLOCK_TOKENS: Final = 16
_LATENT_BLOCK_TOKENS: Final = 64
_LATENT_STATE_ALIGNMENT: Final = 128
_INDEX_SCALE_BYTES: Final = 4  # one float32 scale beside the fp8 index key
_SCALE_BYTES: Final = 4  # one float32 scale a head and token, for keys and for values
_FP8_LATENT_BYTES: Final = 656  # 512 fp8 values, 4 float32 scales, 64 rotary values in 16 bits

# vLLM's own names of formats that carry scales: bits a value, and whether each head and token has a scale
_SCALED: Final = {"int8_per_token_head": (8, True), "fp8_per_token_head": (8, True), "int4_per_token_head": (4, True)}
_FLOAT32_STATES: Final = frozenset(("nemotron_h",))  # vLLM's own choice where the config says nothing


class Kind(Enum):
    """How many tokens of a request a layer needs blocks for."""

    FULL = auto()
    LATENT = auto()
    SLIDING = auto()
    CHUNKED = auto()
    STATE = auto()
    CROSS = auto()


FULL_KINDS: Final = frozenset((Kind.FULL, Kind.LATENT))


class LayerPage(NamedTuple):
    """The page of one layer.

    Where:  a state's page does not depend on the block; padded_bytes is what it is padded to; shape tells apart layers
            whose pages are of one size only by chance
    """

    kind: Kind
    layer_type: LayerType
    holds: str
    block_tokens: int
    token_bytes: int
    state_bytes: int = 0
    window: int | None = None
    padded_bytes: int | None = None
    shape: tuple[int, ...] = ()

    @property
    def own_bytes(self) -> int:
        """Bytes of the page that hold something."""
        return self.state_bytes if self.kind is Kind.STATE else self.block_tokens * self.token_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of the page as it is allocated."""
        return self.own_bytes if self.padded_bytes is None else self.padded_bytes

    @property
    def padding_bytes(self) -> int:
        """Bytes of the page that hold nothing."""
        return self.page_bytes - self.own_bytes

    def admission_blocks(self, context_tokens: int, settings: VllmSettings) -> int:
        """Blocks one request of a length may hold at most in this layer's group: what the engine reserves for.

        Where:  a window may start inside a block, hence one block more
        """
        return self._blocks(context_tokens, settings.in_flight_tokens, settings)

    def held_blocks(self, context_tokens: int, settings: VllmSettings) -> int:
        """Blocks one request of a length holds once its prompt is read."""
        held = self._blocks(context_tokens, 1, settings)
        if self.kind in (Kind.STATE, Kind.CROSS):
            return held
        return min(held, -(-context_tokens // self.block_tokens))

    def _blocks(self, context_tokens: int, in_flight_tokens: int, settings: VllmSettings) -> int:
        window, block = self.window or 0, self.block_tokens
        if self.kind is Kind.STATE:
            return 1 + int(settings.align_states) + settings.speculative_tokens
        if self.kind is Kind.CROSS:
            return -(-window // block)
        if self.kind is Kind.SLIDING:
            return -(-min(window - 1 + in_flight_tokens, context_tokens) // block) + 1
        if self.kind is Kind.CHUNKED:
            return -(-min(window + in_flight_tokens, context_tokens) // block)
        return -(-context_tokens // block)


def layer_pages(model: ModelSpec, fmt: CacheFormat, settings: VllmSettings) -> dict[LayerPage, int]:
    """Every layer that keeps something, by its page, with states padded to the attention's page."""
    pages: dict[LayerPage, int] = {}
    latent = _has_latents(model)
    block = settings.block_tokens or (_LATENT_BLOCK_TOKENS if latent else _BLOCK_TOKENS)
    states: dict[LayerPage, int] = {}
    for mixer, count in model.mixer_groups():
        state = count_state(mixer)
        if state is not None:
            num_bytes = _state_bytes(model, mixer, state, settings)
            shape = (state.conv_channels, state.recurrent_elements)
            page = LayerPage(Kind.STATE, mixer.layer_type, STATE, 1, 0, num_bytes, shape=shape)
            states[page] = states.get(page, 0) + count
            continue
        for page in _attention_pages(model, mixer, fmt, block, settings):
            pages[page] = pages.get(page, 0) + count
    if not pages and not states:
        raise RequestError(f"{model.name} keeps no cache that vLLM would allocate")
    if pages and states:
        pages = _aligned(pages, states, block, latent)
    return {**pages, **states}


def _aligned(
    pages: dict[LayerPage, int], states: dict[LayerPage, int], block: int, latent: bool
) -> dict[LayerPage, int]:
    """Attention blocks large enough for a page to hold the largest state.

    Formula:  block = a · ceil(state / (a · bytes of a token)), with a 16 tokens (128 with latents) or the block given
    """
    alignment = max(block, _LATENT_STATE_ALIGNMENT) if latent else block
    largest = max(page.state_bytes for page in states)
    token_bytes = next(iter(pages)).token_bytes
    wanted = max(block, alignment * -(-largest // (alignment * token_bytes)))
    return {page._replace(block_tokens=wanted): count for page, count in pages.items()}


def _has_latents(model: ModelSpec) -> bool:
    return any(mixer.layer_type is LayerType.LATENT_ATTENTION for mixer, _ in model.mixer_groups())


def _attention_pages(
    model: ModelSpec, mixer: Mixer, fmt: CacheFormat, block: int, settings: VllmSettings
) -> list[LayerPage]:
    if type(mixer) is Attention:
        if mixer.shared_kv_from is not None:
            return []
        kind = Kind.FULL
        if mixer.attention_chunk is not None:
            kind = Kind.CHUNKED
        elif mixer.sliding_window is not None:
            kind = Kind.SLIDING
        return [_grouped_page(kind, mixer.layer_type, mixer, mixer.max_positions, fmt, block, settings)]
    from inference_bench.facts import mixers

    if isinstance(mixer, mixers.LatentAttention):
        return _latent_pages(mixer, fmt, block, settings)
    if isinstance(mixer, mixers.CrossAttention) and mixer.encoder_tokens is not None:
        tokens = mixer.encoder_tokens
        return [_grouped_page(Kind.CROSS, mixer.layer_type, mixer.attention, tokens, fmt, block, settings)]
    raise RequestError(f"how vLLM lays out the {mixer.layer_type} of {model.name} is not counted yet")


def _grouped_page(
    kind: Kind,
    layer_type: LayerType,
    attention: Attention,
    window: int | None,
    fmt: CacheFormat,
    block: int,
    settings: VllmSettings,
) -> LayerPage:
    token_bytes = _token_bytes(attention, fmt, settings)
    shape = (attention.num_key_value_heads, attention.head_dim, attention.value_width)
    return LayerPage(kind, layer_type, KEYS_AND_VALUES, block, token_bytes, window=window, shape=shape)


def _latent_pages(mixer: LatentAttention, fmt: CacheFormat, block: int, settings: VllmSettings) -> list[LayerPage]:
    """One vector a token, the same on every rank, and an fp8 index key with its scale where there is an indexer."""
    if settings.cache_dtype == "fp8_ds_mla" or (mixer.indexer is not None and fmt.keys.name == "fp8"):
        token_bytes = _FP8_LATENT_BYTES
    else:
        token_bytes = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * _value_bits(fmt, settings) // 8
    pages = [LayerPage(Kind.LATENT, mixer.layer_type, LATENTS, block, token_bytes)]
    if mixer.indexer is not None:
        index_bytes = mixer.indexer.head_dim + _INDEX_SCALE_BYTES
        pages.append(LayerPage(Kind.LATENT, mixer.layer_type, INDEX_KEYS, block, index_bytes))
    return pages


def _token_bytes(attention: Attention, fmt: CacheFormat, settings: VllmSettings) -> int:
    """Bytes of one token in one layer, on one rank.

    Formula:  max(1, K // ranks) · ((Hk + Hv) · bits / 8 + 8 where each head and token has a scale)
    """
    heads = max(1, attention.num_key_value_heads // settings.tensor_parallel)
    values = (attention.head_dim + attention.value_width) * _value_bits(fmt, settings) // 8
    return heads * (values + (2 * _SCALE_BYTES if _scaled(fmt, settings) else 0))


def _named(fmt: CacheFormat, settings: VllmSettings) -> str | None:
    """The scaled format that is meant; int8 is stored with a scale for each head and token only."""
    name = settings.cache_dtype or ("int8_per_token_head" if fmt.keys.name == "int8" else None)
    if name is None or name == "fp8_ds_mla":
        return None
    if name not in _SCALED:
        raise RequestError(f"cache dtype {name!r} of vLLM is not counted; counted: {', '.join(_SCALED)}, fp8_ds_mla")
    return name


def _scaled(fmt: CacheFormat, settings: VllmSettings) -> bool:
    name = _named(fmt, settings)
    return name is not None and _SCALED[name][1]


def _value_bits(fmt: CacheFormat, settings: VllmSettings) -> int:
    name = _named(fmt, settings)
    if name is not None:
        return _SCALED[name][0]
    if fmt.keys != fmt.values or fmt.keys.block_values != 1:
        raise RequestError(f"vLLM stores no {fmt.name} cache; it stores keys and values alike in 32, 16 or 8 bits")
    return fmt.keys.block_bytes * 8


def _state_bytes(model: ModelSpec, mixer: Mixer, state: State, settings: VllmSettings) -> int:
    """Bytes of one state on one rank, its convolution grown by the tokens that speculation may take back.

    Formula:  (channels / ranks) · (kernel - 1 + speculative) · 2 + elements / ranks · bits / 8
    """
    ranks = settings.tensor_parallel
    channels = _conv_channels(mixer, state, ranks)
    if channels % ranks or state.recurrent_elements % ranks:
        raise RequestError(f"{model.name}: the state of a {mixer.layer_type} layer does not divide over {ranks} ranks")
    kernel = state.conv_kernel + settings.speculative_tokens if state.conv_channels else state.conv_kernel
    share = State(channels // ranks, kernel, state.recurrent_elements // ranks, state.always_float32)
    default = 32 if model.model_type in _FLOAT32_STATES else None
    bits = settings.state_bits or model.state_bits or default
    return STATE_FORMATS["vllm"].count_bytes(share, bits)


def _conv_channels(mixer: Mixer, state: State, ranks: int) -> int:
    """Channels of the convolution; groups of Mamba-2 that do not divide over the ranks are extended until they do."""
    if ranks > 1 and mixer.layer_type is LayerType.MAMBA2:
        from inference_bench.facts.mixers import Mamba2

        if isinstance(mixer, Mamba2) and mixer.n_groups % ranks:
            return mixer.intermediate_size + 2 * ranks * mixer.state_size
    return state.conv_channels
