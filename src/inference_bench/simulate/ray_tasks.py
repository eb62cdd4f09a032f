"""One call for each of many items, as tasks of Ray: on a cluster where there is one, else on this machine.

In:   a function and its arguments, one an item
Out:  (index, result) as each ends; Lost in place of a result where a worker died
Leaves out: what is computed (sweep)
Read next by: sweep.

A cluster is joined where the caller has called ray.init, or RAY_ADDRESS names one; this package must be installed on its
machines. Else Ray is started here, on the loopback interface, without dashboard and usage reports, and ended again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

from inference_bench.errors import MissingExtraError
from inference_bench.simulate.processes import Lost, usable_cpus

Item = TypeVar("Item")
Result = TypeVar("Result")
_ADDRESS: Final = "RAY_ADDRESS"
# read when ray is imported: no usage reports, and no warning that a task without a GPU will see all of them
_SETTINGS: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LOOPBACK: Final = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Linux too: listen on 127.0.0.1 alone, as Ray does there
_IN_FLIGHT: Final = 1_000  # tasks handed to Ray at a time, where no number of workers is given


def run_on_ray(
    work: Callable[[Item], Result], items: Sequence[Item], num_workers: int | None = None
) -> Generator[tuple[int, Result | Lost], None, None]:
    """The result of each item as it ends; closing the generator cancels what runs, and ends Ray if it was started here.

    Raises:  MissingExtraError without ray
    """
    ray = import_ray("sweeps")
    is_own = not ray.is_initialized()
    if is_own:
        start_ray(ray, num_workers)
    running: dict[Any, int] = {}
    try:
        task = ray.remote(max_retries=0)(work)
        waiting = iter(range(len(items)))
        while True:
            for index in islice(waiting, (num_workers or _IN_FLIGHT) - len(running)):
                running[task.remote(items[index])] = index
            if not running:
                return
            (done, *_), _ = ray.wait(list(running))
            yield running.pop(done), _result(ray, done)
    finally:
        if is_own:
            ray.shutdown()
        else:
            for each in running:
                ray.cancel(each, force=True)


def import_ray(what: str) -> Any:
    """The package ray, its settings made before it is loaded.

    Raises:  MissingExtraError, which says what needs it
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if not os.environ.get(_ADDRESS):
        os.environ.setdefault(*_LOOPBACK)
    try:
        import ray
    except ImportError:
        raise MissingExtraError(
            f"{what} on Ray need the package ray; install it with: pip install 'inference-bench[ray]'"
        ) from None
    return ray


def start_ray(ray: Any, num_workers: int | None) -> None:
    """Ray on this machine alone, or the cluster that RAY_ADDRESS names."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not os.environ.get(_ADDRESS):
        options |= {"num_cpus": num_workers or usable_cpus(), "include_dashboard": False}
    ray.init(**options)
    with suppress(AttributeError):  # not part of Ray's interface; without it, news of a worker that died go to stdout
        ray._private.worker._worker_logs_enabled = False


def _result(ray: Any, done: Any) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        return Lost(f"Ray lost it: {said[0]}")
