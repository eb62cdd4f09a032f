"""What does the standard KV-cache formula get wrong, and by how much? One article, for the page and for the docs.

In:   NaiveStudy: every figure that is said
Out:  Article
Leaves out: counting (predict.naive_study); how it is written down (article_html, article_markdown)
Read next by: bridge, scripts/write_article.py.

No figure stands in a sentence here or in article_reasons and article_engines: all are taken from the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.charts.naive_error import factor_chart, growth_chart, tokens_name
from inference_bench.predict.naive_study import EXAMPLES
from inference_bench.report.article_blocks import (
    Article,
    Block,
    Bullets,
    Code,
    Commands,
    Formula,
    Heading,
    Link,
    Paragraph,
    Picture,
    Strong,
)
from inference_bench.report.article_engines import cost_section, danger_section, engines_section
from inference_bench.report.article_reasons import reasons_section
from inference_bench.report.article_tables import context_name, lengths_table, registry_table
from inference_bench.report.html_pieces import Drawing
from inference_bench.units import format_bytes_binary, format_count, format_number

if TYPE_CHECKING:
    from inference_bench.predict.naive_rows import ModelRow
    from inference_bench.predict.naive_study import NaiveStudy

TITLE: Final = "What the standard KV-cache formula gets wrong, and by how much"
_RIGHT: Final = ("Meta-Llama-3.1-70B", "Qwen2.5-72B", "Qwen3-235B-A22B", "Mixtral-8x7B-v0.1", "phi-4")
_POPE: Final = Link("Pope et al. 2022", "https://arxiv.org/abs/2211.05102")
_LATENT_PAPER: Final = Link("DeepSeek-V2", "https://arxiv.org/abs/2405.04434")
_KVFIT: Final = Link("kvfit 0.3.0", "https://pypi.org/project/kvfit/")
_AICONFIGURATOR: Final = Link("aiconfigurator 0.12.0", "https://github.com/ai-dynamo/aiconfigurator")
_VLLM: Final = Link(
    "kv_cache_interface.py and kv_cache_utils.py", "https://github.com/vllm-project/vllm/tree/main/vllm/v1"
)
_LLAMA_CPP: Final = Link(
    "llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp and their kin",
    "https://github.com/ggml-org/llama.cpp/tree/master/src",
)


def article(study: NaiveStudy) -> Article:
    """The article in the order in which it is read."""
    return Article(
        TITLE,
        (
            *_lead(study),
            *_formula_section(study),
            *_how_far_section(study),
            *reasons_section(study, _growth_picture(study)),
            *cost_section(study),
            *danger_section(study),
            *engines_section(study),
            *_limits_section(study),
            *_check_section(study),
            Heading("Every model", "models"),
            registry_table(study),
        ),
    )


def listed(names: Iterable[str]) -> str:
    """Names in a row: "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _lead(study: NaiveStudy) -> list[Block]:
    here = study.here
    at = f"at {context_name(study.context)}"
    worst = here.highest[0] if here.highest else None
    say_worst = "" if worst is None else f" and {format_number(worst.factor)} times at worst ({_group(here.highest)})"
    middle = (
        f"{at} it then gives {format_number(here.median_factor)} times the truth in the middle{say_worst}."
        if here.median_factor is not None
        else f"{at} it happens to be right about all of them."
    )
    return [
        Paragraph(
            (
                "Almost every calculator of inference memory has one line in it: two times layers times key-value heads times "
                "head size times bytes times tokens. We held that line against a count of what each layer really keeps, for all "
                f"{format_count(here.num_models)} models this program knows. ",
                Strong(
                    f"It is exact for {format_count(study.num_right)} of them and wrong for {format_count(study.num_wrong)}"
                ),
                f"; {middle} Mostly it says too much. Of {format_count(len(study.short))} models it says too little while sequences "
                "are short, which is the side on which a server runs out of memory.",
            )
        ),
        Paragraph(
            (
                "No figure on this page was typed in. Each is computed by the code that sizes models here, from configurations "
                f"read up to {study.as_of}; with another length or cache format the sentences change as the tables do.",
            )
        ),
    ]


def _group(rows: Sequence[ModelRow]) -> str:
    """The first of the models that share a place, with how many others do."""
    others = len(rows) - 1
    return rows[0].model if not others else f"{rows[0].model} and {format_count(others)} others"


# ── the formula, and how far off it is ─────────────────────────────────────────────────────────────


def _formula_section(study: NaiveStudy) -> list[Block]:
    uniform = study.examples["uniform"]
    heads, size = uniform.model.num_key_value_heads, uniform.model.head_dim
    return [
        Heading("The formula, and where it is right", "formula"),
        Formula("bytes = 2 · L · n_kv · d_h · b · t"),
        Paragraph(
            (
                "Two tensors (keys and values), ",
                Code("L"),
                " layers, ",
                Code("n_kv"),
                " key-value heads of ",
                Code("d_h"),
                " values each, ",
                Code("b"),
                " bytes a value, ",
                Code("t"),
                " tokens. All come from the top level of the model's ",
                Code("config.json"),
                ", and ",
                Code("d_h"),
                " is the hidden size over the heads where that names no head size.",
            )
        ),
        Paragraph(
            (
                f"For {uniform.model.name} in {study.fmt.name} at {format_count(uniform.count.context_tokens)} tokens that is 2 × "
                f"{uniform.model.num_hidden_layers} layers × {heads} heads × {size} values a token, or "
                f"{format_bytes_binary(uniform.count.naive_bytes)}. Its layers keep {format_bytes_binary(uniform.count.total_bytes)}. "
                f"The same holds for {listed(_right_names(study))}: wherever every layer keeps a key and a value of one size "
                "for every token, the formula is not an estimate but the answer. Its one hidden assumption is that layers are "
                "alike. ",
                Strong("The cache is a property of the layer types, not of the layer count."),
            )
        ),
    ]


