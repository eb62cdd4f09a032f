"""What exactly was measured, on what, by what? Every identity as a name and a value.

In:   VerifyResult
Out:  rows of two texts; what is not known says n/a
Leaves out: folders: a result can be shared without naming whoever ran it
Read next by: verify_html, json_result.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath, PureWindowsPath

from inference_bench.engines.base import EngineFigures
from inference_bench.measure.machine_identity import GPUIdentity, MachineIdentity
from inference_bench.report.text import clean
from inference_bench.report.wording import started, yes_or_no
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)
from inference_bench.verify.result import CpuShares, VerifyResult

Rows = tuple[tuple[str, str], ...]


def _or_not_available(value: object) -> str:
    return NOT_AVAILABLE if value is None else clean(value)


def file_name(path: str | None) -> str:
    """The last part of a path of any system: which file it is, not whose."""
    return NOT_AVAILABLE if path is None else clean(PureWindowsPath(PurePath(path).name).name)


def run_rows(result: VerifyResult) -> Rows:
    """The run itself."""
    return (
        ("started", started(result)),
        ("took", format_seconds(result.elapsed_s)),
        ("server", clean(result.target)),
        ("seed", str(result.seed)),
        ("run folder", clean(result.run_dir.name)),
        ("manifest SHA-256", clean(result.manifest_sha256)),
        *((clean(name), clean(version)) for name, version in result.versions.items()),
    )


_ENGINE_LOG = "engine.log"
_FILES = (
    ("requests.journal", "every request and every chunk of its answer, raw, written while it was measured"),
    ("meta.json", "target, engine, model and what was asked"),
    (_ENGINE_LOG, "what the engine printed"),
    ("result.json", "every figure of this page; its schema is docs/schemas/verify.schema.json"),
    ("report.txt", "what was printed"),
    ("report.html", "this page"),
)


_PREDICTION = "what was predicted of the loads and of the capacity, written before the first of them was sent"
_PROFILE = "the fitted formula, to be used for other models and loads on this machine"


def file_rows(result: VerifyResult) -> Rows:
    """The files of the run folder, and what is in each."""
    prediction = () if result.load is None else (("prediction.json", _PREDICTION),)
    profile = () if result.profile_path is None else ((file_name(result.profile_path.name), _PROFILE),)
    is_ours = result.client.cpu is not None and result.client.cpu.engine_cpu_s is not None
    files = _FILES if is_ours else tuple(row for row in _FILES if row[0] != _ENGINE_LOG)
    return (*files, *prediction, *profile)


def model_rows(result: VerifyResult) -> Rows:
    """The model: its file, its parameters, its weights."""
    model = result.model
    return (
        ("model", clean(model.spec.name)),
        ("architecture", clean(model.spec.model_type)),
        ("file", file_name(model.file_name)),
        ("file size", f"{format_count(model.file_bytes)} bytes" if model.file_bytes is not None else NOT_AVAILABLE),
        ("file SHA-256", _or_not_available(model.sha256)),
        ("parameters", format_count(model.params.total)),
        ("parameters that multiply", format_count(model.params.matmul)),
        ("layers", format_count(model.spec.num_hidden_layers)),
        ("weights", f"{format_count(model.weights.total)} bytes ({clean(model.weights.origin)})"),
        ("weight formats", clean(model.weights.format_name)),
        ("bits a weight", format_number(model.weights.bits_per_weight)),
        ("shape read from", clean(model.spec.source)),
    )


def engine_rows(result: VerifyResult) -> Rows:
    """The engine: which build, which settings, and what it says of itself."""
    engine, figures = result.engine, result.figures
    compute = format_bytes_binary(figures.compute_buffer_bytes)
    return (
        ("engine", _or_not_available(engine.name)),
        ("version", _or_not_available(engine.version)),
        ("build", _or_not_available(engine.build)),
        ("known because", clean(engine.source)),
        ("serves", _or_not_available(engine.model_name)),
        ("model file", file_name(engine.model_path)),
        ("model file SHA-256", _or_not_available(engine.model_sha256)),
        ("context, all slots", _tokens(figures.context_tokens_total)),
        ("context of a slot", _tokens(figures.context_tokens_per_slot)),
        ("slots", format_count(figures.num_slots)),
        ("one cache for all slots", yes_or_no(figures.kv_unified)),
        ("flash attention", yes_or_no(figures.flash_attention)),
        (
            "cache types",
            f"{_or_not_available(figures.cache_type_k)} keys, {_or_not_available(figures.cache_type_v)} values",
        ),
        ("compute buffers", compute),
        *_stated_rows(figures),
        *_setting_rows(engine.flags),
        *((f"SHA-256 of {file_name(name)}", clean(digest)) for name, digest in engine.model_files.items()),
    )


def _stated_rows(figures: EngineFigures) -> Rows:
    """What only some engines state: nothing of those that do not."""
    blocks = f"{format_count(figures.num_blocks)} of {format_count(figures.block_tokens)} tokens"
    rows = (
        ("longest sequence", figures.max_model_len, _tokens(figures.max_model_len)),
        ("sequences at once", figures.max_running, format_count(figures.max_running)),
        ("tokens of a step, at most", figures.token_budget, format_count(figures.token_budget)),
        ("tokens computed together", figures.micro_batch, format_count(figures.micro_batch)),
        ("threads", figures.num_threads, format_count(figures.num_threads)),
        ("blocks of cache", figures.num_blocks, blocks),
        ("cache holds", figures.kv_tokens, _tokens(figures.kv_tokens)),
        ("set aside for the cache", figures.cache_bytes, format_bytes_binary(figures.cache_bytes)),
        ("share of memory taken", figures.memory_fraction, format_fraction(figures.memory_fraction)),
        ("prefix cache", figures.prefix_cache, yes_or_no(figures.prefix_cache)),
        ("speculation", figures.speculation, _or_not_available(figures.speculation)),
        ("numbers", figures.dtype, _or_not_available(figures.dtype)),
        ("quantisation", figures.quantization, _or_not_available(figures.quantization)),
        ("attention", figures.attention_backend, _or_not_available(figures.attention_backend)),
    )
    return tuple((name, said) for name, value, said in rows if value is not None)


def _tokens(count: int | None) -> str:
    return NOT_AVAILABLE if count is None else f"{format_count(count)} tokens"


def _setting_rows(flags: Mapping[str, str | int | bool | None]) -> Rows:
    return tuple((f"setting {clean(name)}", _setting(value)) for name, value in flags.items() if value is not None)


def _setting(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return yes_or_no(value)
    is_path = isinstance(value, str) and (PurePath(value).is_absolute() or PureWindowsPath(value).is_absolute())
    return file_name(str(value)) if is_path else clean(value)


def machine_rows(result: VerifyResult) -> Rows:
    """The machine whose ceilings were used."""
    machine = result.machine
    rows = (
        ("machine", clean(machine.name)),
        ("memory", format_bytes_binary(machine.memory_bytes)),
        ("bandwidth", format_si(result.ceiling.bandwidth_bytes_per_s, "B/s")),
        ("compute peak", format_si(result.ceiling.peak_flops_per_s, "FLOP/s")),
        ("compute format", _or_not_available(result.ceiling.compute_format)),
        ("ridge", f"{format_number(result.ceiling.ridge_flops_per_byte)} FLOP/byte"),
        ("source", f"{clean(machine.source)}, {machine.origin}"),
        *((("note", clean(machine.note)),) if machine.note else ()),
    )
    if result.probe is None:
        return rows
    gpu = () if result.probe.gpu is None else _gpu_rows(result.probe.gpu)
    return (*rows, ("method", clean(result.probe.method)), *_processor_rows(result.probe.identity), *gpu)


def _processor_rows(machine: MachineIdentity) -> Rows:
    cores = (
        f"{format_count(machine.num_usable_cores)} usable, {format_count(machine.num_physical_cores)} physical, "
        f"{format_count(machine.num_logical_cores)} logical"
    )
    libraries = ", ".join(
        f"{item.name} {item.version or ''} {item.architecture or ''}, {item.num_threads} threads"
        for item in machine.blas
    )
    return (
        ("processor", _or_not_available(machine.cpu_model)),
        ("cores", cores),
        ("last-level cache", format_bytes_binary(machine.last_level_cache_bytes)),
        (
            "system memory",
            f"{format_bytes_binary(machine.memory_bytes)}, {format_bytes_binary(machine.available_memory_bytes)} free",
        ),
        ("system", clean(machine.system)),
        ("matrix library", clean(libraries) or NOT_AVAILABLE),
        ("load when probed", format_number(machine.load_average_1min)),
        *((clean(name), clean(value)) for name, value in machine.blas_environment.items()),
    )


def _gpu_rows(gpu: GPUIdentity) -> Rows:
    return (
        ("graphics card", clean(gpu.name)),
        ("card memory", format_bytes(gpu.memory_bytes)),
        ("driver", _or_not_available(gpu.driver_version)),
    )


def client_rows(result: VerifyResult) -> Rows:
    """Evidence that the client was not what was measured."""
    client = result.client
    waits = [group.metrics.ttft_s.p50 for group in result.groups if group.metrics.ttft_s is not None]
    gaps = [group.metrics.chunk_gap_s.p50 for group in result.groups if group.metrics.chunk_gap_s is not None]
    return (
        ("send delay, p99", _beside(client.send_delay_p99_s, min(waits, default=None), "median TTFT")),
        ("event loop lag, p99", _beside(client.loop_lag_p99_s, min(waits, default=None), "median TTFT")),
        (
            "TTFT against a server that does nothing",
            _beside(client.floor_ttft_s, min(waits, default=None), "median TTFT"),
        ),
        (
            "processor time a chunk costs the client",
            _beside(client.floor_chunk_cpu_s, min(gaps, default=None), "median gap"),
        ),
        *_cpu_rows(client.cpu),
    )


def _cpu_rows(cpu: CpuShares | None) -> Rows:
    """The processor time of client and engine, as shares of all cores; it is subtracted from nothing."""
    if cpu is None:
        return ()
    of_all = f"of {format_count(cpu.num_cores)} core(s) over {format_seconds(cpu.wall_s)}"
    engine = (
        "not known: its process is not ours"
        if cpu.engine_cpu_s is None
        else f"{format_seconds(cpu.engine_cpu_s)}, {format_fraction(cpu.engine_share)} {of_all}"
    )
    return (
        (
            "processor time of this client",
            f"{format_seconds(cpu.client_cpu_s)}, {format_fraction(cpu.client_share)} {of_all}",
        ),
        ("processor time of the engine", engine),
        ("subtracted from what was measured", "nothing"),
    )


def _beside(seconds: float | None, smallest_s: float | None, of_what: str) -> str:
    """A time of the client's own and its share of the smallest time it could have disturbed."""
    if seconds is None or not smallest_s:
        return format_seconds(seconds)
    return f"{format_seconds(seconds)}, {format_fraction(seconds / smallest_s)} of the smallest {of_what}"
