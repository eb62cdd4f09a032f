"""How far apart can two shares of requests be, when few or none of them ended that way?

In:   counts
Out:  an Interval of a share, or of the difference of two
Leaves out: requests that fail together (resampling): of both intervals the wider counts
Read next by: evidence.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from inference_bench.stats import Interval, wilson_interval


def share_interval(count: float, total: float, confidence: float) -> Interval:
    """Where the true share lies, by Wilson; none of 300 is no proof of 0.

    Ignores:  dependence between requests
    """
    return wilson_interval(count, total, NormalDist().inv_cdf((1 + confidence) / 2), confidence)


def difference_interval(first: tuple[float, float], second: tuple[float, float], confidence: float) -> Interval:
    """Where the second share less the first one lies; each is (count, total).

    Formula:  d - √((p2 - l2)² + (u1 - p1)²) to d + √((u2 - p2)² + (p1 - l1)²), of both shares' Wilson intervals
    Ignores:  dependence between requests, and that both sides were asked the same
    Source:   Newcombe 1998, Interval estimation for the difference between independent proportions, method 10
    """
    p1, p2 = (count / total for count, total in (first, second))
    mine, theirs = (share_interval(*side, confidence) for side in (first, second))
    below = math.hypot(p2 - theirs.low, mine.high - p1)
    above = math.hypot(theirs.high - p2, p1 - mine.low)
    return Interval(p2 - p1 - below, p2 - p1 + above, confidence)
