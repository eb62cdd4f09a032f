from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.here import machine_from_probe, remember_probe, this_machine
from inference_bench.measure.machine import probe
from inference_bench.origin import Origin


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return probe(budget_s=1.0, max_batch=2, matrix_size=256)


def test_a_machine_that_was_never_probed_has_memory_and_no_rates(tmp_path: Path) -> None:
    machine = this_machine(tmp_path)
    assert machine.bandwidth_bytes_per_s is None
    assert machine.peak_flops_per_s == {}
    assert machine.origin is Origin.MEASURED
    assert "not measured yet" in machine.source.title


def test_the_ceilings_of_the_last_probe_are_what_here_means(tmp_path: Path, result: ProbeResult) -> None:
    remember_probe(result, tmp_path)
    machine, direct = this_machine(tmp_path), machine_from_probe(result)
    assert machine.bandwidth_bytes_per_s == direct.bandwidth_bytes_per_s == result.bandwidth_bytes_per_s
    assert machine.peak_flops_per_s == {"fp32": result.peak_flops_per_s}
    assert machine.memory_bytes == result.identity.memory_bytes


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"bandwidth_bytes_per_s": NaN}', b'{"machine": 1}', b"[" * 100_000],
)
def test_a_broken_memory_of_the_last_probe_is_no_memory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "probe.json").write_bytes(content)
    assert this_machine(tmp_path).bandwidth_bytes_per_s is None


def test_ceilings_of_another_processor_are_not_taken_for_this_one(tmp_path: Path, result: ProbeResult) -> None:
    remember_probe(result, tmp_path)
    saved = json.loads((tmp_path / "probe.json").read_text(encoding="utf-8"))
    saved["machine"][0] = "another processor"
    (tmp_path / "probe.json").write_text(json.dumps(saved), encoding="utf-8")
    assert this_machine(tmp_path).bandwidth_bytes_per_s is None


def test_a_cache_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, result: ProbeResult) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    remember_probe(result, blocked / "inside")
