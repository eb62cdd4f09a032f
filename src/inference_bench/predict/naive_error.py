"""What the usual formula says, what is true, and by how much it is off: over many models at a few contexts.

In:   ModelSpecs, contexts, a cache format
Out:  NaiveRow: one for each model
Leaves out: engine rounding
Read next by: naive_rows (the same within each model's own limit), report, cli.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.cache import CacheCount, CacheFormat, count_cache
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import ModelSpec
from inference_bench.stats import median

CONTEXTS: Final = (4096, 32768, 131072)


@dataclass(frozen=True, slots=True)
class NaiveRow:
    """One model at every context."""

    model: str
    layer_types: str
    counts: tuple[CacheCount, ...]

    @property
    def is_uniform(self) -> bool:
        """Whether the usual formula is right at every context."""
        return all(count.naive_bytes == count.total_bytes for count in self.counts)


def count_naive_errors(
    models: Iterable[ModelSpec], fmt: CacheFormat, contexts: Sequence[int] = CONTEXTS
) -> tuple[NaiveRow, ...]:
    """True and usual cache of one sequence, model by model; the ones most wrong at the longest context first."""
    rows = [
        NaiveRow(model.name, describe_layers(model), tuple(count_cache(model, fmt, context) for context in contexts))
        for model in models
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.counts[-1].naive_factor or 0), row.model)))


def describe_layers(model: ModelSpec) -> str:
    """The layer types with their counts: "10 full, 52 sliding 1024"."""
    counts: dict[str, int] = {}
    for layer in count_cache(model, CacheFormat(number_format("fp16"), number_format("fp16")), 1).layers:
        window = f" {layer.sliding_window}" if layer.sliding_window is not None else ""
        name = f"{str(layer.layer_type).removesuffix('_attention')}{window}"
        counts[name] = counts.get(name, 0) + layer.count
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def median_factor(rows: Iterable[NaiveRow]) -> float | None:
    """The median factor, at the longest context, over the models on which the usual formula is wrong."""
    factors = [row.counts[-1].naive_factor for row in rows if not row.is_uniform]
    known = [factor for factor in factors if factor is not None]
    return median(known) if known else None
