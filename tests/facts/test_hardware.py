from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import HardwareFileError, UnknownNameError
from inference_bench.facts import table
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import hardware, hardware_from_description, known_hardware
from inference_bench.facts.load import load_hardware
from inference_bench.facts.names import fold_name
from inference_bench.units import parse_bytes, parse_rate


@pytest.mark.parametrize("machine", known_hardware(), ids=lambda machine: machine.name)
def test_every_printed_text_reads_as_the_number_beside_it(machine: Any) -> None:
    printed = dict(machine.printed)
    memory = printed.pop("memory", None)
    assert machine.memory_bytes == (None if memory is None else parse_bytes(memory))
    for name, unit, value in (
        ("bandwidth", "B/s", machine.bandwidth_bytes_per_s),
        ("interconnect", "B/s", machine.interconnect_bytes_per_s),
        ("tdp", "W", machine.tdp_w),
    ):
        text = printed.pop(name, None)
        assert value == (None if text is None else parse_rate(text, unit))
    rates = {name: parse_rate(text, "FLOP/s") for name, text in printed.items()}
    apart = {f"{name}_acc16": rate for name, rate in (machine.acc16_flops_per_s or {}).items()}
    assert rates == {**machine.peak_flops_per_s, **apart}


def test_every_machine_has_a_kind_a_source_and_a_date() -> None:
    kinds = Counter(machine.kind for machine in known_hardware())
    assert kinds == {
        "datacenter-gpu": 30,  # one chip stands twice: B200 by the chip brief, and as HGX boards carry it
        "soc-unified": 30,
        "cpu-memory": 21,
        "consumer-gpu": 16,
        "datacenter-asic": 16,
        "workstation-gpu": 10,
        "npu": 8,
        "wafer": 1,
    }
    for machine in known_hardware():
        assert machine.source.title
        assert machine.source.as_of.startswith("20")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("RTX-4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("h100", "H100 SXM5 80GB"),
        ("a100-80gb", "A100 SXM4 80GB"),
        ("a100 40gb", "A100 SXM4 40GB"),
        ("mi300x", "Instinct MI300X"),
        ("M4 Max", "Apple M4 Max (40-core GPU)"),
        ("m3 ultra", "Apple M3 Ultra"),
        ("strix halo", "Ryzen AI Max+ 395 (Strix Halo)"),
        ("gb200", "GB200 (per GPU)"),
        ("genoa", "Server DDR5-4800 x12 (EPYC Genoa)"),
        ("B200 SXM", "B200 (HGX)"),
        ("b200", "B200"),
        ("RTX 3060 12GB", "RTX 3060 12GB"),
        ("A100-80GB SXM", "A100 SXM4 80GB"),
        ("A100-80GB SXM (330W)", "A100 SXM4 80GB (330 W)"),
        ("M2 Ultra 76-core", "Apple M2 Ultra"),
        ("M2 Max 30-core", "Apple M2 Max (30-core GPU)"),
        ("Intel Max 1550", "Data Center GPU Max 1550"),
        ("TPU v7x (Ironwood)", "TPU v7 (Ironwood)"),
    ],
)
def test_a_machine_is_found_by_what_people_call_it(typed: str, name: str) -> None:
    assert hardware(typed).name == name


def test_machines_that_compute_alike_share_vendor_and_architecture() -> None:
    alike = {
        (machine.vendor, machine.architecture) for machine in map(hardware, ("4090", "l40s", "rtx 5000 ada", "l4"))
    }
    assert alike == {("nvidia", "ada")}
    for machine in known_hardware():
        for word in (machine.vendor, machine.architecture):
            assert word is None or word == word.lower().strip() != ""
    unknown = [machine.name for machine in known_hardware() if machine.vendor is None]
    assert unknown == ["Desktop DDR4-3200 x2", "Desktop DDR5-5600 x2", "Desktop DDR5-6400 x2"]


