"""The Python of docs/load.md runs as it is printed, against a server of known behaviour."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from inference_bench.conform.truth_process import TruthProcess

DOC = Path(__file__).parents[2] / "docs" / "load.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)


def printed(code: str, tmp_path: Path) -> str:
    with TruthProcess() as server:
        here = code.replace("http://127.0.0.1:8000", server.url("lockstep,first=0.02,gap=0.002"))
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("code", BLOCKS, ids=("load-and-referee", "sweep-and-capacity"))
def test_an_example_runs_and_keeps_its_run(code: str, tmp_path: Path) -> None:
    assert len(printed(code, tmp_path).splitlines()) == 2
    kept = list((tmp_path / "runs").iterdir())
    assert len(kept) == 1 + ("measure_sweep" in code)  # a sweep and a search
    assert all((folder / "meta.json").is_file() for folder in kept)
