"""A model from files: a config.json, a model folder, a .gguf or a .safetensors file; headers only, never the weights.

In:   a path that exists, or the parsed object of a config.json
Out:  LoadedModel
Leaves out: names of known models (see load) and downloads (see hub)
Read next by: load, hub.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import ModelConfigError, ModelFileError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import MAX_JSON_BYTES, parse_json_object
from inference_bench.facts.models import LoadedModel, StoredTensor
from inference_bench.facts.source import Source
from inference_bench.files import shown_name, what_stands_at

CONFIG_NAME: Final = "config.json"
QUANTIZATION_NAME: Final = "hf_quant_config.json"  # where TensorRT Model Optimizer puts what config.json may lack
_GGUF_MAGIC: Final = b"GGUF"
_MODEL: Final = "a config.json, a model folder or a model file"


def load_model_path(path: Path) -> LoadedModel:
    """The model a path holds.

    Raises:  ModelConfigError, ModelFileError
    """
    if path.is_dir():
        return _load_folder(path, path.name or path.resolve().name)
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    if path.name.endswith(".safetensors.index.json"):
        return _load_folder(path.parent, path.parent.name)
    if path.suffix == ".gguf" or _begins_as_gguf(path):
        from inference_bench.facts.gguf_model import load_gguf

        return load_gguf(path)
    name = path.parent.name if path.name == CONFIG_NAME and path.parent.name else path.stem
    return model_of_config(parse_json_object(read_text(path), path.name), name, Source(path.name, "read now"))


def servable_path(text: str) -> str:
    """What an engine is given to serve a path: the folder of a config.json, everything else as it is.

    >>> servable_path("models/qwen/config.json"), servable_path("config.json"), servable_path("model.gguf")
    ('models/qwen', '.', 'model.gguf')
    """
    path = Path(text)
    return str(path.parent) if path.name == CONFIG_NAME else text


def model_of_config(
    config: Mapping[str, Any],
    name: str,
    source: Source,
    tensors: tuple[StoredTensor, ...] | None = None,
    path: Path | None = None,
) -> LoadedModel:
    """The model a config describes, with the tensors of its files where they were read.

    Raises:  ModelConfigError
    """
    return LoadedModel(model_from_config(config, name, source), tensors, path, config)


def with_quantization(config: dict[str, Any], text: str) -> dict[str, Any]:
    """A config with what its hf_quant_config.json says about the weights.

    Raises:  ModelConfigError
    """
    found = parse_json_object(text, QUANTIZATION_NAME).get("quantization")
    if not isinstance(found, dict):
        raise ModelConfigError(f"{QUANTIZATION_NAME} has no object under quantization")
    return config | {"quantization_config": {"quant_method": "modelopt"} | found}


def needs_quantization(config: Mapping[str, Any]) -> bool:
    """Whether a config is silent about quantisation, so that a file beside it may speak."""
    return not any(config.get(key) for key in ("quantization_config", "compression_config", "quantization"))


def read_text(path: Path, needed: str = _MODEL) -> str:
    """The text of a configuration file; `needed` is what a message says to give instead of what is none.

    Raises:  ModelConfigError
    """
    _require_regular(path, needed)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)  # whatever size the file says it has
        if len(content) > MAX_JSON_BYTES:
            raise ModelConfigError(
                f"{path.name} is too large for a configuration; allowed: up to {MAX_JSON_BYTES} bytes"
            )
        return content.decode("utf-8-sig")  # some editors write a mark of the byte order
    except OSError as error:
        raise ModelConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ModelConfigError(f"{path.name} is not text in UTF-8; {needed} is needed") from None


def _require_regular(path: Path, needed: str = _MODEL) -> None:
    """Refuse what a read could block on or never end: a pipe, a device, a socket."""
    if not path.is_file():
        raise ModelConfigError(f"{shown_name(path)} is {what_stands_at(path)}; {needed} is needed")


def _begins_as_gguf(path: Path) -> bool:
    _require_regular(path)
    try:
        with path.open("rb") as file:
            return file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except OSError as error:
        raise ModelConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _load_folder(folder: Path, name: str) -> LoadedModel:
    """A model folder: its config.json, and the headers of its safetensors files where there are any."""
    from inference_bench.facts.safetensors_model import read_model_tensors

    config = _folder_config(folder)
    model = model_of_config(config, name, Source(CONFIG_NAME, "read now"), path=folder)
    tensors = read_model_tensors(folder, model.spec.num_hidden_layers)
    return model if tensors is None else LoadedModel(model.spec, tensors, folder, config)


def _folder_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        raise ModelConfigError(f"the folder {folder} holds no {CONFIG_NAME}; give a model folder or a model file")
    config = parse_json_object(read_text(path), CONFIG_NAME)
    beside = folder / QUANTIZATION_NAME
    speaks = os.path.lexists(beside) and needs_quantization(config)
    return with_quantization(config, read_text(beside)) if speaks else config


def _load_safetensors(path: Path) -> LoadedModel:
    """One safetensors file with the config.json beside it; a shard stands for its whole folder."""
    from inference_bench.facts.safetensors import read_safetensors_header
    from inference_bench.facts.safetensors_model import is_shard, stored_tensors

    header = read_safetensors_header(path)
    if not os.path.lexists(path.parent / CONFIG_NAME):
        raise ModelFileError(
            f"{path.name} holds {len(header.tensors)} tensors of {header.data_bytes} bytes, but no {CONFIG_NAME} lies "
            "beside it to say what model they make; give a folder with both"
        )
    if is_shard(path.name):
        return _load_folder(path.parent, path.parent.name)
    config = _folder_config(path.parent)
    name = path.parent.name or path.stem
    model = model_of_config(config, name, Source(f"header of {path.name}", "read now"))
    return LoadedModel(model.spec, stored_tensors([header], model.spec.num_hidden_layers), path, config)