def test_no_name_or_alias_stands_for_two_machines() -> None:
    rows = table.read("hardware.jsonl").values()
    names = [name for row in rows for name in {fold_name(each) for each in (row["name"], *row["aliases"])}]
    assert len(names) == len(set(names)) > 150


def test_the_rate_with_fp16_accumulation_is_kept_apart() -> None:
    # GA102, AD102 and GB202 papers: products that accumulate in fp16 run at twice the rate of those in fp32
    for name in ("3090", "4090", "5090", "4080", "4070 ti super", "3060", "3070", "4070", "2080 ti", "3090 ti"):
        machine = hardware(name)
        assert machine.acc16_flops_per_s is not None
        assert machine.acc16_flops_per_s["fp16"] == pytest.approx(2 * machine.peak_flops_per_s["fp16"], rel=0.001)
        assert not [rate for rate in machine.peak_flops_per_s if "acc16" in rate]


def test_memory_that_programs_share_with_the_system_is_told_apart() -> None:
    assert hardware("m4 max").is_unified
    assert hardware("gb10").is_unified
    assert hardware("ddr5-5600").is_unified
    assert hardware("rk3588").is_unified
    assert not hardware("h100").is_unified


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
    assert hardware("ddr5-5600").compute_format(number_format("bf16")) is None


def test_a_users_own_machine_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nmemory = "24 GB"\nbandwidth = "1 TB/s"\n[peak]\nbf16 = "165 TFLOPS"\n')
    machine = load_hardware(str(path))
    assert (machine.name, machine.memory_bytes, machine.bandwidth_bytes_per_s) == ("mine", 24 * 10**9, 1e12)
    assert (machine.interconnect_bytes_per_s, machine.tdp_w, machine.kind) == (None, None, None)
    assert (machine.vendor, machine.architecture) == (None, None)


def test_a_users_own_machine_may_state_what_it_computes_like() -> None:
    machine = hardware_from_description({"bandwidth": "1 TB/s", "vendor": "NVIDIA", "architecture": "Ada"}, "mine.toml")
    assert (machine.vendor, machine.architecture) == ("nvidia", "ada")


def test_a_users_own_machine_may_state_its_interconnect_and_power() -> None:
    values = {"bandwidth": "1 TB/s", "interconnect": "64 GB/s", "tdp_w": 450, "kind": "consumer-gpu"}
    machine = hardware_from_description(values, "mine.toml")
    assert (machine.interconnect_bytes_per_s, machine.tdp_w, machine.kind) == (64e9, 450, "consumer-gpu")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory": "24 XB", "bandwidth": 1}, "unknown prefix"),
        ({"bandwidth": None}, "bandwidth is missing"),
        ({"bandwidth": -1}, "above zero"),
        ({"bandwidth": float("nan")}, "above zero"),
        ({"bandwidth": True}, "above zero"),
        ({"bandwidth": 10**400}, "below 1e24"),
        ({"bandwidth": 1e300}, "below 1e24"),
        ({"bandwidth": "1e15 TB/s"}, "below 1e24"),
        ({"bandwidth": 1, "peak": {"bf17": 1}}, "bf17"),
        ({"bandwidth": 1, "peak": 3}, "table"),
        ({"bandwith": 1}, "unknown field"),
        ({"bandwidth": 1, "interconnect": "fast"}, "interconnect"),
        ({"bandwidth": 1, "tdp_w": -3}, "tdp_w"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused_by_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareFileError, match=message):
        hardware_from_description(values, "mine.toml")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "= broken"),
        ("b.json", "[1]"),
        ("c.json", "{"),
        ("deep.toml", "a=" + "[" * 5000),
        ("long.toml", "bandwidth=" + "9" * 5000),
        ("deep.json", '{"a":' + "[" * 5000),
    ],
    ids=lambda value: value[:12],
)
def test_a_broken_description_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(HardwareFileError, match=name):
        load_hardware(str(tmp_path / name))
    with pytest.raises(HardwareFileError, match="no file"):
        load_hardware(str(tmp_path / "missing.toml"))
