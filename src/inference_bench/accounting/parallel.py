"""One rank of a tensor-parallel group: the share of a model it holds, and what has to be held more than once.

In:   ModelSpec, WeightCount, CacheFormat, a context, a number of ranks
Out:  the ModelSpec of one rank, which every other count takes; RankShare
Leaves out: what ranks send one another, activations, an engine's own pages (allocation.vllm counts those by rank)
Read next by: predict.fit.

Heads, the width of feed-forward blocks and the rows of the tables are divided. Norms, routers, latents and index keys
are the same on every rank. Key and value heads that do not reach every rank are held by several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from inference_bench.accounting.cache import LOGICAL_STATE, CacheFormat, StateFormat, count_cache
from inference_bench.accounting.params import ParameterCount, count_params, kept_by_identity
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, MixtureOfExperts, ModelSpec

_TABLE_ROWS: Final = 64  # engines pad the vocabulary to whole multiples of it before they divide it


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one of `ranks` devices holds.

    Where:  cache_replication is how many times the group holds each key and value, on average: 1 where heads divide,
            ranks where the cache is the same on all; weight_replication the same for weights
    Unit:   bytes
    """

    ranks: int
    weight_bytes: int
    cache_bytes: int
    weight_replication: float
    cache_replication: float
    rule: str


def rank_model(model: ModelSpec, ranks: int) -> ModelSpec:
    """The model as one of `ranks` tensor-parallel ranks holds it.

    Raises:  RequestError if heads or widths do not divide, or the design is not split by any engine known here
    """
    if ranks < 1:
        raise RequestError(f"tensor parallel over {ranks} ranks; at least 1 is needed")
    if ranks == 1:
        return model
    known = _ranks_of(model)
    if ranks not in known:
        known[ranks] = _cut(model, ranks)
    return known[ranks]


@kept_by_identity
def _ranks_of(_: ModelSpec) -> dict[int, ModelSpec]:
    """The ranks a model was cut into before, by their number."""
    return {}


