"""`manifest` as a person types it: exit codes, text, JSON, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("gguf")
pytest.importorskip("numpy")

from cli.commands import refused, run_json
from convert import tiny
from engines.fake_server import FakeServer
from inference_bench.cli.main import main
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.store import write_manifest
from inference_bench.report.text import MAX_COLUMNS
from manifest.answers import say_llama_cpp


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    say_llama_cpp(fake)
    yield fake
    fake.close()


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf"))


def test_a_manifest_is_made_and_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    out = str(tmp_path / "m.json")
    made = run_json(capsys, "manifest", "create", model, "--out", out, "--flag=--threads=4")
    assert (made["schema"], made["artifact"], made["path"]) == ("inference-bench/manifest/1", "serving_file", out)
    assert json.loads(Path(out).read_text())["sha256"] == made["sha256"]
    found = run_json(capsys, "manifest", "verify", out, model)
    assert (found["differs"], found["confirmed"], found["counts"]["unknown"]) == (False, False, 1)
    assert main(["manifest", "verify", out, model, "--strict"]) == 1, "the flag is unknown, which strictly is a no"


def test_a_change_of_the_weights_is_a_no(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    out = str(tmp_path / "m.json")
    run_json(capsys, "manifest", "create", model, "--out", out)
    tiny.write(Path(model), tiny.tensors(seed=1))
    found = run_json(capsys, "manifest", "verify", out, model, code=1)
    assert [each["name"] for each in found["components"] if each["verdict"] == "different"] == ["tiny.gguf"]
    assert main(["manifest", "verify", out, model]) == 1
    assert "No: of 11 components 1 differ" in capsys.readouterr().out


def test_where_nothing_is_confirmed_the_answer_is_no(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    out = tmp_path / "m.json"
    write_manifest(Manifest((Component(Group.FLAG, "threads", "stated", value=4),)), out)
    found = run_json(capsys, "manifest", "verify", str(out), model, code=1)
    assert (found["differs"], found["counts"]["same"], found["counts"]["unknown"]) == (False, 0, 1)
    assert main(["manifest", "verify", str(out), model]) == 1
    assert "No: nothing of it could be confirmed; all 1 components are unknown." in capsys.readouterr().out


def test_two_manifests_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    first, second = str(tmp_path / "1.json"), str(tmp_path / "2.json")
    run_json(capsys, "manifest", "create", model, "--out", first)
    run_json(capsys, "manifest", "create", model, "--out", second, "--flag", "threads=4")
    assert run_json(capsys, "manifest", "diff", first, first)["differs"] is False
    found = run_json(capsys, "manifest", "diff", first, second, code=1)
    assert [(each["group"], each["name"], each["first"]) for each in found["components"]] == [("flag", "threads", None)]


def test_what_changed_between_two_is_said_in_a_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    first, second = str(tmp_path / "1.json"), str(tmp_path / "2.json")
    long_name = "a-flag-with-a-name-of-more-columns-than-the-first-column-has"
    run_json(capsys, "manifest", "create", model, "--out", first, "--flag", "gone=1", "--flag", "threads=2")
    run_json(capsys, "manifest", "create", model, "--out", second, "--flag", f"{long_name}=1", "--flag", "threads=4")
    assert main(["manifest", "diff", first, second]) == 1
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.startswith("flag: ")]
    assert [row[-1] for row in rows] == ["added", "removed", "changed"]
    assert "different" not in shown
    assert "…" not in shown, "no name and no answer is cut"
    assert long_name in "".join(line.split("  ")[0].removeprefix("flag: ") for line in shown.splitlines())
    assert max(map(len, shown.splitlines())) <= MAX_COLUMNS


def test_the_caveat_of_a_file_at_its_path_is_whole_and_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: FakeServer, model: str
) -> None:
    say_llama_cpp(server, model_path=model)
    assert main(["manifest", "create", server.url, "--out", str(tmp_path / "m.json")]) == 0
    shown = capsys.readouterr().out
    (row,) = (line for line in shown.splitlines() if line.startswith("weights: "))
    assert row.endswith("  file at its path")
    assert "file at its path: the file at the path that the server names" in shown
    assert "may have been replaced since the server loaded it" in " ".join(shown.split())
    assert "model: context_tokens_trained " in shown, "no name is cut"
    assert "/props …temperature\n" in shown
    assert max(map(len, shown.partition("written to")[0].splitlines())) <= MAX_COLUMNS


def test_a_serving_file_is_not_said_to_be_made_from_what_is_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    assert main(["manifest", "create", model, "--out", str(tmp_path / "m.json")]) == 0
    artifact, made_from = capsys.readouterr().out.splitlines()[1:3]
    assert artifact.startswith("artifact          a serving file: ")
    assert "made from" not in artifact
    assert made_from.startswith("made from         unknown: ")


def test_a_changed_manifest_is_a_no(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    out = tmp_path / "m.json"
    run_json(capsys, "manifest", "create", model, "--out", str(out))
    out.write_text(out.read_text().replace("all F32", "all F16"))
    for command in (["verify", str(out), model], ["diff", str(out), str(out)], ["export", str(out)]):
        assert main(["manifest", *command]) == 1
        assert "was changed after it was made" in capsys.readouterr().err


def test_text_fits_a_terminal_and_cannot_move_its_cursor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: FakeServer
) -> None:
    say_llama_cpp(server, build_info="b1\x1b[2J\u202eevil" + "x" * 300)
    assert main(["manifest", "create", server.url, "--out", str(tmp_path / "m.json")]) == 0
    assert main(["manifest", "verify", str(tmp_path / "m.json"), server.url]) == 0
    shown = capsys.readouterr().out
    assert not {"\x1b", "\u202e"} & set(shown)
    assert max(map(len, shown.splitlines())) <= max(
        MAX_COLUMNS, len(f"written to {tmp_path}/m.json"), len(str(tmp_path)) + 60
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "gone.gguf", "--out", "{}/m.json"), "is not there"),
        (("create", "{}", "--out", "{}/m.json"), "holds .gguf files, each a model of its own"),
        (("create", "{}/tiny.gguf", "--out", "{}/no/m.json"), "would lie in a folder that is not there"),
        (("create", "{}/tiny.gguf", "--out", "{}/m.json", "--flag", "x"), "write NAME=VALUE"),
        (("create", "{}/tiny.gguf", "--out", "{}/m.json", "--system-prompt-file", "{}/gone"), "cannot be read"),
        (("verify", "{}/gone.json", "{}/tiny.gguf"), "no such file"),
        (("diff", "{}/tiny.gguf", "{}/tiny.gguf"), "is not JSON"),
        (("create", "http://user:secret@host", "--out", "{}/m.json"), "give an API key instead"),
    ],
)
def test_a_mistake_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, arguments: tuple[str, ...], message: str
) -> None:
    assert Path(model).exists()
    said = refused(capsys, "manifest", *(each.replace("{}", str(tmp_path)) for each in arguments))
    assert message in said
    assert "secret" not in said
    assert not (tmp_path / "m.json").exists()


def test_a_server_that_is_not_there_is_the_worlds_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: FakeServer
) -> None:
    server.close()
    assert main(["manifest", "create", server.url, "--out", str(tmp_path / "m.json")]) == 3
    assert "could not connect" in capsys.readouterr().err


def test_neither_key_nor_system_prompt_is_in_what_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-very-secret")
    (tmp_path / "prompt").write_text("confidential words")
    out = tmp_path / "m.json"
    arguments = ["--system-prompt-file", str(tmp_path / "prompt"), "--api-key-env", "A_KEY", "--out", str(out)]
    assert main(["manifest", "create", server.url, *arguments]) == 0
    everything = out.read_text() + "".join(capsys.readouterr())
    assert "very-secret" not in everything
    assert "confidential" not in everything
    assert server.requests[0][2]["Authorization"] == "Bearer sk-very-secret"


def test_an_export_is_printed_or_written(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str) -> None:
    pytest.importorskip("cyclonedx")
    out = str(tmp_path / "m.json")
    run_json(capsys, "manifest", "create", model, "--out", out)
    assert run_json(capsys, "manifest", "export", out)["bomFormat"] == "CycloneDX"
    assert main(["manifest", "export", out]) == 0
    bare = json.loads(capsys.readouterr().out)
    assert (bare["bomFormat"], "schema" in bare) == ("CycloneDX", False), "to be piped: with or without --json"
    path = str(tmp_path / "b.json")
    assert run_json(capsys, "manifest", "export", out, "--out", path) == {
        "schema": "inference-bench/manifest-export/1",
        "format": "cyclonedx",
        "path": path,
    }
    assert main(["manifest", "export", out, "--format", "in-toto", "--out", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text())["_type"] == "https://in-toto.io/Statement/v1"


def test_ctrl_c_while_files_are_hashed_leaves_nothing_half_written(tmp_path: Path) -> None:
    big = tmp_path / "model"
    big.mkdir()
    (big / "config.json").write_text("{}")
    with (big / "model.safetensors").open("wb") as file:
        file.truncate(40_000_000_000)  # nothing is stored of it, and reading takes many seconds
    command = [
        sys.executable,
        "-m",
        "inference_bench",
        "manifest",
        "create",
        str(big),
        "--out",
        str(tmp_path / "m.json"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until_open(process.pid, "model.safetensors")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (130, "inference-bench: interrupted\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model"]


def _wait_until_open(pid: int, name: str) -> None:
    folder = Path(f"/proc/{pid}/fd")
    if not folder.is_dir():
        pytest.skip("the files that a process has open are seen on Linux alone")
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        for each in list(folder.iterdir()):
            try:
                if os.readlink(each).endswith(name):
                    return
            except OSError:
                continue
        time.sleep(0.02)
    raise AssertionError("the file was never opened")


def test_an_export_does_not_overwrite_its_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, link = tmp_path / "m.json", tmp_path / "link.json"
    write_manifest(Manifest((Component(Group.MODEL, "served_name", "said", value="m"),)), path)
    link.symlink_to(path)
    before = path.read_bytes()
    assert "would overwrite the manifest" in refused(capsys, "manifest", "export", str(path), "--out", str(link))
    assert path.read_bytes() == before
