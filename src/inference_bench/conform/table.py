"""Which cases are there: the three sets of scripts together.

In:   a name
Out:  a Case, and all of them in the order they are told
Leaves out: what is right (oracle)
Read next by: server, suite.
"""

from __future__ import annotations

from inference_bench.conform import fault_cases, framing_cases, shape_cases
from inference_bench.conform.script import CASES, Case
from inference_bench.errors import UnknownNameError

_SOURCES = tuple(each.__name__ for each in (shape_cases, framing_cases, fault_cases))  # they fill CASES when imported
ALL_CASES: tuple[Case, ...] = tuple(sorted(CASES.values(), key=lambda case: _SOURCES.index(case.source)))


def case_named(name: str) -> Case:
    """One case.

    Raises:   UnknownNameError
    """
    try:
        return CASES[name]
    except KeyError:
        raise UnknownNameError(
            f"no case is called {name!r}; the cases are {', '.join(each.name for each in ALL_CASES)}"
        ) from None
