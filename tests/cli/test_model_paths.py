"""What is given as a model and is none is called what it is; nothing waits for a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import refused

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of Unix")
KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link that leads in a circle": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}
ON = ("--on", "rtx-4090")
COUNTED = [
    ("fit", "{}"),
    ("roofline", "{}", *ON),
    ("explain", "{}", "15GiB"),
    ("simulate", "--model", "{}", *ON, "--rate", "1"),
    ("capacity", "--model", "{}", *ON, "--ttft-p99", "1"),
]
SERVED = [
    ("serve", "{}"),
    ("serve", "{}", "--engine", "vllm"),
    ("verify", "--model", "{}"),
    ("manifest", "create", "{}"),
]


def say(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], path: Path) -> str:
    return refused(capsys, *(word.format(path) for word in words))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", COUNTED + SERVED, ids=" ".join)
@pytest.mark.parametrize("name", ["model", "model.gguf"])
def test_a_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], kind: str, name: str
) -> None:
    KINDS[kind](tmp_path / name)
    assert kind in say(capsys, words, tmp_path / name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", COUNTED, ids=" ".join)
def test_a_config_of_a_folder_and_by_itself(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    KINDS[kind](tmp_path / "config.json")
    for path in (tmp_path, tmp_path / "config.json"):
        assert f"config.json is {kind}; " in say(capsys, words, path)


def test_a_config_that_is_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert "config.json is a folder; " in refused(capsys, "fit", str(tmp_path))


@pytest.mark.parametrize(("words", "name"), [(("plan", "{}"), "a.toml"), (("fit", "qwen3-8b", "--on", "{}"), "a.json")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scenario_and_a_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], name: str, kind: str
) -> None:
    KINDS[kind](tmp_path / name)
    assert f"{name} is {kind}; " in say(capsys, words, tmp_path / name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "requests.jsonl")
    assert f"is {kind}: " in refused(capsys, "simulate", "--against", str(tmp_path))
