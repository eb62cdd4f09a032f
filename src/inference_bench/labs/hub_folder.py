"""A model of the Hugging Face hub as a folder on this machine: safetensors, config and tokenizer alone, at one commit.

In:   HubId, a revision
Out:  HubFolder: where it is, and which commit it is
Leaves out: sizing a model without its weights (hub)
Read next by: subject, text.

What is fetched is named file by file, so nothing that holds code or pickled objects can come along. The hub's own client keeps it,
where every other program of this machine finds it too (HF_HOME); HF_ENDPOINT, HF_HUB_OFFLINE and a login are its own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_bench.errors import (
    DownloadError,
    MissingExtraError,
    ModelFileError,
    RequestError,
    StorageError,
)
from inference_bench.facts.model_files import CONFIG_NAME
from inference_bench.facts.models import ModelSpec
from inference_bench.facts.safetensors_index import MAX_INDEX_BYTES, parse_safetensors_index
from inference_bench.facts.safetensors_model import INDEX_NAME, SINGLE_NAME
from inference_bench.hub import INSTALL, HubId, hub_errors, load_hub_model
from inference_bench.measure.files import sha256_of_file
from inference_bench.units import format_bytes

Say = Callable[[str], None]

SMOLLM2_135M: Final = "HuggingFaceTB/SmolLM2-135M"
# Source: the commit, as several public projects that do not depend on one another pin it; read 2026-11-30
SMOLLM2_135M_REVISION: Final = "93efa2f097d58c2a74874c7e644dbc9b0cee75a2"

TOKENIZER_NAME: Final = "tokenizer.json"
_BESIDE_WEIGHTS: Final = (
    CONFIG_NAME,
    "generation_config.json",
    TOKENIZER_NAME,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
_TIMEOUT_S: Final = 20.0
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFolder:
    """A downloaded repository; revision is the commit, in full."""

    folder: Path
    revision: str


class _Listed(NamedTuple):
    """A file's size and SHA-256, None where the hub does not say."""

    num_bytes: int | None
    sha256: str | None


_Files = Mapping[str, _Listed]


class _Listing(NamedTuple):
    """A commit and its files by name."""

    commit: str
    files: _Files


def fetch_hub_folder(
    hub_id: HubId,
    revision: str | None,
    say: Say,
    require: Callable[[ModelSpec], None] | None = None,
    cache: Path | None = None,
) -> HubFolder:
    """What a lab reads of a repository, downloaded once; a copy that is here already serves where the hub does not answer.

    Where:   require is asked before any weights are, from the model's own headers, and may refuse it; cache is the folder of the
             hub's client where no other is given
    Raises:  MissingExtraError, UnknownNameError, ModelConfigError, ModelFileError, DownloadError; StorageError where the disk does
             not suffice; whatever require raises
    """
    wanted = HubId(hub_id.repo, _one_revision(hub_id, revision))
    require_client(str(wanted))
    say(f"asking the hub for {wanted}")
    try:
        listing = _list(wanted)
    except DownloadError as unreachable:
        kept = _kept(wanted, cache)
        if kept is None:
            raise DownloadError(
                f"{unreachable}; no whole copy is on this machine either: give a folder instead"
            ) from None
        say(f"the hub does not answer ({unreachable}); the copy of {wanted} on this machine is used")
        return kept
    _require_needed(wanted, listing.files)
    if require is not None:
        require(load_hub_model(HubId(wanted.repo, listing.commit)).spec)
    return _fetch(HubId(wanted.repo, listing.commit), listing.files, say, cache)


def require_client(what: str) -> None:
    """Refuse at once where the hub's client is not installed.

    Raises:  MissingExtraError
    """
    try:
        import huggingface_hub  # noqa: F401  # only whether it is there
    except ImportError:
        raise MissingExtraError(f"{what} is fetched by huggingface_hub: {INSTALL}") from None


def endpoint() -> str | None:
    """The hub that the environment names; None for the public one."""
    return os.environ.get("HF_ENDPOINT") or None


def _one_revision(hub_id: HubId, revision: str | None) -> str | None:
    if None not in (hub_id.revision, revision) and hub_id.revision != revision:
        raise RequestError(f"{hub_id} names one revision and {revision!r} is asked for besides; give one of the two")
    return revision or hub_id.revision


def _list(wanted: HubId) -> _Listing:
    """The commit that a revision is now, and its files."""
    from huggingface_hub import HfApi

    with hub_errors(wanted, "the list of files"):
        info = HfApi(endpoint=endpoint()).model_info(
            wanted.repo, revision=wanted.revision, files_metadata=True, timeout=_TIMEOUT_S
        )
    if not _COMMIT.fullmatch(str(info.sha)):
        raise DownloadError(f"the hub names no commit of {wanted}; what is fetched could not be told apart later")
    files = info.siblings or ()
    return _Listing(
        str(info.sha), {file.rfilename: _Listed(file.size, getattr(file.lfs, "sha256", None)) for file in files}
    )


