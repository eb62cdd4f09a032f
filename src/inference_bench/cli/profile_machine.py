"""The machine that a profile was fitted on, with its memory where that machine is this one.

In:   StepProfile, the weights that are to be served
Out:  HardwareSpec
Leaves out: machines that a person names (machine)
"""

from __future__ import annotations

from dataclasses import replace

from inference_bench.accounting.weights import WeightCount
from inference_bench.cli.machine import machine_named
from inference_bench.errors import StorageError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.names import fold_name
from inference_bench.simulate.step_profile import StepProfile


def machine_of(profile: StepProfile, weights: WeightCount) -> HardwareSpec:
    """The profile's own machine: at the ceilings of the profile, with the memory and formats of this machine if it is the same.

    Raises:  UnknownNameError where it has no ceilings and its machine is not known
    """
    own = profile.own_machine(weights)
    if profile.ceilings is None:
        return own
    try:
        here = machine_named("here")
    except StorageError:
        return own
    if fold_name(here.name) != fold_name(own.name):
        return own
    computed = here.compute_format(weights.linear_format)
    if profile.compute_format is not None or computed is None:
        return replace(own, memory_bytes=here.memory_bytes)
    peaks = {computed: profile.ceilings.compute_flops_per_s}
    return replace(own, memory_bytes=here.memory_bytes, peak_flops_per_s=peaks)
