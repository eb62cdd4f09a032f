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
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from inference_bench import hub
from inference_bench.accounting.params import count_params
from inference_bench.engines.attach import AttachedServer, attach
from inference_bench.engines.base import LLAMA_CPP, SGLANG, RunningServer
from inference_bench.engines.llama_cpp import knows_a_card
from inference_bench.engines.model_files import ModelFiles, hash_model
from inference_bench.engines.start import EngineSettings, check_start, start_engine
from inference_bench.engines.vllm import find_vllm, is_cpu_package
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import known_model, load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.facts.source import Source
from inference_bench.measure.probe_here import ProbeDevice
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.origin import Origin
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.rate_search import Limits
from inference_bench.verify.identity import engine_cache_format
from inference_bench.verify.own_server import dtype_of, own_model, require_room, threads_for, torch_name
from inference_bench.verify.plan import Plan

# What keeps a point honest: no reuse of cached prompts, and the output length that was asked for.
_EXTRA_BODY: Final = {"cache_prompt": False, "ignore_eos": True}

_PARAMETER_TOLERANCE: Final = 0.05  # some engines count tables that a config does not name

_UNKNOWN_MACHINE: Final = HardwareSpec(
    "a machine that was not named",
    None,
    None,
    {},
    Source("nothing is known of the machine that serves", "now"),
    Origin.MEASURED,
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify. None takes the default: the embedded engine and model, on this machine, probed.

    Where:    num_slots and context_tokens (of one sequence) are of a server that is started here, by default what the plan
              needs; num_threads is every core that this program may use, where the processor computes: on few cores the client then shares
              them, which the result states, and with fewer threads every step is slower than the machine allows. objective is what the
              capacity keeps, by default what an idle server reaches easily; runs_load False leaves out load and capacity
    Unit:     seconds
    """

    url: str | None = None
    model: str | None = None
    machine: HardwareSpec | None = None
    weights: str | None = None
    cache: str | None = None
    served_model: str | None = None
    endpoint: str = "completions"
    api_key: ApiKey | None = None
    engine: str = LLAMA_CPP
    num_threads: int | None = None
    num_slots: int | None = None
    context_tokens: int | None = None
    plan: Plan = field(default_factory=Plan)
    runs_load: bool = True
    objective: Limits | None = None
    runs: Path = Path("runs")
    seed: int = 0
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Session:
    """What `prepare` found: everything but a started server."""

    request: VerifyRequest
    model: LoadedModel
    path: Path | None
    files: ModelFiles | None
    folder: RunFolder
    attached: AttachedServer | None
    machine: HardwareSpec | None
    notes: tuple[str, ...] = ()

    @property
    def is_probed(self) -> bool:
        """Whether the machine that serves is this one, and its ceilings are to be measured."""
        return self.machine is None

    @property
    def device(self) -> ProbeDevice:
        """What of this machine serves: an engine started here that knows no card computes on the processor."""
        if self.attached is not None or self.request.engine == SGLANG:
            return ProbeDevice.AUTO
        on_a_processor = not knows_a_card() if self.request.engine == LLAMA_CPP else is_cpu_package(find_vllm())
        return ProbeDevice.CPU if on_a_processor else ProbeDevice.AUTO

    @contextmanager
    def serve(self, say: Progress) -> Iterator[RunningServer]:
        """The server, for as long as it is measured; one that was started here ends with the block.

        Raises:  ServerStartError, ServerError
        """
        if self.attached is not None or self.path is None:
            yield self._attached()
            return
        log_path = self.folder.path / "engine.log"
        settings = _settings(self.request, self.model)
        with start_engine(
            self.request.engine, self.path, settings, log_path=log_path, progress=say, model_files=self.files
        ) as server:
            yield server

    def _attached(self) -> RunningServer:
        if self.attached is None:
            raise RequestError("there is neither a running server nor a model file to serve")
        return self.attached


def _settings(request: VerifyRequest, model: LoadedModel) -> EngineSettings:
    """How the server is started: with room for the sweep, and no more; formats by the engine's own words for them.

    Where:  a folder is served in the format of its weights: vLLM left alone makes bfloat16 of float32
    """
    word = _ggml_name if request.engine == LLAMA_CPP else torch_name
    fmt = cache_format(request.cache) if request.cache or request.engine == LLAMA_CPP else None
    return EngineSettings(
        context_tokens=request.context_tokens or request.plan.context_tokens,
        num_slots=request.num_slots or request.plan.num_slots,
        num_threads=threads_for(request.engine, request.num_threads),
        cache_type_k=None if fmt is None else word(fmt.keys.name),
        cache_type_v=None if fmt is None else word(fmt.values.name),
        dtype=None if request.engine == LLAMA_CPP else dtype_of(model),
    )


def prepare(request: VerifyRequest, say: Progress) -> Session:
    """Find the model and the server, and make the run folder.

    Raises:  RequestError, UnknownNameError, ModelFileError, DownloadError, ServerError, StorageError
    """
    require_room(request.num_threads, request.num_slots, request.context_tokens)
    if not 0 < request.timeout_s < inf:
        raise RequestError(f"no request can be answered within {request.timeout_s:g} s; give it a time above 0")
    cache_format(request.cache)  # a format that is not known is said before anything is looked at
    return _to_start(request, say) if request.url is None else _to_attach(request, request.url, say)


def _to_start(request: VerifyRequest, say: Progress) -> Session:
    if request.machine is not None and request.machine.origin is Origin.PUBLISHED:
        raise RequestError(
            f"an engine that is started here runs on this machine, not on {request.machine.name}; leave the machine out to "
            "have this one probed, or give the address of a server that runs there"
        )
    model, path, files = own_model(request.engine, request.model, say)
    loaded_weights(model, request.weights)
    check_start(request.engine, path, _settings(request, model))
    return Session(request, model, path, files, RunFolder.create(request.runs, "verify"), None, request.machine)


def _to_attach(request: VerifyRequest, url: str, say: Progress) -> Session:
    is_here = Target(url).address.is_this_machine
    say(f"asking {url} what it serves")
    attached = attach(url, api_key=request.api_key, hashes_files=True)
    model, path = _served_model(request, attached, is_here)
    loaded_weights(model, request.weights)
    files = _files_of(attached, path, say)
    machine, notes = request.machine, tuple[str, ...]()
    if machine is None and not is_here:
        machine = _UNKNOWN_MACHINE
        notes = (
            f"{url} is on another machine, which was not named: its ceilings are not known, so that no bound stands beside a time",
        )
    return Session(request, model, path, files, RunFolder.create(request.runs, "verify"), attached, machine, notes)


def _files_of(server: AttachedServer, path: Path | None, say: Progress) -> ModelFiles | None:
    """The hashes of what is served; the server's own files were hashed when it was identified."""
    identity = server.identity
    if path is None or identity.model_path != str(path) or identity.model_sha256 is None:
        return hash_model(path, say) if path else None
    return ModelFiles(identity.model_files, identity.model_sha256)


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
            f"the server says it serves {name[:80]!r}, which is not a known model; name the model: without its shape no bytes "
            "and no FLOPs of a step are certain"
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


def served_by(request: VerifyRequest, model: LoadedModel, server: RunningServer) -> ServedModel:
    """What the server computes with: the formats that were named, or those of the file and of the engine's own log.

    Raises:  UnknownNameError, RequestError
    """
    fmt = cache_format(request.cache) if request.cache else engine_cache_format(server.figures)
    return ServedModel(model.spec, loaded_weights(model, request.weights), fmt or cache_format(None))


def target_of(request: VerifyRequest, server: RunningServer) -> Target:
    """Where the requests go."""
    return Target(
        server.base_url,
        request.served_model or server.identity.model_name,
        Endpoint(request.endpoint),
        request.api_key,
        _EXTRA_BODY,
    )
