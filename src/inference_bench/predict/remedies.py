"""What would turn a no into a yes: one change at a time that makes a scenario work on a machine.

In:   Scenario, LoadedModel, HardwareSpec for which the answer is no
Out:  texts, each a change that was tried and works
Leaves out: combinations of changes; what a smaller format costs in quality
Read next by: plan_verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec, known_hardware
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.capacity import largest_that_fits
from inference_bench.predict.deployment import Deployment, deploy
from inference_bench.predict.scenario import Scenario
from inference_bench.units import format_count

_WEIGHTS: Final = ("fp8", "int8", "int4-g128")
_CACHES: Final = ("q8_0", "q4_0")
_DEVICES: Final = (2, 4, 8)
_MOST_MACHINES: Final = 5
_SHORTEST_PROMPT: Final = 64


def remedies(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> tuple[str, ...]:
    """Changes that work, the smallest of each kind: a weight format, a cache format, a prompt, devices, machines."""
    found = [
        next(kind(scenario, model, machine), None)
        for kind in (_smaller_weights, _smaller_cache, _shorter_prompt, _more_devices)
    ]
    return (*filter(None, found), *_other_machines(scenario, model, machine))


def works(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> bool:
    """Whether some batch fits and keeps every objective; a combination that cannot be is none."""
    try:
        return _works(deploy(scenario, model, machine))
    except RequestError:
        return False


def _works(deployment: Deployment) -> bool:
    traffic = deployment.scenario.traffic
    return deployment.works(traffic.prefix_cache and traffic.prefix_tokens > 0)


def _works_on(deployment: Deployment, machine: HardwareSpec) -> bool:
    try:
        return _works(deployment.on(machine))
    except RequestError:
        return False


def _smaller_weights(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> Iterator[str]:
    now = deploy(scenario, model, machine).weights.total
    for name in _WEIGHTS:
        option = replace(scenario, weights=name, assumptions=replace(scenario.assumptions, weight_bytes=None))
        if works(option, model, machine) and deploy(option, model, machine).weights.total < now:
            yield f"weights in {name}"


def _smaller_cache(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> Iterator[str]:
    for name in _CACHES:
        if works(replace(scenario, kv=name), model, machine):
            yield f"a cache in {name}"


def _shorter_prompt(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> Iterator[str]:
    """The longest prompt that works; what it has in common with others stays in it."""
    traffic = scenario.traffic

    def fits(tokens: int) -> bool:
        changed = replace(traffic, prompt_tokens=tokens)
        return works(replace(scenario, traffic=changed), model, machine)

    least = max(_SHORTEST_PROMPT, traffic.prefix_tokens + 1)
    if least < traffic.prompt_tokens and fits(least):
        longest = least + largest_that_fits(lambda more: fits(least + more), traffic.prompt_tokens - least)
        yield f"a prompt of at most {format_count(longest)} tokens"


def _more_devices(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> Iterator[str]:
    for devices in _DEVICES:
        if devices > scenario.devices and works(replace(scenario, devices=devices), model, machine):
            yield f"{devices} devices"


def _other_machines(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> Iterator[str]:
    """Known machines, those with the least memory first."""
    deployment = deploy(replace(scenario, compute=None), model, machine)
    fitting = [other for other in known_hardware() if _works_on(deployment, other)]
    if fitting:
        fitting.sort(key=lambda other: other.memory_bytes or 0)
        names = ", ".join(other.name for other in fitting[:_MOST_MACHINES])
        rest = f" and {len(fitting) - _MOST_MACHINES} more" if len(fitting) > _MOST_MACHINES else ""
        yield f"{scenario.devices} of another machine: {names}{rest}"
