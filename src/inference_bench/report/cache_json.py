"""The count of a KV cache as JSON: the same keys wherever it appears.

In:   CacheCount
Out:  a dict ready for JSON
Read next by: fit_json, json_result.
"""

from __future__ import annotations

from typing import Any

from inference_bench.accounting.cache import CacheCount
from inference_bench.origin import Origin


def cache_json(cache: CacheCount) -> dict[str, Any]:
    """True and naive bytes side by side, each layer type with what it keeps, slope and intercept."""
    return {
        "context_tokens": cache.context_tokens,
        "sequences": cache.sequences,
        "format": cache.number_format,
        "bytes": cache.num_bytes,
        "state_bytes": cache.state_bytes,
        "cross_attention_bytes": cache.cross_attention_bytes,
        "state_format": cache.state_format,
        "naive_bytes": cache.naive_bytes,
        "naive_factor": cache.naive_factor,
        "next_token_bytes": cache.next_token_bytes,
        "mean_token_bytes": float(cache.mean_token_bytes),
        "fixed_bytes_per_sequence": cache.fixed_bytes_per_sequence,
        "slope_changes_at_tokens": list(cache.slope_changes),
        "origin": Origin.COUNTED,
        "layers": [
            {
                "type": layer.layer_type,
                "count": layer.count,
                "bytes": layer.num_bytes,
                "state_bytes": layer.state_bytes,
                "cross_attention_bytes": layer.cross_attention_bytes,
                "sliding_window": layer.sliding_window,
                "positions": layer.positions,
                "bytes_per_position": layer.bytes_per_position,
            }
            for layer in cache.layers
        ],
    }
