"""What did a real file of another format really buy, and what did it cost? Served by the engine, scored token by token.

In:   a QuantiseBench whose model came from a GGUF file, the session
Out:  a GgufRow for each format: bytes, perplexity by the engine's own kernels, decode speed beside what the bytes predict
Leaves out: a model that did not come from a GGUF file: there is nothing to write others from
Read next by: flow.

Three perplexities stand beside one another for the very same tokens: of the float32 weights in PyTorch; of the file's weights in PyTorch,
which is what rounding the weights costs; and by the engine, whose kernels also round the activations. Decode speed is the fastest of
several runs, which other programs disturb least. The gain is over the file of 16-bit floats; predicted is the ratio of bytes that a step
must read.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.work import count_step_work, decode_batch
from inference_bench.convert.plan import ConversionSource, read_source
from inference_bench.engines.answers import ask_server
from inference_bench.engines.base import LLAMA_CPP
from inference_bench.engines.model_files import ModelFiles
from inference_bench.engines.start import EngineSettings, start_engine
from inference_bench.errors import (
    MissingExtraError,
    ModelFileError,
    ServerError,
    StorageError,
)
from inference_bench.facts.formats import number_format
from inference_bench.labs.checks import Check
from inference_bench.labs.perplexity import Perplexity, measure_perplexity
from inference_bench.labs.quantise.engine_quants import engine_quantiser
from inference_bench.labs.quantise.engine_scores import PROMPT_TOKENS, decode_speed, engine_perplexity
from inference_bench.labs.quantise.gguf_files import EngineFile, file_matrices, weights_in_file, write_engine_file
from inference_bench.labs.quantise.hessians import calibration_inputs, calibration_windows
from inference_bench.labs.quantise.linears import linear_layers, weights_replaced
from inference_bench.labs.quantise.methods import QuantiseBench
from inference_bench.labs.quantise.result import GgufRow
from inference_bench.labs.session import LabSession
from inference_bench.labs.windows import Windows
from inference_bench.measure.target import Target
from inference_bench.units import format_fraction, format_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BASELINE: Final = "f16"
QUICK_FORMATS: Final = (BASELINE, "q4_0")
FORMATS: Final = (BASELINE, "q8_0", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4")
WEIGHED: Final = ("q4_0",)
_ANSWER_S: Final = 60.0
_SPARE_TOKENS: Final = 16
_QUICK_TOKENS: Final = 128
_LOG_IN_ERROR: Final = "; log: "  # which is gone with the folder
_LINES_BETWEEN: Final = 24
_BASELINE_ALLOWED, _MILD_ALLOWED = 0.02, 0.05


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is scored and timed, the same for every file."""

    windows: Windows
    decode_tokens: int
    num_runs: int
    num_threads: int
    float32: Perplexity

    @property
    def context_tokens(self) -> int:
        """Positions that a server needs."""
        return max(self.windows.window_tokens, PROMPT_TOKENS + self.decode_tokens) + _SPARE_TOKENS

    @property
    def mean_context(self) -> int:
        """Positions that the middle decode step of a timed run attends."""
        return PROMPT_TOKENS + self.decode_tokens // 2


@dataclass(frozen=True, slots=True)
class _Found:
    """A file's row before its gains, and the bytes that predict them."""

    row: GgufRow
    step_bytes: int


