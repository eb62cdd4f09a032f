"""Which adapters change what the model says?

In:   a folder with adapter_config.json and its weights, or a .gguf file that is an adapter
Out:  components: the hash of its files, and the model it says it was made for
Leaves out: whether it fits that model
Read next by: create.

The name of a base model may be a path of the machine it was trained on: only the last two parts of one are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError, RequestError, RunFolderError
from inference_bench.facts.gguf import read_gguf_header
from inference_bench.files import shown_name
from inference_bench.manifest.components import Component, Group
from inference_bench.manifest.folder import list_folder
from inference_bench.manifest.hashing import NamedFile, Progress, hash_files
from inference_bench.measure.store import read_json_object

CONFIG_NAME: Final = "adapter_config.json"
_WEIGHTS: Final = "adapter_model"
_KEPT: Final = (("r", "rank"), ("lora_alpha", "alpha"), ("peft_type", "method"))


def is_adapter_folder(path: Path) -> bool:
    """Whether a folder holds an adapter as PEFT writes it."""
    return (path / CONFIG_NAME).is_file()


def components_of_adapter(path: Path, progress: Progress | None = None) -> Iterator[Component]:
    """One adapter: each of its files, and the model that it names.

    Raises:   RequestError and ModelFileError for what is no adapter
    """
    name = path.resolve().name
    if path.suffix == ".gguf" and path.is_file():
        yield from _of_gguf(path, name, progress)
        return
    if not is_adapter_folder(path):
        raise RequestError(
            f"{shown_name(path)!r} is no adapter: that is a folder with {CONFIG_NAME} and {_WEIGHTS}.safetensors, or a .gguf file"
        )
    files = [file for _, file in list_folder(path) if file.name == CONFIG_NAME or file.name.startswith(_WEIGHTS)]
    if len(files) < 2:
        raise ModelFileError(f"the adapter {shown_name(name)!r} has no weights; they are in {_WEIGHTS}.safetensors")
    for file_name, hashed in hash_files(files, progress).items():
        yield Component(Group.ADAPTER, f"{name}/{file_name}", file_name, hashed.sha256, hashed.num_bytes)
    config = _config(path / CONFIG_NAME)
    base = config.get("base_model_name_or_path")
    if isinstance(base, str) and base:
        yield Component(Group.ADAPTER, f"{name}/base_model", CONFIG_NAME, value=_without_place(base))
    for key, known_as in _KEPT:
        value = config.get(key)
        if isinstance(value, str) or type(value) is int:
            yield Component(Group.ADAPTER, f"{name}/{known_as}", CONFIG_NAME, value=value)


def _of_gguf(path: Path, name: str, progress: Progress | None) -> Iterator[Component]:
    header = read_gguf_header(path)
    if header.get_str("general.type") != "adapter":
        raise RequestError(f"{shown_name(path)!r} is a model and no adapter: its general.type is not 'adapter'")
    (hashed,) = hash_files([NamedFile(name, path)], progress).values()
    yield Component(Group.ADAPTER, name, "the file", hashed.sha256, hashed.num_bytes)
    base = header.metadata.get("general.base_model.0.name")
    if isinstance(base, str):
        yield Component(
            Group.ADAPTER, f"{name}/base_model", "GGUF key general.base_model.0.name", value=_without_place(base)
        )


def _config(path: Path) -> dict[str, object]:
    try:
        return read_json_object(path)
    except RunFolderError:
        raise ModelFileError(f"{path.name} of the adapter cannot be read as a JSON object") from None


def _without_place(name: str) -> str:
    """A hub's id as it is, and of a path its end."""
    return "/".join(name.replace("\\", "/").rstrip("/").split("/")[-2:])[:200]
