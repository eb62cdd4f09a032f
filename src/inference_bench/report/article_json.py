"""The article's figures for programs: every model at one length.

In:   NaiveStudy
Out:  a dict ready for JSON
Read next by: bridge.
"""

from __future__ import annotations

from typing import Any

from inference_bench.predict.naive_study import NaiveStudy
from inference_bench.report.article_tables import context_name
from inference_bench.units import format_number


def article_json(study: NaiveStudy) -> dict[str, Any]:
    """Every model's true and usual cache with the factor between them, and how many are wrong."""
    here = study.here
    return {
        "schema": "inference-bench/article/1",
        "context_tokens": study.context,
        "cache": study.fmt.name,
        "models": here.num_models,
        "wrong": here.num_wrong,
        "median_factor_where_wrong": here.median_factor,
        "rows": [
            {
                "name": row.model,
                "layers": row.layer_types,
                "as_of": row.as_of,
                "context_tokens": row.count.context_tokens,
                "true_bytes": row.count.total_bytes,
                "naive_bytes": row.count.naive_bytes,
                "factor": row.factor,
                "cause": row.cause,
            }
            for row in study.rows
        ],
    }


def article_status(study: NaiveStudy) -> str:
    """The result in so few words that they can be read out at every change."""
    here = study.here
    return (
        f"at {context_name(study.context)} the usual formula is wrong on {here.num_wrong} of {here.num_models} models, "
        f"by a median factor of {format_number(here.median_factor)}"
    )
