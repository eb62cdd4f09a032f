"""A server that somebody else started: which engine is it, and what does it say about itself?

In:   the address of a running server, and a key if it asks for one
Out:  AttachedServer, with its identity, its own figures and where each was read
Leaves out: starting and stopping one (llama_cpp, vllm, sglang), load and timing (measure)
Read next by: llama_cpp, vllm, sglang, verify.

Only GET requests are sent, only to that address, and redirects are not followed, so a key goes nowhere else. An engine is
known by the owner it gives its model, or, behind a proxy that gives another, by answers that only it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inference_bench.engines import llama_cpp_report, sglang_report, vllm_report
from inference_bench.engines.answers import Asker, Listed, Report, pick_figures
from inference_bench.engines.base import EngineIdentity, RunningServer
from inference_bench.engines.model_files import hash_model
from inference_bench.errors import ServerError
from inference_bench.measure.target import ApiKey, Target

_ASK_S: Final = 10.0

_Reader = Callable[[Listed, Asker], Report | None]
_READERS: Final[Mapping[str, _Reader]] = MappingProxyType(
    {
        llama_cpp_report.OWNER: llama_cpp_report.read_llama_cpp,
        vllm_report.OWNER: vllm_report.read_vllm,
        sglang_report.OWNER: sglang_report.read_sglang,
    }
)


class AttachedServer(RunningServer):
    """A server that somebody else started; it is asked, and left running."""

    def __init__(self, target: Target, report: Report) -> None:
        self.base_url = target.base_url
        self.identity, self.figures = report
        self._target = target

    def is_running(self) -> bool:
        """Whether it lists its model now."""
        try:
            Listed.read(Asker(self._target, _ASK_S))
        except ServerError:
            return False
        return True

    def stop(self) -> None:
        """Nothing: it is not ours to end."""


def attach(
    url: str, *, api_key: ApiKey | None = None, timeout_s: float = _ASK_S, hashes_files: bool = False
) -> AttachedServer:
    """A server that runs already, identified by what it reports: llama.cpp, vLLM, SGLang, or any that lists its models.

    Where:    `timeout_s` is for one answer; all of them together take six times as long at most. `hashes_files` reads
              the model's files through where the server is on this machine and says where they are
    Raises:   RequestError for an address that is none; ServerError if nothing answers there, or not a model server
    """
    target = Target(url, api_key=api_key)
    report = read_report(Asker(target, timeout_s))
    if hashes_files and target.address.is_this_machine:
        report = report._replace(identity=_with_files(report.identity))
    return AttachedServer(target, report)


def read_report(ask: Asker) -> Report:
    """Everything a server tells about itself.

    Raises:   ServerError if it does not even list its models
    """
    listed = Listed.read(ask)
    known = _READERS.get(listed.owner or "")
    for reader in _READERS.values() if known is None else (known,):
        if (report := reader(listed, ask)) is not None:
            return report
    return _unknown_engine(listed)


def _unknown_engine(listed: Listed) -> Report:
    identity = EngineIdentity(listed.owner, "reported by the server", model_name=listed.name)
    return Report(identity, pick_figures(listed.limits()))


def _with_files(identity: EngineIdentity) -> EngineIdentity:
    """The same with the hashes of the files that the server says it serves, where there are such files here."""
    files = None if identity.model_path is None else hash_model(Path(identity.model_path))
    return replace(identity, model_files=files.by_name, model_sha256=files.sha256) if files is not None else identity
