"""How good is the model under one method, and does it come back unharmed?

In:   a Method, QuantiseBench, the unquantised network's own losses
Out:  MethodRow
Leaves out: what the method does (its own module)
Read next by: flow, reference.
"""

from __future__ import annotations

from typing import Any, Final

from inference_bench.labs.perplexity import Perplexity, measure_perplexity
from inference_bench.labs.quantise.linears import kept_bytes, network_state, num_linear_values
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import LossInterval, MethodRow
from inference_bench.labs.quantise.task import Task, TaskScore, score_task
from inference_bench.stats import mean_interval

LEAST_WINDOWS: Final = 4


def score_method(bench: QuantiseBench, method: Method, plain: Perplexity, task: Task | None) -> MethodRow:
    """Perplexity and task under one method, over the same windows as without it."""
    network, before = bench.model.network, network_state(bench.model.network)
    bench.say(f"{method.family}: {method.name}")
    with method.applied(network):
        found = measure_perplexity(network, bench.evaluation, lambda line: bench.say(f"{method.name}, {line}"))
        task_score = None if task is None else score_task(network, task)
    return method_row(network, method, found, plain, task_score, network_state(network) == before)


def method_row(
    network: Any, method: Method, found: Perplexity, plain: Perplexity, task: TaskScore | None, is_restored: bool
) -> MethodRow:
    """The figures of one method beside those without it."""
    return MethodRow(
        name=method.name,
        family=method.family,
        detail=method.detail,
        weight_bytes=method.weight_bytes,
        bits_per_weight=bits_per_weight(network, method.weight_bytes),
        cache_bytes_per_token=method.cache_bytes_per_token,
        weight_error=method.weight_error,
        perplexity=found.value,
        loss_change=found.mean_loss - plain.mean_loss,
        loss_change_interval=loss_interval(found, plain),
        exact_copy_fraction=None if task is None else task.exact_copy_fraction,
        json_valid_fraction=None if task is None else task.json_valid_fraction,
        is_restored=is_restored,
    )


def bits_per_weight(network: Any, weight_bytes: int | None) -> float | None:
    """Bits a value of the linear layers' matrices, scales and all that comes with them included.

    Formula:  8 · (bytes of the model - bytes of what stays) / values of the linear layers
    """
    if weight_bytes is None:
        return None
    return 8 * (weight_bytes - kept_bytes(network)) / num_linear_values(network)


def loss_interval(found: Perplexity, plain: Perplexity) -> LossInterval | None:
    """A 95 % interval for the change of the mean loss, window against the same window.

    Formula:  mean ± t · s / √n over the windows' own differences a token
    Where:    None below LEAST_WINDOWS: an interval from fewer says next to nothing
    Ignores:  that neighbouring windows are of one text
    """
    if found.num_windows < LEAST_WINDOWS:
        return None
    each = found.scored_tokens // found.num_windows
    interval = mean_interval([(a - b) / each for a, b in zip(found.window_losses, plain.window_losses, strict=True)])
    return None if interval is None else LossInterval(interval.low, interval.high)
