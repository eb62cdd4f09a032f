"""Reading a profile's fields from a person's file: each has the right type and a possible size, or is named in an error.

In:   the object of a JSON file
Out:  numbers, texts, and the parts of a profile that are objects themselves
Leaves out: the profile as a whole (step_profile)
Read next by: step_profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.facts.fields import shown
from inference_bench.predict.fitted_cost import MeasuredReach
from inference_bench.simulate.presets import engine_preset, llama_cpp_settings, vllm_settings
from inference_bench.simulate.settings import MOST_BYTES, UNLIMITED, BudgetRule, SchedulerSettings
from inference_bench.simulate.step_sources import CEILINGS, LINK_LATENCIES, LINK_RATES, Ceilings, Link

MOST_DEVICES: Final = 1 << 16
_MOST_TEXT: Final = 400  # characters
_MOST_SEQUENCES: Final = 1 << 20
_MOST_POSITIONS: Final = 1 << 40
_MOST_PARTS: Final = 1_000
_INTERVALS: Final = (-1e30, 1e30)


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """The cache of the server that a profile was fitted to.

    Where:  num_bytes is what it may take of a device, None where that is not known
    Unit:   bytes; positions of a block
    """

    num_bytes: int | None
    block_size: int = 1


@dataclass(frozen=True, slots=True)
class ProfileFields:
    """The fields of one object of a file.

    Raises:  RequestError naming the file, the field, its value and what is allowed
    """

    values: Mapping[str, Any]
    path: Path

    def number(self, name: str, limits: tuple[float, float], default: float | None = None) -> float:
        """A number within limits; where it is missing, the default, if there is one."""
        value, (least, most) = self.values.get(name, default), limits
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, value, f"a number between {least:g} and {most:g} is needed")
        return float(value)

    def number_or_none(self, name: str, limits: tuple[float, float]) -> float | None:
        """A number within limits, or none."""
        return None if self.values.get(name) is None else self.number(name, limits)

    def count(self, name: str, most: int, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from 1 on, or from where it may begin."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, value, f"a whole number from {least} to {most} is needed")
        return value

    def flag(self, name: str) -> bool:
        """Yes or no; no where it is missing."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false is needed")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A line of text, or none."""
        value = self.values.get(name)
        if value is not None and (not isinstance(value, str) or not _is_line(value)):
            raise self.wrong(name, value, f"a line of up to {_MOST_TEXT} characters is needed")
        return value

    def texts(self, names: tuple[str, ...]) -> dict[str, str]:
        """Lines of text, none of them missing."""
        found = {name: self.values.get(name) for name in names}
        missing = [name for name, text in found.items() if not isinstance(text, str) or not text or not _is_line(text)]
        if missing:
            raise RequestError(
                f"{self.path}: {', '.join(missing)} of the profile must be text, a line of up to {_MOST_TEXT} characters"
            )
        return {name: str(text) for name, text in found.items()}

    def part(self, name: str, what: str) -> ProfileFields | None:
        """The fields of an object within this one, or none."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, f"an object of {what} is needed, or null")
        return ProfileFields(value, self.path)

    def parts(self, name: str, what: str) -> Iterator[ProfileFields]:
        """The fields of each object of a list; of none where it is missing."""
        listed = self.values.get(name, [])
        if (
            not isinstance(listed, list)
            or len(listed) > _MOST_PARTS
            or not all(isinstance(each, dict) for each in listed)
        ):
            raise self.wrong(name, listed, f"a list of up to {_MOST_PARTS} objects of {what} is needed")
        yield from (ProfileFields(each, self.path) for each in listed)

    def numbers(self, name: str, limits: tuple[float, float]) -> dict[str, float]:
        """An object of numbers by name; an empty one where it is missing."""
        part = self.part(name, "numbers") if self.values.get(name) else None
        return {} if part is None else {str(each): part.number(each, limits) for each in part.values}

    def wrong(self, name: str, value: object, needed: str) -> RequestError:
        """The error of a field that cannot be."""
        return RequestError(f"{self.path}: {name} of the profile is {shown(value)}; {needed}")

    # what a profile is made of

    def link(self) -> Link | None:
        """How devices send one another what they have."""
        part = self.part("link", "bytes_per_s and latency_s")
        if part is None:
            return None
        return Link(
            part.number("bytes_per_s", LINK_RATES),
            part.number("latency_s", LINK_LATENCIES),
            "the link is the profile's",
        )

    def ceilings(self) -> Ceilings | None:
        """What the shares are of."""
        part = self.part("ceilings", "bandwidth_bytes_per_s and compute_flops_per_s")
        if part is None:
            return None
        return Ceilings(part.number("bandwidth_bytes_per_s", CEILINGS), part.number("compute_flops_per_s", CEILINGS))

    def cache(self) -> ProfileCache | None:
        """The memory of the cache."""
        part = self.part("cache", "bytes and block_size")
        if part is None:
            return None
        num_bytes = None if part.values.get("bytes") is None else part.count("bytes", MOST_BYTES)
        return ProfileCache(num_bytes, part.count("block_size", _MOST_SEQUENCES, 1))

    def measured(self) -> MeasuredReach | None:
        """How far the steps that it was fitted to reached."""
        part = self.part("measured", "max_context_tokens and max_batch")
        if part is None:
            return None
        longest = part.count("max_context_tokens", _MOST_POSITIONS, least=0)
        return MeasuredReach(longest, part.count("max_batch", _MOST_SEQUENCES))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Between which two values each number lies."""
        part = self.part("intervals", "[low, high] by name") if self.values.get("intervals") else None
        if part is None:
            return {}
        return {str(name): part._interval(name) for name in part.values}

    def _interval(self, name: str) -> tuple[float, float]:
        value = self.values[name]
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(name, value, "two numbers, the low end first, are needed")
        ends = replace(self, values={name: value[0]}), replace(self, values={name: value[1]})
        low, high = (end.number(name, _INTERVALS) for end in ends)
        if low > high:
            raise self.wrong(name, value, "two numbers, the low end first, are needed")
        return low, high

    def scheduler(self) -> SchedulerSettings | None:
        """The rules of the server: those of the engine that spends its budget so."""
        part = self.part("scheduler", "budget_rule, max_running, token_budget, micro_batch and prefix_cache")
        if part is None:
            return None
        rule = part.values.get("budget_rule")
        if not isinstance(rule, str) or rule not in set(BudgetRule):
            raise part.wrong("budget_rule", rule, f"one of {', '.join(BudgetRule)} is needed")
        running = part.count("max_running", _MOST_SEQUENCES)
        budget = part.count("token_budget", UNLIMITED)
        prefix_cache = part.flag("prefix_cache")
        if rule == BudgetRule.SHARED:
            return vllm_settings(running, budget, prefix_cache=prefix_cache)
        if rule == BudgetRule.PREFILL_FIRST:
            own = engine_preset("sglang").scheduler
            return replace(own, max_running=running, token_budget=budget, prefix_cache=prefix_cache)
        micro_batch, unified = part.count("micro_batch", UNLIMITED, 512), rule == BudgetRule.MICRO_BATCHES
        return llama_cpp_settings(running, budget, micro_batch, unified=unified, prefix_cache=prefix_cache)


def _is_line(text: str) -> bool:
    return len(text) <= _MOST_TEXT and text.isprintable()
