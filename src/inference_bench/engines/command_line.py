"""Settings of a server, checked before anything is started, and as a command line.

In:   names and values
Out:  options; RequestError for what cannot be
Read next by: llama_cpp, vllm, sglang.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from inference_bench.engines.base import FlagValue
from inference_bench.errors import RequestError

MAX_COUNT: Final = (1 << 31) - 1  # the engines keep counts in 32 signed bits
_FLAG: Final = re.compile(r"[a-z][a-z0-9-]{0,60}")


def as_options(settings: Iterable[tuple[str, FlagValue]], negated: str | None) -> Iterator[str]:
    """Settings that are not None as options; a switch that is off with a prefix, or not at all where there is none."""
    for name, value in settings:
        if isinstance(value, bool):
            if value or negated is not None:
                yield f"--{name}" if value else f"--{negated}{name}"
        elif value is not None:
            yield f"--{name}={value}"


def check_counts(engine: str, counts: Mapping[str, int | None], most: int = MAX_COUNT) -> None:
    """Counts that an engine can hold.

    Raises:   RequestError
    """
    for name, count in counts.items():
        if count is not None and not 1 <= count <= most:
            raise RequestError(f"{name} {count} is outside what {engine} takes; give 1 to {most}")


def check_fraction(value: float | None) -> None:
    """A share of a memory.

    Raises:   RequestError
    """
    if value is not None and not 0 < value <= 1:
        raise RequestError(f"memory_fraction {value} must lie above 0 and not above 1")


def check_flags(engine: str, flags: Mapping[str, FlagValue], own: Collection[str]) -> None:
    """Flags that are passed on as they are: real names, and none that this program sets itself.

    Raises:   RequestError
    """
    for flag in flags:
        if not _FLAG.fullmatch(flag) or flag in own:
            raise RequestError(
                f"flag {flag[:60]!r} cannot be passed on; give {engine}'s own names without dashes in front, and none of "
                f"{', '.join(sorted(own))}"
            )
