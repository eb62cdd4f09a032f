"""What was served while this run measured it, kept in its folder.

In:   a RunFolder; a server that answers, as far as it is known
Out:  manifest.json there, and its digest in meta.json; back: the manifest of a run
Leaves out: full hashes of large files that were never hashed: a load test does not read a hundred gigabytes first
Read next by: loadtest, verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from inference_bench.engines import llama_cpp_report, sglang_report, vllm_report
from inference_bench.engines.answers import Asker, Listed, Report, pick_figures
from inference_bench.engines.base import EngineIdentity, RunningServer
from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.manifest.compare import Verdict, compare_manifests
from inference_bench.manifest.components import Group, Manifest
from inference_bench.manifest.conversation import ids_of_files
from inference_bench.manifest.create import describe_and_remember, described_server, local_path, merged_files
from inference_bench.manifest.folder import list_files
from inference_bench.manifest.from_files import Described, describe_files
from inference_bench.manifest.from_server import ask_what_is_served, of_engine
from inference_bench.manifest.known_hashes import recall_hashes
from inference_bench.manifest.store import MANIFEST_FILE, read_manifest, write_manifest
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Target
from inference_bench.units import MEBI

META_KEY: Final = "manifest_sha256"
CHANGED_KEY: Final = "manifest_changed_at_resume"
_MOST_READ_BYTES: Final = 512 * MEBI  # of files that were never hashed: a second or less
_ASK_S: Final = 3.0
_KNOWN_OWNERS: Final = (llama_cpp_report.OWNER, vllm_report.OWNER, sglang_report.OWNER)


def manifest_of_load(target: Target, models: object = None) -> Manifest:
    """What a server that is about to be loaded says of itself; empty where it says nothing.

    Where:    models is its list of models, where it was asked for that just now; one that does not name a known engine is asked for
              its list of models and for nothing else: a gateway is not probed for routes it does not have. Files are hashed where
              they are here, and are small or were hashed before
    """
    try:
        ask = Asker(target, _ASK_S, {} if models is None else {target.models_path: models})
        listed = Listed.read(ask)
        if listed.owner not in _KNOWN_OWNERS:
            identity = EngineIdentity(listed.owner, "reported by the server", model_name=target.model or listed.name)
            return Manifest(tuple(of_engine(identity, pick_figures(listed.limits()))))
        return Manifest(described_server(ask, _read_quickly).components)
    except InferenceBenchError:
        return Manifest(())


def _read_quickly(path: Path) -> Described | None:
    """The files of a model, where that is quick."""
    try:
        files = list_files(path)
        known = recall_hashes(files)
        unread = sum(file.path.stat().st_size for file in files if file.name not in known)
        if unread > _MOST_READ_BYTES:
            return None
        return describe_and_remember(path, known=known)
    except (InferenceBenchError, OSError):
        return None


def manifest_of_server(
    server: RunningServer, api_key: ApiKey | None, path: Path | None, known: Mapping[str, str] | None
) -> Manifest:
    """What a server that is verified serves: what it says, its own log where it was started here, and its files.

    Where:    known are the hashes of the files at path that were taken already
    Raises:   ServerError
    """
    target = Target(server.base_url, server.identity.model_name, api_key=api_key)
    said = ask_what_is_served(Asker(target, _ASK_S), Report(server.identity, server.figures)).described.components
    place = path if path is not None else local_path(target, server.identity.model_path)
    if place is None:
        return Manifest(said)
    try:
        files = describe_files(place, known=known).components
    except RequestError:  # it is served, whatever is wrong with its files
        return Manifest(said)
    has_ids = any(each.group is Group.TOKEN_IDS for each in said)
    return Manifest(merged_files(said, files if has_ids else (*files, *ids_of_files(place))))


def keep_manifest(folder: RunFolder, manifest: Manifest) -> str:
    """Write a run's manifest and its digest; of a run that is resumed the first stays, and what differs now is noted.

    Raises:   StorageError, RunFolderError
    """
    if (folder.path / MANIFEST_FILE).exists():
        first = read_manifest(folder.path)
        changed = compare_manifests(first, manifest)
        names = [f"{row.group} {row.name}" for row in changed.components if row.verdict is Verdict.DIFFERENT]
        if names:
            folder.update_meta({CHANGED_KEY: names})
        return first.sha256
    write_manifest(manifest, folder.path / MANIFEST_FILE)
    folder.update_meta({META_KEY: manifest.sha256})
    return manifest.sha256


def manifest_of_run(run_dir: Path) -> Manifest | None:
    """The manifest of a run; None for a run of an earlier version.

    Raises:   ManifestError for one that is broken, TamperedManifestError
    """
    return read_manifest(run_dir) if (run_dir / MANIFEST_FILE).is_file() else None
