"""A model on the Hugging Face hub, sized from its headers by range requests: no weights are ever downloaded.

In:   "org/name", "org/name@revision" or "org/name/file.gguf"
Out:  LoadedModel
Leaves out: files in formats without a readable header (.bin); such a model is counted from its config.json alone
Read next by: cli, verify.

The network goes through huggingface_hub (its endpoint, proxies and login), imported only when a hub id is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inference_bench.errors import (
    DownloadError,
    MissingExtraError,
    ModelConfigError,
    ModelFileError,
    RequestError,
    UnknownNameError,
)
from inference_bench.facts.fields import MAX_JSON_BYTES, parse_json_object
from inference_bench.facts.models import LoadedModel, StoredTensor
from inference_bench.facts.source import Source

if TYPE_CHECKING:
    from inference_bench.facts.safetensors import SafetensorsHeader
    from inference_bench.facts.safetensors_index import SafetensorsIndex

INSTALL: Final = "pip install 'inference-bench[hub]'"
_ID: Final = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?:/([\w./-]{1,200}\.gguf))?(?:@([\w./-]{1,200}))?")
_TIMEOUT_S: Final = 20.0
_NUM_WORKERS: Final = 8
_RETRIES: Final = 2


class HubId(NamedTuple):
    """A model's name on the hub; file is one of several GGUF files of a repository."""

    repo: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}" if self.revision else self.repo


def parse_hub_id(text: str) -> HubId | None:
    """The hub id a text is, None where it is none.

    >>> parse_hub_id("Qwen/Qwen3-8B@main"), parse_hub_id("qwen3-8b")
    (HubId(repo='Qwen/Qwen3-8B', revision='main', file=None), None)
    """
    match = _ID.fullmatch(text)
    if match is None or ".." in text or text.startswith("."):
        return None
    if match[1].endswith((".json", ".gguf", ".safetensors", ".toml")):  # a path that was meant as a file
        return None
    return HubId(match[1], match[3], match[2])


def load_model(text: str) -> LoadedModel:
    """The model a person named: a file, a known name, or an id on the Hugging Face hub.

    Raises:  UnknownNameError, ModelConfigError, ModelFileError; MissingExtraError where the hub would have to be asked
             and huggingface_hub is not installed; DownloadError where it does not answer
    """
    from inference_bench.facts import load

    try:
        return load.load_model(text)
    except UnknownNameError as unknown:
        hub_id = parse_hub_id(text)
        if hub_id is None:
            raise
        try:
            return load_hub_model(hub_id)
        except MissingExtraError:
            raise MissingExtraError(f"{unknown}; to look it up on the Hugging Face hub: {INSTALL}") from None


def served_name(text: str) -> str | None:
    """The name engines look a model up by: the hub id of a known model, an id as it was typed, or a path; else None.

    Where:    of a config.json it is the folder, which holds the weights too
    """
    from inference_bench.facts import load
    from inference_bench.facts.model_files import servable_path

    if load.is_path(text):
        return servable_path(text)
    return load.known_hub_id(text) or (text if parse_hub_id(text) else None)


def load_hub_model(hub_id: HubId) -> LoadedModel:
    """The model of that id, from its config.json and the headers of its weight files.

    Raises:  UnknownNameError, ModelConfigError, ModelFileError, MissingExtraError, DownloadError
    """
    repo = _Repository(hub_id)
    names = repo.file_names()
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if hub_id.file is not None or ("config.json" not in names and ggufs):
        return _load_gguf(repo, hub_id, ggufs)
    if "config.json" not in names:
        raise ModelConfigError(f"{hub_id} holds no config.json and no .gguf file; there is nothing to size")
    config = repo.read_config(names)
    from inference_bench.facts.model_files import model_of_config

    model = model_of_config(config, hub_id.repo.partition("/")[2], Source(f"config.json of {hub_id}", "read now"))
    tensors = _read_tensors(repo, names, model.spec.num_hidden_layers)
    return model if tensors is None else LoadedModel(model.spec, tensors, None, config)