def measure_gguf(bench: QuantiseBench, session: LabSession) -> tuple[GgufRow, ...]:
    """Every format's file, written, served, scored and taken away again.

    Where:   empty, and said in left_out, where the model did not come from a GGUF file, there is no engine, or it does not serve the
             file of 16-bit floats; a row less for another format that it does not serve
    Raises:  StorageError; MeasurementError where the engine answers for another token than it was asked about
    """
    reason = _why_not(bench)
    if reason is not None:
        session.left_out.append(f"files served by the engine: {reason}")
        return ()
    source = read_source(bench.model.subject.gguf or Path())
    plan = _plan(bench, session.num_threads)
    if bench.is_quick:
        session.left_out.append(
            f"files other than {' and '.join(QUICK_FORMATS)}, columns weighed by importance, more than {_QUICK_TOKENS} tokens, more than "
            "one thread of the engine, and the files' weights in PyTorch"
        )
    found: list[_Found] = []
    with _scratch() as folder:
        for fmt, importance in _wanted(bench, source):
            try:
                found.append(_measured(fmt, source, bench, session, plan, folder, importance))
            except (ServerError, ModelFileError) as error:
                session.left_out.append(f"the file in {fmt}: {str(error).partition(_LOG_IN_ERROR)[0]}")
                if fmt == BASELINE:
                    session.left_out.append("files served by the engine: there is none to compare the others with")
                    return ()
    return with_gains(found)


def _why_not(bench: QuantiseBench) -> str | None:
    """What stands in the way of any file at all."""
    if bench.model.subject.gguf is None:
        return "the model did not come from a .gguf file, of which others could be made"
    try:
        engine_quantiser()
    except MissingExtraError as error:
        return str(error)
    return None


def _plan(bench: QuantiseBench, num_threads: int) -> _Plan:
    """The first window: a short part of it and one thread in quick mode, which another program's load disturbs least."""
    windows, is_quick = bench.evaluation, bench.is_quick
    size = min(windows.window_tokens, _QUICK_TOKENS) if is_quick else windows.window_tokens
    chosen = Windows(windows.start, size, (windows.ids[0][:size],))
    bench.say("scoring the same tokens with the float32 weights")
    float32 = measure_perplexity(bench.model.network, chosen)
    if is_quick:
        return _Plan(chosen, 24, 3, 1, float32)
    return _Plan(chosen, 64, 3, num_threads, float32)


def _wanted(
    bench: QuantiseBench, source: ConversionSource
) -> list[tuple[str, Mapping[str, NDArray[np.float32]] | None]]:
    """Formats in order, and in full mode some once more with the columns weighed by the calibration text."""
    if bench.is_quick:
        return [(fmt, None) for fmt in QUICK_FORMATS]
    importance = column_importance(bench, source)
    return [*((fmt, None) for fmt in FORMATS), *((fmt, importance) for fmt in WEIGHED)]


def column_importance(bench: QuantiseBench, source: ConversionSource) -> dict[str, NDArray[np.float32]]:
    """Mean x² of each column of each matrix, by the names that a GGUF file has for them."""
    windows = calibration_windows(bench.calibration, bench.is_quick)
    matrices = file_matrices(source)
    return {
        matrices[name].stored.name: each.mean_square.numpy()
        for each in calibration_inputs(bench.model.network, windows, bench.say)
        for name in each.names
    }


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever happens.

    Raises:  StorageError
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="inference-bench-gguf-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(
            f"no folder for model files can be made: {error.strerror or error}; free some space"
        ) from error
    with folder as path:
        yield Path(path)


def _measured(
    fmt: str,
    source: ConversionSource,
    bench: QuantiseBench,
    session: LabSession,
    plan: _Plan,
    folder: Path,
    importance: Mapping[str, NDArray[np.float32]] | None,
) -> _Found:
    """One file from its writing to its row; the file is removed, so that one at a time takes space."""
    name = f"{fmt}, columns weighed" if importance else fmt
    say = now_and_then(session.say, f"writing {name}: ")
    file = write_engine_file(source, fmt, folder, say, importance, session.num_threads)
    try:
        weights_perplexity = None if bench.is_quick else _weights_perplexity(file, bench, plan)
        scored, speed = _served(file, name, folder, session, plan)
    finally:
        file.path.unlink(missing_ok=True)
    row = GgufRow(
        format=name,
        file_bytes=file.num_bytes,
        tensor_bytes=file.tensor_bytes,
        perplexity=scored.value,
        weights_perplexity=weights_perplexity,
        float32_perplexity_same_tokens=plan.float32.value,
        scored_tokens=scored.scored_tokens,
        decode_tokens_per_s=speed,
    )
    return _Found(row, step_bytes(file, source, plan.mean_context))


