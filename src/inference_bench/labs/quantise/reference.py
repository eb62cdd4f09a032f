"""Do the published settings give the published perplexities here?

In:   the hub's copy of SmolLM2-135M at its pinned commit, and WikiText-2
Out:  ReferenceRows, or why there are none
Leaves out: the lab's own model and text (flow)
Read next by: flow.

What the published figures leave open, and what is done: the first 8 windows of 512 tokens of the test text, its rows joined by an empty
line; every linear layer but the head; for W8A8, activations by one scale a layer from the 8 windows after those; SmoothQuant before
every linear layer. Scales of weights are rounded to float16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import DownloadError, MissingExtraError, ModelFileError, RequestError, StorageError
from inference_bench.labs.hub_folder import SMOLLM2_135M, SMOLLM2_135M_REVISION
from inference_bench.labs.model import LabModel, load_model
from inference_bench.labs.perplexity import measure_perplexity
from inference_bench.labs.quantise.activations import watch_inputs
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import ReferenceRow
from inference_bench.labs.quantise.rtn import Grid
from inference_bench.labs.quantise.scoring import score_method
from inference_bench.labs.quantise.smoothquant import smoothquant_method
from inference_bench.labs.quantise.w8a8 import STATIC, w8a8_method
from inference_bench.labs.quantise.weight_methods import rounding_method
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.subject import find_subject
from inference_bench.labs.text import wikitext2_test
from inference_bench.labs.windows import cut_windows

SOURCE: Final = "the project's specification, known answers"
_WINDOWS: Final = 8
_GROUP: Final = 64
_CLOSE: Final = 0.01  # weights alone: what is left open is the last digits of a scale
_LOOSE: Final = 0.3  # activations: what they were calibrated on is left open


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A perplexity of SOURCE, and how near ours should come."""

    name: str
    perplexity: float
    tolerance_fraction: float


FLOAT32: Final = KnownAnswer("float32", 20.8462, 0.002)
KNOWN: Final = (
    FLOAT32,
    KnownAnswer("int8 matrix", 21.6252, _CLOSE),
    KnownAnswer("int8 channel", 20.9937, _CLOSE),
    KnownAnswer("int4 channel", 46.2519, _CLOSE),
    KnownAnswer("int4 group 64", 29.1763, _CLOSE),
    KnownAnswer("int4 group 64 zero", 27.1402, _CLOSE),
    KnownAnswer("W8A8 static", 40.8337, _LOOSE),
    KnownAnswer("SmoothQuant 0.5 static", 26.2966, _LOOSE),
    KnownAnswer("SmoothQuant 0.8 static", 23.6349, _LOOSE),
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What came of it; note says what it was run on, or why it was not."""

    rows: tuple[ReferenceRow, ...]
    note: str | None


def run_reference(session: LabSession) -> Reference:
    """Rerun the published settings where the hub is reached; the published figures alone, and why, where it is not."""
    try:
        bench, note = _bench(session)
    except (DownloadError, MissingExtraError, ModelFileError, StorageError, RequestError) as error:
        unmeasured = tuple(
            ReferenceRow(each.name, each.perplexity, None, None, each.tolerance_fraction) for each in KNOWN
        )
        return Reference(unmeasured, f"the published settings were not rerun: {error}")
    return Reference(tuple(_rows(bench)), note)


def _bench(session: LabSession) -> tuple[QuantiseBench, str]:
    """The published model and text.

    Raises:  DownloadError and its kin where one of them is not to be had
    """
    text = wikitext2_test(session.say)
    own = LabSession(
        session.lab,
        session.question,
        LabSettings(SMOLLM2_135M, SMOLLM2_135M_REVISION, num_threads=session.settings.num_threads),
        session.progress,
        machine=session.machine,
    )
    model = load_model(find_subject(own), say=session.say)
    return reference_bench(model, text.text, session), f"{SMOLLM2_135M} at {SMOLLM2_135M_REVISION[:12]} on {text.name}"


def reference_bench(model: LabModel, text: str, session: LabSession) -> QuantiseBench:
    """The first windows judge, those after them calibrate."""
    ids = model.encode(text)
    evaluation = cut_windows(ids, _WINDOWS)
    return QuantiseBench(model, cut_windows(ids, _WINDOWS, evaluation.end), evaluation, _GROUP, session.say, False)


def _rows(bench: QuantiseBench) -> Iterator[ReferenceRow]:
    network = bench.model.network
    plain = measure_perplexity(network, bench.evaluation, bench.say)
    yield reference_row(FLOAT32, plain.value)
    known = {each.name: each for each in KNOWN}
    for method in _methods(bench):
        yield reference_row(known[method.name], score_method(bench, method, plain, None).perplexity)


def _methods(bench: QuantiseBench) -> Iterator[Method]:
    network = bench.model.network
    for grid in (Grid(8, 0), Grid(8), Grid(4), Grid(4, _GROUP), Grid(4, _GROUP, symmetric=False)):
        yield rounding_method(network, grid)
    inputs = watch_inputs(network, bench.calibration, bench.say)
    yield w8a8_method(network, inputs, STATIC)
    yield from (smoothquant_method(network, inputs, strength, STATIC) for strength in (0.5, 0.8))


def reference_row(known: KnownAnswer, ours: float) -> ReferenceRow:
    """One published figure beside ours."""
    return ReferenceRow(known.name, known.perplexity, ours, ours / known.perplexity - 1, known.tolerance_fraction)
