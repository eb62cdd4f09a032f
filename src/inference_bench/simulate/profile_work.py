"""What a step of a profile's own model takes: enough to simulate it where neither its file nor its name is at hand.

In:   ServedModel where a profile is fitted; the object of a profile's file later
Out:  OwnWork: the work of a step without rates, and what a sequence takes of the cache
Leaves out: how fast it is (step_sources), and the profile as a whole (step_profile)
Read next by: step_profile, profile_served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.presets import memory_of_bytes
from inference_bench.simulate.profile_fields import ProfileFields
from inference_bench.simulate.settings import MOST_BYTES, KvMemory, WindowCache
from inference_bench.simulate.step_time import Coefficients, WindowWork
from inference_bench.simulate.step_work import WorkForm, work_form

_WORK: Final = (
    "weight_bytes",
    "read_bytes",
    "write_bytes",
    "state_bytes",
    "flops_per_position",
    "flops_per_pair",
    "flops_per_sequence",
    "expert_bytes",
)
_LIMITS: Final = (0.0, 1e30)
_WEIGHTS: Final = (1.0, 1e30)  # every model reads some
_MISS: Final = (0.0, 1.0)
_MOST_POSITIONS: Final = 1 << 40
_NEAR: Final = 1  # bytes of a memory whose size does not matter


@dataclass(frozen=True, slots=True)
class OwnWork:
    """A served model as its steps and its cache see it.

    Where:  form is that of one device, with rates of 1; the rest is what a sequence takes of the cache
    Unit:   bytes
    """

    form: WorkForm
    bytes_per_position: int
    windows: tuple[WindowCache, ...] = ()
    state_bytes: int = 0
    block_size: int = 1

    def memory(self, budget_bytes: int, block_size: int | None = None) -> KvMemory:
        """A cache of so many bytes for it."""
        block = self.block_size if block_size is None else block_size
        return KvMemory(budget_bytes, self.bytes_per_position, block, self.windows, self.state_bytes)


def own_work(served: ServedModel, block_size: int = 1) -> OwnWork:
    """The work and cache of a model on one device."""
    cache = memory_of_bytes(served.model, served.cache_format, _NEAR, block_size)
    return OwnWork(work_form(served), cache.bytes_per_position, cache.windows, cache.state_bytes, block_size)


def work_values(work: OwnWork) -> dict[str, Any]:
    """It as a profile's file holds it."""
    form, own = work.form, work.form.coefficients
    return {
        **{name: getattr(own, name) for name in _WORK},
        "expert_miss": own.expert_miss,
        "windows": [
            {"max_positions": each.max_positions, "read_bytes": each.read_bytes, "flops_per_pair": each.flops_per_pair}
            for each in form.windows
        ],
        "bytes_error": form.bytes_error,
        "flops_error": form.flops_error,
        "worst_bytes": form.worst_bytes,
        "worst_flops": form.worst_flops,
        "cache": {
            "bytes_per_position": work.bytes_per_position,
            "windows": [
                {"max_positions": each.max_positions, "bytes_per_position": each.bytes_per_position}
                for each in work.windows
            ],
            "state_bytes": work.state_bytes,
            "block_size": work.block_size,
        },
    }


def read_work(fields: ProfileFields) -> OwnWork | None:
    """It from a profile's file; None where the file holds none.

    Raises:  RequestError naming the field that is wrong
    """
    part = fields.part("served", "the work of a step and cache")
    if part is None:
        return None
    cache = part.part("cache", "bytes_per_position, windows, state_bytes and block_size")
    if cache is None:
        raise part.wrong(
            "cache", None, "an object of bytes_per_position, windows, state_bytes and block_size is needed"
        )
    found = OwnWork(
        form=_form(part),
        bytes_per_position=cache.count("bytes_per_position", MOST_BYTES, least=0),
        windows=tuple(
            WindowCache(each.count("max_positions", _MOST_POSITIONS), each.count("bytes_per_position", MOST_BYTES))
            for each in cache.parts("windows", "max_positions and bytes_per_position")
        ),
        state_bytes=cache.count("state_bytes", MOST_BYTES, 0, least=0),
        block_size=cache.count("block_size", _MOST_POSITIONS, 1),
    )
    if not (found.bytes_per_position or found.windows or found.state_bytes):
        raise cache.wrong("bytes_per_position", 0, "a sequence must take some memory: above 0, or windows or states")
    return found


def _form(part: ProfileFields) -> WorkForm:
    numbers: Mapping[str, float] = {
        name: part.number(name, _WEIGHTS if name == "weight_bytes" else _LIMITS) for name in _WORK
    }
    return WorkForm(
        coefficients=Coefficients(
            **numbers,
            expert_miss=part.number("expert_miss", _MISS, 0.0),
            bandwidth_bytes_per_s=1.0,
            compute_flops_per_s=1.0,
        ),
        windows=tuple(
            WindowWork(
                each.count("max_positions", _MOST_POSITIONS),
                each.number("read_bytes", _LIMITS),
                each.number("flops_per_pair", _LIMITS),
            )
            for each in part.parts("windows", "max_positions, read_bytes and flops_per_pair")
        ),
        bytes_error=part.number("bytes_error", _LIMITS, 0.0),
        flops_error=part.number("flops_error", _LIMITS, 0.0),
        worst_bytes=part.text_or_none("worst_bytes") or "",
        worst_flops=part.text_or_none("worst_flops") or "",
    )
