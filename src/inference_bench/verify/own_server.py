"""An engine on this machine that serves a file of one's own, or the embedded model, for as long as somebody wants it.

In:   an engine's name, a model file or folder, how much room
Out:  the model and its path; a StartedServer on the loopback interface, which ends with its block
Leaves out: servers that run already (session), measuring
Read next by: session, cli.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from inference_bench.convert.cached import kept_conversion
from inference_bench.convert.plan import HUGGING_FACE
from inference_bench.engines.base import LLAMA_CPP, SGLANG, VLLM
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.model_files import ModelFiles, hash_model
from inference_bench.engines.start import ENGINES, EngineSettings, check_installed, check_start, start_engine
from inference_bench.engines.startup import StartedServer
from inference_bench.engines.vllm import find_vllm, is_cpu_package
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.load import load_model
from inference_bench.facts.models import LoadedModel
from inference_bench.files import REGULAR, what_stands_at
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.machine_identity import identify_machine
from inference_bench.predict.fit import loaded_weights

_PLAIN_DTYPES: Final = frozenset({"float16", "bfloat16", "float32"})

_MAX_PORT: Final = 65_535

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What is served, and with how much room. None takes the default: the embedded model, every core, a free port.

    Where:    context_tokens is of one sequence; prefix_cache is on, as engines come
    """

    model: str | None = None
    engine: str = LLAMA_CPP
    context_tokens: int = 4096
    num_slots: int = 4
    num_threads: int | None = None
    port: int | None = None
    prefix_cache: bool = True


@contextmanager
def serve_model(request: ServeRequest, log_path: Path, progress: Progress | None = None) -> Iterator[StartedServer]:
    """A server on 127.0.0.1 that has answered with one token; it ends with the block.

    Raises:   RequestError, UnknownNameError, ModelFileError, MissingExtraError; ServerStartError, DownloadError, StorageError
    """
    require_room(request.num_threads, request.num_slots, request.context_tokens)
    if request.port is not None and not 1 <= request.port <= _MAX_PORT:
        raise RequestError(f"there is no port {request.port}; give one of 1 to {_MAX_PORT}, or none for a free one")
    say = progress or (lambda _text: None)
    model, path, files = own_model(request.engine, request.model, say)
    settings = EngineSettings(
        context_tokens=request.context_tokens,
        num_slots=request.num_slots,
        num_threads=threads_for(request.engine, request.num_threads),
        prefix_cache=request.prefix_cache,
        dtype=None if request.engine == LLAMA_CPP else dtype_of(model),
        port=request.port,
    )
    check_start(request.engine, path, settings)
    with start_engine(request.engine, path, settings, log_path=log_path, progress=say, model_files=files) as server:
        yield server


def require_room(num_threads: int | None, num_slots: int | None, context_tokens: int | None) -> None:
    """A server can compute something with these; None is left to its engine.

    Raises:   RequestError
    """
    for count, what in ((num_threads, "threads"), (num_slots, "slots"), (context_tokens, "positions of context")):
        if count is not None and count < 1:
            raise RequestError(f"{count} {what} cannot serve anything; ask for 1 or more")


def own_model(engine: str, named: str | None, say: Progress) -> tuple[LoadedModel, Path, ModelFiles | None]:
    """What an engine started here serves: the file or folder that was named, or the embedded model.

    Where:    an engine that reads no .gguf file serves the folder that it converts to, made once and kept
    Raises:   UnknownNameError, RequestError, ModelFileError, MissingExtraError; DownloadError
    """
    if engine not in ENGINES:
        raise UnknownNameError(f"no engine {engine[:60]!r} can be started; known: {', '.join(ENGINES)}")
    if named is None:
        check_installed(engine)
        embedded = ensure_embedded_model(progress=say)
        path, name = embedded.path, embedded.name
        if engine == LLAMA_CPP:
            model = load_model(str(path))
            files = ModelFiles({path.name: embedded.sha256}, embedded.sha256)
            return replace(model, spec=replace(model.spec, name=name)), path, files
    else:
        path, name = Path(named), Path(named).stem
    is_file = path.suffix == ".gguf" and path.is_file()
    if engine == LLAMA_CPP and not is_file:
        raise RequestError(f"{engine} serves .gguf files; {named!r} is {_instead(path, 'not one')}")
    if engine != LLAMA_CPP and not (is_file or path.is_dir()):
        raise RequestError(
            f"{engine} serves folders as Transformers writes them, or .gguf files that are converted to one; "
            f"{named!r} is {_instead(path, 'neither')}"
        )
    check_installed(engine)
    if engine != LLAMA_CPP and is_file:
        say(f"converting {path.name} to a folder that {engine} serves, once")
        path = kept_conversion(path, sha256_of_file(path), HUGGING_FACE, "float32", say).path
    model = load_model(str(path))
    if is_file:
        model = replace(model, spec=replace(model.spec, name=f"{name} as float32"))
    return model, path, hash_model(path, say)


def _instead(path: Path, of_a_file: str) -> str:
    """What stands there instead of a model, as a message says it."""
    found = what_stands_at(path)
    return of_a_file if found == REGULAR else found


def dtype_of(model: LoadedModel) -> str | None:
    """The format of a folder's weights where it is a plain one."""
    name = torch_name(loaded_weights(model, None).linear_format.name)
    return name if name in _PLAIN_DTYPES else None


def torch_name(name: str) -> str:
    """PyTorch's word for a format, which vLLM and SGLang take: its plain floats are called float16, bfloat16 and float32."""
    return {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}.get(name, name)


def threads_for(engine: str, asked: int | None) -> int | None:
    """As many as were asked for; else every core that may be used, and none where a card computes."""
    takes_none = engine == SGLANG or (engine == VLLM and not is_cpu_package(find_vllm()))
    return asked or (None if takes_none else identify_machine().num_usable_cores)
