"""From what a person typed to a model or a machine: a known name, a config.json, a model folder or a weight file.

In:   text
Out:  LoadedModel or HardwareSpec
Leaves out: downloads; nothing here opens a connection (see hub)
Read next by: cli, verify.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import HardwareFileError, RequestError, UnknownNameError
from inference_bench.facts import table
from inference_bench.facts.config import model_from_config
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.hardware import HardwareSpec, hardware, hardware_from_description
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.facts.source import Source
from inference_bench.files import NOT_THERE, shown_name, what_stands_at

_TABLE: Final = "models.jsonl"


def known_models() -> tuple[ModelSpec, ...]:
    """Every model in the table."""
    return tuple(_from_row(row) for row in table.read(_TABLE).values())


def known_model(name: str) -> ModelSpec:
    """The model of that name or Hugging Face id.

    Raises:  UnknownNameError, with the nearest names
    """
    return known_loaded_model(name).spec


def known_loaded_model(name: str) -> LoadedModel:
    """The same with its config, which may say how the weights are quantised.

    Raises:  UnknownNameError, with the nearest names
    """
    row = table.find(_TABLE, "model", name)
    return LoadedModel(_from_row(row), config=row["config"])


def _from_row(row: Mapping[str, Any]) -> ModelSpec:
    return model_from_config(row["config"], row["name"], Source(row["source"], row["as_of"]))


def known_hub_id(name: str) -> str | None:
    """The Hugging Face id of a known model; None for a name that is not known."""
    try:
        row = table.find(_TABLE, "model", name)
    except UnknownNameError:
        return None
    return str(row["id"])


def is_path(text: str) -> bool:
    """Whether the text names something that exists here."""
    return _exists(Path(text))


def load_model(text: str) -> LoadedModel:
    """The model a person named: a path that exists is read, anything else is looked up.

    Raises:  UnknownNameError, ModelConfigError, ModelFileError
    """
    path = Path(text)
    if _exists(path):
        from inference_bench.facts.model_files import load_model_path

        return load_model_path(path)
    if path.suffix in {".json", ".gguf", ".safetensors"} or text.startswith(("/", "./", "../", "~")):
        raise UnknownNameError(f"{_said(path)}; give a path that exists, or a known model name")
    return known_loaded_model(text)


def _exists(path: Path) -> bool:
    """Whether anything stands there, also what cannot be read, such as a link to nothing; reading it says what it is."""
    return os.path.lexists(path)


def _said(path: Path) -> str:
    """What keeps a path from being read."""
    what, name = what_stands_at(path), repr(shown_name(path))
    return f"there is no file {name}" if what == NOT_THERE else f"{name} is {what}"


def load_hardware(text: str) -> HardwareSpec:
    """The machine a person named: a TOML or JSON file that exists is read, anything else is looked up.

    Raises:  UnknownNameError, HardwareFileError
    """
    path = Path(text)
    if path.suffix not in {".toml", ".json"}:
        return hardware(text)
    if not _exists(path):
        raise HardwareFileError(f"{_said(path)}; give a path that exists, or a known machine name")
    return hardware_from_description(_read_description(path), path.name)


def model_from_description(values: Mapping[str, Any]) -> LoadedModel:
    """A model described in line: the fields of its config.json, and `name`.

    Raises:  ModelConfigError
    """
    config = {key: value for key, value in values.items() if key != "name"}
    name = str(values.get("name", "the scenario's model"))[:80]
    return LoadedModel(model_from_config(config, name, Source("described in line", "given by the user")), config=config)


def read_toml(text: str) -> dict[str, Any]:
    """What a TOML file holds; its size is limited as that of every configuration.

    Raises:  ScenarioError
    """
    import tomllib

    from inference_bench.errors import ScenarioError
    from inference_bench.facts.model_files import read_text

    path = Path(text)
    if not _exists(path):
        raise ScenarioError(f"{_said(path)}; give a scenario in TOML that exists")
    try:
        return tomllib.loads(read_text(path, "a scenario in TOML"))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path.name} is not valid TOML: {error}") from None
    except RequestError as error:
        raise ScenarioError(str(error)) from None
    except (ValueError, RecursionError):
        raise ScenarioError(f"{path.name} is nested too deep, or holds a number too long, to be read") from None


def _read_description(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        from inference_bench.facts.model_files import read_text

        content = read_text(path, "a machine described in TOML or JSON")
        return parse_json_object(content, path.name) if path.suffix == ".json" else tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise HardwareFileError(f"{path.name} is not valid TOML: {error}") from None
    except RequestError as error:
        raise HardwareFileError(str(error)) from None
    except (ValueError, RecursionError):
        raise HardwareFileError(f"{path.name} is nested too deep, or holds a number too long, to be read") from None
