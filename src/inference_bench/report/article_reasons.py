"""Why the usual KV-cache formula is wrong, one reason at a time: a section of the article.

In:   NaiveStudy
Out:  blocks
Leaves out: arithmetic
Read next by: article.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_bench.facts.models import LayerType
from inference_bench.predict.naive_causes import Cause
from inference_bench.report.article_blocks import Block, Bullets, Heading, Line, Paragraph, Picture, Strong
from inference_bench.report.article_tables import examples_table
from inference_bench.units import format_bytes_binary, format_count, format_number

if TYPE_CHECKING:
    from inference_bench.predict.naive_examples import Example
    from inference_bench.predict.naive_study import NaiveStudy


def reasons_section(study: NaiveStudy, growth: Picture) -> list[Block]:
    """Each reason with the model that shows it."""
    return [
        Heading("Why: one reason at a time", "reasons"),
        Paragraph(
            (
                "The difference can be taken apart exactly: each layer is charged its share of the usual figure, and keeps its own "
                "heads instead, cut at its window, or a state, or nothing. The usual figure with these corrections is the true one:",
            )
        ),
        examples_table(study),
        Bullets(
            (
                _windows(study),
                _chunks(study.examples["chunks"]),
                _latents(study.examples["latents"]),
                _index(study.examples["index"]),
                _compressed(study.examples["compressed"]),
                _states(study),
                _shared(study.examples["shared"]),
                _shapes(study),
                _cross(study.examples["cross"]),
            )
        ),
        growth,
    ]


def _size(num_bytes: int | None) -> str:
    return format_bytes_binary(num_bytes)


def _pair(each: Example) -> str:
    """The true figure and what the formula says instead."""
    return f"{_size(each.count.total_bytes)} where the formula says {_size(each.count.naive_bytes)}"


def _windows(study: NaiveStudy) -> Line:
    most, half, every = (study.examples[word] for word in ("windows", "half", "all"))
    sliding, short, whole = (each.layers(LayerType.SLIDING_ATTENTION) for each in (most, half, every))
    return (
        Strong("Sliding windows."),
        f" {sliding.count} of {most.model.num_hidden_layers} layers of {most.model.name} look back "
        f"{format_count(sliding.sliding_window)} tokens and keep no more: {_pair(most)} at "
        f"{format_count(most.count.context_tokens)} tokens, {_size(most.longer.total_bytes)} instead of "
        f"{_size(most.longer.naive_bytes)} at {format_count(most.longer.context_tokens)}. The factor grows with the context "
        f"towards {format_number(most.final_factor)}. {half.model.name} windows {short.count} of "
        f"{half.model.num_hidden_layers} layers, so its factor ends at {format_number(half.final_factor)}. In {every.model.name} "
        f"all {whole.count} have a window of {format_count(whole.sliding_window)}, and past that the cache does not grow at all.",
    )


def _chunks(each: Example) -> Line:
    chunked = each.layers(LayerType.CHUNKED_ATTENTION)
    return (
        Strong("Chunks."),
        f" {chunked.count} of {each.model.num_hidden_layers} layers of {each.model.name} attend within blocks of "
        f"{format_count(chunked.sliding_window)} tokens and hold at most one: {_pair(each)}.",
    )


def _latents(each: Example) -> Line:
    latent = each.layers(LayerType.LATENT_ATTENTION)
    return (
        Strong("Latents."),
        f" {each.model.name} keeps one compressed vector and one rotary key for all heads, {format_count(latent.bytes_per_position)} "
        f"bytes a token and layer. The formula takes the {each.model.num_key_value_heads} heads that the configuration lists, "
        f"{each.model.head_dim} values each, and charges {format_count(each.usual_row_bytes)}: "
        f"{format_number(each.count.naive_factor)} times at any length.",
    )


def _index(each: Example) -> Line:
    return (
        Strong("Index keys."),
        f" {each.model.name} adds a key for each token and layer by which it picks what to attend to, "
        f"{_size(each.corrected(Cause.INDEX))} in all. A count that knows latents and forgets these says too little.",
    )


def _compressed(each: Example) -> Line:
    return (
        Strong("Compressed positions."),
        f" {each.model.name} keeps the last tokens as they are and older ones several to a vector: {_pair(each)}.",
    )


def _states(study: NaiveStudy) -> Line:
    linear, mamba = study.examples["linear"], study.examples["mamba"]
    states, attending = mamba.layers(LayerType.MAMBA2), mamba.layers(LayerType.FULL_ATTENTION)
    return (
        Strong("Fixed states."),
        f" {linear.layers(LayerType.LINEAR_ATTENTION).count} of {linear.model.num_hidden_layers} layers of {linear.model.name} are "
        f"linear attention. They keep {_size(linear.count.state_bytes)} together, after one token as after a million: "
        f"{_pair(linear)}. {mamba.model.name} has {states.count} Mamba-2 layers and {attending.count} that attend; the rest keep "
        f"nothing: {_pair(mamba)}.",
    )


def _shared(each: Example) -> Line:
    return (
        Strong("Shared caches."),
        f" {each.layers(LayerType.NO_CACHE).count} of {each.model.num_hidden_layers} layers of {each.model.name} read the cache of an "
        f"earlier layer and keep none, and {each.layers(LayerType.SLIDING_ATTENTION).count} of the others have a window: {_pair(each)}.",
    )


def _shapes(study: NaiveStudy) -> Line:
    less, more = study.examples["shapes"], study.examples["wider"]
    return (
        Strong("Unlike heads."),
        " The top level of a configuration speaks for some layers only: the full ones of "
        f"{less.model.name} have fewer and wider heads than it says, {_size(less.corrected(Cause.SHAPE))} less in all; those of "
        f"{more.model.name} take {_size(more.corrected(Cause.SHAPE))} more. Values narrower than their keys are the same mistake.",
    )


def _cross(each: Example) -> Line:
    cross = each.layers(LayerType.CROSS_ATTENTION)
    return (
        Strong("Cross-attention."),
        f" {cross.count} of {each.model.num_hidden_layers} layers of {each.model.name} keep the keys and values of one image instead "
        f"of the text's: {_size(cross.cross_attention_bytes)} whatever the length.",
    )
