"""Could these numbers have come from that process: tests of fit, with nothing but the standard library.

In:   probabilities that are independent and uniform when the process was kept (see `asked`)
Out:  p-values: how often a correct run looks at least as wrong
Read next by: proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Final

POINTS_PER_BIN: Final = 10.0
_MOST_PRODUCTS: Final = 1_000_000  # of the search for gaps that come again
_SERIES_TERMS: Final = 100_000
_TINY: Final = 1e-300


def ks_statistic(uniforms: Sequence[float]) -> float:
    """How far the share of values below u is from u, at its worst.

    Formula:  max over i of max(i / n - u[i], u[i] - (i - 1) / n), u in order
    Source:   Kolmogorov 1933

    >>> ks_statistic([0.5])
    0.5
    """
    count = len(uniforms)
    return max(max((at + 1) / count - u, u - at / count) for at, u in enumerate(sorted(uniforms)))


def ks_p_value(statistic: float, count: int) -> float:
    """How often `count` uniform values are at least so far off.

    Formula:  2 Σ (-1)^(j-1) exp(-2 j² t²), t = (√n + 0.12 + 0.11 / √n) · D
    Ignores:  an error of about 1 % of the p-value for n of 20 and more
    Source:   Stephens 1970, Use of the Kolmogorov-Smirnov statistics, J. R. Stat. Soc. B 32
    """
    root = math.sqrt(count)
    scaled = (root + 0.12 + 0.11 / root) * statistic
    if scaled < 0.2:
        return 1.0
    total = 2 * math.fsum((-1) ** (j - 1) * math.exp(-2 * (j * scaled) ** 2) for j in range(1, 101))
    return min(1.0, max(0.0, total))


def normal_tail(z: float) -> float:
    """The share of a standard normal above z."""
    return math.erfc(z / math.sqrt(2)) / 2


def _gamma_z(total: float, shape: float) -> float:
    """A gamma variable of this shape and scale 1 as a standard normal one (Wilson and Hilferty 1931)."""
    return (math.cbrt(total / shape) - 1 + 1 / (9 * shape)) * 3 * math.sqrt(shape)


def rate_p_value(hazards: Sequence[float]) -> float:
    """Whether there were as many arrivals as the process has in that time, two-sided.

    Formula:  Σ hazards is gamma with shape n, scale 1
    Source:   Brown and others 2002, The time-rescaling theorem, Neural Computation 14
    """
    return 2 * normal_tail(abs(_gamma_z(math.fsum(hazards), len(hazards))))


def dispersion_of(hazards: Sequence[float]) -> tuple[float, float] | None:
    """(index of dispersion, p-value) of the arrivals on a clock on which they are Poisson at one a unit of time.

    Formula:  Σ (count - w)² / (w · B) over B bins of width w; times B it is chi-square of B degrees of freedom, its
              deviation widened by √(1 + 1 / 2w), as counts are Poisson and not normal
    Where:    None below ten whole bins
    Source:   Cox and Lewis 1966, section 6.3; Brown and others 2002 for the clock
    """
    num_bins = math.floor(math.fsum(hazards) / POINTS_PER_BIN)
    if num_bins < 10:
        return None
    counts, now = [0] * num_bins, 0.0
    for hazard in hazards:
        now += hazard
        if (at := math.floor(now / POINTS_PER_BIN)) < num_bins:
            counts[at] += 1
    total = math.fsum((count - POINTS_PER_BIN) ** 2 for count in counts) / POINTS_PER_BIN
    z = _gamma_z(total / 2, num_bins / 2) / math.sqrt(1 + 1 / (2 * POINTS_PER_BIN))
    return total / num_bins, 2 * normal_tail(abs(z))


def repeat_p_value(uniforms: Sequence[float]) -> float:
    """Whether gaps come again some places later, as where workers share a seed; one-sided.

    Formula:  at each lag, z = 12 Σ (u[i] - ½)(u[i + lag] - ½) / √(n - lag); the largest, times the number of lags
    Where:    lags up to three quarters of the gaps, fewer where there are very many
    """
    count = len(uniforms)
    centred = [u - 0.5 for u in uniforms]
    num_lags = max(1, min(3 * count // 4, max(20, _MOST_PRODUCTS // count)))
    largest = max(12 * sum(map(mul, centred, centred[lag:])) / math.sqrt(count - lag) for lag in range(1, num_lags + 1))
    return min(1.0, num_lags * normal_tail(largest))


def shortest_p_value(uniforms: Sequence[float]) -> float:
    """Whether the shortest gap is too long, as where each send adds its own time to the sleep before it.

    Formula:  (1 - min u)^n
    """
    return (1 - min(uniforms)) ** len(uniforms)


def gamma_cdf(shape: float, x: float) -> float:
    """The regularised lower incomplete gamma function P(shape, x).

    Formula:  x^a e^-x / Γ(a) · Σ x^n / (a (a + 1) … (a + n)); above a + 1 one minus Legendre's continued fraction
    Source:   DLMF 8.11.4 and 8.9.2
    """
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x >= shape + 1:
        return 1.0 - front * _legendre(shape, x)
    term = total = 1 / shape
    for n in range(1, _SERIES_TERMS):
        term *= x / (shape + n)
        total += term
        if term < total * 1e-15:
            break
    return min(1.0, front * total)


def _legendre(shape: float, x: float) -> float:
    """The continued fraction of Γ(a, x) / (x^a e^-x), by Lentz's method."""
    b = x + 1 - shape
    c, d = 1 / _TINY, 1 / b
    fraction = d
    for n in range(1, _SERIES_TERMS):
        a = -n * (n - shape)
        b += 2
        d = 1 / ((a * d + b) or _TINY)
        c = (b + a / c) or _TINY
        fraction *= (step := d * c)
        if abs(step - 1) < 1e-15:
            break
    return fraction
