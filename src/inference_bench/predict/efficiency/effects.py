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
from typing import Final

from inference_bench.predict.efficiency.setting import Setting, has_latent_attention

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
    group, phase = GROUP_OF_TERM[term], "decode" if is_decode else "prefill"
    return (f"{term}|base", *_own(setting, term, phase), *_shared(setting, group, phase, is_pcie))


def _own(setting: Setting, term: str, phase: str) -> Iterator[str]:
    """Effects of the term alone."""
    if term in ("experts", "expert_products", "expert_layers", "batched_experts"):
        yield f"{term}|engine:{setting.engine}"
    if term in ("cache", "attention"):
        kind = "latent" if has_latent_attention(setting.served.model) else "engine"
        yield f"{term}|{kind}:{setting.engine}/{phase}"


def _shared(setting: Setting, group: str, phase: str, is_pcie: bool) -> Iterator[str]:
    engine, pool, fmt = setting.engine, setting.pool, setting.format_group
    label, chip = setting.format_label, setting.machine.architecture or "unknown"
    if group == "batched_experts":
        return iter(())
    if group == "bandwidth":
        kinds = [f"pool:{pool}", f"engine:{engine}", f"format:{fmt}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"engine+format:{engine}/{fmt}", f"engine+label:{engine}/{label}", f"chip:{pool}/{chip}"]
        kinds += [f"split:{setting.split}"]
    elif group == "compute":
        group = f"compute-{phase}"  # kernels of long prompts and of a few tokens have little in common
        kinds = [f"phase:{phase}", f"pool:{pool}", f"engine:{engine}", f"format:{fmt}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"engine+format:{engine}/{fmt}", f"chip:{pool}/{chip}", f"engine+label:{engine}/{label}"]
        kinds += [f"split:{setting.split}"]
    elif group == "threads":
        kinds = [f"phase:{phase}", f"engine:{engine}", f"engine+label:{engine}/{label}", f"format:{fmt}"]
        kinds += [f"chip:{chip}"]
    elif group == "communication":
        kinds = [f"pool:{pool}", f"engine:{engine}", f"phase:{phase}", f"chip:{chip}", f"pcie:{is_pcie}"]
    else:
        kinds = [f"phase:{phase}", f"pool:{pool}", f"engine:{engine}", f"engine+pool:{engine}/{pool}"]
        kinds += [f"early:{setting.is_early}"]
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
