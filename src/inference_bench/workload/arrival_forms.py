"""Which arrival process does a person name?

In:   words such as gamma:2 or ramp:1:20:60s, and a rate where the process does not say its own
Out:  Arrivals
Leaves out: what the processes are (arrivals, ramps)
Read next by: cli, bridge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inference_bench.errors import QuantityError, RequestError
from inference_bench.units import parse_fraction, parse_seconds
from inference_bench.workload.arrivals import Arrivals, Constant, GammaArrivals, OnOff, Poisson
from inference_bench.workload.ramps import Ramp, Steps


def _gamma(rate: float, fields: list[str]) -> Arrivals:
    return GammaArrivals(rate, _number(fields[0], "coefficient of variation of the gaps"))


def _on_off(rate: float, fields: list[str]) -> Arrivals:
    on_s, off_s = (parse_seconds(field, "duration of a period") for field in fields[:2])
    return OnOff.of_mean_rate(rate, on_s, off_s, *(parse_fraction(field, "share") for field in fields[2:]))


def _ramp(_: float, fields: list[str]) -> Arrivals:
    first, last = (_number(field, "rate of the ramp") for field in fields[:2])
    return Ramp(first, last, parse_seconds(fields[2], "duration of the ramp"), _is_even(fields[3:]))


def _steps(_: float, fields: list[str]) -> Arrivals:
    rates = tuple(_number(field, "rate of a step") for field in fields[0].split(","))
    return Steps(rates, parse_seconds(fields[1], "duration of a step"), _is_even(fields[2:]))


def _is_even(fields: list[str]) -> bool:
    if fields and fields[0].strip().lower() not in ("poisson", "even"):
        raise RequestError(f"requests cannot be spaced {fields[0][:40]!r}; write poisson or even")
    return bool(fields) and fields[0].strip().lower() == "even"


# name → how it is written, how many fields it may have, how it is made
_PROCESSES: Final[dict[str, tuple[str, tuple[int, ...], Callable[[float, list[str]], Arrivals]]]] = {
    "poisson": ("poisson", (0,), lambda rate, _: Poisson(rate)),
    "constant": ("constant", (0,), lambda rate, _: Constant(rate)),
    "gamma": ("gamma:CV", (1,), _gamma),
    "on-off": ("on-off:ON:OFF[:SHARE]", (2, 3), _on_off),
    "ramp": ("ramp:FROM:TO:TIME[:even]", (3, 4), _ramp),
    "steps": ("steps:RATE,RATE,...:TIME[:even]", (2, 3), _steps),
}
_WITH_RATES: Final = frozenset({"ramp", "steps"})  # they say their rates themselves
ARRIVALS_FORMS: Final = tuple(form for form, _, _ in _PROCESSES.values())


def says_its_rates(text: str | None) -> bool:
    """Whether arrivals that a person names need no rate beside them."""
    return text is not None and text.partition(":")[0].strip().lower() in _WITH_RATES


def parse_arrivals(text: str, rate: float | None) -> Arrivals:
    """The arrival process that a person names, at this mean rate.

    Unit:     requests per second; None for a process that says its rates itself
    Raises:   RequestError for an unknown process, or a rate too many or too few; QuantityError for a field that is not
              a number

    >>> parse_arrivals("gamma:2", 0.5)
    GammaArrivals(rate=0.5, cv=2.0)
    """
    name, *fields = text.strip().split(":")
    form, allowed, build = _PROCESSES.get(name.strip().lower(), ("", (), None))
    if build is None:
        raise RequestError(f"no arrival process is called {name[:40]!r}; write one of {', '.join(ARRIVALS_FORMS)}")
    if len(fields) not in allowed:
        raise RequestError(f"the arrival process {text[:80]!r} has {len(fields)} fields; write {form}")
    if (rate is None) is not says_its_rates(text):
        raise RequestError(
            f"the arrivals {name} need a rate; give one"
            if rate is None
            else f"the arrivals {text[:80]!r} say their rates themselves; give no rate beside them"
        )
    return build(0.0 if rate is None else rate, fields)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise QuantityError(f"the {what} is {text[:40]!r}; give a number such as 2") from None
