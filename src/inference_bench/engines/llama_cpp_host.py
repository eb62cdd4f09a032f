"""The process that holds one llama.cpp server and nothing else.

In:   one argument, a HostConfig as JSON; stdin, which stays open for as long as the starter lives
Out:  one line of JSON on stdout with the address, once the model is loaded; the server's log on stderr
Leaves out: whether the model answers, and what the log means (llama_cpp.py)
Read next by: llama_cpp.py, which starts `python -m inference_bench.engines.llama_cpp_host`.

It ends at once on SIGTERM, on SIGINT, and when stdin closes, which the system does when the starter dies by any means.
It keeps no state that would need an orderly end, so nothing is asked of the server's own shutdown.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from inference_bench.units import KIBI

_LOG_BUFFER_SIZES: Final = 4  # the lowest verbosity at which llama.cpp prints its KV and buffer sizes


@dataclass(frozen=True, slots=True)
class HostConfig:
    """How one server is set up; every field ends in a setting of llama.cpp.

    Where:    `context_tokens_total` None is the length the model was trained for; `flash_attention` None lets the
              engine choose, `port` None the system; `prompt_caching` is only the default of requests that do not say;
              `speculation` is how the engine drafts, None: not at all; of it, how many tokens at most, how long an n-gram has
              to match, and the draft model's file
    """

    model_path: str
    model_name: str
    context_tokens_total: int | None
    num_slots: int
    num_threads: int
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    kv_unified: bool = False
    flash_attention: bool | None = None
    swa_full: bool = False
    max_batch_tokens: int = 2048
    max_micro_batch_tokens: int = 512
    prompt_caching: bool = False
    port: int | None = None
    speculation: str | None = None
    speculation_tokens: int | None = None
    speculation_match_tokens: int | None = None
    speculation_draft_path: str | None = None

    def to_json(self) -> str:
        """One line, for the command line of the process."""
        return json.dumps(asdict(self))


def build_params(config: HostConfig, xllamacpp: Any) -> Any:
    """The engine's own parameter object for a configuration.

    Where:    fit_params off: the context is allocated as asked or not at all, never silently shortened;
              cache_ram_mib 0 and cache_idle_slots off: no copies of prompts on the side while requests are timed
    """
    params = xllamacpp.CommonParams()
    params.model.path = config.model_path
    params.model_alias = {config.model_name}
    params.hostnames = ["127.0.0.1"]
    params.port = config.port or 0
    params.n_ctx = config.context_tokens_total or 0
    params.n_parallel = config.num_slots
    params.n_batch = config.max_batch_tokens
    params.n_ubatch = config.max_micro_batch_tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.num_threads
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{config.cache_type_k.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{config.cache_type_v.upper()}")
    params.kv_unified = config.kv_unified
    params.swa_full = config.swa_full
    params.flash_attn_type = _flash_attention_type(config.flash_attention, xllamacpp)
    params.fit_params = False
    params.cache_prompt = config.prompt_caching
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.ui = False
    params.endpoint_metrics = params.endpoint_slots = True
    params.verbosity = _LOG_BUFFER_SIZES
    if config.speculation is not None:
        _speculate(config, params.speculative, xllamacpp)
    return params


def _speculate(config: HostConfig, speculative: Any, xllamacpp: Any) -> None:
    """Turn on the engine's own speculation; an n-gram's draft is its m tokens that followed n, a model's its longest."""
    kind = f"COMMON_SPECULATIVE_TYPE_{str(config.speculation).upper()}"
    speculative.types = [getattr(xllamacpp.common_speculative_type, kind)]
    ngram = getattr(speculative, str(config.speculation), None)
    if config.speculation_tokens is not None:
        speculative.draft.n_max = config.speculation_tokens
        if ngram is not None:
            ngram.size_m = config.speculation_tokens
    if config.speculation_match_tokens is not None and ngram is not None:
        ngram.size_n = config.speculation_match_tokens
    if config.speculation_draft_path is not None:
        speculative.draft.mparams.path = config.speculation_draft_path


def _flash_attention_type(wanted: bool | None, xllamacpp: Any) -> Any:
    suffix = {None: "AUTO", True: "ENABLED", False: "DISABLED"}[wanted]
    return getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{suffix}")


def _end_with_the_starter() -> None:
    """End at once, even inside the engine's own code, when stdin closes or a signal asks for it.

    Where:    the engine holds the interpreter's lock while it loads, so no Python code could react;
              on Linux a closed pipe raises SIGIO by itself, whose default is to end the process
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        closed_already = select.poll()
        closed_already.register(0, 0)  # a hang-up is always told, and one from before now sends no signal
        if closed_already.poll(0):
            os._exit(1)


def _available_memory_bytes() -> int | None:
    """Memory the system can give without swapping, or None where it does not say.

    Source:   Linux proc(5), /proc/meminfo, MemAvailable (in kB, meaning KiB)
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * KIBI for line in lines if line.startswith("MemAvailable:")), None)


def _refuse_more_memory_than_there_is(xllamacpp: Any) -> None:
    """Make an allocation that cannot be backed fail at once, instead of the machine running out of memory later.

    Where:    the limit is nine tenths of what is available, so that filling it leaves room for everybody else
    Ignores:  machines with a GPU, whose drivers reserve address space far beyond the memory
    """
    cpu = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    available_bytes = _available_memory_bytes()
    if sys.platform != "linux" or available_bytes is None:
        return
    if any(device["type"] != cpu for device in xllamacpp.get_device_info()):
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = available_bytes * 9 // 10
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def main(argument: str) -> None:
    """Serve one model until the starter is gone."""
    _end_with_the_starter()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to the log, not between the starter and the address
    import xllamacpp

    _refuse_more_memory_than_there_is(xllamacpp)
    server = xllamacpp.Server(build_params(HostConfig(**json.loads(argument)), xllamacpp))
    try:
        with answer:
            print(json.dumps({"address": server.listening_address}), file=answer)
        sys.stdin.buffer.read()
    finally:
        os._exit(0)  # not by an exception: the server's threads would keep the process alive


if __name__ == "__main__":
    main(sys.argv[1])
