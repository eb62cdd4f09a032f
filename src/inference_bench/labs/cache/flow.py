"""The cache lab from its request to its result.

In:   CacheRequest
Out:  CacheResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.cache import CacheFormat, count_cache, count_kv_bytes_per_token
from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import Attention, ModelSpec
from inference_bench.labs.cache import judge
from inference_bench.labs.cache.compare import LOGIT_TOLERANCE, compare
from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.growth import CacheShape, measure_growth
from inference_bench.labs.cache.lengths import (
    RULE,
    TIMED_PROMPT_TOKENS,
    Knot,
    cached_s,
    length_points,
    measure_knots,
    uncached_s,
)
from inference_bench.labs.cache.model_paths import ModelCached, ModelRecomputed, cache_bytes, cache_positions
from inference_bench.labs.cache.paths import Generation, generate
from inference_bench.labs.cache.request import CacheRequest
from inference_bench.labs.cache.result import (
    CONCATENATING,
    MODEL,
    TOY,
    CacheBytes,
    CacheResult,
    PathComparison,
    StoreRun,
    TimedRun,
)
from inference_bench.labs.cache.reuse import measure_boundaries, measure_branches, measure_reuse
from inference_bench.labs.cache.stores import ConcatenatingStore, PreallocatedStore, Store, concatenated_rows
from inference_bench.labs.cache.toy import (
    TOY_BYTES,
    TOY_EMITTED,
    TOY_POSITIONS,
    TOY_PROMPT_TOKENS,
    ToyDecoder,
    ToyShape,
)
from inference_bench.labs.cache.toy_paths import ToyCached, ToyRecomputed
from inference_bench.labs.model import LabModel, load_model
from inference_bench.labs.session import LabSession, Progress, computing_threads
from inference_bench.labs.subject import find_subject
from inference_bench.labs.text import shipped_text

QUESTION: Final = "What does a KV cache save, what does it cost, and which of its faults would nobody see?"
QUESTIONS_ASKED: Final = {"question": "What is the capital of France?"}
PROMPTS: Final = {
    "numbers": "1 2 3 4 5 6 7 8 9 10 11 12",
    "story": "Once upon a time, there was a",
    "repeat": "The cat sat on the mat. The cat sat on the mat. The cat sat",
}
OWN_PROMPT: Final = "own text"
_QUICK_PROMPTS: Final = 2
_LEAST_DIFFERENT_TOKENS: Final = 2  # of one token alone, however often, it makes no difference which is attended
_MOST_OWN_TOKENS: Final = 256
_QUICK_PREFIX_TOKENS, _FULL_PREFIX_TOKENS = 128, 512
_SUFFIX_TOKENS: Final = 16
_APART_TOKENS: Final = 1000  # between the two suffixes, in the shipped text
_CHARACTERS_PER_TOKEN: Final = 6  # more than a tokenizer takes of English at once, on average
_QUICK_REPEATS, _FULL_REPEATS = 3, 5
_APPEND_REPEATS: Final = 15  # of what takes less than a millisecond


@dataclass(frozen=True, slots=True)
class _Paths:
    """What generating gave: comparisons, sizes, and the first prompt's two sound runs."""

    comparisons: tuple[PathComparison, ...]
    sizes: tuple[CacheBytes, ...]
    num_prompt: int
    full: Generation
    cached: Generation


def run_lab(request: CacheRequest, progress: Progress | None = None) -> CacheResult:
    """Run it: the toy first, then the real model cached and recomputed, with faults, by length, and with a shared prefix.

    Raises:  what find_subject and load_model raise; RequestError for a model whose cache is not one row a position, or lengths that it
             does not reach
    """
    session = LabSession("cache", QUESTION, request.settings, progress)
    with computing_threads(session.num_threads):
        subject = find_subject(session)
        _require_plain_cache(subject.spec)
        model = load_model(subject, say=session.say)
        prompts = _prompts(request, model, session)
        _require_reach(subject.spec, request, prompts)
        toy, stores = _run_toy(session)
        real = _run_model(model, prompts, request.emitted, session)
        return _measured(request, session, model, toy, stores, real)


