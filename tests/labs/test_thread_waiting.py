"""Whether PyTorch's threads sleep is what its own library says of itself, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import inference_bench
from inference_bench.labs import thread_waiting

SOURCE = str(Path(inference_bench.__file__).parents[1])
_ASK = """
import os
from inference_bench.labs.thread_waiting import let_threads_sleep, waiting_notes
print(let_threads_sleep(), len(waiting_notes()), "OMP_WAIT_POLICY" in os.environ)
import torch
"""

pytestmark = pytest.mark.skipif(not thread_waiting._libraries(), reason="PyTorch is not here, or brings no libgomp")


def ask(program: str = _ASK, **environment: str) -> tuple[str, int]:
    """What a new process printed, and how often a thread looks before it sleeps, by the library itself."""
    own = {name: value for name, value in os.environ.items() if name not in thread_waiting._SAID_BY_USER}
    places = {"PYTHONPATH": SOURCE, "OMP_DISPLAY_ENV": "VERBOSE"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=own | places | environment, capture_output=True, text=True, check=True
    )
    told = [line.split("'")[1] for line in ran.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    return ran.stdout.strip(), int(told[0])


def test_threads_sleep_and_processes_started_later_are_not_told() -> None:
    assert ask() == ("True 1 False", 0)


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "7")])
def test_who_has_said_how_threads_wait_is_heard(name: str, value: str) -> None:
    said, num_looks = ask(**{name: value})
    assert said.startswith("False 0")
    assert num_looks == 7 if name == "GOMP_SPINCOUNT" else num_looks > 1e9


def test_once_pytorch_is_loaded_it_is_too_late_and_not_claimed() -> None:
    said, num_looks = ask("import torch\n" + _ASK)
    assert said == "False 0 False"
    assert num_looks > 1000


@pytest.mark.parametrize(("option", "sleeps"), [(["--quick"], "True"), ([], "False")])
def test_the_quick_mode_of_the_command_lets_them_sleep_and_the_full_one_does_not(
    option: list[str], sleeps: str
) -> None:
    program = f"""
from inference_bench.cli import lab
from inference_bench.cli.main import main
def stop(*_):
    raise KeyboardInterrupt
lab.load_flow = stop
main(["lab", "cache", *{option!r}])
from inference_bench.labs.thread_waiting import waiting_notes
print(bool(waiting_notes()))
import torch
"""
    said, num_looks = ask(program)
    assert (said, num_looks == 0) == (sleeps, sleeps == "True")
