"""What the error costs, where it is dangerous, and what engines allocate: three sections of the article.

In:   NaiveStudy
Out:  blocks
Leaves out: arithmetic
Read next by: article.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inference_bench.accounting.allocation.vllm_limits import LARGE_CARD, SMALL_CARD
from inference_bench.report.article_blocks import Block, Bullets, Emphasis, Heading, Line, Link, Paragraph, Strong
from inference_bench.report.article_tables import cards_table, engines_table, short_table
from inference_bench.units import format_bytes, format_bytes_binary, format_count, format_number

if TYPE_CHECKING:
    from inference_bench.predict.naive_examples import CardCase
    from inference_bench.predict.naive_study import NaiveStudy

_OLLAMA: Final = Link("A change proposed to Ollama", "https://github.com/ollama/ollama/pull/16958")
_GPUSTACK: Final = Link("an issue about GPUStack's parser", "https://github.com/gpustack/gguf-parser-go/issues/28")
_LFM2: Final = Link("an LFM2 priced at no cache at all", "https://github.com/gpustack/gguf-parser-go/issues/31")
_BLOCKS: Final = Link("one issue of vLLM", "https://github.com/vllm-project/vllm/issues/54458")


# ── what it costs ──────────────────────────────────────────────────────────────────────────────────


def cost_section(study: NaiveStudy) -> list[Block]:
    """Sequences on a card."""
    first, last = study.cards[0], study.cards[-1]
    return [
        Heading("What it costs", "cost"),
        Paragraph(
            (
                f"An {first.machine} holds {first.model} in {first.weight_format} and has {format_bytes(first.free_bytes)} left. For "
                f"sequences of {format_count(first.context_tokens)} tokens the formula promises {_count(first.usual)}. There is room "
                f"for {_count(first.true)}{_by_blocks(first)}. Whoever plans by the formula leaves most of the card empty.",
            )
        ),
        cards_table(study),
        Paragraph(
            (
                "The last row goes the other way: of short requests the formula promises "
                f"{format_count(last.usual)}, and {format_count(last.true)} fit. ",
                _OLLAMA,
                " traces experts of a Gemma 4 that were left on the CPU, at about half the speed, "
                "to this very estimate, and ",
                _GPUSTACK,
                " a model that was refused though it runs on the card.",
            )
        ),
    ]


def _count(sequences: int) -> str:
    return f"{format_count(sequences)} {'sequence' if sequences == 1 else 'sequences'}"


def _by_blocks(case: CardCase) -> str:
    return "" if case.vllm is None else f", and vLLM's blocks take {format_count(case.vllm)}"


# ── where it is dangerous ──────────────────────────────────────────────────────────────────────────


def danger_section(study: NaiveStudy) -> list[Block]:
    """Where less is said than is needed."""
    over = study.overcorrected
    return [
        Heading("The dangerous side", "dangerous"),
        Paragraph(
            (
                "A figure too high costs money; one too low ends requests. The formula says too little wherever something "
                f"is kept whatever the length. Of the models here {format_count(len(study.short))} do that{_silent(study)}. "
                f"{_short_words(study)}",
            )
        ),
        short_table(study),
        Paragraph(
            (
                "Half a correction is dangerous as well. Giving every layer of "
                f"{over.model} the window that some have says {format_bytes_binary(over.said_bytes)} at "
                f"{format_count(over.context_tokens)} tokens; it keeps {format_bytes_binary(over.true_bytes)}. "
                "Dropping the state of a hybrid, or the index keys beside latents, errs the same way, as does reading a list of heads "
                "by its first entry (",
                _LFM2,
                ").",
            )
        ),
    ]


def _silent(study: NaiveStudy) -> str:
    """The models that keep nothing else, of which the formula says nothing."""
    others = [row.model for row in study.here.unanswered]
    return f"; of {format_count(len(others))} more, which only do that, it says nothing at all" if others else ""


def _short_words(study: NaiveStudy) -> str:
    hybrids = [case for case in study.short if "mamba" in case.layer_types or "linear" in case.layer_types]
    if not hybrids:
        return ""
    most = max(hybrids, key=lambda case: case.fixed_bytes)
    return (
        f"{most.model} takes {format_bytes_binary(most.fixed_bytes)} of state before its first token. Below "
        f"{format_count(most.below_tokens)} tokens the formula is too small, at {format_count(most.tokens)} it would have to be multiplied "
        f"by {format_number(most.shortfall)}."
    )


# ── what engines allocate ──────────────────────────────────────────────────────────────────────────


def engines_section(study: NaiveStudy) -> list[Block]:
    """What a server takes, beside what a model needs."""
    return [
        Heading("What engines really allocate", "engines"),
        Paragraph(
            (
                "The count says what a model ",
                Emphasis("needs"),
                ". An engine rounds, groups and reserves on top, and where it does not make use of a design the usual formula is "
                f"right about the engine after all. For one sequence, cache in {study.fmt.name}:",
            )
        ),
        engines_table(study),
        Bullets(tuple(item for item in (_vllm_words(study), _llama_words(study), _state_words(study)) if item)),
        Paragraph(
            (
                "What a model needs is counted by layer type; what a server takes, by the rule of its engine. llama.cpp's rule is "
                "held to the logs of real servers and vLLM's to figures of its own grouping code; other layouts are not guessed.",
            )
        ),
    ]


def _vllm_words(study: NaiveStudy) -> Line:
    case = study.engines["windows"]
    if case.pool is None or case.vllm is None:
        return ()
    off = case.unmanaged
    is_usual = off is not None and off.num_bytes == case.count.naive_bytes
    unmanaged = " With its hybrid manager off it takes the usual figure." if is_usual else ""
    return (
        Strong("vLLM"),
        f" wants {format_bytes_binary(case.pool.admission_bytes)} of free blocks before it admits {case.model}, since a windowed layer "
        f"also holds the {format_count(LARGE_CARD.batched_tokens)} tokens in flight while the prompt is read "
        f"({format_count(SMALL_CARD.batched_tokens)} on cards below 70 GiB and the A100). It then keeps "
        f"{format_bytes_binary(case.pool.steady_bytes)}; {format_bytes_binary(case.count.total_bytes)} are counted.{unmanaged}",
    )


def _llama_words(study: NaiveStudy) -> Line:
    window, masked = study.engines["windows"], study.engines["all"]
    if window.llama_cpp is None or masked.llama_cpp is None:
        return ()
    return (
        Strong("llama.cpp"),
        " gives a windowed layer its window and a micro batch, rounded up: "
        f"{format_bytes_binary(window.llama_cpp.num_bytes)} for {window.model}. For {masked.model} it keeps every token and only masks "
        f"them, {format_bytes_binary(masked.llama_cpp.num_bytes)} instead of {format_bytes_binary(masked.count.total_bytes)}.",
    )


def _state_words(study: NaiveStudy) -> Line:
    linear, index = study.engines["linear"], study.engines["index"]
    if linear.pool is None:
        return ()
    stored = (
        f" {index.model} takes less too, its index keys being stored in fp8."
        if index.pool is not None and index.pool.steady_bytes < index.count.total_bytes
        else ""
    )
    return (
        Strong("States"),
        f" fill whole pages of vLLM, to which attention blocks grow: one token to {linear.model} pins "
        f"{format_bytes_binary(linear.pool.first_token_bytes)}, and in ",
        _BLOCKS,
        " a prompt of a dozen tokens holds a third of the pool. At full length that model takes less than counted, since vLLM "
        f"stores its state in 16 bits.{stored}",
    )
