"""Where compiled code is entered: arrays by address and length, so that the loop counts no references to them.

In:   the address and length of each array of a State, in its order
Out:  why the loop stopped
Leaves out: any rule; this module is imported only where numba is installed, after the kernel was made known to it
Read next by: compiled.

Passed as they are, forty arrays would cost the counting of forty references at every call between the kernel's functions: a step
would take 5 microseconds instead of a tenth of one. The caller keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

from numba import carray, float64, int64, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from inference_bench.simulate.kernel.batch_steps import advance_batches
from inference_bench.simulate.kernel.state import State
from inference_bench.simulate.kernel.steps import advance


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@register_jitable(forceinline=True)  # type: ignore[untyped-decorator]
def state_at(addresses: Any, sizes: Any) -> State:
    """The arrays where they are."""
    return State(
        carray(pointer(addresses[0]), sizes[0], int64),
        carray(pointer(addresses[1]), sizes[1], float64),
        carray(pointer(addresses[2]), sizes[2], float64),
        carray(pointer(addresses[3]), sizes[3], float64),
        carray(pointer(addresses[4]), sizes[4], float64),
        carray(pointer(addresses[5]), sizes[5], int64),
        carray(pointer(addresses[6]), sizes[6], int64),
        carray(pointer(addresses[7]), sizes[7], int64),
        carray(pointer(addresses[8]), sizes[8], int64),
        carray(pointer(addresses[9]), sizes[9], int64),
        carray(pointer(addresses[10]), sizes[10], int64),
        carray(pointer(addresses[11]), sizes[11], int64),
        carray(pointer(addresses[12]), sizes[12], int64),
        carray(pointer(addresses[13]), sizes[13], int64),
        carray(pointer(addresses[14]), sizes[14], int64),
        carray(pointer(addresses[15]), sizes[15], int64),
        carray(pointer(addresses[16]), sizes[16], int64),
        carray(pointer(addresses[17]), sizes[17], float64),
        carray(pointer(addresses[18]), sizes[18], float64),
        carray(pointer(addresses[19]), sizes[19], int64),
        carray(pointer(addresses[20]), sizes[20], int64),
        carray(pointer(addresses[21]), sizes[21], int64),
        carray(pointer(addresses[22]), sizes[22], int64),
        carray(pointer(addresses[23]), sizes[23], int64),
        carray(pointer(addresses[24]), sizes[24], int64),
        carray(pointer(addresses[25]), sizes[25], float64),
        carray(pointer(addresses[26]), sizes[26], float64),
        carray(pointer(addresses[27]), sizes[27], int64),
        carray(pointer(addresses[28]), sizes[28], int64),
        carray(pointer(addresses[29]), sizes[29], int64),
        carray(pointer(addresses[30]), sizes[30], int64),
        carray(pointer(addresses[31]), sizes[31], int64),
        carray(pointer(addresses[32]), sizes[32], int64),
        carray(pointer(addresses[33]), sizes[33], int64),
        carray(pointer(addresses[34]), sizes[34], float64),
        carray(pointer(addresses[35]), sizes[35], int64),
        carray(pointer(addresses[36]), sizes[36], float64),
        carray(pointer(addresses[37]), sizes[37], int64),
        carray(pointer(addresses[38]), sizes[38], int64),
        carray(pointer(addresses[39]), sizes[39], int64),
    )


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def run_steps(addresses: Any, sizes: Any, most_requests: int) -> int:
    """The loop of the iteration-level policies."""
    return advance(state_at(addresses, sizes), most_requests)


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def run_batches(addresses: Any, sizes: Any, most_requests: int) -> int:
    """The loop of the batched policies."""
    return advance_batches(state_at(addresses, sizes), most_requests)
