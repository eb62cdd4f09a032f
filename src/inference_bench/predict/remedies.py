"""What would turn a no into a yes: one change at a time that makes a scenario work on a machine.

In:   Scenario, LoadedModel, HardwareSpec for which the answer is no
Out:  texts, each a change that was tried and works
Leaves out: combinations of changes; what a smaller format costs in quality
Read next by: plan_verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec, known_hardware
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.capacity import largest_that_fits
from inference_bench.predict.deployment import Deployment, deploy
from inference_bench.predict.engine_formats import smaller_caches, smaller_weights
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.scenario import Scenario
from inference_bench.units import format_count

_DEVICES: Final = (2, 4, 8, 16, 32, 64)
_MOST_MACHINES: Final = 5
_SHORTEST_PROMPT: Final = 64


def remedies(scenario: Scenario, model: LoadedModel, machine: HardwareSpec) -> tuple[str, ...]:
    """Changes that work, the smallest of each kind: a weight format, a cache format, a prompt, devices, machines."""
    asked = _Asked(scenario, model, machine, loaded_weights(model, scenario.weights))
    kinds = (_smaller_weights, _smaller_cache, _shorter_prompt, _more_devices)
    found = [next(kind(asked), None) for kind in kinds]
    return (*filter(None, found), *_other_machines(asked))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the answer is no to; its weights are counted once for all changes that leave them as they are."""

    scenario: Scenario
    model: LoadedModel
    machine: HardwareSpec
    weights: WeightCount

    def works_with(self, **changes: Any) -> bool:
        """Whether some batch fits and keeps every objective; a combination that cannot be is none."""
        try:
            weights = None if "weights" in changes else self.weights
            return _works(deploy(replace(self.scenario, **changes), self.model, self.machine, weights=weights))
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


def _smaller_weights(asked: _Asked) -> Iterator[str]:
    """Formats that take less than now; bytes that were stated are those of another format, and go with it."""
    assumed = asked.scenario.assumptions
    stated = assumed.weight_bytes
    now = asked.weights.total if stated is None else stated
    for name in smaller_weights(asked.scenario.served_by):
        works = asked.works_with(weights=name, assumptions=replace(assumed, weight_bytes=None))
        if works and loaded_weights(asked.model, name).total < now:
            yield f"weights in {name}" + ("" if stated is None else ", without the stated weight bytes")


def _smaller_cache(asked: _Asked) -> Iterator[str]:
    def needed(name: str | None) -> int:
        return count_cache(asked.model.spec, cache_format(name), asked.scenario.traffic.total_tokens).total_bytes

    for name in smaller_caches(asked.scenario.served_by):
        if asked.works_with(kv=name) and needed(name) < needed(asked.scenario.kv):
            yield f"a cache in {name}"


def _shorter_prompt(asked: _Asked) -> Iterator[str]:
    """The longest prompt that works; what it has in common with others stays in it."""
    traffic = asked.scenario.traffic

    def fits(tokens: int) -> bool:
        return asked.works_with(traffic=replace(traffic, prompt_tokens=tokens))

    least = max(_SHORTEST_PROMPT, traffic.prefix_tokens + 1)
    if least < traffic.prompt_tokens and fits(least):
        longest = least + largest_that_fits(lambda more: fits(least + more), traffic.prompt_tokens - 1 - least)
        yield f"a prompt of at most {format_count(longest)} tokens"


def _more_devices(asked: _Asked) -> Iterator[str]:
    for devices in _DEVICES:
        if devices > asked.scenario.devices and asked.works_with(devices=devices):
            yield f"{devices} devices"


def _other_machines(asked: _Asked) -> Iterator[str]:
    """Known machines, those with the least memory first."""
    scenario = replace(asked.scenario, compute=None)
    deployment = deploy(scenario, asked.model, asked.machine, weights=asked.weights)
    others = (other for other in known_hardware() if other.name != asked.machine.name)
    fitting = [other for other in others if _works_on(deployment, other)]
    if fitting:
        fitting.sort(key=lambda other: other.memory_bytes or 0)
        names = ", ".join(other.name for other in fitting[:_MOST_MACHINES])
        rest = f" and {len(fitting) - _MOST_MACHINES} more" if len(fitting) > _MOST_MACHINES else ""
        yield f"{scenario.devices} of another machine: {names}{rest}"