def _measured(
    request: CacheRequest,
    session: LabSession,
    model: LabModel,
    toy: tuple[tuple[PathComparison, ...], CacheBytes],
    stores: tuple[StoreRun, ...],
    real: _Paths,
) -> CacheResult:
    """What takes time to time, and the whole as one result."""
    quick = request.settings.is_quick
    repeats = _QUICK_REPEATS if quick else _FULL_REPEATS
    size = _QUICK_PREFIX_TOKENS if quick else _FULL_PREFIX_TOKENS
    ids = _text_ids(model, max(*_contexts(request, real), size + _APART_TOKENS + _SUFFIX_TOKENS))
    knots = measure_knots(model.network, ids, _contexts(request, real), repeats, session.say)
    points = measure_growth(
        CacheShape.of(model.spec), request.timed_lengths, _APPEND_REPEATS, request.settings.seed, session.say
    )
    prefix, first = ids[:size], ids[size : size + _SUFFIX_TOKENS]
    second = ids[size + _APART_TOKENS : size + _APART_TOKENS + _SUFFIX_TOKENS]
    reuse = measure_reuse(model.network, prefix, first, repeats, session.say)
    branches, is_untouched = measure_branches(model.network, prefix, first, second, session.say)
    boundaries = measure_boundaries(model, session.say)
    comparisons, sizes = (*toy[0], *real.comparisons), (toy[1], *real.sizes)
    checks = (
        *judge.check_sizes(sizes, TOY_POSITIONS, TOY_BYTES),
        *judge.check_paths(comparisons, LOGIT_TOLERANCE),
        *judge.check_stores(stores),
        *judge.check_reuse(reuse, branches, is_untouched, boundaries, LOGIT_TOLERANCE),
    )
    _say_what_is_assumed(request, session)
    return CacheResult(
        head=session.head(),
        checks=checks,
        logit_tolerance=LOGIT_TOLERANCE,
        sizes=sizes,
        comparisons=comparisons,
        stores=stores,
        store_points=points,
        lengths=length_points(model.spec, knots, request.timed_lengths),
        timed_run=_timed_run(real, knots),
        reuse=reuse,
        branches=branches,
        boundaries=boundaries,
    )


# ── the toy ────────────────────────────────────────────────────────────────────────────────────────


def _run_toy(session: LabSession) -> tuple[tuple[tuple[PathComparison, ...], CacheBytes], tuple[StoreRun, ...]]:
    """Recomputed once, then cached in both stores and with every fault; its size is known from outside."""
    shape = ToyShape()
    toy = ToyDecoder(shape, session.settings.seed)
    prompt = toy.prompt(TOY_PROMPT_TOKENS)
    full = generate(ToyRecomputed(toy), prompt, TOY_EMITTED, _with("toy, recomputed", session))
    comparisons, runs, measured = [], [], 0
    for store in (_joining(shape), _placing(shape)):
        sound = generate(ToyCached(toy, store), prompt, TOY_EMITTED, _with(f"toy, {store.name}", session))
        comparisons.append(_compared(full, sound, TOY, "random tokens", TOY_PROMPT_TOKENS, store.name, None))
        runs.append(_store_run(store, sound, shape))
        measured = store.filled_bytes
    for fault in Fault:
        path = ToyCached(toy, _placing(shape), fault)
        found = generate(path, prompt, TOY_EMITTED, _with(f"toy, {fault}", session), full.tokens)
        comparisons.append(_compared(full, found, TOY, "random tokens", TOY_PROMPT_TOKENS, path.store.name, fault))
    size = _size(TOY, shape.spec(), TOY_PROMPT_TOKENS, TOY_EMITTED, runs[-1].num_positions, measured)
    return (tuple(comparisons), size), tuple(runs)


def _joining(shape: ToyShape) -> ConcatenatingStore:
    return ConcatenatingStore(shape.num_hidden_layers)


def _placing(shape: ToyShape) -> PreallocatedStore:
    return PreallocatedStore(shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim, TOY_POSITIONS)


