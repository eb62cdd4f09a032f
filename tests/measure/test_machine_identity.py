from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference_bench.measure import machine_identity
from inference_bench.measure.machine_identity import blas_environment, identify_machine

KIB = 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def cache_files(cpu: int, level3_shared_by: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
    files = {}
    for index, (level, kind, size, shared_by) in enumerate(
        [
            ("1", "Data", "48K", str(cpu)),
            ("1", "Instruction", "32K", str(cpu)),
            ("2", "Unified", "1024K", str(cpu)),
            ("3", "Unified", "32768K", level3_shared_by),
        ]
    ):
        files |= {
            f"{folder}/index{index}/level": level + "\n",
            f"{folder}/index{index}/type": kind + "\n",
            f"{folder}/index{index}/size": size + "\n",
            f"{folder}/index{index}/shared_cpu_list": shared_by + "\n",
        }
    return files


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_identity, "_usable_cpus", lambda: frozenset(range(4)))


@pytest.mark.usefixtures("four_cpus")
def test_each_shared_last_level_cache_is_counted_once(tmp_path: Path) -> None:
    files = cache_files(0, "0-1") | cache_files(1, "0-1") | cache_files(2, "2-3") | cache_files(3, "2-3")
    identity = identify_machine(root=write(tmp_path, files))
    assert identity.last_level_cache_bytes == 2 * 32768 * KIB


@pytest.mark.usefixtures("four_cpus")
def test_a_cache_that_only_unusable_cpus_share_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_identity, "_usable_cpus", lambda: frozenset({0}))
    files = cache_files(0, "0-1") | cache_files(2, "2-3")
    assert identify_machine(root=write(tmp_path, files)).last_level_cache_bytes == 32768 * KIB


def test_the_processor_is_read_from_cpuinfo_and_topology(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9005\nflags\t\t: fpu\n"}
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    identity = identify_machine(root=write(tmp_path, files))
    assert identity.cpu_model == "AMD EPYC 9005"
    assert identity.num_physical_cores == 2


MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def test_memory_is_the_system_s_where_no_group_limits_it(tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "max\n"}
    identity = identify_machine(root=write(tmp_path, files))
    assert (identity.memory_bytes, identity.available_memory_bytes) == (1000 * KIB, 600 * KIB)


def test_a_control_group_above_ours_limits_memory_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/pod/app\n",
        "sys/fs/cgroup/pod/app/memory.max": "max\n",
        "sys/fs/cgroup/pod/memory.max": "400000\n",
        "sys/fs/cgroup/pod/memory.current": "150000\n",
        "sys/fs/cgroup/pod/memory.stat": "anon 1000\ninactive_file 50000\n",
    }
    identity = identify_machine(root=write(tmp_path, files))
    assert identity.memory_bytes == 400_000
    assert identity.available_memory_bytes == 400_000 - (150_000 - 50_000)


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:cpu,cpuacct:/app\n4:memory:/docker/abc\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "500000\n",  # inside the container the group is the root
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000\n",
        "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/app/cpu.cfs_period_us": "100000\n",
    }
    identity = identify_machine(root=write(tmp_path, files))
    assert (identity.memory_bytes, identity.available_memory_bytes) == (500_000, 400_000)
    assert identity.cpu_quota_cores is None


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(
    ("cpu_max", "quota", "cores"),
    [("max 100000", None, 4), ("150000 100000", 1.5, 2), ("50000 100000", 0.5, 1), ("800000 100000", 8.0, 4)],
)
def test_usable_cores_are_the_affinity_or_the_quota_rounded_up(
    tmp_path: Path, cpu_max: str, quota: float | None, cores: int
) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max + "\n"}
    identity = identify_machine(root=write(tmp_path, files))
    assert identity.cpu_quota_cores == quota
    assert identity.num_usable_cores == cores


def test_a_quota_of_the_first_version_is_read(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert identify_machine(root=write(tmp_path, files)).cpu_quota_cores == 0.5


def test_what_the_system_does_not_tell_is_none(tmp_path: Path) -> None:
    identity = identify_machine(root=tmp_path)
    assert identity.num_usable_cores >= 1
    assert identity.last_level_cache_bytes is None
    assert identity.available_memory_bytes is None
    assert identity.cpu_quota_cores is None


def test_only_variables_of_matrix_libraries_are_kept() -> None:
    environ = {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "2", "HOME": "/x", "SECRET_OPENBLAS_": "1"}
    assert blas_environment(environ) == {"OMP_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Haswell"}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs a system that tells affinity")
def test_this_machine_is_identified() -> None:
    identity = identify_machine()
    assert identity.num_usable_cores <= len(os.sched_getaffinity(0))
    assert identity.memory_bytes is not None
    assert identity.available_memory_bytes is not None
    assert 0 < identity.available_memory_bytes <= identity.memory_bytes
