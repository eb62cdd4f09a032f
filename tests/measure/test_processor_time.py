from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from inference_bench.measure.processor_time import busy_s

TICKS = os.sysconf("SC_CLK_TCK")


def stat(folder: Path, text: str) -> Path:
    (folder / "proc").mkdir()
    (folder / "proc/stat").write_text(text)
    return folder


def test_all_that_is_not_idle_counts_and_waiting_for_input_does_not(tmp_path: Path) -> None:
    # user, nice, system, idle, iowait, irq, softirq, steal, guest (which is in user already)
    root = stat(tmp_path, "cpu  100 20 3 9999 8888 4 5 6 50 0\ncpu0 1 1 1 1\n")
    assert busy_s(root) == (100 + 20 + 3 + 4 + 5 + 6) / TICKS


@pytest.mark.parametrize("text", ["", "cpu", "cpu 1 2", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"])
def test_a_system_that_says_something_else_says_nothing(tmp_path: Path, text: str) -> None:
    assert busy_s(stat(tmp_path, text)) is None


def test_a_system_without_it_says_nothing(tmp_path: Path) -> None:
    assert busy_s(tmp_path) is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this system has no /proc/stat")
def test_what_this_process_computes_is_in_it() -> None:
    before, own = busy_s(), time.process_time()
    while time.process_time() - own < 0.2:
        pass
    after = busy_s()
    assert before is not None
    assert after is not None
    assert after - before >= 0.15
