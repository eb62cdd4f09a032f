"""What is verified and by what: the model and the server, resolved before anything slow begins.

In:   VerifyRequest
Out:  Session: the model, its hash, a run folder, and the server for as long as it is measured
Leaves out: measuring
Read next by: flow.

A wrong name, a broken file, a dead server or a folder that cannot be written must be said at once, not after a
probe of half a minute: `prepare` finds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from inference_bench import hub
from inference_bench.accounting.params import count_params
from inference_bench.engines.base import RunningServer
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.llama_cpp import AttachedServer, attach, start_llama_cpp
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import known_model, load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.machine_identity import identify_machine
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.origin import Origin
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.verify.identity import engine_cache_format
from inference_bench.verify.plan import PROBE_BUDGET_S, Plan
from inference_bench.verify.points import Served

# What keeps a point honest: no reuse of cached prompts, and the output length that was asked for.
_EXTRA_BODY: Final = {"cache_prompt": False, "ignore_eos": True}

_PARAMETER_TOLERANCE: Final = 0.05  # some engines count tables that a config does not name

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify. None takes the default: the embedded engine and model, on this machine, probed."""

    url: str | None = None
    model: str | None = None
    machine: HardwareSpec | None = None
    weights: str | None = None
    cache: str | None = None
    served_model: str | None = None
    endpoint: str = "completions"
    api_key: ApiKey | None = None
    num_threads: int | None = None
    plan: Plan = field(default_factory=Plan)
    runs: Path = Path("runs")
    seed: int = 0
    timeout_s: float = 120.0
    probe_budget_s: float = PROBE_BUDGET_S


@dataclass(frozen=True, slots=True)
class Session:
    """What `prepare` found: everything but a started server."""

    request: VerifyRequest
    model: LoadedModel
    path: Path | None
    sha256: str | None
    folder: RunFolder
    attached: AttachedServer | None

    @contextmanager
    def serve(self, say: Progress) -> Iterator[RunningServer]:
        """The server, for as long as it is measured; one that was started here ends with the block.

        Raises:  ServerStartError, ServerError
        """
        if self.attached is not None or self.path is None:
            yield self._attached()
            return
        request, fmt = self.request, cache_format(self.request.cache)
        with start_llama_cpp(
            self.path,
            context_tokens_total=request.plan.max_context_tokens * max(request.plan.concurrencies),
            num_slots=max(request.plan.concurrencies),
            num_threads=request.num_threads or identify_machine().num_usable_cores,
            log_path=self.folder.path / "engine.log",
            cache_type_k=_ggml_name(fmt.keys.name),
            cache_type_v=_ggml_name(fmt.values.name),
            progress=say,
            model_sha256=self.sha256,
        ) as server:
            yield server

    def _attached(self) -> RunningServer:
        if self.attached is None:
            raise RequestError("there is neither a running server nor a model file to serve")
        return self.attached


def prepare(request: VerifyRequest, say: Progress) -> Session:
    """Find the model and the server, and make the run folder.

    Raises:  RequestError, UnknownNameError, ModelFileError, DownloadError, ServerError, StorageError
    """
    if request.num_threads is not None and request.num_threads < 1:
        raise RequestError(f"{request.num_threads} threads cannot run anything; ask for 1 or more")
    if request.url is None:
        if request.machine is not None and request.machine.origin is Origin.PUBLISHED:
            raise RequestError(
                f"the embedded engine runs on this machine, not on {request.machine.name}; leave the machine out to have "
                "this one probed, or give the address of a server that runs there"
            )
        return Session(request, *_own_model(request, say), RunFolder.create(request.runs, "verify"), None)
    is_here = Target(request.url).address.is_this_machine
    if request.machine is None and not is_here:
        raise RequestError(
            f"{request.url} is on another machine; name that machine to have its ceilings to compare with"
        )
    say(f"asking {request.url} what it serves")
    attached = attach(request.url, api_key=request.api_key)
    model, path = _served_model(request, attached, is_here)
    sha256 = sha256_of_file(path) if path else None
    return Session(request, model, path, sha256, RunFolder.create(request.runs, "verify"), attached)


def _own_model(request: VerifyRequest, say: Progress) -> tuple[LoadedModel, Path, str]:
    """The file the embedded engine serves: the one that was named, or the embedded model."""
    if request.model is None:
        embedded = ensure_embedded_model(progress=say)
        model = load_model(str(embedded.path))
        return replace(model, spec=replace(model.spec, name=embedded.name)), embedded.path, embedded.sha256
    path = Path(request.model)
    if path.suffix != ".gguf":
        raise RequestError(f"the embedded engine serves .gguf files; {request.model!r} is not one")
    model = load_model(str(path))
    say(f"hashing {path.name}")
    return model, path, sha256_of_file(path)


def _served_model(request: VerifyRequest, server: AttachedServer, is_here: bool) -> tuple[LoadedModel, Path | None]:
    """What a running server serves: the model that was named, or its own file where that is on this machine, or its name."""
    if request.model is not None:
        model = hub.load_model(request.model)
        _refuse_another_model(model, server)
        return model, model.path
    own_path = Path(server.identity.model_path) if server.identity.model_path else None
    if is_here and own_path is not None and own_path.suffix == ".gguf" and own_path.is_file():
        return load_model(str(own_path)), own_path
    name = (server.identity.model_name or "").rpartition("/")[2]
    try:
        return LoadedModel(known_model(name)), None
    except UnknownNameError:
        raise RequestError(
            f"the server says it serves {name[:80]!r}, which is not a known model; name the model"
        ) from None


def _refuse_another_model(model: LoadedModel, server: AttachedServer) -> None:
    """A server that says how many parameters it serves must be serving about as many as the model that was named has."""
    served, named = server.figures.num_params, count_params(model.spec).total
    if served is not None and abs(served - named) > _PARAMETER_TOLERANCE * named:
        raise RequestError(
            f"the server says it serves {served:,} parameters ({server.identity.model_name}), and {model.spec.name} has "
            f"{named:,}; name the model that is served"
        )


def _ggml_name(name: str) -> str:
    """Ggml's word for a format: its plain floats are called f16 and f32."""
    return name if name == "bf16" else name.replace("fp", "f")


def served_by(request: VerifyRequest, model: LoadedModel, server: RunningServer) -> Served:
    """What the server computes with: the formats that were named, or those of the file and of the engine's own log.

    Raises:  UnknownNameError, RequestError
    """
    fmt = cache_format(request.cache) if request.cache else engine_cache_format(server.figures)
    return Served(model.spec, loaded_weights(model, request.weights), fmt or cache_format(None))


def target_of(request: VerifyRequest, server: RunningServer) -> Target:
    """Where the requests go."""
    return Target(
        server.base_url,
        request.served_model or server.identity.model_name,
        Endpoint(request.endpoint),
        request.api_key,
        _EXTRA_BODY,
    )
