"""This machine as a HardwareSpec: its memory as the system reports it, its rates as the last probe measured them.

In:   a ProbeResult, or the one that the last probe left in the cache folder
Out:  HardwareSpec with origin measured; rates that were never measured are None
Leaves out: published rates of this machine's processor
Read next by: cli, verify.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import StorageError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.source import Source
from inference_bench.files import write_whole
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.files import cache_folder
from inference_bench.measure.machine_identity import MachineIdentity, identify_machine
from inference_bench.origin import Origin

_FILE: Final = "probe.json"


def machine_from_probe(result: ProbeResult, as_of: str | None = None) -> HardwareSpec:
    """The machine a probe measured: its card where that is what was probed."""
    day = as_of or datetime.now(UTC).date().isoformat()
    return HardwareSpec(
        name=_probed_name(result),
        memory_bytes=result.gpu.memory_bytes if result.gpu else result.identity.memory_bytes,
        bandwidth_bytes_per_s=result.bandwidth_bytes_per_s,
        peak_flops_per_s={result.compute_format: result.peak_flops_per_s, **result.other_peaks},
        source=Source(f"measured on this machine: {result.method}", day),
        origin=Origin.MEASURED,
        note="; ".join(result.notes),
    )


def this_machine(folder: Path | None = None) -> HardwareSpec:
    """This machine, with the ceilings of the last probe when it was made on the same processor and cores.

    Raises:  StorageError when there is no cache folder to look in
    """
    identity = identify_machine()
    saved = _read((folder or cache_folder()) / _FILE)
    if saved is None or saved.get("machine") != _fingerprint(identity):
        source = Source("this machine; its rates were not measured yet, which a probe does", "now")
        return HardwareSpec(_name(identity), identity.memory_bytes, None, {}, source, Origin.MEASURED)
    return HardwareSpec(
        name=saved.get("name") or _name(identity),
        memory_bytes=saved.get("memory_bytes") or identity.memory_bytes,
        bandwidth_bytes_per_s=saved["bandwidth_bytes_per_s"],
        peak_flops_per_s={saved["compute_format"]: saved["peak_flops_per_s"], **(saved.get("other_peaks") or {})},
        source=Source(f"measured on this machine: {saved['method']}", saved["as_of"]),
        origin=Origin.MEASURED,
        note=saved["note"],
    )


def remember_probe(result: ProbeResult, folder: Path | None = None) -> None:
    """Keep the ceilings for later; a cache folder that cannot be written is no reason to fail."""
    path = (folder or cache_folder()) / _FILE
    kept = {
        "machine": _fingerprint(result.identity),
        "name": _probed_name(result),
        "memory_bytes": result.gpu.memory_bytes if result.gpu else result.identity.memory_bytes,
        "other_peaks": dict(result.other_peaks),
        "bandwidth_bytes_per_s": result.bandwidth_bytes_per_s,
        "peak_flops_per_s": result.peak_flops_per_s,
        "compute_format": result.compute_format,
        "method": result.method,
        "note": "; ".join(result.notes),
        "as_of": datetime.now(UTC).date().isoformat(),
    }
    with suppress(OSError, StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(kept, allow_nan=False))


def _probed_name(result: ProbeResult) -> str:
    return f"this machine's {result.gpu.name}" if result.gpu else _name(result.identity)


def _name(identity: MachineIdentity) -> str:
    return f"this machine ({identity.cpu_model or identity.architecture}, {identity.num_usable_cores} cores)"


def _fingerprint(identity: MachineIdentity) -> list[str | int | None]:
    return [identity.cpu_model, identity.architecture, identity.num_usable_cores]


def _read(path: Path) -> Mapping[str, Any] | None:
    """The saved ceilings; None when there are none or they are not what this version writes."""
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(saved, dict):
        return None
    rates = [saved.get("bandwidth_bytes_per_s"), saved.get("peak_flops_per_s")]
    texts = [saved.get("compute_format"), saved.get("method"), saved.get("as_of"), saved.get("note")]
    others, memory_bytes, name = saved.get("other_peaks"), saved.get("memory_bytes"), saved.get("name")
    rates += others.values() if isinstance(others, dict) else [] if others is None else [None]
    sound = all(isinstance(rate, int | float) and math.isfinite(rate) and rate > 0 for rate in rates)
    sound = sound and isinstance(memory_bytes, int | None) and isinstance(name, str | None)
    return saved if sound and all(isinstance(text, str) for text in texts) else None
