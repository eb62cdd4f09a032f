"""From bounds to expected times: planning factors, and the latency of one request.

In:   Bound, or the pieces of a request's latency
Out:  expected ranges (a bound divided by a stated efficiency) and the sum TTFT + (n - 1) · TPOT
Leaves out: queueing, and efficiencies fitted to measurements
Read next by: capacity, fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.roofline import Bound, Roof, bound


@dataclass(frozen=True, slots=True)
class Range:
    """A low and a high value of one quantity."""

    low: float
    high: float


# What is assumed where nothing was measured: the share of each peak that real engines reach.
PLANNING_BANDWIDTH_FRACTION: Final = Range(0.7, 0.9)
PLANNING_COMPUTE_FRACTION: Final = Range(0.4, 0.6)
PLANNING_ASSUMPTION: Final = (
    "expected ranges assume 70-90 % of peak bandwidth and 40-60 % of dense peak compute; nothing was measured for them"
)


def predict_seconds(limit: Bound, ceiling: Roof) -> Range | None:
    """The time a bounded step is expected to take: its bytes and FLOPs at the planning shares of both ceilings.

    Formula:  max(bytes / (s · BW), FLOPs / (s · P_peak)) at the high shares .. at the low shares
    Unit:     seconds; None where no rate is known
    Source:   planning factors; replaced where a machine was measured
    """
    fast = _at_shares(limit, ceiling, PLANNING_BANDWIDTH_FRACTION.high, PLANNING_COMPUTE_FRACTION.high)
    slow = _at_shares(limit, ceiling, PLANNING_BANDWIDTH_FRACTION.low, PLANNING_COMPUTE_FRACTION.low)
    return None if fast is None or slow is None else Range(fast, slow)


def _at_shares(limit: Bound, ceiling: Roof, bandwidth_share: float, compute_share: float) -> float | None:
    bandwidth, peak = ceiling.bandwidth_bytes_per_s, ceiling.peak_flops_per_s
    reached = Roof(
        None if bandwidth is None else bandwidth * bandwidth_share,
        None if peak is None else peak * compute_share,
        ceiling.compute_format,
    )
    return bound(limit.name, limit.flops, limit.num_bytes, reached).seconds


def predict_prefill_seconds(flops: int, peak_flops_per_s: float, mfu: float) -> float:
    """Prefill time at a stated model FLOP utilisation.

    Formula:  FLOPs / (MFU · P_peak)
    Unit:     seconds                              Ignores: traffic, which bounds short prompts
    """
    return flops / (mfu * peak_flops_per_s)


def predict_end_to_end_seconds(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """E2E of one request from its first-token time and its pace.

    Formula:  TTFT + (n - 1) · TPOT; one output token has no TPOT
    Unit:     seconds
    """
    return ttft_s + (output_tokens - 1) * tpot_s if output_tokens > 1 else ttft_s
