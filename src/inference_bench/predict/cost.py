"""What tokens cost: on a machine by the hour, bought, or behind a price a token.

In:   prices, rates, utilisation, volumes
Out:  USD a million tokens, USD a request, requests a day that break even, joules a token
Leaves out: people, network, storage, and the idle power of owned hardware
Read next by: plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.units import HOURS_PER_DAY, HOURS_PER_YEAR, KILO, MEGA


def _share(value: float, what: str) -> float:
    if not 0 < value <= 1:
        raise RequestError(f"{what} is {value:g}; it must lie above 0 and at most at 1")
    return value


def usd_per_million_tokens(usd_per_hour: float, tokens_per_hour: float, utilisation: float = 1.0) -> float:
    """What a million tokens cost when this share of the bought hours is busy.

    Formula:  USD/h / (tokens/h · utilisation) · 10^6
    Unit:     USD a million tokens
    Raises:   RequestError for a utilisation outside 0..1 or no tokens

    >>> round(usd_per_million_tokens(1.0, 2_394_000), 2), round(usd_per_million_tokens(1.0, 2_394_000, 0.3), 2)
    (0.42, 1.39)
    """
    if tokens_per_hour <= 0:
        raise RequestError(f"{tokens_per_hour:g} tokens an hour have no price a token; more than 0 are needed")
    return usd_per_hour / (tokens_per_hour * _share(utilisation, "utilisation")) * MEGA


@dataclass(frozen=True, slots=True)
class HostedPrices:
    """What a hosted model costs by the token.

    Where:  cached is for input that the host has in its prefix cache; None charges it as input
    Unit:   USD a million tokens
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None

    def usd_per_request(self, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """One request, of whose prompt so many tokens are in the host's cache.

        Formula:  ((prompt - cached) · input + cached · cached input + output · output) / 10^6
        Raises:   RequestError when more is cached than the prompt holds
        """
        if not 0 <= cached_tokens <= prompt_tokens:
            raise RequestError(f"{cached_tokens} cached tokens are not part of a prompt of {prompt_tokens}")
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        fresh = (prompt_tokens - cached_tokens) * self.input_usd
        return (fresh + cached_tokens * cached_usd + output_tokens * self.output_usd) / MEGA


def always_on_usd_per_request(usd_per_hour: float, requests_per_day: float, machines: int = 1) -> float:
    """What a request costs on machines that are paid for all day.

    Formula:  24 · USD/h · machines / requests a day
    Raises:   RequestError for no requests
    """
    if requests_per_day <= 0:
        raise RequestError(f"{requests_per_day:g} requests a day have no price each; more than 0 are needed")
    return HOURS_PER_DAY * usd_per_hour * machines / requests_per_day


def break_even_requests_per_day(usd_per_hour: float, hosted_usd_per_request: float) -> float | None:
    """The daily volume from which one machine that is always on costs less than paying by the token.

    Formula:  24 · USD/h / hosted USD a request
    Where:    None where the hosted model is free; beyond what the machine can serve in a day it is never reached
    """
    return HOURS_PER_DAY * usd_per_hour / hosted_usd_per_request if hosted_usd_per_request > 0 else None


def depreciation_usd_per_hour(price_usd: float, years: float) -> float:
    """The price of a machine spread evenly over its years.

    Formula:  price / (years · 8760)

    >>> round(depreciation_usd_per_hour(2000, 3), 4)
    0.0761
    """
    if years <= 0:
        raise RequestError(f"{years:g} years have no hours to spread a price over; more than 0 are needed")
    return price_usd / (years * HOURS_PER_YEAR)


def energy_usd_per_hour(watts: float, usd_per_kwh: float) -> float:
    """What the power costs.

    Formula:  W / 1000 · USD/kWh

    >>> round(energy_usd_per_hour(450, 0.20), 4)
    0.09
    """
    return watts / KILO * usd_per_kwh


def owned_usd_per_million_tokens(
    depreciation_usd: float, energy_usd: float, tokens_per_hour: float, utilisation: float = 1.0
) -> float:
    """What a million tokens cost on hardware of one's own: it loses value always and draws power while busy.

    Formula:  (depreciation / utilisation + energy) / (tokens/h) · 10^6
    Ignores:  idle power
    """
    return usd_per_million_tokens(depreciation_usd / _share(utilisation, "utilisation") + energy_usd, tokens_per_hour)


def joules_per_token(watts: float, tokens_per_s: float) -> float:
    """Energy of one output token.

    Formula:  W / (tokens/s)

    >>> round(joules_per_token(450, 665), 3)
    0.677
    """
    if tokens_per_s <= 0:
        raise RequestError(f"{tokens_per_s:g} tokens a second take no energy each; more than 0 are needed")
    return watts / tokens_per_s
