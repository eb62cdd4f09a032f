"""A verification as it comes out of a real run, built without one: SmolLM2-135M Q4_1 on a two-core machine.

The model's numbers are the published ones; times are chosen, so that every share of a ceiling is known beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from inference_bench.accounting.cache import CacheFormat, count_cache
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import HeadPositions, count_step_work, decode_batch, prompt
from inference_bench.compare import ComparedPoint, MeasuredPoint, Phase, batch_lines, compare_point, read_gap
from inference_bench.engines.base import Buffer, EngineFigures, EngineIdentity, KVBuffer, KVCacheKind, PrintedSize
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import Attention, FeedForward, Layer, ModelSpec
from inference_bench.facts.source import Source
from inference_bench.measure.ceilings import (
    BandwidthRow,
    Circumstances,
    Movement,
    ProbeResult,
    bandwidth_row,
    conclude,
    product_row,
)
from inference_bench.measure.machine_identity import BlasLibrary, MachineIdentity
from inference_bench.measure.timing import RawTiming
from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.roofline import Roof, bound_step
from inference_bench.stats import Interval
from inference_bench.verify.result import (
    CacheCheck,
    ClientNumbers,
    CurvePoint,
    GroupMetrics,
    ModelIdentity,
    VerifyResult,
)

FP16 = CacheFormat(number_format("fp16"), number_format("fp16"))
BANDWIDTH = 20.5e9
PEAK = 174e9
CONTEXTS = (128, 1024)
BATCHES = (1, 2, 4)
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SHARES = {  # of the ceiling, by phase, batch and context
    (Phase.DECODE, 1, 128): 0.62,
    (Phase.DECODE, 2, 128): 0.48,
    (Phase.DECODE, 4, 128): 0.31,
    (Phase.DECODE, 1, 1024): 0.55,
    (Phase.DECODE, 2, 1024): 0.39,
    (Phase.DECODE, 4, 1024): 0.27,
    (Phase.PREFILL, 1, 128): 0.71,
    (Phase.PREFILL, 1, 1024): 0.83,
}
SCRIPT = "<script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)> & 'more'"
CHINESE = "通义千问-超大规模语言模型"
ESCAPE = "red \x1b[31m and \u202egnp.exe"
LONG = "a-model-name-that-never-ends-" * 12


def smollm2(name: str = "SmolLM2-135M-Instruct.Q4_1") -> ModelSpec:
    layer = Layer((Attention(9, 3, 64),), FeedForward(1536), norm_params=2 * 576)
    return ModelSpec(
        name=name,
        model_type="llama",
        hidden_size=576,
        vocab_size=49152,
        num_key_value_heads=3,
        head_dim=64,
        layers=(layer,) * 30,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        final_norm_params=576,
        source=Source("GGUF header", "2026-11-29"),
    )


def hybrid(name: str = "Hybrid-5-to-1") -> ModelSpec:
    """Five sliding layers for each full one, where the usual cache formula is far off."""
    full = Layer((Attention(9, 3, 64),), FeedForward(1536), norm_params=2 * 576)
    sliding = Layer((Attention(9, 3, 64, sliding_window=512),), FeedForward(1536), norm_params=2 * 576)
    return replace(smollm2(name), layers=(*(sliding,) * 5, full) * 5)


def weights() -> WeightCount:
    return WeightCount(
        embedding=30_081_024,
        head=0,
        attention=16_588_800,
        feed_forward=49_766_400,
        norm=140_544,
        other=0,
        embedding_row=612,
        tied=True,
        format_name="q4_1 + q8_0 + fp32",
        linear_format=number_format("q4_1"),
        origin=Origin.COUNTED,
        num_values=134_515_008,
    )


def timing(median_s: float) -> RawTiming:
    return RawTiming(tuple(median_s * factor for factor in (0.97, 0.99, 1.0, 1.01, 1.06)), (median_s * 1.4,), 1)


def identity(cpu_model: str = "AMD EPYC 7B13") -> MachineIdentity:
    return MachineIdentity(
        system="Linux-6.1-x86_64",
        architecture="x86_64",
        cpu_model=cpu_model,
        num_physical_cores=2,
        num_logical_cores=2,
        num_usable_cores=2,
        cpu_quota_cores=None,
        last_level_cache_bytes=32 << 20,
        memory_bytes=16 << 30,
        available_memory_bytes=11 << 30,
        python="CPython 3.11.7",
        numpy_version="2.4.6",
        blas=(BlasLibrary("openblas", "0.3.30", "Zen", 2, "pthreads"),),
        blas_environment={"OMP_NUM_THREADS": "2"},
        load_average_1min=0.4,
    )


def probe(cpu_model: str = "AMD EPYC 7B13") -> ProbeResult:
    """Products whose rate follows the roof at 80 % and reaches the peak; a read, and a copy that is slower."""
    ceiling = Roof(BANDWIDTH, PEAK, "fp32")
    rows = []
    for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        at_roof = product_row(8192, batch, 4, timing(1.0))
        rate = ceiling.attainable_flops_per_s(at_roof.intensity_flops_per_byte) or 1.0
        share = 1.0 if batch == 512 else 0.8
        rows.append(product_row(8192, batch, 4, timing(at_roof.counted_flops / rate / share)))
    moved = 1 << 30
    movements: list[BandwidthRow] = [
        bandwidth_row(Movement("dot", "read one array of 1 GiB", moved, True, 2), timing(moved / BANDWIDTH), 32 << 20),
        bandwidth_row(Movement("copy", "read and write", moved, False, 2), timing(moved / 14.2e9), 32 << 20),
    ]
    notes = ("the product rate was still rising at B = 512: the peak of larger products is higher",)
    how = Circumstances("fp32", 8192, identity(cpu_model), None, "NumPy float32 products, OpenBLAS", notes, 0, 21.4)
    return conclude(rows, movements, how)


def work_of(model: ModelSpec, phase: Phase, batch: int, context: int) -> Any:
    steps = prompt(context) if phase is Phase.PREFILL else decode_batch(context, batch)
    return count_step_work(model, weights(), FP16, steps, HeadPositions.LAST)


def point(model: ModelSpec, ceiling: Roof, key: tuple[Phase, int, int], share: float) -> ComparedPoint:
    """One point that took its bound over `share`; of 10 ms where there is no bound."""
    phase, batch, nominal = key
    context = nominal + 16 if phase is Phase.DECODE else nominal
    work = work_of(model, phase, batch, context)
    limit = bound_step(phase, work, ceiling).seconds
    seconds = 0.01 if limit is None else limit / share
    samples, interval = (248, Interval(seconds * 0.98, seconds * 1.03, 0.95)) if batch > 1 else (5, None)
    measured = MeasuredPoint(phase, batch, context, nominal, seconds, samples, interval, 0.021, seconds * 0.97)
    return compare_point(measured, work, ceiling)


def curve(model: ModelSpec, ceiling: Roof) -> tuple[CurvePoint, ...]:
    found = []
    for context in CONTEXTS:
        for batch in (1, 2, 4, 8, 16):
            step_s = bound_step("decode", work_of(model, Phase.DECODE, batch, context), ceiling).seconds
            if step_s is not None:
                found.append(CurvePoint(context, batch, step_s, batch / step_s))
    return tuple(found)


def record(index: int, step_s: float, status: RequestStatus = RequestStatus.COMPLETED) -> RequestRecord:
    ttft_s, started_s = 0.12 * (1 + 0.03 * (index % 7)), index * 1.5
    times = tuple(started_s + ttft_s + step_s * (1 + 0.01 * (index % 3)) * token for token in range(32))
    is_done = status is RequestStatus.COMPLETED
    return RequestRecord(
        request_id=f"r{index}",
        origin=Origin.MEASURED,
        stage=Stage.MEASURE,
        status=status,
        planned_s=started_s,
        sent_s=started_s + 0.0004,
        end_s=times[-1] + 0.001,
        chunk_times_s=times if is_done else (),
        prompt_tokens=128,
        output_tokens=32 if is_done else None,
        token_count_source=TokenCountSource.SERVER_USAGE,
    )


def group(name: str, concurrency: int, step_s: float, num_failed: int = 0) -> GroupMetrics:
    records = [record(index, step_s) for index in range(12)]
    records += [record(12 + index, step_s, RequestStatus.FAILED) for index in range(num_failed)]
    done = [item for item in records if item.chunk_times_s]
    return GroupMetrics(
        name=name,
        concurrency=concurrency,
        prompt_tokens=128,
        output_tokens=32,
        metrics=summarise(records),
        ttft_s=tuple(item.chunk_times_s[0] - item.planned_s for item in done),
        e2e_s=tuple(item.chunk_times_s[-1] - item.planned_s for item in done),
        gaps_s=(),
    )


def failed_group(name: str) -> GroupMetrics:
    """Nothing completed: every figure that needs a sample is missing."""
    records = [record(index, 0.01, RequestStatus.FAILED) for index in range(3)]
    return GroupMetrics(name, 8, 128, 32, summarise(records), (), (), ())


def figures() -> EngineFigures:
    size = PrintedSize("90.00")
    return EngineFigures(
        context_tokens_total=4096,
        context_tokens_per_slot=1024,
        num_slots=4,
        kv_unified=False,
        flash_attention=True,
        n_ctx_train=8192,
        num_params=134_515_008,
        model_bytes=96_576_768,
        kv_buffers=(KVBuffer(KVCacheKind.FULL, 1024, 30, 4, 4, "f16", "f16", size),),
        compute_buffers=(Buffer("CPU", PrintedSize("101.13")),),
        read_from={"kv_buffers": "log: llama_kv_cache: size", "num_slots": "/props total_slots"},
    )


def sample_result(model: ModelSpec | None = None) -> VerifyResult:
    """A whole run with nothing missing."""
    spec = model or smollm2()
    ceiling = Roof(BANDWIDTH, PEAK, "fp32")
    points = tuple(point(spec, ceiling, key, share) for key, share in SHARES.items())
    cache = count_cache(spec, FP16, 1024, 4)
    rule = "llama.cpp rounds the cells of each of 4 stream(s) up to 256"
    check = CacheCheck("90.00 MiB", 4096, cache.num_bytes, 4096, cache.num_bytes, True, rule)
    return VerifyResult(
        started_at="2026-11-29T21:04:11Z",
        elapsed_s=171.2,
        target="http://127.0.0.1:40123",
        probe=probe(),
        machine=HardwareSpec(
            "AMD EPYC 7B13, 2 cores",
            16 << 30,
            BANDWIDTH,
            {"fp32": PEAK},
            Source("measured here", "2026-11-29"),
            Origin.MEASURED,
        ),
        ceiling=ceiling,
        model=ModelIdentity(spec, count_params(spec), weights(), "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, SHA256),
        engine=EngineIdentity(
            name="llama.cpp",
            source="started by this program",
            version="xllamacpp 2026.10.11549",
            build="b6920-a1b2c3d",
            model_name="SmolLM2-135M-Instruct.Q4_1",
            model_path="/home/ada/.cache/inference-bench/SmolLM2-135M-Instruct.Q4_1.gguf",
            model_sha256=SHA256,
            flags={"num_threads": 2, "cache_type_k": "f16", "mlock": False, "lora": None},
        ),
        figures=figures(),
        cache_check=check,
        points=points,
        curve=curve(spec, ceiling),
        batch_lines=batch_lines(points, ceiling),
        groups=(group("decode-1-128", 1, 0.011), group("decode-2-128", 2, 0.016), group("decode-4-128", 4, 0.031)),
        client=ClientNumbers(0.0006, 0.0011, 0.0009, 0.00006),
        reading=read_gap(points, ceiling),
        assumptions=(
            "bytes are counted, not read from hardware counters: each weight once a step, the cache attended and added",
            "the output head is computed for the last prompt position only",
        ),
        notes=("the engine ran on 2 threads",),
        run_dir=Path("/home/ada/runs/2026-11-29-210411"),
        manifest_sha256="9f" * 32,
        versions={"inference-bench": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
        seed=0,
    )


def with_findings() -> VerifyResult:
    """One point above its ceiling, and requests that failed."""
    result = sample_result()
    fast = point(smollm2(), result.ceiling, (Phase.DECODE, 8, 128), 1.34)
    points = (*result.points, fast)
    groups = (*result.groups, group("decode-4-128b", 4, 0.029, num_failed=2), failed_group("decode-8-128"))
    return replace(result, points=points, groups=groups, reading=read_gap(points, result.ceiling))


def bare_result() -> VerifyResult:
    """A foreign server: no probe, no peak, no file, no engine figures, no samples of the client, one point."""
    result = sample_result()
    ceiling = Roof(BANDWIDTH, None, None)
    points = (point(smollm2(), ceiling, (Phase.DECODE, 1, 128), 0.5),)
    machine = HardwareSpec("some machine", None, BANDWIDTH, {}, Source("datasheet", "2026-01-02"))
    return replace(
        result,
        probe=None,
        machine=machine,
        ceiling=ceiling,
        model=replace(result.model, file_name=None, file_bytes=None, sha256=None),
        engine=EngineIdentity(name=None, source="reported by the server"),
        figures=EngineFigures(),
        cache_check=None,
        points=points,
        curve=(),
        batch_lines=(),
        groups=(failed_group("only"),),
        client=ClientNumbers(None, None, None, None),
        reading=read_gap(points, ceiling),
        notes=(),
        versions={},
    )


def no_ceiling_result() -> VerifyResult:
    """Neither bandwidth nor peak is known."""
    ceiling = Roof(None, None, None)
    points = tuple(point(smollm2(), ceiling, key, share) for key, share in SHARES.items())
    return replace(bare_result(), ceiling=ceiling, points=points, reading=read_gap(points, ceiling))


def hostile_result() -> VerifyResult:
    """Every text that comes from outside tries to break out of its place."""
    result = with_findings()
    engine = replace(
        result.engine,
        name=SCRIPT,
        version=QUOTES,
        build=ESCAPE,
        model_name=LONG,
        model_path=f"/home/ada/{SCRIPT}",
        flags={SCRIPT: QUOTES, "path": "/Users/ada/secret/model.gguf"},
    )
    check = result.cache_check
    return replace(
        result,
        target=f"http://127.0.0.1:1/{SCRIPT}",
        probe=probe(f"{CHINESE} {SCRIPT}"),
        machine=replace(result.machine, name=f"{SCRIPT} {CHINESE}", source=Source(QUOTES, ESCAPE), note=SCRIPT),
        model=replace(result.model, spec=smollm2(f"{SCRIPT}{CHINESE}{LONG}"), file_name=f"{QUOTES}.gguf"),
        engine=engine,
        figures=replace(result.figures, read_from={SCRIPT: QUOTES}),
        cache_check=None if check is None else replace(check, printed=SCRIPT, rule=QUOTES),
        groups=tuple(replace(item, name=f"{SCRIPT}{CHINESE}{LONG}") for item in result.groups),
        reading=(SCRIPT, *result.reading),
        assumptions=(QUOTES,),
        notes=(f"{ESCAPE} in /home/ada/.cache/x", LONG),
        versions={SCRIPT: QUOTES},
    )