def _right_names(study: NaiveStudy) -> list[str]:
    right = {row.model for row in study.rows if row.is_uniform}
    return [name for name in _RIGHT if name in right]


def _how_far_section(study: NaiveStudy) -> list[Block]:
    beyond = study.beyond
    only = f"; {listed(beyond.only_there)} joins the wrong ones only there" if beyond.only_there else ""
    return [
        Heading("How far off", "how-far"),
        _factor_picture(study),
        lengths_table(study),
        Paragraph(
            (
                "The error is no constant to divide by: it depends on the design, and for most designs on the length. No model is "
                "counted here past the length its configuration states. Counted past it, as ",
                Code("inference-bench models --naive-error"),
                " does, the formula is wrong on "
                f"{format_count(beyond.num_wrong)} at {format_count(beyond.context)} tokens, by a median factor of "
                f"{format_number(beyond.median_factor)}{only}.{_at_this_length(study)}",
            )
        ),
    ]


def _at_this_length(study: NaiveStudy) -> str:
    """Which models the formula says too little of, or nothing."""
    here, said = study.here, ""
    if here.too_little:
        said = (
            f" At {context_name(study.context)} it says too little of {listed(row.model for row in here.too_little)}."
        )
    if here.unanswered:
        said += f" For {listed(row.model for row in here.unanswered)} it has nothing to multiply."
    return said


def _factor_picture(study: NaiveStudy) -> Picture:
    drawing = Drawing(
        f"The usual figure over the true cache, at {context_name(study.context)}",
        "Every model that the formula is wrong about, by how much and mainly why; to the left of the line it says too little.",
        lambda width_px: factor_chart(study.rows, tuple(EXAMPLES.values()), width_px),
    )
    return Picture("factors", drawing)


def _growth_picture(study: NaiveStudy) -> Picture:
    drawing = Drawing(
        "The cache of one sequence as it grows",
        "A window makes the line flatten, a latent lowers it at every length, a fixed state starts above the usual figure and ends "
        "far below it. With layers all alike there is one line.",
        lambda width_px: growth_chart(study.curves, width_px),
    )
    return Picture("growth", drawing)


# ── what the claim is worth, and how to check it ───────────────────────────────────────────────────


def _limits_section(study: NaiveStudy) -> list[Block]:
    fmt = study.fmt.name
    return [
        Heading("What is assumed, and where the claim stops", "limits"),
        Bullets(
            (
                (
                    f"One sequence, its cache in {fmt}, no prefix shared with another. Twice the sequences are twice the bytes.",
                ),
                (
                    "A fixed state is a convolution history of 16 bits and a recurrent state of 32, unless the configuration "
                    "says otherwise; engines may choose otherwise too. It does not shrink with the cache format.",
                ),
                ("Layers that draft further tokens, vision towers and an engine's working memory are not in it.",),
                (
                    "Nothing on this page was timed: a smaller cache is also less to read in every step, but that is another page.",
                ),
                (
                    Strong("Uniform models are right."),
                    f" {format_count(study.num_right)} of {format_count(study.here.num_models)} need no correction. The table holds models "
                    "that people ask for and that published measurements name; it is no random sample, and the share says "
                    "nothing about a year's releases.",
                ),
                (
                    "Others count by layer type too: ",
                    _KVFIT,
                    " and ",
                    _AICONFIGURATOR,
                    " do so for many of these designs, and "
                    "vLLM, llama.cpp and Transformers have to. What is offered here is a count of every model in the table, "
                    "taken apart to the byte, beside what an engine will allocate.",
                ),
            )
        ),
    ]


def _check_section(study: NaiveStudy) -> list[Block]:
    windows = study.examples["windows"]
    name, length = windows.model.name, tokens_name(windows.count.context_tokens)
    said = format_bytes_binary(windows.count.naive_bytes).replace(" ", "")
    kv = "" if study.fmt.name == "fp16" else f" --kv {study.fmt.name}"
    terms = " + ".join(
        f"{layer.count} layers × {format_count(layer.positions)} tokens × {format_count(layer.bytes_per_position)} bytes"
        for layer in windows.count.layers
    )
    return [
        Heading("Check it yourself", "check"),
        Paragraph(
            (
                f"By hand, {name} at {format_count(windows.count.context_tokens)} tokens: {terms} = "
                f"{format_count(windows.count.total_bytes)} bytes, or {format_bytes_binary(windows.count.total_bytes)}. By this program:",
            )
        ),
        Commands(
            (
                f"inference-bench fit {name} --context {length}{kv}",
                f"inference-bench fit {name} --context {length}{kv} --engine vllm",
                f"inference-bench explain {name} {said} --context {length}{kv}   # which rule prints that figure?",
                "inference-bench models --naive-error                  # the whole table, at three lengths",
                f"inference-bench models {name} --json          # where a configuration was read, and when",
            )
        ),
        Paragraph(
            (
                "Sources: the formula as ",
                _POPE,
                " states it for one layer; latents after ",
                _LATENT_PAPER,
                "; vLLM's ",
                _VLLM,
                "; llama.cpp's ",
                _LLAMA_CPP,
                "; each model's own configuration, whose origin stands in its row of the table of models. "
                "Tests hold the counts to the cache objects of Transformers' own classes.",
            )
        ),
    ]
