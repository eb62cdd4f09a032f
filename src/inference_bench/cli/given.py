"""What a person gave on the command line: numbers as text, and options that mean nothing beside others."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeVar

from inference_bench.errors import QuantityError, RequestError
from inference_bench.facts.names import find_name
from inference_bench.units import parse_seconds

Choice = TypeVar("Choice", bound=StrEnum)
# what an option's name does not say by itself
_WORDS: Final = {
    "on": "a machine",
    "model": "a model",
    "engine": "an engine",
    "weights": "a weight format",
    "kv": "a cache format",
    "mfu": "a share of the compute",
    "bandwidth_share": "a share of the bandwidth",
    "profile": "a profile",
    "policy": "a policy",
    "rate": "a rate",
    "fail": "failures",
    "mtbf": "a mean time up",
    "mttr": "a mean time down",
}


def number(text: str, what: str) -> float:
    """A plain number.

    Raises:  QuantityError
    """
    try:
        value = float(text)
    except ValueError:
        raise QuantityError(f"the {what} is {text[:40]!r}; give a number such as 0.25") from None
    if not math.isfinite(value):
        raise QuantityError(f"the {what} is {text[:40]!r}; give a finite number")
    return value


def timeout_s(text: str) -> float:
    """The longest that a request may take.

    Raises:  RequestError, QuantityError
    """
    if not (seconds := parse_seconds(text, "timeout")):
        raise RequestError("the timeout is 0 s; it must be longer than that")
    return seconds


def choice(kind: type[Choice], text: str, what: str) -> Choice:
    """One of a few words.

    Raises:  UnknownNameError with the nearest ones
    """
    return find_name(what, text, {each.value: each for each in kind}, {})


def given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of some options that were given, as they are said in a sentence."""
    return [_WORDS.get(name, name.replace("_", " ")) for name in names if getattr(options, name, None) is not None]


def refuse(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Options that cannot be given.

    Raises:  RequestError naming those that were
    """
    found = given(options, names)
    if found:
        about = why.replace("they are", "that is", 1) if len(found) == 1 and why.startswith("they are") else why
        raise RequestError(f"{' and '.join(found)} cannot be given here: {about}")


def refuse_empty_texts(options: argparse.Namespace) -> None:
    """A value of no text, which is what an unset variable of a shell leaves: it would be the default, or the current folder.

    Raises:  RequestError naming it
    """
    for name, value in vars(options).items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise RequestError(f"an empty text is given for {name.replace('_', ' ')}; give a value, or leave it out")


def listed(text: str, what: str) -> list[str]:
    """The names of a list with commas.

    Raises:  RequestError for a list of none
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise RequestError(f"{what} are {text[:60]!r}; name at least one, with commas between them")
    return names
