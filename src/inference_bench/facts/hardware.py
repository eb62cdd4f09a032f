"""What a machine can do: memory, bandwidth and dense matrix rates, as published or as measured.

In:   a name, or a TOML or JSON description of a user's own machine
Out:  HardwareSpec; rates are dense, at the accumulation precision the note names, never halved from a sparse headline
      by this code
Leaves out: what software reaches of these peaks (see predict)
Read next by: roofline, predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.errors import HardwareFileError
from inference_bench.facts import table
from inference_bench.facts.fields import shown
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.source import Source
from inference_bench.origin import Origin

KNOWN_PEAKS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
_TABLE: Final = "hardware.jsonl"
_SHARED_MEMORY: Final = ("soc-unified", "cpu-memory", "npu")
_DESCRIBED: Final = (
    *("name", "memory", "bandwidth", "peak", "interconnect", "tdp_w"),
    *("kind", "vendor", "architecture", "source", "note"),
)


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """One machine, or one card of it.

    Where:  None is not known, never zero; peak_flops_per_s maps a compute format to its dense rate with fp32
            accumulation (int32 for int8); acc16_flops_per_s are the faster rates that accumulate in fp16, kept apart
            and never taken for the others; interconnect is to the other cards of a node, both directions summed;
            kind is such as datacenter-gpu, consumer-gpu, soc-unified, cpu-memory or npu; cores are those of a CPU;
            vendor and architecture are lower-case words such as nvidia and ada, by which machines that compute alike
            are put together
    """

    name: str
    memory_bytes: int | None
    bandwidth_bytes_per_s: float | None
    peak_flops_per_s: Mapping[str, float]
    source: Source
    origin: Origin = Origin.PUBLISHED
    printed: Mapping[str, str] | None = None
    note: str = ""
    kind: str | None = None
    acc16_flops_per_s: Mapping[str, float] | None = None
    interconnect_bytes_per_s: float | None = None
    tdp_w: float | None = None
    vendor: str | None = None
    architecture: str | None = None
    cores: int | None = None

    @property
    def is_unified(self) -> bool:
        """Whether the system and its programs share this memory."""
        return self.kind in _SHARED_MEMORY

    def compute_format(self, weights: NumberFormat) -> str | None:
        """The peak that products with these weights run at: weight-only formats compute in 16 bits."""
        return next((name for name in weights.compute_formats if name in self.peak_flops_per_s), None)


def known_hardware() -> tuple[HardwareSpec, ...]:
    """Every machine in the table."""
    return tuple(_from_row(row) for row in table.read(_TABLE).values())


def hardware(name: str) -> HardwareSpec:
    """The machine of that name.

    Raises:  UnknownNameError, with the nearest names
    """
    return _from_row(table.find(_TABLE, "machine", name))


def _from_row(row: Mapping[str, Any]) -> HardwareSpec:
    return HardwareSpec(
        name=row["name"],
        memory_bytes=row["memory_bytes"],
        bandwidth_bytes_per_s=row["bandwidth_bytes_per_s"],
        peak_flops_per_s=row["peak_flops_per_s"],
        source=Source(row["source"], row["as_of"]),
        printed=row["printed"],
        note=row.get("note", ""),
        kind=row["kind"],
        acc16_flops_per_s=row.get("acc16_flops_per_s"),
        interconnect_bytes_per_s=row["interconnect_bytes_per_s"],
        tdp_w=row["tdp_w"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        cores=row.get("cores"),
    )


def hardware_from_description(values: Mapping[str, Any], what: str) -> HardwareSpec:
    """A user's own machine: name, memory, bandwidth and peaks, as numbers in SI units or as text with a unit.

    Where:   interconnect, tdp_w, kind, vendor, architecture, source and note may be given too

    Raises:  HardwareFileError

    >>> machine = hardware_from_description(
    ...     {"name": "mine", "memory": "24 GB", "bandwidth": "1 TB/s", "peak": {"bf16": "165 TFLOPS"}}, "mine.toml")
    >>> machine.memory_bytes, machine.bandwidth_bytes_per_s, machine.peak_flops_per_s["bf16"]
    (24000000000, 1000000000000.0, 165000000000000.0)
    """
    if unknown := sorted(set(values) - set(_DESCRIBED)):
        raise HardwareFileError(f"{what} has an unknown field {shown(unknown[0])}; known: {', '.join(_DESCRIBED)}")
    peaks = values.get("peak", {})
    if not isinstance(peaks, Mapping):
        raise HardwareFileError(f'{what}: peak is {shown(peaks)}; a table such as bf16 = "165 TFLOPS" is needed')
    if odd := [name for name in peaks if name not in KNOWN_PEAKS]:
        raise HardwareFileError(f"{what}: peak {shown(odd[0])} is not known; known: {', '.join(KNOWN_PEAKS)}")

    def optional(field: str, unit: str) -> float | None:
        value = values.get(field)
        return None if value is None else _amount(value, unit, f"{what}: {field}")

    def word(field: str) -> str | None:
        value = values.get(field)
        return None if value is None else str(value)[:40].lower()

    memory = optional("memory", "B")
    return HardwareSpec(
        name=str(values.get("name", what))[:80],
        memory_bytes=None if memory is None else int(memory),
        bandwidth_bytes_per_s=_amount(values.get("bandwidth"), "B/s", f"{what}: bandwidth"),
        peak_flops_per_s={name: _amount(peaks[name], "FLOP/s", f"{what}: peak {name}") for name in peaks},
        source=Source(str(values.get("source", what))[:200], "given by the user"),
        origin=Origin.GIVEN,
        note=str(values.get("note", ""))[:200],
        kind=str(values["kind"])[:40] if "kind" in values else None,
        interconnect_bytes_per_s=optional("interconnect", "B/s"),
        tdp_w=optional("tdp_w", "W"),
        vendor=word("vendor"),
        architecture=word("architecture"),
    )


_LEAST_AMOUNT: Final = 1e-3
_MOST_AMOUNT: Final = 1e24  # beyond every machine, and far from where floating point ends


def _amount(value: object, unit: str, what: str) -> float:
    from inference_bench.errors import QuantityError
    from inference_bench.units import parse_bytes, parse_rate

    if value is None:
        raise HardwareFileError(f"{what} is missing; give it as a number in {unit}, or text with a unit")
    if isinstance(value, str):
        try:
            value = parse_bytes(value, what) if unit == "B" else parse_rate(value, unit, what)
        except QuantityError as error:
            raise HardwareFileError(str(error)) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST_AMOUNT <= value <= _MOST_AMOUNT:
        raise HardwareFileError(
            f"{what} is {shown(value)}; a number above zero (and below 1e24) in {unit}, or text with a unit, is needed"
        )
    return float(value)
