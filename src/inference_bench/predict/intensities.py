"""How many FLOPs each kind of work does for a byte, and at which batch decode stops being limited by memory.

In:   ServedModel, Roof, a context and a batch
Out:  IntensityRow for products and for attention by layer type; BalanceBatch
Leaves out: kernels, whose tiles move operands more than once
Read next by: phases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inference_bench.accounting.cache import MAX_SEQUENCES
from inference_bench.accounting.communication import ACTIVATION_BITS
from inference_bench.accounting.experts import expect_distinct_experts
from inference_bench.accounting.work import decode_batch, matrix_intensity, mixer_work
from inference_bench.facts.models import FeedForward, Mixer, MixtureOfExperts, ModelSpec
from inference_bench.predict.capacity import largest_that_fits
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Roof


@dataclass(frozen=True, slots=True)
class IntensityRow:
    """One kind of work.

    Where:  detail says of what; grows_with_batch is False for work that a larger batch makes no denser
    Unit:   FLOP/byte
    """

    name: str
    detail: str
    flops_per_byte: float
    grows_with_batch: bool


def intensities(served: ServedModel, context_tokens: int, batch: int) -> tuple[IntensityRow, ...]:
    """Products with the weights as one vector and as a batch meets them; decode attention of each layer type.

    Unit:  FLOP/byte
    """
    return (*_products(served, batch), *_mixers(served, context_tokens))


def _products(served: ServedModel, batch: int) -> Iterator[IntensityRow]:
    rows, columns, mixture = _matrix(served.model)
    bytes_per_value, vector = float(served.weights.linear_format.bits_per_value) / 8, ACTIVATION_BITS / 8
    shape = f"{rows} × {columns}, {served.weights.linear_format.name}"

    def row(name: str, tokens: float, detail: str) -> IntensityRow:
        found = matrix_intensity(rows, columns, tokens, bytes_per_value, vector)
        return IntensityRow(name, detail, found, tokens > 1)

    yield row("matrix-vector", 1, shape)
    if mixture is None:
        yield row("matrix-matrix", batch, f"{shape}, {batch} column(s)")
        return
    chosen = batch * mixture.experts_per_token
    tokens = chosen / expect_distinct_experts(mixture.num_experts, mixture.experts_per_token, batch)
    yield row("matrix-matrix, an expert", tokens, f"{shape}, {tokens:.3g} of {batch} token(s) on average")


def _matrix(model: ModelSpec) -> tuple[int, int, MixtureOfExperts | None]:
    """The matrix that most of the weights are of: a feed-forward block's, or an expert's."""
    blocks = [layer.feed_forward for layer in model.layers]
    for block in blocks:
        if isinstance(block, MixtureOfExperts):
            return block.intermediate_size, block.latent_size or model.hidden_size, block
    for block in blocks:
        if isinstance(block, FeedForward):
            return block.intermediate_size, model.hidden_size, None
    return model.hidden_size, model.hidden_size, None


def _mixers(served: ServedModel, context_tokens: int) -> Iterator[IntensityRow]:
    """Each distinct mixer once; the same figure for the same layer type once."""
    seen = set()
    for mixer, _ in served.model.mixer_groups():
        row = _mixer_row(served, mixer, context_tokens)
        if row is not None and (row.name, row.flops_per_byte) not in seen:
            seen.add((row.name, row.flops_per_byte))
            yield row


def _mixer_row(served: ServedModel, mixer: Mixer, context_tokens: int) -> IntensityRow | None:
    """Decode of one sequence: its own cache or state, which no other shares.

    Formula:  FLOPs / bytes read (and a state written back); 2·N / (K·b) for grouped queries, and
              2·N·(2·rank + rope) / ((rank + rope)·b) for latents
    """
    work, is_state = mixer_work(mixer, served.cache_format, context_tokens - 1, 1, served.model.state_bits)
    moved = work.read_bytes + (work.written_bytes if is_state else 0)
    if not moved:
        return None
    what = "state update" if is_state else "decode attention"
    layer_type = str(mixer.layer_type).replace("_", " ")
    name = layer_type.removesuffix(" attention") if layer_type != "no cache" else "shared cache"
    stored = "state" if is_state else served.cache_format.name
    return IntensityRow(f"{what}, {name}", f"{stored}, whatever the batch", work.flops / moved, False)


@dataclass(frozen=True, slots=True)
class BalanceBatch:
    """The batches at which decode turns from memory to compute.

    Where:  products is that of the weight products alone and experts that of routed experts, each read by its own share
            of the tokens (None for a model without); step is the smallest batch at which a whole step at this context
            is limited by compute, and step_turns whether there is one: attention grows with the batch on both sides.
            All None where a rate is not known
    Unit:   sequences
    """

    products: float | None
    experts: float | None
    step: int | None
    step_turns: bool | None


def balance_batch(served: ServedModel, ceiling: Roof, context_tokens: int) -> BalanceBatch:
    """Where decode turns from memory to compute.

    Formula:  B* = P·b / (2·BW) for weights of b bytes; B*·E/k where a token uses k of E experts
    Unit:     sequences
    """
    ridge = ceiling.ridge_flops_per_byte
    if ridge is None:
        return BalanceBatch(None, None, None, None)
    products = ridge * float(served.weights.linear_format.bits_per_value) / 16
    _, _, mixture = _matrix(served.model)
    experts = None if mixture is None else products * mixture.num_experts / mixture.experts_per_token
    step = _step_balance(served, ridge, context_tokens)
    return BalanceBatch(products, experts, step, step is not None)


def _step_balance(served: ServedModel, ridge: float, context_tokens: int) -> int | None:
    """The smallest batch whose step has the ridge's intensity.

    Where:  FLOPs grow in proportion to the batch and bytes from a start above zero at most in proportion, so memory
            is the limit up to some batch and never after
    """

    def is_memory_limited(batch: int) -> bool:
        work = served.work(decode_batch(context_tokens, max(batch, 1)))
        return work.flops < ridge * work.num_bytes

    last = largest_that_fits(lambda batch: batch == 0 or is_memory_limited(batch), MAX_SEQUENCES)
    return None if last == MAX_SEQUENCES else last + 1