def _require_needed(hub_id: HubId, names: Collection[str]) -> None:
    """Refuse what holds no weights, or no tokenizer, that a lab reads.

    Raises:  ModelFileError
    """
    if TOKENIZER_NAME not in names:
        raise ModelFileError(f"{hub_id} holds no {TOKENIZER_NAME}; a lab needs the model's own tokenizer, in that form")
    if INDEX_NAME in names or SINGLE_NAME in names:
        return
    others = sorted({Path(name).suffix for name in names if name.endswith((".bin", ".pt", ".pth", ".gguf", ".onnx"))})
    held = f" (it holds {', '.join(others)})" if others else ""
    raise ModelFileError(
        f"{hub_id} holds neither {SINGLE_NAME} nor {INDEX_NAME}{held}; weights are read from no other kind, since others can run code"
    )


def _fetch(at: HubId, files: _Files, say: Say, cache: Path | None) -> HubFolder:
    names = [name for name in _BESIDE_WEIGHTS if name in files] + _weight_names(at, files, say, cache)
    missing = [name for name in names if kept_file(at, name, cache) is None]
    _require_disk(at, sum(files[name].num_bytes or 0 for name in missing), cache)
    for place, name in enumerate(missing, 1):
        size = files[name].num_bytes
        how_much = "" if size is None else f", {format_bytes(size)}"
        say(f"fetching {name} of {at.repo}, {place} of {len(missing)}{how_much}")
        _require_whole(at, name, _download(at, name, say, cache), files[name].sha256)
    return HubFolder(_download(at, names[0], say, cache).parent, str(at.revision))


def _require_whole(at: HubId, name: str, path: Path, sha256: str | None) -> None:
    """What came is what the hub lists, and is not kept where it is not.

    Raises:  DownloadError
    """
    if sha256 is None or sha256_of_file(path) == sha256:
        return
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    raise DownloadError(f"{name} of {at} came with another hash than the hub lists; try again")


def _weight_names(at: HubId, files: _Files, say: Say, cache: Path | None) -> list[str]:
    """The files that hold weights: those that the index names, else the one file."""
    if INDEX_NAME not in files:
        return [SINGLE_NAME]
    size = files[INDEX_NAME].num_bytes
    if size is not None and size > MAX_INDEX_BYTES:
        raise ModelFileError(f"{INDEX_NAME} of {at} has {size} bytes; allowed: up to {MAX_INDEX_BYTES}")
    shards = parse_safetensors_index(_download(at, INDEX_NAME, say, cache).read_bytes(), INDEX_NAME).shards
    missing = [shard for shard in shards if shard not in files]
    if missing:
        raise ModelFileError(f"the shard {missing[0]} that {INDEX_NAME} names is missing in {at}")
    return [INDEX_NAME, *shards]


def _require_disk(at: HubId, num_bytes: int, cache: Path | None) -> None:
    """Refuse a download that would fill the disk.

    Raises:  StorageError with both figures
    """
    folder = _cache_folder(cache)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise StorageError(
            f"{at.repo} takes another {format_bytes(num_bytes)} of disk, and {format_bytes(free)} are free where the hub's client keeps "
            "files; free some, or name another place by HF_HOME"
        )


def _cache_folder(cache: Path | None) -> Path:
    from huggingface_hub import constants

    return cache or Path(constants.HF_HUB_CACHE)


def _download(at: HubId, name: str, say: Say, cache: Path | None) -> Path:
    """One file, checked by the hub's client, which goes on where it was interrupted."""
    from huggingface_hub import hf_hub_download

    with hub_errors(at, name):
        path = hf_hub_download(
            at.repo,
            name,
            revision=at.revision,
            cache_dir=cache,
            endpoint=endpoint(),
            etag_timeout=_TIMEOUT_S,
            tqdm_class=progress_bar(name, say),
        )
    return Path(str(path))


def progress_bar(name: str, say: Say) -> type[Any]:
    """What the hub's client takes for a progress bar: it says how many bytes are there, and draws nothing."""
    from tqdm import tqdm

    class Told(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)  # the client's own, which tqdm does not know
            super().__init__(*arguments, **options | {"disable": False, "file": _Nowhere(), "mininterval": 0.5})

        def display(self, *_arguments: Any, **_options: Any) -> None:
            if self.total:
                say(f"fetching {name}: {format_bytes(self.n)} of {format_bytes(self.total)}")

    return Told


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, _text: str) -> None:
        return

    def flush(self) -> None:
        return


def kept_file(at: HubId, name: str, cache: Path | None, repo_type: str | None = None) -> Path | None:
    """A file of a repository that is on this machine; None where it is not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(at.repo, name, cache_dir=cache, revision=at.revision, repo_type=repo_type)
    return Path(found) if isinstance(found, str) else None


def _kept(wanted: HubId, cache: Path | None) -> HubFolder | None:
    """The copy of an earlier day, where it has config, tokenizer and all its weights; None otherwise."""
    config = kept_file(wanted, CONFIG_NAME, cache)
    if config is None or not _COMMIT.fullmatch(config.parent.name):
        return None
    folder = config.parent
    index = folder / INDEX_NAME
    try:
        shards = parse_safetensors_index(index.read_bytes(), INDEX_NAME).shards if index.is_file() else (SINGLE_NAME,)
    except (OSError, ModelFileError):
        return None
    is_whole = all((folder / name).is_file() for name in (TOKENIZER_NAME, *shards))
    return HubFolder(folder, folder.name) if is_whole else None
