"""Cases of a sweep, of which some are slow, wrong or deadly: in a module of its own, so that a process finds what it is sent.

As a script: a sweep of which the last case never ends; it says which rows it has, and on Ctrl-C which it kept.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.simulate.sweep import Case, CaseResult, SweepInterrupted, WorkloadRecipe, sweep
from inference_bench.workload import Workload, reference_workload

STEPS = StepTime(Coefficients(5.5e9, 147456, 2.0 * 8927875072, 4.0 * 36 * 4096, 1e12, 0.5 * 165e12))
MEMORY = KvMemory(16_000_000_000, 147456)
INTERRUPTED = 130


def case_of(make: Callable[[], Any], policy: Policy = Policy.CHUNKED, count: int = 30, **changes: Any) -> Case:
    setup = ServerSetup(SchedulerSettings(policy=policy), MEMORY)
    return replace(Case(policy.value, WorkloadRecipe(make, count), setup, STEPS), **changes)


def reference_case(
    rate: float, count: int = 30, seed: int = 0, policy: Policy = Policy.CHUNKED, **changes: Any
) -> Case:
    return case_of(partial(reference_workload, rate, count, seed), policy, count, **changes)


def named_by_its_process() -> Workload:
    return replace(reference_workload(0.2, 5), name=str(os.getpid()))


def later(wait_s: float, rate: float) -> Workload:
    time.sleep(wait_s)
    return reference_workload(rate, 5)


def kills_its_process() -> Workload:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def gives_nonsense() -> str:
    return "no workload"


def main(backend: str) -> int:
    def say(result: CaseResult) -> None:
        print("got", result.row.nominal_rate if result.row else result.error, flush=True)

    cases = [case_of(partial(later, 1000.0, 1.0)), *(reference_case(rate) for rate in (0.1, 0.2, 0.3))]
    try:
        sweep(cases, workers=2, backend=backend, on_result=say)
    except SweepInterrupted as interrupted:
        print("kept", [result.row.nominal_rate for result in interrupted.results if result.row])
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
