"""Packages of others: fetched once, held to the byte, or refused with what to do."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import stat
import sys
import tarfile
from pathlib import Path

import pytest

from inference_bench.errors import DownloadError, StorageError
from inference_bench.page import vendor
from inference_bench.page.vendor import AXE_CORE, SHIPPED, Fetch, PinnedPackage, fetch_with_npm, vendored_files


def archive(**files: bytes) -> bytes:
    """A package as npm packs it: everything below package/."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, body in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def pinned(content: bytes, *files: str) -> PinnedPackage:
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return PinnedPackage("thing", "1.2.3", "MIT", f"sha512-{digest}", files or ("code",))


def bringing(content: bytes, calls: list[str] | None = None) -> Fetch:
    """A fetch that brings these bytes."""

    def fetch(package: PinnedPackage, folder: Path) -> Path:
        if calls is not None:
            calls.append(package.name)
        path = folder / "came.tgz"
        path.write_bytes(content)
        return path

    return fetch


def never(_package: PinnedPackage, _folder: Path) -> Path:
    raise AssertionError("nothing was to be fetched")


GOOD = archive(code=b"1 + 1", LICENSE=b"do as you like")


def test_the_wanted_files_of_a_package_come_and_its_archive_is_kept_for_the_next_time(tmp_path: Path) -> None:
    package, calls = pinned(GOOD, "code", "LICENSE"), list[str]()
    expected = {"code": b"1 + 1", "LICENSE": b"do as you like"}
    assert vendored_files(package, tmp_path / "new" / "cache", bringing(GOOD, calls)) == expected
    assert vendored_files(package, tmp_path / "new" / "cache", never) == expected
    assert calls == ["thing"]
    assert [path.name for path in (tmp_path / "new" / "cache").iterdir()] == ["thing-1.2.3.tgz"]


def test_an_archive_put_there_by_hand_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "thing-1.2.3.tgz").write_bytes(GOOD)
    assert vendored_files(pinned(GOOD), tmp_path, never) == {"code": b"1 + 1"}


def test_a_damaged_archive_in_the_cache_is_fetched_again_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "thing-1.2.3.tgz").write_bytes(GOOD[:-1])
    assert vendored_files(pinned(GOOD), tmp_path, bringing(GOOD)) == {"code": b"1 + 1"}
    assert (tmp_path / "thing-1.2.3.tgz").read_bytes() == GOOD


def test_an_archive_that_is_not_the_pinned_one_is_refused_and_not_kept(tmp_path: Path) -> None:
    other = archive(code=b"2 + 2")
    with pytest.raises(DownloadError, match="not the pinned one: its hash differs") as caught:
        vendored_files(pinned(GOOD), tmp_path, bringing(other))
    assert str(tmp_path / "thing-1.2.3.tgz") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"no archive at all", "code"), (GOOD[: len(GOOD) // 2], "code"), (b"", "code"), (GOOD, "missing")],
    ids=["junk", "half", "nothing", "a member that is not in it"],
)
def test_a_pinned_archive_without_the_file_is_an_error_that_names_both(
    tmp_path: Path, content: bytes, name: str
) -> None:
    with pytest.raises(DownloadError, match=rf"thing 1\.2\.3 does not hold {name} as it should"):
        vendored_files(pinned(content, name), tmp_path, bringing(content))


def test_a_folder_in_place_of_the_wanted_file_is_an_error(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("package/code")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    with pytest.raises(DownloadError, match="does not hold code"):
        vendored_files(pinned(buffer.getvalue()), tmp_path, bringing(buffer.getvalue()))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_cache_that_cannot_be_written_says_so_and_how_to_choose_another(tmp_path: Path, number: int) -> None:
    def full(_package: PinnedPackage, _folder: Path) -> Path:
        raise OSError(number, "it is so")

    with pytest.raises(StorageError, match=r"thing cannot be kept in .*: it is so; .*INFERENCE_BENCH_CACHE"):
        vendored_files(pinned(GOOD), tmp_path, full)
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_cache_folder_should_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be kept"):
        vendored_files(pinned(GOOD), tmp_path / "cache", bringing(GOOD))


def test_without_npm_it_says_what_brings_it_and_where_an_archive_may_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "which", lambda _name: None)
    with pytest.raises(DownloadError, match=r"npm is not installed; it comes with Node\.js; .* by hand") as caught:
        vendored_files(pinned(GOOD), tmp_path)
    assert str(tmp_path / "thing-1.2.3.tgz") in str(caught.value)


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """A program in place of npm; gives the folder it stands in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_npm_is_asked_for_the_very_version_and_to_run_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    body = f"""
open({str(tmp_path / "asked")!r}, "w").write(" ".join(sys.argv[1:]))
open("thing-1.2.3.tgz", "wb").write(open({str(tmp_path / "good")!r}, "rb").read())"""
    fake_npm(tmp_path, monkeypatch, body)
    assert vendored_files(pinned(GOOD), tmp_path / "cache", fetch_with_npm) == {"code": b"1 + 1"}
    assert (tmp_path / "asked").read_text() == "pack --ignore-scripts --silent thing@1.2.3"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.stderr.write('npm error code E404\\nmore\\n'); sys.exit(1)", "npm failed: npm error code E404"),
        ("sys.exit(1)", "npm failed: it gave no reason"),
        ("pass", "npm failed: it gave no reason"),
        ("sys.stderr.write('x' * 5000); sys.exit(1)", "npm failed: x{240};"),
        ("sys.stderr.buffer.write(b'\\xff\\xfe'); sys.exit(1)", "npm failed: "),
    ],
    ids=["an error", "silence", "success without an archive", "a flood", "not a text"],
)
def test_npm_that_fails_is_quoted_in_one_short_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    fake_npm(tmp_path, monkeypatch, body)
    with pytest.raises(DownloadError, match=f"thing 1.2.3 could not be fetched: {said}") as caught:
        vendored_files(pinned(GOOD), tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_npm_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, monkeypatch, "time.sleep(60)")
    monkeypatch.setattr(vendor, "_TIMEOUT_S", 0.2)
    with pytest.raises(DownloadError, match="npm was not done after"):
        vendored_files(pinned(GOOD), tmp_path / "cache")


def test_npm_that_cannot_be_run_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_npm(tmp_path, monkeypatch, "pass")
    (folder / "npm").write_text("#!/nowhere/at/all\n")
    with pytest.raises(DownloadError, match="npm could not be run"):
        vendored_files(pinned(GOOD), tmp_path / "cache")


@pytest.mark.parametrize("package", [*SHIPPED, AXE_CORE], ids=lambda package: package.name)
def test_every_package_is_pinned_by_version_hash_and_a_licence_that_allows_shipping_it(package: PinnedPackage) -> None:
    kind, _, digest = package.integrity.partition("-")
    assert (kind, len(base64.b64decode(digest, validate=True))) == ("sha512", 64)
    assert [part.isdigit() for part in package.version.split(".")] == [True, True, True]
    assert package.licence in {"MPL-2.0", "BSD-3-Clause", "MIT", "Apache-2.0"}
    assert package.files