def _store_run(store: Store, run: Generation, shape: ToyShape) -> StoreRun:
    positions = store.num_positions
    rows = concatenated_rows(TOY_PROMPT_TOKENS, positions) if store.name == CONCATENATING else positions
    row_bytes = count_kv_bytes_per_token(shape.spec(), _float32())
    return StoreRun(store.name, positions, run.elapsed_s, store.copied_bytes, rows * row_bytes, store.peak_bytes)


# ── the real model ─────────────────────────────────────────────────────────────────────────────────


def _run_model(model: LabModel, prompts: dict[str, list[int]], num_tokens: int, session: LabSession) -> _Paths:
    """Each prompt recomputed, cached, and cached with every fault that can be planted from outside."""
    comparisons: list[PathComparison] = []
    sizes: list[CacheBytes] = []
    runs: list[tuple[int, Generation, Generation]] = []
    for name, ids in prompts.items():
        full = generate(ModelRecomputed(model.network), ids, num_tokens, _with(f"{name}, recomputed", session))
        path = ModelCached(model.network)
        sound = generate(path, ids, num_tokens, _with(f"{name}, cached", session))
        comparisons.append(_compared(full, sound, MODEL, name, len(ids), CONCATENATING, None))
        positions = cache_positions(path.cache)
        sizes.append(_size(MODEL, model.spec, len(ids), num_tokens, positions, cache_bytes(path.cache)))
        runs.append((len(ids), full, sound))
        for fault in _plantable(model.spec, session):
            found = generate(
                ModelCached(model.network, fault), ids, num_tokens, _with(f"{name}, {fault}", session), full.tokens
            )
            comparisons.append(_compared(full, found, MODEL, name, len(ids), CONCATENATING, fault))
    return _Paths(tuple(comparisons), tuple(sizes), *runs[0])


def _plantable(spec: ModelSpec, session: LabSession) -> Iterator[Fault]:
    """Every fault; but without fewer KV heads than query heads none is repeated."""
    shares = any(mixer.num_key_value_heads < mixer.num_attention_heads for mixer, _ in spec.attention_groups())
    for fault in Fault:
        if fault is Fault.KV_HEADS_TILED and not shares:
            said = f"{fault}: {spec.name} has a KV head for every query head, so none is repeated"
            session.left_out += [] if said in session.left_out else [said]
        else:
            yield fault


def _compared(
    full: Generation, other: Generation, subject: str, prompt: str, num_prompt: int, store: str, fault: Fault | None
) -> PathComparison:
    return compare(full, other, subject=subject, prompt=prompt, num_prompt_tokens=num_prompt, store=store, fault=fault)


def _size(
    subject: str, spec: ModelSpec, num_prompt: int, num_emitted: int, positions: int, measured: int
) -> CacheBytes:
    fmt = _float32()
    return CacheBytes(
        subject=subject,
        num_prompt_tokens=num_prompt,
        num_emitted=num_emitted,
        num_positions=positions,
        measured_bytes=measured,
        formula_bytes=count_cache(spec, fmt, num_prompt + num_emitted - 1).num_bytes,
        formula_bytes_per_position=count_kv_bytes_per_token(spec, fmt),
    )


def _float32() -> CacheFormat:
    return CacheFormat(number_format("fp32"), number_format("fp32"))


def _timed_run(real: _Paths, knots: Sequence[Knot]) -> TimedRun:
    emitted = len(real.full.tokens)
    return TimedRun(
        num_prompt_tokens=real.num_prompt,
        num_emitted=emitted,
        cached_s=real.cached.elapsed_s,
        uncached_s=real.full.elapsed_s,
        cached_by_rule_s=cached_s(knots, real.num_prompt, emitted),
        uncached_by_rule_s=uncached_s(knots, real.num_prompt, emitted),
    )


# ── what is asked of it ────────────────────────────────────────────────────────────────────────────


