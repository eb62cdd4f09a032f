"""Which machine a person meant: a known one, a description in a file, or this one."""

from __future__ import annotations

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import load_hardware


def machine_named(text: str) -> HardwareSpec:
    """The machine called `text`; "here" is this one, with the ceilings of the last probe if there was one.

    Raises:  UnknownNameError, HardwareFileError
    """
    if text != "here":
        return load_hardware(text)
    from inference_bench.measure.here import this_machine

    return this_machine()


def machine_to_measure(named: str | None) -> HardwareSpec | None:
    """The machine whose ceilings are known already; None where it is this one, and they are still to be measured.

    Raises:  UnknownNameError, HardwareFileError
    """
    machine = machine_named(named) if named else None
    return None if machine is not None and named == "here" and machine.bandwidth_bytes_per_s is None else machine
