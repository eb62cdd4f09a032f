"""What does a process say of each gap: the probability of one as short, given all before it.

In:   gaps between arrivals, and the process that was asked for
Out:  uniforms: independent and uniform on 0..1 when the process was kept, and only then, whatever the process
Leaves out: constant arrivals and traces, in which nothing is left to chance
Read next by: proof.

The transform is Rosenblatt's (1952). A rate that changes is first taken out: on a clock that runs with the expected number
of arrivals a ramp is Poisson at one a unit, or even. Bursts are a Markov-modulated Poisson process: which state it is in
is not seen, so the probability of each state is carried from gap to gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

from inference_bench.arrival_proof.fit_tests import gamma_cdf
from inference_bench.workload import Arrivals, Constant, GammaArrivals, OnOff, Poisson, Ramp, Steps

_LEAST: Final = 1e-15


def on_own_clock(
    process: Arrivals, times_s: Sequence[Sequence[float]], begin_s: float
) -> tuple[Arrivals, list[list[float]]]:
    """A process of a fixed rate and its times, for one whose rate changes with the time since `begin_s`.

    Formula:  t' = Λ(t - begin), on which arrivals come at one a unit
    """
    if not isinstance(process, Ramp | Steps):
        return process, list(map(list, times_s))
    fixed = Constant(1.0) if process.is_even else Poisson(1.0)
    return fixed, [[process.count_by(time_s - begin_s) for time_s in some] for some in times_s]


def own_seconds(process: Arrivals, time_s: float) -> float:
    """How long this takes on the process's own clock, at most."""
    return time_s * process.most_rate if isinstance(process, Ramp | Steps) else time_s


def uniforms_of(process: Arrivals, gaps_s: Sequence[float], resolution_s: float) -> list[float] | None:
    """The probability of a gap no longer than each; None for a process that leaves nothing to chance.

    Where:    gaps below the resolution of the times are alike, and get a probability drawn from those they may have
    Unit:     fractions, inside 0..1
    """
    match process:
        case Poisson(rate):
            found = [-math.expm1(-rate * gap_s) for gap_s in gaps_s]
            least = -math.expm1(-rate * resolution_s)
        case GammaArrivals(rate, cv):
            shape = 1 / cv**2
            found = [gamma_cdf(shape, gap_s * rate * shape) for gap_s in gaps_s]
            least = gamma_cdf(shape, resolution_s * rate * shape)
        case OnOff():
            found, least = _bursts(process, gaps_s), 0.0
        case _:
            return None
    draw = Random(0).random
    spread = (draw() * least if u < least else u for u in found)
    return [min(max(u, _LEAST), 1 - _LEAST) for u in spread]


def hazards_of(uniforms: Sequence[float]) -> list[float]:
    """The gaps on a clock on which the arrivals are Poisson at one a unit of time.

    Formula:  -ln(1 - u)
    Source:   Brown and others 2002, The time-rescaling theorem, Neural Computation 14
    """
    return [-math.log1p(-u) for u in uniforms]


def blur_of(process: Arrivals, gaps_s: Sequence[float], jitter_s: float) -> float:
    """How much a shift of this size changes the probabilities at most: what the sends cannot resolve.

    Unit:     fraction
    """
    if isinstance(process, GammaArrivals):
        shape, scale = 1 / process.cv**2, process.rate / process.cv**2
        some = sorted(gaps_s)[:: max(1, len(gaps_s) // 100)]
        return max(
            gamma_cdf(shape, (gap_s + jitter_s) * scale) - gamma_cdf(shape, gap_s * scale) for gap_s in (0.0, *some)
        )
    rate = max(process.rate_on, process.rate_off) if isinstance(process, OnOff) else process.mean_rate
    return -math.expm1(-rate * jitter_s)


def relative_spread_of(process: Arrivals, count: int) -> float:
    """The standard deviation of the time that `count` arrivals take, over its mean.

    Formula:  √(I / n), I the index of dispersion over long times: 1 for Poisson, cv² for gamma, and for bursts
              1 + 2 (λ₁ - λ₂)² r₁ r₂ / ((r₁ + r₂)² (λ₁ r₂ + λ₂ r₁)), r one over the mean durations
    Source:   Fischer and Meier-Hellstern 1993, The Markov-modulated Poisson process cookbook
    """
    match process:
        case GammaArrivals(_, cv):
            index = cv**2
        case OnOff(rate_on, on_s, off_s, rate_off):
            leave, enter = 1 / on_s, 1 / off_s
            excess = 2 * (rate_on - rate_off) ** 2 * leave * enter
            index = 1 + excess / ((leave + enter) ** 2 * (rate_on * enter + rate_off * leave))
        case _:
            index = 1.0
    return math.sqrt(index / count)


def _bursts(process: OnOff, gaps_s: Sequence[float]) -> list[float]:
    """The same of bursts, by the probability of being on after each arrival.

    Formula:  S(t) = p · exp((Q - Λ) t) · 1, u = 1 - S; then p = p · exp((Q - Λ) t) · Λ, scaled to a sum of 1
    Where:    the eigenvalues of the two-by-two matrix are m ± h, exp = e^(m t) (cosh(h t) + (M - m) sinh(h t) / h)
    """
    leave, enter = 1 / process.on_s, 1 / process.off_s
    on, off = process.rate_on, process.rate_off
    stay_on, stay_off = -(leave + on), -(enter + off)
    middle, half = (stay_on + stay_off) / 2, math.sqrt(((stay_on - stay_off) / 2) ** 2 + leave * enter)
    share_on = on * process.on_s / (on * process.on_s + off * process.off_s)  # just after an arrival
    found = []
    for gap_s in gaps_s:
        rising, falling = math.exp((middle + half) * gap_s), math.exp((middle - half) * gap_s)
        even, odd = (rising + falling) / 2, (rising - falling) / (2 * half)
        share_off = 1 - share_on
        is_on = share_on * (even + (stay_on - middle) * odd) + share_off * enter * odd
        is_off = share_off * (even + (stay_off - middle) * odd) + share_on * leave * odd
        found.append(1 - is_on - is_off)
        weight = is_on * on + is_off * off
        share_on = is_on * on / weight if weight > 0 else share_on
    return found
