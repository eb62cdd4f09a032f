from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from convert import tiny as tiny_gguf
from inference_bench.errors import ModelConfigError, ModelFileError, RequestError, UnknownNameError
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.subject import LabSubject, find_subject, require_memory
from inference_bench.measure.files import sha256_of_file
from labs import tiny

HASHED = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
# by hand: embedding 64·32, two layers of q 32·32, k and v 16·32, o 32·32, gate, up and down 48·32, two norms, and the last norm
NUM_PARAMETERS = 64 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32) + 32


def ask(model: str | Path | None, free_bytes: int | None = None, **settings: object) -> LabSubject:
    session = LabSession("cache", "", LabSettings(str(model), **settings))  # type: ignore[arg-type]
    if free_bytes is not None:
        session.machine = replace(session.machine, available_memory_bytes=free_bytes)
    found = find_subject(session)
    assert session.subject == found.identity
    return found


def test_a_folder_is_known_by_its_name_hash_and_exact_number_of_parameters(whole: Path) -> None:
    found = ask(whole)
    assert found.identity.name == "little-llama"
    assert found.identity.num_parameters == NUM_PARAMETERS
    assert len(found.identity.sha256) == 64
    assert found.identity.revision is None
    assert str(whole.parent) not in repr(found.identity)


def test_other_weights_have_another_hash(folder: Path) -> None:
    before = ask(folder).identity.sha256
    tiny.write(folder, seed=1)
    assert ask(folder).identity.sha256 != before


def test_a_gguf_file_is_dequantised_into_a_folder_whose_files_are_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path / "cache"))
    source = tiny_gguf.write(tmp_path / "little.gguf")
    found = ask(source)
    assert found.gguf == source
    assert "dequantised to float32" in found.identity.source
    assert (found.folder / "model.safetensors").is_file()
    lines = "".join(f"{sha256_of_file(found.folder / name)}  {name}\n" for name in HASHED)
    assert found.identity.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_a_model_that_does_not_fit_is_refused_with_both_figures(whole: Path) -> None:
    ask(whole, free_bytes=4 * NUM_PARAMETERS)
    with pytest.raises(RequestError, match=r"takes 70\.3 kB in float32, and 70\.3 kB of memory are free"):
        ask(whole, free_bytes=4 * NUM_PARAMETERS - 1)


def test_half_as_many_bytes_are_needed_in_bfloat16(whole: Path) -> None:
    ask(whole, free_bytes=2 * NUM_PARAMETERS, dtype="bfloat16")
    with pytest.raises(RequestError, match="in bfloat16"):
        ask(whole, free_bytes=2 * NUM_PARAMETERS - 1, dtype="bfloat16")


def test_a_lab_that_holds_two_copies_needs_room_for_two(whole: Path) -> None:
    session = LabSession("quantise", "", LabSettings(str(whole)))
    session.machine = replace(session.machine, available_memory_bytes=8 * NUM_PARAMETERS - 1)
    subject = find_subject(session)
    with pytest.raises(RequestError, match="held 2 times at once"):
        require_memory(subject, session, num_copies=2)


@pytest.mark.parametrize(
    ("lost", "kind", "said"),
    [
        ("config.json", ModelConfigError, "holds no config.json"),
        ("tokenizer.json", ModelFileError, "holds no tokenizer.json"),
        ("model.safetensors", ModelFileError, "holds no .safetensors file; weights are read from no other kind"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused_by_its_name(
    folder: Path, lost: str, kind: type[Exception], said: str
) -> None:
    (folder / lost).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04not read")
    with pytest.raises(kind, match=f"little-llama {said}"):
        ask(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_of_a_folder_that_is_a_pipe_or_a_folder_is_not_called_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises((ModelConfigError, ModelFileError), match=f"little-llama has a {name} that is a folder; "):
        ask(folder)
    (folder / name).rmdir()
    os.mkfifo(folder / name)
    with pytest.raises((ModelConfigError, ModelFileError), match=f"little-llama has a {name} that is a pipe; "):
        ask(folder)


def test_a_pipe_is_not_a_model_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(UnknownNameError, match=r"pipe\.gguf' is a pipe, and no model that a lab can load"):
        ask(tmp_path / "pipe.gguf")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights_are_refused_before_anything_is_loaded(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError):
        ask(folder)


def test_weights_in_a_format_that_is_not_known_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"F3X"'))
    with pytest.raises(ModelFileError, match="F3X"):
        ask(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_link_to_itself_is_no_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(name)
    with pytest.raises((ModelConfigError, ModelFileError)):
        ask(folder)


def test_a_folder_that_leads_to_itself_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnknownNameError):
        ask(tmp_path / "loop")


@pytest.mark.parametrize(
    "name", ["", "nothing", "a/b/c", "weights.bin", "org/name/x.gguf", "n" * 5000, "a\nb", "../up"]
)
def test_what_is_no_model_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(RequestError) as told:
        ask(name)
    assert len(str(told.value)) < 400


def test_a_revision_of_a_folder_is_refused(whole: Path) -> None:
    with pytest.raises(RequestError, match="is none, so leave it out"):
        ask(whole, revision="main")


def test_a_file_of_weights_alone_is_not_a_folder(whole: Path) -> None:
    with pytest.raises(UnknownNameError, match="give a folder"):
        ask(whole / "model.safetensors")