def now_and_then(say: Callable[[str], None], before: str) -> Callable[[str], None]:
    """The first of every so many lines, since there is one a tensor."""
    count = itertools.count()

    def some(line: str) -> None:
        if next(count) % _LINES_BETWEEN == 0:
            say(before + line)

    return some


def _weights_perplexity(file: EngineFile, bench: QuantiseBench, plan: _Plan) -> float:
    """The file's matrices read back and computed in PyTorch, over the same tokens."""
    layers = linear_layers(bench.model.network)
    say = now_and_then(bench.say, f"reading {file.format} back into PyTorch: ")
    weights = weights_in_file(file.path, {name: layer.weight.data for name, layer in layers.items()}, say)
    with weights_replaced(bench.model.network, weights):
        return measure_perplexity(bench.model.network, plan.windows, bench.say).value


def _served(file: EngineFile, name: str, folder: Path, session: LabSession, plan: _Plan) -> tuple[Perplexity, float]:
    """Perplexity and decode speed by a server that runs for as long as this takes."""
    session.say(f"serving {name}")
    settings = EngineSettings(context_tokens=plan.context_tokens, num_slots=1, num_threads=plan.num_threads)
    known = ModelFiles({file.path.name: file.sha256}, file.sha256)
    log = folder / f"{file.path.stem}.log"
    with start_engine(LLAMA_CPP, file.path, settings, log_path=log, progress=session.say, model_files=known) as server:
        target = Target(server.base_url)

        def ask(body: Mapping[str, Any]) -> Any:
            return ask_server(target, "/completion", _ANSWER_S, dict(body))

        session.say(f"{name}: timing {plan.num_runs} runs of {plan.decode_tokens} tokens")
        speed = decode_speed(ask, plan.windows.ids[0], plan.decode_tokens, plan.num_runs)
        return engine_perplexity(ask, plan.windows, lambda line: session.say(f"{name}: {line}")), speed


def step_bytes(file: EngineFile, source: ConversionSource, context_tokens: int) -> int:
    """Bytes that a decode step of one sequence must move, with the cache in 16 bits as the engine keeps it."""
    half = number_format("fp16")
    step = count_step_work(source.model.spec, file.counted, CacheFormat(half, half), decode_batch(context_tokens, 1))
    return round(step.num_bytes)


def with_gains(found: Sequence[_Found]) -> tuple[GgufRow, ...]:
    """The rows with both gains over the first, which is the file of 16-bit floats.

    Formula:  predicted: bytes of its step / bytes of this one's, since one sequence's step is bound by memory; measured: this one's
              tokens/s / its tokens/s
    """
    base = found[0]
    return tuple(
        replace(
            each.row,
            predicted_gain=base.step_bytes / each.step_bytes,
            measured_gain=(each.row.decode_tokens_per_s or 0.0) / (base.row.decode_tokens_per_s or 1.0),
        )
        for each in found
    )


def gguf_checks(rows: Sequence[GgufRow]) -> tuple[Check, ...]:
    """What must hold for the files' figures to mean anything: where the weights hardly change, neither may the perplexity.

    Where:   16-bit floats may move it by 2 %, q8_0 by 5 %: a wrong tokenizer, window or format moves it far more
    """
    allowed = {BASELINE: _BASELINE_ALLOWED, "q8_0": _MILD_ALLOWED}
    return tuple(
        _near(f"{row.format} by the engine has the perplexity of float32 by PyTorch", row, allowed[row.format])
        for row in rows
        if row.format in allowed
    )


def _near(name: str, row: GgufRow, allowed: float) -> Check:
    found, exact, within = row.perplexity, row.float32_perplexity_same_tokens, f"within {format_fraction(allowed, 2)}"
    if found is None or exact is None:
        return Check(name, False, "no perplexity", within)
    off = abs(found / exact - 1)
    said = f"{format_number(found, 5)} against {format_number(exact, 5)}, {format_fraction(off, 2)} apart"
    return Check(name, off <= allowed, said, within)
