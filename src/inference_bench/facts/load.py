"""From what a person typed to a model or a machine: a known name, a config.json, a model folder or a GGUF file.

In:   text
Out:  LoadedModel or HardwareSpec
Leaves out: downloads; nothing here opens a connection
Read next by: cli, verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import HardwareFileError, ModelConfigError, RequestError, UnknownNameError
from inference_bench.facts import table
from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import MAX_JSON_BYTES, parse_json_object
from inference_bench.facts.hardware import HardwareSpec, hardware, hardware_from_description
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.facts.names import find_name
from inference_bench.facts.source import Source

_GGUF_MAGIC: Final = b"GGUF"


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return table.read("models.jsonl")


def known_models() -> tuple[ModelSpec, ...]:
    """Every model in the table."""
    return tuple(_from_row(row) for row in _rows().values())


def known_model(name: str) -> ModelSpec:
    """The model of that name or Hugging Face id.

    Raises:  UnknownNameError, with the nearest names
    """
    rows = _rows()
    aliases = {alias: known for known, row in rows.items() for alias in (row["id"], *row["aliases"])}
    return _from_row(find_name("model", name, rows, aliases))


def _from_row(row: Mapping[str, Any]) -> ModelSpec:
    return model_from_config(row["config"], row["name"], Source(row["source"], row["as_of"]))


def load_model(text: str) -> LoadedModel:
    """The model a person named: a path that exists is read, anything else is looked up.

    Raises:  UnknownNameError, ModelConfigError, ModelFileError
    """
    path = Path(text)
    if _exists(path):
        return _load_path(path)
    if path.suffix in {".json", ".gguf", ".safetensors"} or text.startswith(("/", "./", "../", "~")):
        raise UnknownNameError(f"there is no file {text!r}; give a path that exists, or a known model name")
    return LoadedModel(known_model(text))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for a path, or with a null byte
        return False


def _load_path(path: Path) -> LoadedModel:
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise ModelConfigError(
                f"the folder {path.parent} holds no config.json; give a model folder or a model file"
            )
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelConfigError(f"cannot read {path}: {error.strerror or error}") from None
    if magic == _GGUF_MAGIC or path.suffix == ".gguf":
        from inference_bench.facts.gguf_model import load_gguf

        return load_gguf(path)
    if path.suffix == ".safetensors":
        raise ModelConfigError(f"{path.name}: a safetensors file alone is not read yet; give its folder or config.json")
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    text = _read_text(path)
    return LoadedModel(model_from_config(parse_json_object(text, path.name), name, Source(str(path.name), "read now")))


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelConfigError(
                f"{path.name} has {path.stat().st_size} bytes; a config has at most {MAX_JSON_BYTES}"
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ModelConfigError(f"{path.name} is not text in UTF-8; a config.json or a GGUF file is needed") from None


def load_hardware(text: str) -> HardwareSpec:
    """The machine a person named: a TOML or JSON file that exists is read, anything else is looked up.

    Raises:  UnknownNameError, HardwareFileError
    """
    path = Path(text)
    if path.suffix not in {".toml", ".json"}:
        return hardware(text)
    if not _exists(path):
        raise HardwareFileError(f"there is no file {text!r}; give a path that exists, or a known machine name")
    return hardware_from_description(_read_description(path), path.name)


def _read_description(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        content = _read_text(path)
        return parse_json_object(content, path.name) if path.suffix == ".json" else tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise HardwareFileError(f"{path.name} is not valid TOML: {error}") from None
    except RequestError as error:
        raise HardwareFileError(str(error)) from None
