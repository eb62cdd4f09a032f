"""The quantise lab from its request to its result.

In:   QuantiseRequest
Out:  QuantiseResult
Leaves out: each method (its own module), real files (gguf_quality)
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inference_bench.convert.plan import read_source
from inference_bench.errors import RequestError
from inference_bench.labs.checks import Check
from inference_bench.labs.model import LabModel, load_model, require_packages
from inference_bench.labs.perplexity import Perplexity, measure_perplexity
from inference_bench.labs.quantise import proof
from inference_bench.labs.quantise.activations import Inputs, watch_inputs
from inference_bench.labs.quantise.awq import awq_methods
from inference_bench.labs.quantise.formats import format_rows
from inference_bench.labs.quantise.gguf_files import stored_format
from inference_bench.labs.quantise.gguf_quality import gguf_checks, measure_gguf
from inference_bench.labs.quantise.gptq import gptq_methods
from inference_bench.labs.quantise.kv_cache import kv_methods
from inference_bench.labs.quantise.linears import linear_layers, network_sha256
from inference_bench.labs.quantise.llm_int8 import llm_int8_methods
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.mixed import mixed_methods
from inference_bench.labs.quantise.outliers import outlier_rows
from inference_bench.labs.quantise.reference import Reference, run_reference
from inference_bench.labs.quantise.request import CALIBRATION_WINDOWS, NUM_WINDOWS, QuantiseRequest
from inference_bench.labs.quantise.result import SENSITIVITY, MethodRow, QuantiseResult
from inference_bench.labs.quantise.rtn import Grid, num_groups
from inference_bench.labs.quantise.scoring import LEAST_WINDOWS, method_row, score_method
from inference_bench.labs.quantise.smoothquant import smoothquant_methods
from inference_bench.labs.quantise.task import make_task, score_task
from inference_bench.labs.quantise.w8a8 import w8a8_methods
from inference_bench.labs.quantise.weight_methods import float_methods, plain_method, rounding_methods
from inference_bench.labs.session import LabSession, Progress, computing_threads
from inference_bench.labs.subject import find_subject
from inference_bench.labs.text import LabText, default_text, read_text_file
from inference_bench.labs.windows import Windows, cut_windows, require_disjoint

QUESTION: Final = "What do fewer bits cost in quality, and which way of saving them costs least?"
FAKE: Final = (
    "fake quantisation: values are rounded as they would be stored and multiplied as floats; only the files that the engine served "
    "say anything of speed and memory"
)
KEPT: Final = (
    "embedding, head and norms stay in float32 and are counted so; bits a weight are of the linear layers alone"
)
_SMOOTHED_BY: Final = 0.5  # in the check that smoothing alone changes nothing


def run_lab(request: QuantiseRequest, progress: Progress | None = None) -> QuantiseResult:
    """Every method on the same model and the same windows, then the real files, then what must hold.

    Raises:  RequestError for a text that is too short, windows that overlap, a group that does not divide; what find_subject and
             load_model raise
    """
    session = LabSession("quantise", QUESTION, request.settings, progress)
    require_packages()
    with computing_threads(session.num_threads):
        subject = find_subject(session)
        text, calibration_text = _texts(request, session)
        model = load_model(subject, say=session.say)
        bench, ids = _bench(request, session, model, text, calibration_text)
        return _measured(request, session, bench, ids, text, calibration_text is text)


def _texts(request: QuantiseRequest, session: LabSession) -> tuple[LabText, LabText]:
    """What is judged on, and what is calibrated on; one and the same object where they are one text."""
    text = default_text(session.say) if request.text is None else read_text_file(request.text)
    if text.note:
        session.assumptions.append(text.note)
    if request.calibration_text is None:
        return text, text
    other = read_text_file(request.calibration_text)
    return text, text if other.sha256 == text.sha256 else other


def _bench(
    request: QuantiseRequest, session: LabSession, model: LabModel, text: LabText, calibration_text: LabText
) -> tuple[QuantiseBench, list[int]]:
    """The model with its windows, refused where they overlap, are too long, or a group does not divide; and the tokens of the text."""
    reach = model.spec.max_position_embeddings
    if reach is not None and request.window_tokens > reach:
        raise RequestError(
            f"a window of {request.window_tokens} tokens is longer than the {reach} that {model.spec.name} takes; give at most that"
        )
    ids = model.encode(text.text)
    other = ids if calibration_text is text else model.encode(calibration_text.text)
    size = request.window_tokens
    calibration = cut_windows(other, request.calibration_windows, request.calibration_start, size)
    evaluation = cut_windows(ids, request.windows, request.judged_from, size)
    if other is ids:
        require_disjoint(calibration, evaluation)
    else:
        require_other_windows(calibration, evaluation)
    for columns in sorted({layer.in_features for layer in linear_layers(model.network).values()}):
        num_groups(columns, Grid(4, request.group))
    return QuantiseBench(model, calibration, evaluation, request.group, session.say, request.settings.is_quick), ids


def require_other_windows(calibration: Windows, evaluation: Windows) -> None:
    """Refuse two texts of which windows are the same.

    Raises:  RequestError
    """
    shared = set(calibration.ids) & set(evaluation.ids)
    if shared:
        raise RequestError(
            f"{len(shared)} windows of the text that calibrates stand in the text that judges too; a method may not be judged on what it "
            "was fitted to: give another text"
        )


def _measured(
    request: QuantiseRequest,
    session: LabSession,
    bench: QuantiseBench,
    ids: list[int],
    text: LabText,
    is_one_text: bool,
) -> QuantiseResult:
    network, evaluation = bench.model.network, bench.evaluation
    sha256 = network_sha256(network)
    plain = measure_perplexity(network, evaluation, session.say)
    inputs = watch_inputs(network, bench.calibration, session.say)
    rows = tuple(_rows(request, bench, inputs, plain, ids))
    checks: list[Check] = [
        proof.restored_check(rows, sha256, network_sha256(network)),
        proof.same_loss_check(plain.window_losses[0], _first_loss(network, evaluation)),
        proof.smoothing_check(bench, inputs, _SMOOTHED_BY),
        proof.bits_check(),
        proof.bytes_check(network),
        proof.disjoint_check(bench, is_one_text),
        proof.mild_check(rows, plain.value),
    ]
    gguf = measure_gguf(bench, session)
    checks += gguf_checks(gguf)
    reference = run_reference(session) if request.is_reference else Reference((), None)
    session.assumptions += [FAKE, KEPT]
    if request.settings.is_quick:
        session.left_out += _left_out(request)
    return QuantiseResult(
        head=session.head(),
        checks=tuple(checks),
        text_name=text.name,
        text_source=text.source,
        text_sha256=text.sha256,
        calibration_start_token=bench.calibration.start,
        calibration_tokens=bench.calibration.end - bench.calibration.start,
        evaluation_start_token=evaluation.start,
        num_windows=len(evaluation.ids),
        window_tokens=evaluation.window_tokens,
        scored_tokens=plain.scored_tokens,
        stored_format=_stored_format(bench.model.subject.gguf),
        float32_perplexity=plain.value,
        formats=format_rows(),
        methods=rows,
        gguf=gguf,
        outliers=outlier_rows(inputs),
        references=reference.rows,
        reference_note=reference.note,
    )


def _stored_format(gguf: Path | None) -> str | None:
    """What the weights were before they were read into float32."""
    return None if gguf is None else stored_format(read_source(gguf))


def _first_loss(network: object, windows: Windows) -> float:
    first = Windows(windows.start, windows.window_tokens, windows.ids[:1])
    return measure_perplexity(network, first).window_losses[0]


def _rows(
    request: QuantiseRequest, bench: QuantiseBench, inputs: Inputs, plain: Perplexity, ids: list[int]
) -> Iterator[MethodRow]:
    """Float32, then every method, family by family."""
    network = bench.model.network
    task = make_task(bench.model, ids, request.settings.seed, bench.is_quick)
    yield method_row(network, plain_method(network), plain, plain, score_task(network, task), True)
    for method in _methods(bench, inputs):
        is_asked = method.name in TASK_METHODS if bench.is_quick else method.family != SENSITIVITY
        yield score_method(bench, method, plain, task if is_asked else None)


TASK_METHODS: Final = ("int4 channel",)  # besides float32, what the quick mode asks to copy and to write


def _methods(bench: QuantiseBench, inputs: Inputs) -> Iterator[Method]:
    """One method at a time, so that at most one other set of matrices is held beside the network's own."""
    yield from rounding_methods(bench)
    yield from float_methods(bench)
    yield from w8a8_methods(bench, inputs)
    yield from smoothquant_methods(bench, inputs)
    yield from llm_int8_methods(bench, inputs)
    yield from gptq_methods(bench)
    yield from awq_methods(bench)
    yield from mixed_methods(bench)
    yield from kv_methods(bench)


def _left_out(request: QuantiseRequest) -> list[str]:
    """What the quick mode does not do."""
    return [
        f"{NUM_WINDOWS} windows to judge on and {CALIBRATION_WINDOWS} to calibrate on ({request.windows} and "
        f"{request.calibration_windows} here), and intervals, which need {LEAST_WINDOWS}",
        "int8 by matrix, zero points, groups of 32, 3 and 2 bits, FP8, NVFP4, W8A8 by call and by token, SmoothQuant but for "
        "one, GPTQ and AWQ but for one each, most widths of the cache, and one kind of layer at a time",
        f"copying and JSON but for float32 and {', '.join(TASK_METHODS)}",
    ]