def _read_tensors(repo: _Repository, names: Sequence[str], num_layers: int) -> tuple[StoredTensor, ...] | None:
    """The tensors of a repository's safetensors files, by their headers; None where it has none."""
    from inference_bench.facts.safetensors_index import MAX_INDEX_BYTES, parse_safetensors_index
    from inference_bench.facts.safetensors_model import INDEX_NAME, SINGLE_NAME, gather_shards, stored_tensors

    if INDEX_NAME in names:
        index = parse_safetensors_index(repo.read_whole(INDEX_NAME, MAX_INDEX_BYTES), INDEX_NAME)
        headers = _read_shard_headers(repo, index, names)
        return gather_shards(index, lambda _: next(headers), num_layers)
    if SINGLE_NAME in names:
        return stored_tensors([repo.read_header(SINGLE_NAME)], num_layers)
    return None


def _read_shard_headers(
    repo: _Repository, index: SafetensorsIndex, names: Sequence[str]
) -> Iterator[SafetensorsHeader]:
    """The shards' headers in the index's order, a few requests at a time."""
    from concurrent.futures import ThreadPoolExecutor

    missing = [shard for shard in index.shards if shard not in names]
    if missing:
        raise ModelFileError(f"the shard {missing[0]} that {index.name} names is missing in {repo.hub_id}")
    with ThreadPoolExecutor(_NUM_WORKERS) as workers:
        for start in range(0, len(index.shards), _NUM_WORKERS):
            yield from workers.map(repo.read_header, index.shards[start : start + _NUM_WORKERS])


def _load_gguf(repo: _Repository, hub_id: HubId, ggufs: Sequence[str]) -> LoadedModel:
    from inference_bench.facts.gguf import parse_gguf_header
    from inference_bench.facts.gguf_model import model_from_gguf

    name = hub_id.file or (ggufs[0] if len(ggufs) == 1 else None)
    if name is None or name not in ggufs:
        some = ", ".join(ggufs[:6]) + (" ..." if len(ggufs) > 6 else "")
        raise RequestError(f"{hub_id} holds {len(ggufs)} GGUF files; name one as {hub_id.repo}/FILE: {some or 'none'}")
    return model_from_gguf(parse_gguf_header(repo.open(name), name), name)


