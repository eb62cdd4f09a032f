"""How many parameters a model has, by component, and how many of them multiply.

In:   ModelSpec
Out:  ParameterCount: exact integers
Leaves out: buffers that are not trained (rotary tables)
Read next by: weights, work.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.facts.models import Attention, FeedForward, Layer, ModelSpec


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters by component; the tied embedding is counted once, as the input embedding.

    Unit:  values, exact
    """

    embedding: int
    head: int
    attention: int
    feed_forward: int
    norm: int

    @property
    def total(self) -> int:
        """N: every parameter once."""
        return self.embedding + self.head + self.attention + self.feed_forward + self.norm

    @property
    def active(self) -> int:
        """Parameters one token uses, embeddings included; all of them in a dense model."""
        return self.total

    @property
    def matmul(self) -> int:
        """N_matmul: all but an untied input embedding, which is a look-up of one row."""
        return self.total if self.head == 0 else self.total - self.embedding


def count_attention_params(attention: Attention, hidden_size: int) -> int:
    """Projections of one attention layer: queries, keys, values, output, with their biases.

    Formula:  D·N·H + 2·D·K·H + N·H·D, plus (N + 2K)·H for q, k, v biases and D for an output bias
    Where:    D hidden_size, N query heads, K key/value heads, H head_dim
    Unit:     values, exact
    """
    query_width = attention.num_attention_heads * attention.head_dim
    key_value_width = attention.num_key_value_heads * attention.head_dim
    matrices = hidden_size * (2 * query_width + 2 * key_value_width)
    biases = (query_width + 2 * key_value_width) if attention.query_key_value_bias else 0
    return matrices + biases + (hidden_size if attention.output_bias else 0)


def count_feed_forward_params(feed_forward: FeedForward, hidden_size: int) -> int:
    """Matrices of one dense feed-forward block.

    Formula:  3·D·F when gated (gate, up, down), 2·D·F otherwise, plus biases
    Unit:     values, exact
    """
    num_inner = 2 if feed_forward.gated else 1
    matrices = (num_inner + 1) * hidden_size * feed_forward.intermediate_size
    return matrices + (num_inner * feed_forward.intermediate_size + hidden_size if feed_forward.bias else 0)


def count_norm_params(layer: Layer, model: ModelSpec) -> int:
    """Norms of one layer: `num_norms` over the hidden size, and one each over a head of queries and keys.

    Unit:  values, exact
    """
    over_hidden = layer.num_norms * model.hidden_size * (2 if model.norm_bias else 1)
    return over_hidden + (2 * layer.attention.head_dim if layer.attention.query_key_norm else 0)


def count_params(model: ModelSpec) -> ParameterCount:
    """Every parameter of the model, by component.

    Formula:  V·D (twice when untied) + Σ layers + the final norm
    Unit:     values, exact
    Source:   the modelling files of Hugging Face Transformers; checked against published totals
    """
    table = model.vocab_size * model.hidden_size
    final_norm = model.hidden_size * (2 if model.norm_bias else 1)
    return ParameterCount(
        embedding=table,
        head=0 if model.tie_word_embeddings else table,
        attention=sum(count_attention_params(layer.attention, model.hidden_size) for layer in model.layers),
        feed_forward=sum(count_feed_forward_params(layer.feed_forward, model.hidden_size) for layer in model.layers),
        norm=final_norm + sum(count_norm_params(layer, model) for layer in model.layers),
    )
