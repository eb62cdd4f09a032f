"""The batch lab from its request to its result.

In:   BatchRequest
Out:  BatchResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.batch import faults
from inference_bench.labs.batch.agreement import ALLOWED, compare
from inference_bench.labs.batch.breakdown import break_down
from inference_bench.labs.batch.decoding import decode, in_one_pass
from inference_bench.labs.batch.padding import pad_left
from inference_bench.labs.batch.prompts import PROMPTS
from inference_bench.labs.batch.request import BatchRequest
from inference_bench.labs.batch.result import BatchAgreement, BatchResult, DtypeRun, FaultRow, PadRow
from inference_bench.labs.batch.speed import Repeats, measure_point
from inference_bench.labs.checks import Check
from inference_bench.labs.machine.ceilings import busy, measure_ceilings
from inference_bench.labs.machine.result import LabCeilings
from inference_bench.labs.model import LabModel, load_model, require_packages
from inference_bench.labs.session import LabSession, Progress, computing_threads
from inference_bench.labs.settings import FLOAT32, value_bytes
from inference_bench.labs.subject import LabSubject, find_subject
from inference_bench.units import GIGA, format_count, format_number

QUESTION: Final = "What does a batch gain, how far is that from the roofline, and does it change what each prompt gets?"
PADS: Final = (0, 8, 64, 256)
_STEPS: Final = (24, 6)  # full, quick
_PREFILLS: Final = (3, 1)
_SHORT_TOKENS: Final = (16, 5)
_SHORT_BATCH: Final = (16, 8)
_LONG_BATCH: Final = (8, 4)
_PAD_STEPS: Final = 4
_FAULT_BATCH, _FAULT_STEPS = 6, 3
_PROMPT_TOKENS: Final = 128  # no prompt here has so many characters, so it has no more tokens by any tokenizer
_LOGITS_BYTES: Final = GIGA  # kept of the longer run at most
_ONE_BY_ONE: Final = "token by token, with its own cache"
_ONE_PASS: Final = "in one pass over what the batch emitted, without a cache"


@dataclass(slots=True)
class _Lab:
    """A lab under way: what is the same for every part of it, and what was found in float32."""

    request: BatchRequest
    session: LabSession
    ceilings: Mapping[str, LabCeilings]
    lengths: tuple[int, ...] = ()
    pads: tuple[PadRow, ...] = ()
    faults: tuple[FaultRow, ...] = ()
    checks: list[Check] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        """Whether what takes long is left out."""
        return self.request.settings.is_quick


def run_lab(request: BatchRequest, progress: Progress | None = None) -> BatchResult:
    """Speed, where a step's time goes, and agreement, in each number format; padding and planted faults in float32.

    Raises:  what finding and loading the model raises; MeasurementError where memory does not suffice
    """
    require_packages("numpy", "threadpoolctl")
    session = LabSession("batch", QUESTION, request.settings, progress)
    subject = find_subject(session)
    _require_positions(subject, request)
    lab = _Lab(request, session, measure_ceilings(session, request.dtypes))
    with computing_threads(session.num_threads):
        runs = tuple(_run_dtype(lab, load_model(subject, dtype, say=session.say)) for dtype in request.dtypes)
    _say_limits(lab)
    return BatchResult(
        head=session.head(),
        checks=tuple(lab.checks),
        num_prompts=len(PROMPTS),
        prompt_lengths_tokens=lab.lengths,
        allowed_difference=ALLOWED[FLOAT32],
        runs=runs,
        pads=lab.pads,
        faults=lab.faults,
    )


def _run_dtype(lab: _Lab, model: LabModel) -> DtypeRun:
    """Everything in one number format; a second one is shorter in quick mode."""
    session, quick = lab.session, lab.quick
    prompts = [model.encode(text) for text in PROMPTS]
    lab.lengths = tuple(map(len, prompts))
    pad_id = _pad_id(model)
    ceilings = lab.ceilings[model.dtype]
    is_main = model.dtype == lab.request.dtypes[0]
    every = lab.request.batches
    ends = tuple(sorted({every[0], every[-1]}))
    batches = every if is_main or not quick else ends
    repeats = Repeats(_PREFILLS[quick], _STEPS[quick])
    points = [measure_point(model, prompts[:b], pad_id, ceilings, repeats, session.say) for b in batches]
    taken_apart = ends if is_main or not quick else ()
    parts = [break_down(model, prompts[:b], pad_id, ceilings, repeats.num_steps, session.say) for b in taken_apart]
    agreements = [_agree_one_by_one(lab, model, prompts, pad_id)]
    if is_main or not quick:
        agreements.append(_agree_in_one_pass(lab, model, prompts, pad_id))
    if model.dtype == FLOAT32:
        _judge(lab, model, prompts, pad_id, agreements)
    return DtypeRun(model.dtype, ceilings, tuple(points), tuple(parts), tuple(agreements))


def _require_positions(subject: LabSubject, request: BatchRequest) -> None:
    """Refuse a run that is longer than the model has positions for.

    Raises:  RequestError
    """
    most, needed = subject.spec.max_position_embeddings, request.long_tokens + _PROMPT_TOKENS
    if most is not None and needed > most:
        raise RequestError(
            f"a run of {request.long_tokens} tokens after prompts of up to {_PROMPT_TOKENS} needs {needed} positions, and "
            f"{subject.identity.name} has {most}; ask for fewer tokens"
        )


def _pad_id(model: LabModel) -> int:
    """The tokenizer's own padding, or its end of text, or token 0: masked, it must not matter which."""
    found = (model.tokenizer.pad_token_id, model.tokenizer.eos_token_id)
    return next((int(each) for each in found if each is not None), 0)


