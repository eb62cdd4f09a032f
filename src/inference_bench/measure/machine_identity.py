"""Which machine is this? Processor, caches, memory, and the matrix library that a measurement here would use.

In:   the running system: /proc and /sys on Linux, sysctl on macOS, the standard library elsewhere
Out:  MachineIdentity; a part that the system does not tell is None
Leaves out: host name, user and serial numbers. A result can be shared without naming anyone.
Read next by: machine (probe), and every result that says where it was measured.
"""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from inference_bench.units import KIBI, MEBI

_BLAS_PREFIXES = ("OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "VECLIB_", "NVPL_")


@dataclass(frozen=True, slots=True)
class BlasLibrary:
    """A matrix library loaded in this process, as it describes itself."""

    name: str
    version: str | None
    architecture: str | None  # the processor family whose kernels it chose, such as SkylakeX
    num_threads: int
    threading_layer: str | None


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """What a measurement ran on.

    Where:    num_usable_cores is what this process may use: its affinity, and its control group's quota rounded up;
              last_level_cache_bytes sums the last-level caches that those cores share;
              memory_bytes and available_memory_bytes are the system's, or the control group's limit where lower
    """

    system: str
    architecture: str
    cpu_model: str | None
    num_physical_cores: int | None
    num_logical_cores: int | None
    num_usable_cores: int
    cpu_quota_cores: float | None
    last_level_cache_bytes: int | None
    memory_bytes: int | None
    available_memory_bytes: int | None
    python: str
    numpy_version: str | None
    blas: tuple[BlasLibrary, ...]
    blas_environment: dict[str, str]  # variables that change what the matrix library does
    load_average_1min: float | None


@dataclass(frozen=True, slots=True)
class GPUIdentity:
    """One graphics card as its driver describes it.

    Where:    max_memory_clock_hz is the clock the driver reports, at which memory moves two values a line and cycle
    Ignores:  UUID and serial number, on purpose
    """

    index: int
    name: str
    memory_bytes: int | None
    compute_capability: str | None
    driver_version: str | None
    cuda_driver_version: str | None
    memory_bus_width_bits: int | None
    max_memory_clock_hz: int | None
    max_sm_clock_hz: int | None
    power_limit_w: float | None
    is_ecc_on: bool | None
    pcie_generation: int | None
    pcie_lanes: int | None


def identify_machine(*, root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> MachineIdentity:
    """The machine as it is now; `root` is where /proc and /sys are read."""
    usable_cpus = _usable_cpus()
    quota = _cpu_quota_cores(root)
    memory_bytes, available_bytes = _memory_bytes(root)
    return MachineIdentity(
        system=platform.platform(),
        architecture=platform.machine(),
        cpu_model=_cpu_model(root),
        num_physical_cores=_num_physical_cores(root),
        num_logical_cores=os.cpu_count(),
        num_usable_cores=max(1, min(len(usable_cpus), math.ceil(quota) if quota else len(usable_cpus))),
        cpu_quota_cores=quota,
        last_level_cache_bytes=_last_level_cache_bytes(root, usable_cpus),
        memory_bytes=memory_bytes,
        available_memory_bytes=available_bytes,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy_version=_numpy_version(),
        blas=identify_blas(),
        blas_environment=blas_environment(os.environ if environ is None else environ),
        load_average_1min=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def identify_blas() -> tuple[BlasLibrary, ...]:
    """The matrix libraries loaded in this process; empty when none is, or none that threadpoolctl knows."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return ()
    return tuple(
        BlasLibrary(
            name=info["internal_api"],
            version=info.get("version"),
            architecture=info.get("architecture"),
            num_threads=info["num_threads"],
            threading_layer=info.get("threading_layer"),
        )
        for info in threadpool_info()
        if info["user_api"] == "blas"
    )


def blas_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that change which kernels or how many threads a matrix library uses."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(_BLAS_PREFIXES)}


def _numpy_version() -> str | None:
    try:
        return version("numpy")
    except PackageNotFoundError:
        return None


# ── processor ──────────────────────────────────────────────────────────────────────────────────────


def _usable_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _cpu_model(root: Path) -> str | None:
    listed = re.search(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo") or "", re.MULTILINE)
    if listed:
        return listed.group(1).strip()
    return _sysctl("machdep.cpu.brand_string") or platform.processor() or None


def _num_physical_cores(root: Path) -> int | None:
    folder = root / "sys/devices/system/cpu"
    siblings = {_read(path) for path in folder.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(siblings) or _sysctl_int("hw.physicalcpu")


def _last_level_cache_bytes(root: Path, usable_cpus: frozenset[int]) -> int | None:
    """The last-level caches of those processors, each shared one counted once."""
    caches: dict[str, int] = {}
    for cpu in usable_cpus:
        last = max(_data_caches(root / f"sys/devices/system/cpu/cpu{cpu}/cache"), default=None)
        if last is not None:
            _, shared_by, size_bytes = last
            caches[shared_by] = size_bytes
    return sum(caches.values()) or _sysctl_int("hw.l3cachesize") or _sysctl_int("hw.l2cachesize")


def _data_caches(folder: Path) -> Iterator[tuple[int, str, int]]:
    """(level, processors that share it, bytes) of each cache that holds data."""
    for index in folder.glob("index[0-9]*"):
        size = re.fullmatch(r"(\d+)([KM]?)", _read(index / "size") or "")
        level = _read(index / "level")
        if size and level and _read(index / "type") in ("Unified", "Data"):
            factor = {"": 1, "K": KIBI, "M": MEBI}[size.group(2)]
            yield int(level), _read(index / "shared_cpu_list") or "", int(size.group(1)) * factor


# ── memory, and the limits of a container ──────────────────────────────────────────────────────────


def _memory_bytes(root: Path) -> tuple[int | None, int | None]:
    """(total, available) memory, each the lowest of the system's and the control groups' figures."""
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo") or "", re.MULTILINE))
    totals = [int(meminfo[name]) * KIBI for name in ("MemTotal",) if name in meminfo]
    available = [int(meminfo[name]) * KIBI for name in ("MemAvailable",) if name in meminfo]
    for folder in _control_groups(root, "memory"):
        limit = _first_int(folder / "memory.max", folder / "memory.limit_in_bytes")
        if limit is not None:
            totals.append(limit)
            available.append(max(0, limit - _used_bytes(folder)))
    return (min(totals) if totals else _sysctl_int("hw.memsize")), (min(available) if available else None)


def _used_bytes(folder: Path) -> int:
    """Memory a control group holds that cannot be dropped: its use without the file pages nobody needs now."""
    used = _first_int(folder / "memory.current", folder / "memory.usage_in_bytes") or 0
    inactive = re.search(r"^(?:total_)?inactive_file (\d+)$", _read(folder / "memory.stat") or "", re.MULTILINE)
    return used - (int(inactive.group(1)) if inactive else 0)


def _cpu_quota_cores(root: Path) -> float | None:
    """Processor time per second that the control groups allow; None for no limit."""
    quotas = []
    for folder in _control_groups(root, "cpu"):
        both = (_read(folder / "cpu.max") or "").split()
        quota = int(both[0]) if len(both) == 2 and both[0].isdigit() else _first_int(folder / "cpu.cfs_quota_us")
        period = int(both[1]) if len(both) == 2 else _first_int(folder / "cpu.cfs_period_us")
        if quota and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The control group of this process and every group above it, in both versions of the interface."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        base = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            base /= controller
        own = base / path.strip("/")
        yield own
        yield from (folder for folder in own.parents if folder.is_relative_to(base))


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _first_int(*paths: Path) -> int | None:
    for path in paths:
        text = _read(path)
        if text is not None and text.lstrip("-").isdigit():
            return int(text)
    return None


def _sysctl(name: str) -> str | None:
    if platform.system() != "Darwin":
        return None
    try:
        run = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip() or None


def _sysctl_int(name: str) -> int | None:
    text = _sysctl(name)
    return int(text) if text is not None and text.isdigit() else None