def _cut(model: ModelSpec, ranks: int) -> ModelSpec:
    shards: dict[Layer, Layer] = {layer: _rank_layer(layer, model, ranks) for layer, _ in model.layer_groups()}
    rows = -(-model.vocab_size // _TABLE_ROWS) * _TABLE_ROWS
    return replace(
        model,
        name=f"one of {ranks} ranks of {model.name}",
        vocab_size=-(-rows // ranks),
        layers=tuple(shards[layer] for layer in model.layers),
    )


def tensor_parallel_share(
    model: ModelSpec,
    weights: WeightCount,
    fmt: CacheFormat,
    context_tokens: int,
    sequences: int,
    ranks: int,
    state_format: StateFormat = LOGICAL_STATE,
) -> RankShare:
    """The weights and the cache of one rank.

    Formula:  each component of the weights · (its parameters on one rank / all its parameters), rounded up;
              the cache of the rank's own model
    Unit:     bytes
    Ignores:  blocks of a format that the split cuts; towers and encoders are counted whole on each rank
    Raises:   RequestError as rank_model
    """
    rank = rank_model(model, ranks)
    whole, part = count_params(model), count_params(rank)
    weight_bytes = sum(_share(num_bytes, names, whole, part) for num_bytes, names in _components(weights))
    full = count_cache(model, fmt, context_tokens, sequences, state_format).total_bytes
    share = count_cache(rank, fmt, context_tokens, sequences, state_format).total_bytes
    return RankShare(
        ranks=ranks,
        weight_bytes=weight_bytes,
        cache_bytes=share,
        weight_replication=float(Fraction(weight_bytes * ranks, max(1, weights.total))),
        cache_replication=float(Fraction(share * ranks, full)) if full else 1.0,
        rule=_rule(model, ranks),
    )


def rank_weights(model: ModelSpec, weights: WeightCount, ranks: int) -> WeightCount:
    """The weights of one rank, component by component, as tensor_parallel_share sums them.

    Where:   a table that is divided by rows has a token's row on one rank: each reads a share of it on average
    Unit:    bytes
    Raises:  RequestError as rank_model
    """
    if ranks == 1:
        return weights
    whole, part = count_params(model), count_params(rank_model(model, ranks))
    components = zip(("embedding", "head", "attention", "dense", "experts"), _components(weights), strict=False)
    share = {name: _share(num_bytes, names, whole, part) for name, (num_bytes, names) in components}
    return replace(
        weights,
        embedding=share["embedding"],
        head=share["head"],
        attention=share["attention"],
        feed_forward=share["dense"] + weights.router,
        experts=share["experts"],
        embedding_row=-(-weights.embedding_row // ranks),
        num_values=part.total,
    )


def _share(num_bytes: int, names: tuple[str, ...], whole: ParameterCount, part: ParameterCount) -> int:
    """Bytes of a component that are on one rank, rounded up."""
    return -(-num_bytes * _values(part, names) // max(1, _values(whole, names)))


def _components(weights: WeightCount) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Bytes of each component, and the parameters it stands for; none for what every rank holds whole."""
    return (
        (weights.embedding, ("embedding",)),
        (weights.head, ("head",)),
        (weights.attention, ("attention", "state_space")),
        (weights.feed_forward - weights.router, ("feed_forward", "shared_experts")),
        (weights.experts, ("experts",)),
        (weights.router + weights.norm + weights.other + weights.vision + weights.lookup + weights.draft, ()),
    )


def _values(params: ParameterCount, names: tuple[str, ...]) -> int:
    return sum(params.components.get(name, 0) for name in names) if names else 1


def _rank_layer(layer: Layer, model: ModelSpec, ranks: int) -> Layer:
    block = layer.feed_forward
    if isinstance(block, MixtureOfExperts):
        block = replace(
            block,
            intermediate_size=_divide(block.intermediate_size, ranks, "an expert's width", model),
            shared_intermediate_size=_divide(block.shared_intermediate_size, ranks, "the shared experts", model),
            dense=None if block.dense is None else _rank_feed_forward(block.dense, model, ranks),
        )
    elif block is not None:
        block = _rank_feed_forward(block, model, ranks)
    return replace(layer, mixers=tuple(_rank_mixer(mixer, model, ranks) for mixer in layer.mixers), feed_forward=block)


def _rank_feed_forward(block: FeedForward, model: ModelSpec, ranks: int) -> FeedForward:
    return replace(block, intermediate_size=_divide(block.intermediate_size, ranks, "the feed-forward width", model))


def _rank_mixer(mixer: Mixer, model: ModelSpec, ranks: int) -> Mixer:
    if isinstance(mixer, Attention):
        return _rank_attention(mixer, model, ranks)
    from inference_bench.facts import mixers as m

    if isinstance(mixer, m.LatentAttention):
        heads = _divide(mixer.num_attention_heads, ranks, "query heads", model)
        return replace(mixer, num_attention_heads=heads, gate_size=_divide(mixer.gate_size, ranks, "the gate", model))
    if isinstance(mixer, m.IndexedAttention | m.CrossAttention):
        return replace(mixer, attention=_rank_attention(mixer.attention, model, ranks))
    if isinstance(mixer, m.LinearAttention):
        return replace(
            mixer,
            num_key_heads=_divide(mixer.num_key_heads, ranks, "key heads", model),
            num_value_heads=_divide(mixer.num_value_heads, ranks, "value heads", model),
            matrix_params=_divide(mixer.matrix_params, ranks, "the projections", model),
        )
    if isinstance(mixer, m.Mamba):
        return replace(mixer, intermediate_size=_divide(mixer.intermediate_size, ranks, "channels", model))
    if isinstance(mixer, m.Mamba2):
        heads = _divide(mixer.num_heads, ranks, "heads", model)
        return replace(mixer, num_heads=heads, n_groups=max(1, mixer.n_groups // ranks))
    if isinstance(mixer, m.ShortConvolution):
        return replace(mixer, channels=_divide(mixer.channels, ranks, "channels", model))
    raise RequestError(f"how the {mixer.layer_type} of {model.name} is split over ranks is not counted yet")


def _rank_attention(attention: Attention, model: ModelSpec, ranks: int) -> Attention:
    """Query heads divided; key and value heads divided, or one held by several ranks where there are fewer."""
    kv_heads = attention.num_key_value_heads
    if kv_heads % ranks and ranks % kv_heads:
        raise RequestError(f"{model.name}: {kv_heads} key and value heads do not divide over {ranks} ranks")
    return replace(
        attention,
        num_attention_heads=_divide(attention.num_attention_heads, ranks, "query heads", model),
        num_key_value_heads=max(1, kv_heads // ranks),
    )


def _divide(value: int, ranks: int, what: str, model: ModelSpec) -> int:
    if value % ranks:
        verb = "do" if what.endswith("s") else "does"
        raise RequestError(f"{model.name}: {what} ({value}) {verb} not divide over {ranks} ranks")
    return value // ranks


def _rule(model: ModelSpec, ranks: int) -> str:
    fewer = sorted({a.num_key_value_heads for a, _ in model.attention_groups() if a.num_key_value_heads < ranks})
    said = [f"heads, feed-forward widths and tables are divided over {ranks} rank(s)"]
    if fewer:
        times = " or ".join(str(ranks // heads) for heads in fewer)
        said.append(f"{' or '.join(map(str, fewer))} key and value heads are each held by {times} ranks")
    if any("latent" in mixer.layer_type for mixer, _ in model.mixer_groups()):
        said.append("latents are the same on every rank")
    return "; ".join(said)
