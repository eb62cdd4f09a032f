"""Which efficiencies apply to each term of a step: the names under which the fitted parameters are kept.

In:   Setting, a term, whether the step decodes
Out:  names such as "bandwidth|engine:llama.cpp"; their sum is the logarithm of the factor on that term
Leaves out: the fitted values (parameters)
Read next by: expectation, score.fitting.

Terms share what has one cause: the three memory terms share `bandwidth`, products and attention share `compute`,
layers and steps share `overhead`. A name that was never fitted counts as zero, which is how an unseen engine or machine
falls back on its pool, and an unseen pool on all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from inference_bench.predict.efficiency.setting import DeviceSplit, Setting, has_latent_attention

GROUP_OF_TERM: Final = {
    "weights": "bandwidth",
    "experts": "bandwidth",
    "cache": "bandwidth",
    "products": "compute",
    "expert_products": "compute",
    "attention": "compute",
    "threads": "threads",
    "layers": "overhead",
    "expert_layers": "overhead",
    "step": "overhead",
    "all_reduce": "communication",
    "link": "communication",
    "sequences": "sequences",
    "batched_experts": "batched_experts",
}
# terms of serving that are no part of a step: how much of a prompt's time falls into each token, and what a first
# token waits for
SERVING_TERMS: Final = ("interference", "own_prompt", "burst", "first_step", "wait")


def term_effects(setting: Setting, term: str, is_pcie: bool, *, is_decode: bool) -> tuple[str, ...]:
    """The names of every effect on one term."""
    return _names(_traits(setting), term, "decode" if is_decode else "prefill", is_pcie)


class _Traits(NamedTuple):
    """What of a setting its effects are named by: few, so that the names are put together once for many rows."""

    engine: str
    pool: str
    format_group: str
    label: str
    chip: str
    split: DeviceSplit
    is_early: bool
    has_latents: bool


def _traits(setting: Setting) -> _Traits:
    chip = setting.machine.architecture or "unknown"
    kind = (setting.engine, setting.pool, setting.format_group, setting.format_label, chip)
    return _Traits(*kind, setting.split, setting.is_early, has_latent_attention(setting.served.model))


@lru_cache(maxsize=1 << 16)
def _names(traits: _Traits, term: str, phase: str, is_pcie: bool) -> tuple[str, ...]:
    shared = _shared(traits, GROUP_OF_TERM[term], phase, is_pcie)
    return (f"{term}|base", *_own(traits.engine, traits.has_latents, term, phase), *shared)


def _own(engine: str, has_latents: bool, term: str, phase: str) -> Iterator[str]:
    """Effects of the term alone."""
    if term in ("experts", "expert_products", "expert_layers", "batched_experts"):
        yield f"{term}|engine:{engine}"
    if term in ("cache", "attention"):
        yield f"{term}|{'latent' if has_latents else 'engine'}:{engine}/{phase}"


def _shared(traits: _Traits, group: str, phase: str, is_pcie: bool) -> Iterator[str]:
    engine, pool, fmt, label, chip, split, is_early, _ = traits
    if group == "batched_experts":
        return iter(())
    if group == "bandwidth":
        kinds = [f"pool:{pool}", f"engine:{engine}", f"format:{fmt}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"engine+format:{engine}/{fmt}", f"engine+label:{engine}/{label}", f"chip:{pool}/{chip}"]
        kinds += [f"split:{split}"]
    elif group == "compute":
        group = f"compute-{phase}"  # kernels of long prompts and of a few tokens have little in common
        kinds = [f"phase:{phase}", f"pool:{pool}", f"engine:{engine}", f"format:{fmt}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"engine+format:{engine}/{fmt}", f"chip:{pool}/{chip}", f"engine+label:{engine}/{label}"]
        kinds += [f"split:{split}"]
    elif group == "threads":
        kinds = [f"phase:{phase}", f"engine:{engine}", f"engine+label:{engine}/{label}", f"format:{fmt}"]
        kinds += [f"chip:{chip}"]
    elif group == "communication":
        kinds = [f"pool:{pool}", f"engine:{engine}", f"phase:{phase}", f"chip:{chip}", f"pcie:{is_pcie}"]
    else:
        kinds = [f"phase:{phase}", f"pool:{pool}", f"engine:{engine}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"early:{is_early}"]
    return (f"{group}|{kind}" for kind in kinds)


def serving_effects(setting: Setting, term: str, has_experts: bool) -> tuple[str, ...]:
    """The names of every effect on one of the SERVING_TERMS."""
    names = [f"{term}|base"]
    if term == "wait":
        return (*names, f"wait|version:{setting.version}")
    names.append(f"{term}|engine:{setting.engine}")
    if term in ("interference", "burst"):
        names.append(f"{term}|experts:{has_experts}")
    return tuple(names)
