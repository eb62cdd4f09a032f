"""The fast engine's lines through numba, compiled once and kept on disk.

In:   the functions of this package
Out:  the same two loops, compiled
Leaves out: any rule: there is no second copy of the simulation
Read next by: engine.

Compiled code is kept in a folder of the user's cache that is named after the source, so that a change of any line of the kernel
compiles anew and a read-only installation works.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import MissingExtraError
from inference_bench.simulate.kernel import admission, batch_steps, decoders, pricing, state, steps
from inference_bench.simulate.kernel.state import State

_MODULES: Final = (pricing, decoders, admission, steps, batch_steps)
Loop = Callable[[State, int], int]


def is_available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def is_ready() -> bool:
    """Whether a compiled run can start without compiling: loaded already, or kept on disk."""
    return _entries.cache_info().currsize > 0 or (is_available() and any(_folder().rglob("*.nbc")))


def compiled_loop(is_batched: bool) -> Loop:
    """The loop of the batched policies, or of the others; compiles it where it never was, which takes about half a minute.

    Raises:  MissingExtraError without numba
    """
    entry = _entries()[int(is_batched)]
    import numpy

    def loop(state: State, most_requests: int) -> int:
        arrays: tuple[Any, ...] = state
        addresses = numpy.array([each.ctypes.data for each in arrays])
        return int(entry(addresses, numpy.array([len(each) for each in state]), most_requests))

    return loop


@cache
def _entries() -> tuple[Callable[[Any, Any, int], int], Callable[[Any, Any, int], int]]:
    if not is_available():
        raise MissingExtraError(
            "the compiled engine needs numba: pip install 'inference-bench[fast]'; without it, the plain engine gives the "
            "same answers"
        )
    import numba
    from numba.extending import register_jitable

    if "NUMBA_CACHE_DIR" not in os.environ:
        numba.config.CACHE_DIR = str(_folder())
    for module in _MODULES:
        for function in vars(module).values():
            if callable(function) and getattr(function, "__module__", "") == module.__name__:
                register_jitable(forceinline=True)(function)
    from inference_bench.simulate.kernel.compiled_entry import run_batches, run_steps

    return run_steps, run_batches


def _folder() -> Path:
    """Where compiled code is kept: by the text of the kernel and the Python that runs it."""
    digest = hashlib.sha256(sys.version.encode())
    own = Path(__file__)
    for path in (own, own.with_name("compiled_entry.py"), state.__file__, *(module.__file__ for module in _MODULES)):
        digest.update(Path(str(path)).read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "inference-bench" / f"kernel-{digest.hexdigest()[:16]}"
