from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import HardwareFileError, UnknownNameError
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import hardware, hardware_from_description, known_hardware
from inference_bench.facts.load import load_hardware
from inference_bench.units import parse_bytes, parse_rate


@pytest.mark.parametrize("machine", known_hardware(), ids=lambda machine: machine.name)
def test_every_printed_text_reads_as_the_number_beside_it(machine: Any) -> None:
    printed = dict(machine.printed)
    memory = printed.pop("memory", None)
    assert machine.memory_bytes == (None if memory is None else parse_bytes(memory))
    assert parse_rate(printed.pop("bandwidth"), "B/s") == machine.bandwidth_bytes_per_s
    assert {name: parse_rate(text, "FLOP/s") for name, text in printed.items()} == machine.peak_flops_per_s


def test_every_machine_has_a_source_and_a_date() -> None:
    assert len(known_hardware()) >= 12
    for machine in known_hardware():
        assert machine.source.title
        assert machine.source.as_of.startswith("20")


def test_sparse_headlines_are_not_used_as_dense_rates() -> None:
    # the sparse figures of the data sheets: H100 1979 and 3958, L40S 733, RTX 4090 330 (fp16 accumulate)
    assert hardware("h100").peak_flops_per_s["bf16"] < 1000e12
    assert hardware("h100").peak_flops_per_s["fp8"] < 2000e12
    assert hardware("l40s").peak_flops_per_s["bf16"] < 400e12
    assert hardware("4090").peak_flops_per_s["bf16"] == 165.2e12


def test_an_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="H100 SXM5 80GB"):
        hardware("h1000")


def test_a_rate_that_was_not_published_is_unknown_and_not_zero() -> None:
    assert hardware("gb10").compute_format(number_format("bf16")) is None


def test_a_users_own_machine_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nmemory = "24 GB"\nbandwidth = "1 TB/s"\n[peak]\nbf16 = "165 TFLOPS"\n')
    machine = load_hardware(str(path))
    assert (machine.name, machine.memory_bytes, machine.bandwidth_bytes_per_s) == ("mine", 24 * 10**9, 1e12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory": "24 XB", "bandwidth": 1}, "unknown prefix"),
        ({"bandwidth": None}, "bandwidth is None"),
        ({"bandwidth": -1}, "above zero"),
        ({"bandwidth": float("nan")}, "above zero"),
        ({"bandwidth": True}, "above zero"),
        ({"bandwidth": 1, "peak": {"bf17": 1}}, "bf17"),
        ({"bandwidth": 1, "peak": 3}, "table"),
        ({"bandwith": 1}, "unknown field"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused_by_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareFileError, match=message):
        hardware_from_description(values, "mine.toml")


@pytest.mark.parametrize(("name", "text"), [("a.toml", "= broken"), ("b.json", "[1]"), ("c.json", "{")])
def test_a_broken_description_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(HardwareFileError, match=name):
        load_hardware(str(tmp_path / name))
    with pytest.raises(HardwareFileError, match="no file"):
        load_hardware(str(tmp_path / "missing.toml"))