def _prompts(request: CacheRequest, model: LabModel, session: LabSession) -> dict[str, list[int]]:
    """The user's text, or those that are built in, as ids."""
    if request.prompt_text is not None:
        ids = model.encode(request.prompt_text)
        if len(set(ids)) < _LEAST_DIFFERENT_TOKENS:
            raise RequestError(
                "the prompt has no two different tokens for this model, so that no fault could show in it; give a longer text"
            )
        if len(ids) > _MOST_OWN_TOKENS:
            session.left_out.append(f"the prompt after its first {_MOST_OWN_TOKENS} tokens of {len(ids)}")
        return {OWN_PROMPT: ids[:_MOST_OWN_TOKENS]}
    asked = {name: model.chat_ids(text) for name, text in QUESTIONS_ASKED.items()}
    prompts = asked | {name: model.encode(text) for name, text in PROMPTS.items()}
    if request.settings.is_quick:
        kept = dict(list(prompts.items())[:_QUICK_PROMPTS])
        session.left_out.append(f"the prompts {', '.join(name for name in prompts if name not in kept)}")
        return kept
    return prompts


def _require_plain_cache(spec: ModelSpec) -> None:
    """Refuse a model of which some layer keeps something else than a row for every position."""
    odd = [mixer for mixer, _ in spec.mixer_groups() if not isinstance(mixer, Attention) or mixer.max_positions]
    if odd:
        raise RequestError(
            f"{spec.name} has layers that do not keep a key and a value for every position ({type(odd[0]).__name__}); the cache lab "
            "takes models of full attention alone"
        )


def _require_reach(spec: ModelSpec, request: CacheRequest, prompts: dict[str, list[int]]) -> None:
    """Refuse lengths beyond what the model was made for."""
    prefix = _QUICK_PREFIX_TOKENS if request.settings.is_quick else _FULL_PREFIX_TOKENS
    longest = max(
        max(map(len, prompts.values())) + request.emitted,
        TIMED_PROMPT_TOKENS + max(request.timed_lengths),
        prefix + 2 * _SUFFIX_TOKENS,
    )
    if spec.max_position_embeddings is not None and longest > spec.max_position_embeddings:
        raise RequestError(
            f"{longest} positions are asked of {spec.name}, which has {spec.max_position_embeddings}; give fewer tokens or shorter lengths"
        )


def _contexts(request: CacheRequest, real: _Paths) -> list[int]:
    """Contexts to be timed at: the ends of every length, and those of the run that was timed whole."""
    ends = [TIMED_PROMPT_TOKENS + length - 1 for length in request.timed_lengths]
    return [TIMED_PROMPT_TOKENS, *ends, real.num_prompt, real.num_prompt + len(real.full.tokens) - 1]


def _text_ids(model: LabModel, num_tokens: int) -> list[int]:
    """So many ids of the shipped text: that which is timed, and shared as a prefix.

    Raises:  RequestError where it is shorter
    """
    ids = model.encode(shipped_text().text[: num_tokens * _CHARACTERS_PER_TOKEN])
    if len(ids) < num_tokens:
        raise RequestError(
            f"the shipped text has {len(ids)} tokens for this model, and {num_tokens} are asked of it; give shorter lengths"
        )
    return ids[:num_tokens]


def _with(what: str, session: LabSession) -> Callable[[str], None]:
    return lambda line: session.say(f"{what}: {line}")


def _say_what_is_assumed(request: CacheRequest, session: LabSession) -> None:
    session.assumptions += [
        RULE,
        "a token that would end the text is fed on like any other, so that every run has the same length",
        "positions and bytes of the real model are those of the library's growing cache; what a store holds at most is counted from its "
        "tensors",
    ]
    if request.settings.is_quick:
        fewer = [f"more than {request.emitted} tokens a prompt"] if request.num_tokens is None else []
        shorter = [f"lengths above {max(request.timed_lengths)}"] if not request.lengths else []
        session.left_out += [
            *fewer,
            *shorter,
            f"a prefix longer than {_QUICK_PREFIX_TOKENS} tokens, and more than {_QUICK_REPEATS} repeats of a forward",
        ]