# ── alone against in a batch ───────────────────────────────────────────────────────────────────────


def _agree_one_by_one(lab: _Lab, model: LabModel, prompts: Sequence[Sequence[int]], pad_id: int) -> BatchAgreement:
    """The largest batch over a few tokens, each prompt decoded alone with its own cache."""
    num_tokens, allowed = _SHORT_TOKENS[lab.quick], ALLOWED[model.dtype]
    prompts = prompts[: _SHORT_BATCH[lab.quick]]
    padded = pad_left(prompts, pad_id)
    together = decode(model.network, padded, num_tokens)
    rows = []
    for index, prompt in enumerate(prompts):
        lab.session.say(f"prompt {index + 1} of {len(prompts)} alone, {model.dtype}")
        alone = decode(model.network, pad_left([prompt], pad_id), num_tokens)
        lengths = (len(prompt), padded.width - len(prompt))
        own, tokens = together.logits[:, index], together.tokens[index]
        rows.append(compare(index, lengths, alone.logits[:, 0], own, tokens, is_forced=False, allowed=allowed))
    return BatchAgreement(model.dtype, len(prompts), num_tokens, _ONE_BY_ONE, allowed, tuple(rows))


def _agree_in_one_pass(lab: _Lab, model: LabModel, prompts: Sequence[Sequence[int]], pad_id: int) -> BatchAgreement:
    """The longer run of a smaller batch, each prompt passed once along what it emitted there."""
    num_tokens, allowed = lab.request.long_tokens, ALLOWED[model.dtype]
    kept = _LOGITS_BYTES // (num_tokens * model.spec.vocab_size * value_bytes(FLOAT32))
    chosen = prompts[: max(1, min(_LONG_BATCH[lab.quick], len(prompts), kept))]
    padded = pad_left(chosen, pad_id)
    together = decode(model.network, padded, num_tokens, say=lab.session.say)
    rows = []
    for index, prompt in enumerate(chosen):
        lab.session.say(f"prompt {index + 1} of {len(chosen)} in one pass, {model.dtype}")
        tokens = together.tokens[index]
        alone = in_one_pass(model.network, prompt, tokens)
        lengths = (len(prompt), padded.width - len(prompt))
        rows.append(compare(index, lengths, alone, together.logits[:, index], tokens, is_forced=True, allowed=allowed))
    return BatchAgreement(model.dtype, len(chosen), num_tokens, _ONE_PASS, allowed, tuple(rows))


# ── what must hold ─────────────────────────────────────────────────────────────────────────────────


def _judge(
    lab: _Lab, model: LabModel, prompts: Sequence[Sequence[int]], pad_id: int, agreements: Sequence[BatchAgreement]
) -> None:
    """Padding, planted faults, and the checks: all in float32, where rounding is far below a fault."""
    say, allowed, network = lab.session.say, ALLOWED[FLOAT32], model.network
    lab.pads = faults.lengthen_padding(network, prompts[0], pad_id, PADS, _PAD_STEPS, say)
    chosen = prompts[:_FAULT_BATCH]
    alone = [decode(network, pad_left([prompt], pad_id), _FAULT_STEPS) for prompt in chosen]
    lab.faults = faults.plant_faults(network, chosen, pad_id, alone, allowed, say)
    lab.checks += [*map(_check_difference, agreements), _check_divergences(agreements)]
    lab.checks += [faults.check_pads(lab.pads, allowed), faults.check_faults(lab.faults, allowed)]


def _check_difference(agreement: BatchAgreement) -> Check:
    worst = max(agreement.prompts, key=lambda each: each.max_difference)
    return Check(
        f"each prompt of {agreement.batch} gets its own logits in the batch over {format_count(agreement.num_tokens)} tokens",
        worst.max_difference <= agreement.allowed_difference,
        f"at most {format_number(worst.max_difference)} apart (prompt {worst.prompt_index + 1}; alone: {agreement.alone})",
        f"at most {format_number(agreement.allowed_difference)} in float32",
    )


def _check_divergences(agreements: Sequence[BatchAgreement]) -> Check:
    """A first other token is a near tie; if it is not, something is wrong with the batch."""
    found = [each for agreement in agreements for each in agreement.divergences]
    faults = [each for each in found if not each.is_near_tie]
    num_runs = sum(len(agreement.prompts) for agreement in agreements)
    return Check(
        "where a token differs, the two best were a near tie",
        not faults,
        f"{format_count(len(found))} of {format_count(num_runs)} runs differ, {format_count(len(faults))} of them without one",
        "top-two gap at most twice what logits may differ by",
    )


def _say_limits(lab: _Lab) -> None:
    session, quick = lab.session, lab.quick
    session.assumptions += [
        "an end of text is not looked for: every sequence of a batch runs as long as the others",
        "a bound counts the real tokens alone, each weight read once a step, and nothing of activations; its ceilings were measured in "
        "this run",
    ]
    session.assumptions += busy(session)
    if quick:
        session.left_out.append(
            f"quick: {_SHORT_BATCH[1]} prompts are decoded alone, {_SHORT_TOKENS[1]} tokens each; the longer run has "
            f"{format_count(lab.request.long_tokens)} tokens of {_LONG_BATCH[1]} prompts; {_STEPS[1]} steps of a batch are timed; the "
            "second number format is timed at the smallest and the largest batch alone, and its steps are not taken apart"
        )
    if FLOAT32 not in lab.request.dtypes:
        session.left_out.append("padding, planted faults and checks, which are judged in float32")
