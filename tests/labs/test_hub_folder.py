from __future__ import annotations

import hashlib
import json
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_server import FakeHub, RemoteFile, running
from inference_bench import hub as hub_module
from inference_bench.errors import (
    DownloadError,
    InferenceBenchError,
    MissingExtraError,
    ModelFileError,
    RequestError,
    StorageError,
    UnknownNameError,
)
from inference_bench.facts.models import ModelSpec
from inference_bench.hub import HubId
from inference_bench.labs.hub_folder import fetch_hub_folder
from test_hub import CONFIG, safetensors_file, shapes, sharded, text_file

COMMIT = "c0ffee" + "0" * 34
TOKENIZER = text_file({"model": {"type": "BPE"}})
CODE = (
    "modeling_evil.py",
    "pytorch_model.bin",
    "weights.pt",
    "pickle.pkl",
    "onnx/model.onnx",
    "original/params.safetensors",
)


def say_nothing(_line: str) -> None:
    return


def readable(file: RemoteFile) -> RemoteFile:
    return RemoteFile(file.head, file.size)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    beside = {
        "config.json": text_file(CONFIG),
        "tokenizer.json": TOKENIZER,
        "chat_template.jinja": text_file(b"{{ x }}"),
    }
    whole = readable(safetensors_file(shapes()))
    shards = {name: readable(file) for name, file in sharded().items()}
    repos = {
        "org/single": beside | {"model.safetensors": whole} | {name: RemoteFile(b"import os") for name in CODE},
        "org/sharded": beside | shards,
        "org/bin-only": beside | {"pytorch_model.bin": RemoteFile(b"", 1 << 40, 0)},
        "org/no-tokenizer": {"config.json": text_file(CONFIG), "model.safetensors": whole},
        "org/lost-shard": beside | {name: file for name, file in shards.items() if "00002-of" not in name},
        "org/huge": beside | {"model.safetensors": RemoteFile(whole.head, 1 << 60)},
    }
    with running(FakeHub(repos, commit=COMMIT)) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield fake


def fetch(cache: Path, repo: str = "org/single", revision: str | None = None) -> tuple[Path, str]:
    found = fetch_hub_folder(HubId(repo), revision, say_nothing, None, cache)
    return found.folder, found.revision


def test_config_tokenizer_and_safetensors_come_and_nothing_that_could_run(hub: FakeHub, tmp_path: Path) -> None:
    folder, _ = fetch(tmp_path)
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
    assert {name for name, _, _ in hub.sent} <= names
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER.head


@pytest.mark.parametrize("revision", [None, "v2", COMMIT])
def test_a_revision_is_the_commit_in_full(hub: FakeHub, tmp_path: Path, revision: str | None) -> None:
    assert fetch(tmp_path, revision=revision)[1] == COMMIT


def test_every_shard_that_the_index_names_comes(hub: FakeHub, tmp_path: Path) -> None:
    folder, _ = fetch(tmp_path, "org/sharded")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) <= {path.name for path in folder.iterdir()}


def test_a_second_time_no_file_is_sent_again(hub: FakeHub, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    num_sent = len(hub.sent)
    assert fetch(tmp_path) == first
    assert len(hub.sent) == num_sent


@pytest.mark.parametrize("repo", ["org/single", "org/sharded"])
def test_where_the_hub_does_not_answer_the_copy_that_is_here_serves_and_says_so(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: str
) -> None:
    first = fetch(tmp_path, repo, COMMIT)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said: list[str] = []
    again = fetch_hub_folder(HubId(repo), COMMIT, said.append, None, tmp_path)
    assert (again.folder, again.revision) == first
    assert any("the copy of" in line for line in said)


def test_half_a_copy_does_not_serve(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = fetch(tmp_path, "org/sharded", COMMIT)
    next(folder.glob("model-00002*")).unlink()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"cannot be fetched from the hub: .* give a folder instead"):
        fetch(tmp_path, "org/sharded", COMMIT)


def test_a_model_that_is_refused_by_its_headers_has_no_weights_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    seen: list[ModelSpec] = []

    def refuse(spec: ModelSpec) -> None:
        seen.append(spec)
        raise RequestError("it does not fit")

    with pytest.raises(RequestError, match="it does not fit"):
        fetch_hub_folder(HubId("org/single"), None, say_nothing, refuse, tmp_path)
    assert seen[0].hidden_size == CONFIG["hidden_size"]
    header = len(safetensors_file(shapes()).head)
    assert all(end <= header for name, _, end in hub.sent if name == "model.safetensors")


@pytest.mark.parametrize(
    ("repo", "revision", "kind", "said"),
    [
        ("org/bin-only", None, ModelFileError, r"holds neither model.safetensors nor .* \(it holds .bin\)"),
        ("org/no-tokenizer", None, ModelFileError, "no tokenizer.json"),
        ("org/lost-shard", None, ModelFileError, "model-00002-of-00002.safetensors that .* is missing"),
        ("org/none", None, UnknownNameError, "check the spelling"),
        ("org/single", "v9", UnknownNameError, "no revision 'v9'"),
        ("org/huge", None, StorageError, "of disk, and .* are free"),
    ],
)
def test_what_cannot_be_fetched_is_one_line_before_any_weights_are(
    hub: FakeHub, tmp_path: Path, repo: str, revision: str | None, kind: type[InferenceBenchError], said: str
) -> None:
    with pytest.raises(kind, match=said) as told:
        fetch(tmp_path, repo, revision)
    assert "\n" not in str(told.value)
    assert not any(name.endswith((".safetensors", ".bin")) for name, _, _ in hub.sent)


def test_a_file_that_is_not_what_the_hub_lists_is_refused_and_not_kept(hub: FakeHub, tmp_path: Path) -> None:
    hub.sha256["model.safetensors"] = "0" * 64
    with pytest.raises(DownloadError, match=r"model.safetensors .* another hash"):
        fetch(tmp_path)
    hub.sha256["model.safetensors"] = hashlib.sha256(hub.repos["org/single"]["model.safetensors"].whole).hexdigest()
    folder, _ = fetch(tmp_path)
    assert (folder / "model.safetensors").is_file()


def test_a_gated_model_says_what_to_do(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated.add("org/single")
    with pytest.raises(DownloadError, match="accept its terms"):
        fetch(tmp_path)


def test_two_revisions_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="one of the two"):
        fetch_hub_folder(HubId("org/single", "v2"), "main", say_nothing, None, tmp_path)


def test_a_disk_that_is_nearly_full_is_said_with_both_figures(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10_000, 9_000, 1_000))
    with pytest.raises(StorageError, match=r"takes another .* of disk, and 1\.00 kB are free"):
        fetch(tmp_path)


def test_progress_says_how_much_of_a_file_is_there(hub: FakeHub, tmp_path: Path) -> None:
    said: list[str] = []
    fetch_hub_folder(HubId("org/single"), None, said.append, None, tmp_path)
    assert any(line.startswith("fetching model.safetensors of org/single, ") for line in said)
    assert any(" of " in line and line.startswith("fetching model.safetensors: ") for line in said)


def test_a_connection_that_breaks_is_a_download_error(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_RETRIES", 0)
    hub.html = True
    with pytest.raises(DownloadError):
        fetch(tmp_path)


def test_without_the_hub_s_client_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        fetch(tmp_path)