class _Repository:
    """One model repository, at one revision, through huggingface_hub."""

    def __init__(self, hub_id: HubId) -> None:
        self.hub_id = hub_id
        try:
            import huggingface_hub
        except ImportError:
            raise MissingExtraError(
                f"sizing {self.hub_id} from the Hugging Face hub needs huggingface_hub: {INSTALL}"
            ) from None
        self._api = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)

    def file_names(self) -> tuple[str, ...]:
        """Every file of the repository."""
        with hub_errors(self.hub_id, "its list of files"):
            info = self._api.model_info(self.hub_id.repo, revision=self.hub_id.revision, timeout=_TIMEOUT_S)
        names = tuple(getattr(file, "rfilename", None) for file in info.siblings or ())
        return tuple(name for name in names if isinstance(name, str))

    def read_config(self, names: Sequence[str]) -> dict[str, Any]:
        """The parsed config.json, with what hf_quant_config.json adds."""
        from inference_bench.facts.model_files import (
            CONFIG_NAME,
            QUANTIZATION_NAME,
            needs_quantization,
            with_quantization,
        )

        config = parse_json_object(self._read_json(CONFIG_NAME), f"config.json of {self.hub_id}")
        if QUANTIZATION_NAME in names and needs_quantization(config):
            return with_quantization(config, self._read_json(QUANTIZATION_NAME))
        return config

    def _read_json(self, name: str) -> str:
        try:
            return self.read_whole(name, MAX_JSON_BYTES).decode()
        except UnicodeDecodeError:
            raise ModelConfigError(f"{name} of {self.hub_id} is not text in UTF-8") from None

    def read_whole(self, name: str, max_bytes: int) -> bytes:
        """A small file, whole."""
        content = self.open(name).read(0, max_bytes + 1)
        if len(content) > max_bytes:
            raise DownloadError(f"{name} of {self.hub_id} is longer than {max_bytes} bytes; allowed: up to that")
        if content.lstrip()[:1] == b"<":
            raise DownloadError(f"{name} of {self.hub_id} came as a web page, not as the file; is a proxy in the way?")
        return content

    def read_header(self, name: str) -> SafetensorsHeader:
        """The header of a safetensors file: its length, then exactly that."""
        from inference_bench.facts.safetensors import parse_safetensors_header

        return parse_safetensors_header(self.open(name), name)

    def open(self, name: str) -> _RemoteFile:
        """A file to read ranges of."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.hub_id.repo, name, revision=self.hub_id.revision, endpoint=self._api.endpoint)
        return _RemoteFile(self.hub_id, name, url)


class _RemoteFile:
    """A file behind a URL, as a ByteSource; its size is known after the first read."""

    def __init__(self, hub_id: HubId, name: str, url: str) -> None:
        self.hub_id = hub_id
        self.name = name
        self.url = url
        self.size: int | None = None

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Up to num_bytes from offset on; never more is received, even where the server ignores the range."""
        if num_bytes <= 0 or (self.size is not None and offset >= self.size):
            return b""
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

        last = offset + num_bytes - 1
        headers = build_hf_headers() | {"Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"}
        with (
            hub_errors(self.hub_id, self.name),
            http_stream_backoff("GET", self.url, headers=headers, timeout=_TIMEOUT_S, max_retries=_RETRIES) as response,
        ):
            if response.status_code == 416:  # past the end
                return b""
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            return self._take(response, offset, num_bytes)

    def _take(self, response: Any, offset: int, num_bytes: int) -> bytes:
        """The bytes of a partial answer, or the beginning of a whole one."""
        is_partial = response.status_code == 206
        if not is_partial and offset:
            raise DownloadError(
                f"{self.name} of {self.hub_id}: the server answers {response.status_code} to a range request"
            )
        self._learn_size(response, is_partial)
        expected = num_bytes if self.size is None else max(0, min(num_bytes, self.size - offset))
        content = self._receive(response, num_bytes)
        if self.size is not None and len(content) < expected:
            raise DownloadError(
                f"{self.name} of {self.hub_id}: {len(content)} bytes came where {expected} were promised; try again"
            )
        return content[:num_bytes]

    def _receive(self, response: Any, num_bytes: int) -> bytes:
        """At least num_bytes of an answer, fewer where it ends before; the rest is never received."""
        pieces: list[bytes] = []
        received = 0
        try:
            for piece in response.iter_bytes(65536):
                pieces.append(piece)
                received += len(piece)
                if received >= num_bytes:
                    break
        except Exception as error:  # the client's own classes differ between its versions
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
            raise DownloadError(f"{self.name} of {self.hub_id}: the connection broke: {reason}") from None
        return b"".join(pieces)

    def _learn_size(self, response: Any, is_partial: bool) -> None:
        text = (
            response.headers.get("Content-Range", "").rpartition("/")[2]
            if is_partial
            else response.headers.get("Content-Length", "")
        )
        if text.isdigit() and len(text) <= 20:
            self.size = int(text)


@contextmanager
def hub_errors(hub_id: HubId, what: str) -> Iterator[None]:
    """Whatever the hub, the network or their client raises, as one of our errors on one line."""
    from huggingface_hub import errors

    try:
        yield
    except (RequestError, DownloadError):
        raise
    except errors.GatedRepoError:
        raise DownloadError(
            f"{hub_id} is gated: accept its terms on the hub and log in with a token that may read it"
        ) from None
    except errors.RevisionNotFoundError:
        raise UnknownNameError(f"{hub_id.repo} has no revision {hub_id.revision!r} on the hub") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise UnknownNameError(
            f"no known model and no model on the hub is called {hub_id.repo!r}; check the spelling, or log in if it is "
            "private"
        ) from None
    except errors.EntryNotFoundError:
        raise ModelFileError(f"{hub_id} has no file {what}") from None
    except errors.OfflineModeIsEnabled:
        raise DownloadError(f"{what} of {hub_id} cannot be fetched: offline mode is on") from None
    except Exception as error:  # the client's own classes differ between its versions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise DownloadError(f"{what} of {hub_id} cannot be fetched from the hub: {reason}") from None
