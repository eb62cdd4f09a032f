"""Which model do the labs compute with, is it whole, and does it fit this machine's memory?

In:   LabSettings: the embedded model, a folder, a .gguf file or a hub id
Out:  LabSubject: a folder of safetensors and tokenizer files, its hash, its shape
Leaves out: loading it (model)
Read next by: model, the flow of every lab.

Nothing that comes with a model is run: weights are read from safetensors alone, and no code of a repository is imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from inference_bench.accounting.params import count_params
from inference_bench.convert.cached import kept_conversion
from inference_bench.convert.plan import HUGGING_FACE
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.model_files import hash_model
from inference_bench.errors import ModelConfigError, ModelFileError, RequestError, UnknownNameError
from inference_bench.facts.model_files import CONFIG_NAME, load_model_path
from inference_bench.facts.models import ModelSpec
from inference_bench.files import NOT_THERE, REGULAR, require_file_name, shown_name, what_stands_at
from inference_bench.hub import HubId, parse_hub_id
from inference_bench.labs.head import SubjectIdentity
from inference_bench.labs.hub_folder import TOKENIZER_NAME, fetch_hub_folder
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings, value_bytes
from inference_bench.measure.files import sha256_of_file
from inference_bench.units import format_bytes


@dataclass(frozen=True, slots=True)
class LabSubject:
    """A model as a folder that Transformers reads.

    Where:  gguf is the file that the folder was made of, where it was
    """

    folder: Path
    spec: ModelSpec
    identity: SubjectIdentity
    gguf: Path | None = None


def find_subject(session: LabSession) -> LabSubject:
    """The model that was asked for, known to be whole, and small enough; the session is told which it is.

    Raises:  UnknownNameError for what is neither a path nor a hub id; ModelConfigError, ModelFileError; RequestError where memory
             does not suffice; MissingExtraError, DownloadError, StorageError
    """
    subject = _find(session.settings, session)
    require_memory(subject, session)
    session.subject = subject.identity
    return subject


def _find(settings: LabSettings, session: LabSession) -> LabSubject:
    hub_id = None if settings.model is None else _hub_id(settings.model)
    if hub_id is None and settings.revision is not None:
        raise RequestError(
            f"a revision pins a model on the hub; {shown_name(settings.model or '')!r} is none, so leave it out"
        )
    if hub_id is not None:
        return _fetched(hub_id, settings, session)
    if settings.model is None:
        embedded = ensure_embedded_model(session.say)
        return _converted(embedded.path, embedded.sha256, embedded.name, embedded.source, session)
    path = Path(settings.model)
    if path.is_dir():
        return _folder(path, path.resolve().name, "a folder", None, session)
    return _converted(path, sha256_of_file(path), path.stem, path.name, session)


def _hub_id(model: str) -> HubId | None:
    """The model's name on the hub; None for one that is on this machine, which goes before any name.

    Raises:  UnknownNameError for what is neither
    """
    path = Path(require_file_name(model, "model"))
    if path.is_dir() or (path.suffix == ".gguf" and path.is_file()):
        return None
    hub_id = parse_hub_id(model)
    if hub_id is None or hub_id.file is not None or os.path.lexists(path):
        found = what_stands_at(path)
        what = "" if found in (NOT_THERE, REGULAR) else f"{found}, and "
        raise UnknownNameError(
            f"{shown_name(model)!r} is {what}no model that a lab can load; give a folder with config.json, safetensors and tokenizer.json, "
            "a .gguf file, or a hub id such as org/name"
        )
    return hub_id


def _fetched(hub_id: HubId, settings: LabSettings, session: LabSession) -> LabSubject:
    """A model of the hub, refused before it is downloaded where it would not fit."""

    def require(spec: ModelSpec) -> None:
        _require_room(hub_id.repo, count_params(spec).total, session)

    fetched = fetch_hub_folder(hub_id, settings.revision, session.say, require)
    return _folder(fetched.folder, hub_id.repo, f"Hugging Face hub, {hub_id.repo}", fetched.revision, session)


def _converted(gguf: Path, sha256: str, name: str, source: str, session: LabSession) -> LabSubject:
    """The folder made of a GGUF file, dequantised to float32."""
    kept = kept_conversion(gguf, sha256, HUGGING_FACE, progress=session.say)
    found = _folder(kept.path, name, f"{source}, dequantised to float32", None, session)
    return LabSubject(found.folder, found.spec, found.identity, gguf)


def _folder(folder: Path, name: str, source: str, revision: str | None, session: LabSession) -> LabSubject:
    _require_file(
        folder, CONFIG_NAME, ModelConfigError, "a lab needs it as a file beside the weights and tokenizer.json"
    )
    _require_file(
        folder, TOKENIZER_NAME, ModelFileError, "a lab needs the model's own tokenizer, as a file of that form"
    )
    loaded = load_model_path(folder)
    if loaded.tensors is None:
        raise ModelFileError(
            f"{folder.name} holds no .safetensors file; weights are read from no other kind, since others can run code"
        )
    hashed = hash_model(folder, session.say)
    if hashed is None:
        raise ModelFileError(f"the files of {folder.name} cannot be read")
    identity = SubjectIdentity(
        name, source, revision, hashed.sha256, count_params(loaded.spec).total, session.settings.dtype
    )
    return LabSubject(folder, loaded.spec, identity)


def _require_file(folder: Path, name: str, kind: type[RequestError], why: str) -> None:
    if not (folder / name).is_file():
        found = what_stands_at(folder / name)
        said = f"holds no {name}" if found == NOT_THERE else f"has a {name} that is {found}"
        raise kind(f"{shown_name(folder.name)} {said}; {why}")


def require_memory(subject: LabSubject, session: LabSession, num_copies: int = 1) -> None:
    """Refuse a model that would not fit, before any of it is loaded.

    Formula:  parameters · bytes of the number format · copies that a lab holds at once, against what the system has left
    Ignores:  activations and caches; the pages of the file itself, which the system takes back when it needs them
    Raises:   RequestError with both figures
    """
    _require_room(subject.identity.name, subject.identity.num_parameters, session, num_copies)


def _require_room(name: str, num_parameters: int, session: LabSession, num_copies: int = 1) -> None:
    dtype, free = session.settings.dtype, session.machine.available_memory_bytes
    needed = num_parameters * value_bytes(dtype) * num_copies
    if free is not None and needed > free:
        copies = "" if num_copies == 1 else f", held {num_copies} times at once"
        raise RequestError(
            f"{name} takes {format_bytes(needed)} in {dtype}{copies}, and {format_bytes(free)} of memory are free; give a smaller "
            "model, or a machine with more"
        )
