"""What are these model files, by hash and by what they say of themselves?

In:   the path of a model's folder or of a .gguf file; hashes that are known already
Out:  components, and which groups of them a listing of that place answers in full
Leaves out: what serves them (from_server); the token ids of a conversation (conversation)
Read next by: create, check, run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import ModelFileError, RequestError
from inference_bench.files import REGULAR, shown_name, what_stands_at
from inference_bench.manifest.adapters import components_of_adapter, is_adapter_folder
from inference_bench.manifest.canonical import plain_value, sha256_of
from inference_bench.manifest.components import ARTIFACT_NAME, Artifact, Component, Group
from inference_bench.manifest.folder import list_folder, list_parts
from inference_bench.manifest.from_gguf import DEFAULT_TEMPLATE, components_of_gguf
from inference_bench.manifest.hashing import HashedFile, NamedFile, Progress, hash_files, unreadable
from inference_bench.manifest.lineage import components_of_lineage
from inference_bench.units import MEBI

FILE_GROUPS: Final = frozenset(
    {Group.WEIGHTS, Group.CONFIG, Group.TOKENIZER, Group.CHAT_TEMPLATE, Group.CODE, Group.OTHER}
)
A_FILE: Final = "the file"
_MAX_JSON_BYTES: Final = 64 * MEBI
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_GENERATION: Final = "generation_config.json"
_NOT_SAMPLING: Final = ("_from_model_config", "transformers_version")


@dataclass(frozen=True, slots=True)
class Described:
    """What is known from one place.

    Where:    complete are the groups of which that place would have told everything: what it does not tell of them is not there
    """

    components: tuple[Component, ...]
    complete: frozenset[Group] = frozenset()


def describe_files(path: Path, progress: Progress | None = None, known: Mapping[str, str] | None = None) -> Described:
    """A model's folder, a .gguf file with all its parts, or an adapter.

    Where:    known are hashes of its files by name, of files that need not be read again
    Raises:   RequestError for a path that is no model, ModelFileError for files that are broken, empty, or change meanwhile
    """
    if is_adapter_folder(path):
        kind = Component(
            Group.MODEL, ARTIFACT_NAME, f"there is {path.name}/adapter_config.json", value=Artifact.ADAPTER.value
        )
        return Described((kind, *components_of_adapter(path, progress)), frozenset({Group.ADAPTER}))
    if path.is_dir():
        return Described(tuple(_of_folder(path, progress, known)), FILE_GROUPS)
    if path.suffix == ".gguf" and path.is_file():
        return Described(tuple(_of_gguf(path, progress, known)), FILE_GROUPS)
    found = what_stands_at(path)
    what = "neither" if found == REGULAR else found
    raise RequestError(
        f"a manifest is of a model's folder, a .gguf file, or the http address of a server; {shown_name(path)!r} is {what}"
    )


def _of_gguf(path: Path, progress: Progress | None, known: Mapping[str, str] | None) -> Iterator[Component]:
    parts = list_parts(path)
    yield from components_of_gguf(parts[0].path)
    hashed = hash_files(parts, progress, known)
    for name, found in hashed.items():
        yield _file(Group.WEIGHTS, name, found)
    yield Component(Group.MODEL, ARTIFACT_NAME, "it is a .gguf file", value=Artifact.SERVING_FILE.value)
    yield from components_of_lineage(path, hashed)


def _of_folder(path: Path, progress: Progress | None, known: Mapping[str, str] | None) -> Iterator[Component]:
    listed = list_folder(path)
    if not any(group is Group.WEIGHTS for group, _ in listed):
        raise RequestError(
            f"the folder {shown_name(path)!r} holds no weights: no .safetensors, .gguf or .bin file; give a model's own folder"
        )
    if all(file.name.endswith(".gguf") for group, file in listed if group is Group.WEIGHTS):
        raise RequestError(
            f"the folder {shown_name(path)!r} holds .gguf files, each a model of its own; name the one that is served"
        )
    hashed = hash_files([file for _, file in listed], progress, known)
    for group, file in listed:
        yield _file(group, file.name, hashed[file.name])
    files = {file.name: file for _, file in listed}
    made_from = tuple(components_of_lineage(path, hashed))
    kind, why = (
        (Artifact.CONVERTED_FOLDER, "a conversion's note is about it")
        if made_from
        else (Artifact.RELEASE, "it is a folder with weights")
    )
    yield Component(Group.MODEL, ARTIFACT_NAME, why, value=kind.value)
    yield from made_from
    yield from _of_config(files)
    yield from _templates(files)
    yield from _sampling(files)


def _file(group: Group, name: str, found: HashedFile) -> Component:
    """Raises:   ModelFileError for weights of 0 bytes: a download that never began."""
    if group is Group.WEIGHTS and not found.num_bytes:
        raise ModelFileError(f"{shown_name(name)} is empty: weights have more than 0 bytes; fetch it again")
    return Component(group, name, A_FILE, found.sha256, found.num_bytes)


def _of_config(files: Mapping[str, NamedFile]) -> Iterator[Component]:
    config = read_json(files.get("config.json"))
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    names = config.get("architectures")
    found: list[tuple[Group, str, str, Any]] = [
        (Group.MODEL, "architecture", "architectures", names[0] if isinstance(names, list) and names else None),
        (Group.FORMAT, "dtype", "dtype", config.get("dtype", config.get("torch_dtype", inner.get("dtype")))),
    ]
    for name, key in (("vocabulary_size", "vocab_size"), ("context_tokens_trained", "max_position_embeddings")):
        found.append((Group.MODEL, name, key, config.get(key, inner.get(key))))
    scheme = config.get("quantization_config")
    if isinstance(scheme, dict):
        found.append((Group.FORMAT, "weights", "quantization_config.quant_method", scheme.get("quant_method")))
    for group, name, key, value in found:
        if isinstance(value, str) or type(value) is int:
            yield Component(group, name, f"config.json {key}", value=value)


def _templates(files: Mapping[str, NamedFile]) -> Iterator[Component]:
    """Each chat template by its own hash: of several places that hold one, each, the one that counts first."""
    seen: set[str] = set()
    for name, text, where in template_texts(files):
        known_as = name if name not in seen else f"{name} in {where}"
        seen.add(name)
        content = text.encode("utf-8", "surrogatepass")
        yield Component(Group.CHAT_TEMPLATE, known_as, where, sha256_of(content), len(content))


def template_texts(files: Mapping[str, NamedFile]) -> Iterator[tuple[str, str, str]]:
    """The chat templates of a folder: name, text and file, in the order in which Transformers takes them."""
    if (alone := files.get("chat_template.jinja")) is not None:
        yield DEFAULT_TEMPLATE, _read(alone).decode("utf-8", "replace"), alone.name
    for name in ("chat_template.json", _TOKENIZER_CONFIG):
        held = read_json(files.get(name)).get("chat_template")
        if isinstance(held, str):
            yield DEFAULT_TEMPLATE, held, name
        for each in held if isinstance(held, list) else ():
            if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("template"), str):
                yield each["name"], each["template"], name


def _sampling(files: Mapping[str, NamedFile]) -> Iterator[Component]:
    for name, value in read_json(files.get(_GENERATION)).items():
        known = plain_value(value)
        if known is not None and name not in _NOT_SAMPLING:
            known_as = "repeat_penalty" if name == "repetition_penalty" else name
            yield Component(Group.SAMPLING, known_as, f"{_GENERATION} {name}", value=known)


def read_json(file: NamedFile | None) -> dict[str, Any]:
    """The object in a file of a model; nothing where there is no such file.

    Raises:   ModelFileError for one that is broken: an engine would not load it either
    """
    if file is None:
        return {}
    try:
        found = json.loads(_read(file))
    except (ValueError, RecursionError):
        raise ModelFileError(f"{shown_name(file.name)} is not JSON; fetch it again") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{shown_name(file.name)} is not a JSON object; fetch it again")
    return found


def _read(file: NamedFile) -> bytes:
    try:
        with file.path.open("rb") as opened:
            return opened.read(_MAX_JSON_BYTES)
    except OSError as error:
        raise unreadable(file, error) from None
