"""What was converted is there whole or not at all, and nothing that was there before is lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from convert import tiny
from inference_bench.convert.cached import kept_conversion
from inference_bench.convert.flow import Conversion, ConversionRequest, convert_model
from inference_bench.convert.outputs import Writer
from inference_bench.errors import InferenceBenchError, MissingExtraError, RequestError, StorageError
from inference_bench.measure.files import sha256_of_file

BOTH = pytest.mark.parametrize(("to", "target"), [("f16", "out.gguf"), ("hf", "out")])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "in.gguf")


def convert(source: Path, to: str, target: str, may_replace: bool = False) -> Conversion:
    return convert_model(ConversionRequest(source, source.parent / target, to, may_replace=may_replace))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@BOTH
def test_what_stands_there_is_replaced_only_when_that_is_asked_for(source: Path, to: str, target: str) -> None:
    first = convert(source, to, target)
    with pytest.raises(RequestError, match="exists already"):
        convert(source, to, target)
    assert convert(source, to, target, may_replace=True).target_sha256 == first.target_sha256
    assert names(source.parent) == sorted(["in.gguf", target])


@BOTH
def test_a_disk_that_fills_up_leaves_nothing_and_keeps_what_was_there(
    source: Path, to: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = convert(source, to, target).target_sha256

    def fill_up(self: Writer, data: bytes | memoryview) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Writer, "write", fill_up)
    with pytest.raises(StorageError, match="no space left on device; nothing was left"):
        convert(source, to, target, may_replace=True)
    assert names(source.parent) == sorted(["in.gguf", target])
    assert kept_hash(source.with_name(target)) == before


def kept_hash(target: Path) -> str:
    if target.is_file():
        return sha256_of_file(target)
    import hashlib

    lines = "".join(f"{sha256_of_file(target / name)}  {name}\n" for name in names(target))
    return hashlib.sha256(lines.encode()).hexdigest()


@BOTH
def test_too_little_space_is_said_before_anything_is_written(
    source: Path, to: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(100, 90, 10))
    with pytest.raises(StorageError, match=r"it takes .* and 10 B are free"):
        convert(source, to, target)
    assert names(source.parent) == ["in.gguf"]


@BOTH
def test_an_interruption_at_any_tensor_leaves_nothing(source: Path, to: str, target: str) -> None:
    lines: list[str] = []
    convert_model(ConversionRequest(source, source.with_name("whole" + target), to), lines.append)
    assert len(lines) > 15
    for stop_at in range(1, len(lines) + 1):
        seen = []

        def interrupt(line: str, seen: list[str] = seen, stop_at: int = stop_at) -> None:
            seen.append(line)
            if len(seen) == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert_model(ConversionRequest(source, source.with_name(target), to), interrupt)
        assert names(source.parent) == sorted(["in.gguf", "whole" + target])


def test_a_folder_that_holds_anything_else_is_never_replaced(source: Path) -> None:
    convert(source, "hf", "out")
    (source.with_name("out") / "thesis.txt").write_text("years of work")
    with pytest.raises(RequestError, match=r"holds 'thesis\.txt', which is not from a conversion"):
        convert(source, "hf", "out", may_replace=True)
    assert (source.with_name("out") / "thesis.txt").read_text() == "years of work"


def test_an_empty_folder_is_filled(source: Path) -> None:
    source.with_name("out").mkdir()
    assert len(convert(source, "hf", "out").files) == 6


@pytest.mark.parametrize(
    ("to", "target", "said"),
    [
        ("f16", "in.gguf", "is the file that is converted"),
        ("f16", "none/out.gguf", "there is no folder"),
        ("f16", "out.bin", r"is named NAME\.gguf"),
        ("f16", "folder.gguf", "exists and is a folder"),
        ("hf", "in.gguf", "is the file that is converted"),
        ("hf", "other", "exists and is not a folder"),
    ],
)
def test_a_place_that_cannot_be_is_refused(source: Path, to: str, target: str, said: str) -> None:
    source.with_name("folder.gguf").mkdir()
    source.with_name("other").write_text("mine")
    with pytest.raises(RequestError, match=said):
        convert(source, to, target, may_replace=True)
    assert source.with_name("other").read_text() == "mine"


def complaint(source: Path, to: str, name: str) -> str | None:
    """What the conversion complains of; any error that is none of ours comes through."""
    try:
        convert(source, to, name)
    except InferenceBenchError as error:
        return str(error)
    return None


def test_a_source_that_is_cut_short_or_scrambled_is_refused_in_one_line_or_converted_whole(source: Path) -> None:
    whole, target = source.read_bytes(), source.with_name("out.gguf")
    draw = random.Random(8)
    cases = [whole[: draw.randrange(len(whole))] for _ in range(40)]
    header = len(whole) - sum(values.nbytes for values in tiny.tensors().values())
    for _ in range(160):
        broken = bytearray(whole)
        for _ in range(draw.choice((1, 3, 40))):
            broken[draw.randrange(header)] = draw.randrange(256)
        cases.append(bytes(broken))
    refused = 0
    for case in cases:
        source.write_bytes(case)
        for to, name in (("q8_0", "out.gguf"), ("hf", "out")):
            said = complaint(source, to, name)
            if said is None:
                shutil.rmtree(source.with_name("out"), ignore_errors=True)
                target.unlink(missing_ok=True)
            refused += said is not None
            assert "\n" not in (said or "")
            assert names(source.parent) == ["in.gguf"]
    assert refused > 100


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"needs gguf.*pip install 'inference-bench\[convert\]'"):
        convert(source, "f16", "out.gguf")


@pytest.mark.parametrize("to", ["q8_0", "hf"])
def test_a_conversion_is_made_once_and_made_again_when_it_is_not_what_it_was(
    source: Path, tmp_path: Path, to: str
) -> None:
    sha256, made = sha256_of_file(source), []
    first = kept_conversion(source, sha256, to, progress=made.append, folder=tmp_path)
    assert made
    made.clear()
    assert kept_conversion(source, sha256, to, progress=made.append, folder=tmp_path) == first
    assert made == []
    damaged = first.path if first.path.is_file() else first.path / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    assert kept_conversion(source, sha256, to, progress=made.append, folder=tmp_path) == first
    assert made
    made.clear()
    first.path.with_name(f"{first.path.name}.json").write_text("[1, 2")
    assert kept_conversion(source, sha256, to, progress=made.append, folder=tmp_path) == first
    assert made


def test_a_source_that_changed_since_it_was_hashed_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="changed while it was converted"):
        kept_conversion(source, "0" * 64, "f16", folder=tmp_path)
