"""The speculate lab from its request to its result.

In:   SpeculateRequest
Out:  SpeculateResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from inference_bench.accounting.params import count_params
from inference_bench.errors import MissingExtraError, WorldError
from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.model import LabModel, load_model
from inference_bench.labs.session import LabSession, Progress, computing_threads
from inference_bench.labs.speculate.account import Answer, account
from inference_bench.labs.speculate.checks import all_checks, rollback_words
from inference_bench.labs.speculate.compare import LOGIT_TOLERANCE, compare
from inference_bench.labs.speculate.costs import measure_costs
from inference_bench.labs.speculate.drafts import Draft, LookupDraft, NetworkDraft
from inference_bench.labs.speculate.early_exit import default_exit_layer, first_layers
from inference_bench.labs.speculate.greedy import Decoded, Limits, decode_plainly, decode_speculatively
from inference_bench.labs.speculate.planted import OFFSETS, WronglyRolledBack, plant_rollback
from inference_bench.labs.speculate.prompts import FixedPrompt, fixed_prompts
from inference_bench.labs.speculate.request import SpeculateRequest
from inference_bench.labs.speculate.result import (
    EARLY_EXIT,
    LOOKUP,
    MODEL,
    TARGET,
    Comparison,
    DraftFacts,
    PlantedFault,
    PlantedRollback,
    PromptFacts,
    SampledDraft,
    ServerResult,
    SpeculateResult,
    StepCosts,
)
from inference_bench.labs.speculate.server import Asked, measure_server
from inference_bench.labs.speculate.stochastic import (
    MISTAKES,
    Context,
    Shaping,
    contexts_of,
    plant_faults,
    sample_drafts,
    simulate,
)
from inference_bench.labs.speculate.vocabulary import require_same_vocabulary
from inference_bench.labs.subject import find_subject

QUESTION: Final = "Does speculative decoding keep its output, and what does it gain?"
_PLACES: Final = 4  # of each answer at which tokens are drawn
_PLANTED_TOKENS: Final = 6
_QUICK_CONTEXTS: Final = 3  # prompts after which tokens are drawn in quick mode
_QUICK_EXIT_TOKENS: Final = 8
_SLOW_DRAFT_TOKENS: Final = (
    32  # an answer's, with a draft that costs about what the target does, unless more is asked for
)
_SLOW_DRAFT_GAMMA: Final = 4
_CONCURRENCIES: Final = (1, 2)
_NUM_DRAWS: Final = 20_000
_NUM_SIMULATIONS: Final = 1_000
_REPEATS, _QUICK_REPEATS = 15, 5


@dataclass(frozen=True, slots=True)
class Proposer:
    """A draft, what is known of it, the γ it is tried at, and how long its answers are."""

    draft: Draft
    facts: DraftFacts
    gammas: tuple[int, ...]
    num_tokens: int


@dataclass(slots=True)
class Bench:
    """Everything that is measured with: the target and its drafts; and what was measured so far."""

    request: SpeculateRequest
    session: LabSession
    model: LabModel
    target: CachedNetwork
    proposers: tuple[Proposer, ...]
    answers: dict[tuple[str, int], list[Answer]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    prompts: list[PromptFacts] = field(default_factory=list)
    sequences: list[tuple[list[int], Decoded]] = field(default_factory=list)

    def limits(self, num_tokens: int) -> Limits:
        """Where answers end."""
        return Limits(num_tokens, self.model.end_ids)

    def teller(self, what: str) -> Callable[[int], None]:
        """Says about once a second how many tokens there are."""
        said_s = time.monotonic()
        self.session.say(what)

        def tell(num_tokens: int) -> None:
            nonlocal said_s
            if time.monotonic() - said_s > 1:
                said_s = time.monotonic()
                self.session.say(f"{what}: {num_tokens} tokens")

        return tell


def run_lab(request: SpeculateRequest, progress: Progress | None = None) -> SpeculateResult:
    """Decode with every draft, account for the time, draw with a temperature, and ask a real server.

    Raises:  UnknownNameError, RequestError, MissingExtraError, ModelConfigError, ModelFileError, DownloadError, StorageError
    """
    session = LabSession("speculate", QUESTION, request.settings, progress)
    with computing_threads(session.num_threads), torch.inference_mode():
        bench = _bench(request, session)
        asked = [(prompt, _prompt_ids(bench, prompt)) for prompt in fixed_prompts(request.settings.is_quick)]
        for prompt, ids in asked:
            _decode(bench, prompt, ids)
        costs = _costs(bench)
        sampled, planted = _draws(bench)
        rollbacks = _rollbacks(bench)
    server = _server(bench)
    tolerance = LOGIT_TOLERANCE[request.settings.dtype]
    _say_what_is_assumed(session, request)
    return SpeculateResult(
        head=session.head(),
        checks=all_checks(bench.comparisons, tolerance, sampled, planted, rollbacks, server),
        drafts=tuple(each.facts for each in bench.proposers),
        prompts=tuple(bench.prompts),
        comparisons=tuple(bench.comparisons),
        costs=costs,
        runs=tuple(account(draft, gamma, answers, costs) for (draft, gamma), answers in bench.answers.items()),
        sampled=sampled,
        planted=planted,
        planted_rollbacks=rollbacks,
        server=server,
        logit_tolerance=tolerance,
    )


# ── who drafts ─────────────────────────────────────────────────────────────────────────────────────


def _bench(request: SpeculateRequest, session: LabSession) -> Bench:
    model = load_model(find_subject(session), request.settings.dtype, say=session.say)
    target = CachedNetwork(model.network)
    return Bench(request, session, model, target, tuple(_proposers(request, session, model)))


def _proposers(request: SpeculateRequest, session: LabSession, model: LabModel) -> list[Proposer]:
    """Lookup, early exit, a draft model where one was named, and the target itself where there is time."""
    gammas = request.draft_lengths
    proposers = [
        Proposer(LookupDraft(), DraftFacts(LOOKUP, LOOKUP, 0.0), gammas, request.most_tokens),
        _early_exit(request, session, model),
    ]
    if request.draft is not None:
        proposers.append(_draft_model(request, session, model))
    if request.settings.is_quick:
        session.left_out.append("the target as its own draft, whose acceptance is 1")
    else:
        itself = NetworkDraft(TARGET, model.network, _vocabulary(model))
        middle = gammas[len(gammas) // 2]
        proposers.append(Proposer(itself, DraftFacts(TARGET, TARGET, 1.0), (middle,), proposers[1].num_tokens))
    return proposers


def _early_exit(request: SpeculateRequest, session: LabSession, model: LabModel) -> Proposer:
    num_layers = len(model.network.base_model.layers) if hasattr(model.network.base_model, "layers") else 0
    exit_layer = request.exit_layer or default_exit_layer(num_layers)
    network = first_layers(model.network, exit_layer)
    read = sum(each.numel() for each in network.parameters()) / sum(each.numel() for each in model.network.parameters())
    name = f"{EARLY_EXIT} {exit_layer}/{num_layers}"
    gammas, num_tokens = _slow_draft_limits(request)
    if (gammas, num_tokens) != (request.draft_lengths, request.most_tokens):
        session.left_out.append(
            f"the early exit beyond γ = {gammas[-1]}, and drafts as slow as the target beyond {num_tokens} tokens an answer"
        )
    draft = NetworkDraft(name, network, _vocabulary(model))
    return Proposer(draft, DraftFacts(name, EARLY_EXIT, read), gammas, num_tokens)


def _slow_draft_limits(request: SpeculateRequest) -> tuple[tuple[int, ...], int]:
    """At which γ, and for how many tokens, a draft is tried that costs about what the target does; in full what was asked for by name."""
    gammas, num_tokens = request.draft_lengths, request.most_tokens
    if request.settings.is_quick:
        return gammas[:1], min(num_tokens, _QUICK_EXIT_TOKENS)
    if not request.gammas:
        gammas = tuple(each for each in gammas if each <= _SLOW_DRAFT_GAMMA)
    return gammas, num_tokens if request.num_tokens else min(num_tokens, _SLOW_DRAFT_TOKENS)


def _draft_model(request: SpeculateRequest, session: LabSession, model: LabModel) -> Proposer:
    """A model of its own, with the target's vocabulary.

    Raises:  RequestError for another vocabulary; what `find_subject` and `load_model` raise
    """
    settings = replace(request.settings, model=request.draft, revision=None)
    other = LabSession("speculate", QUESTION, settings, session.progress)
    subject = find_subject(other)
    draft = load_model(subject, settings.dtype, say=session.say)
    require_same_vocabulary(model.tokenizer, draft.tokenizer, subject.identity.name)
    read = count_params(draft.spec).total / count_params(model.spec).total
    facts = DraftFacts(subject.identity.name, MODEL, read, subject.identity)
    vocabulary = min(_vocabulary(model), _vocabulary(draft))
    return Proposer(
        NetworkDraft(facts.name, draft.network, vocabulary), facts, request.draft_lengths, request.most_tokens
    )


def _vocabulary(model: LabModel) -> int:
    """Rows of the head: ids that the model can say."""
    return int(model.network.get_output_embeddings().weight.shape[0])


# ── greedy ─────────────────────────────────────────────────────────────────────────────────────────


def _prompt_ids(bench: Bench, prompt: FixedPrompt) -> list[int]:
    """Raises:  RequestError where the model has no room for the answer"""
    ids = bench.model.chat_ids(prompt.text) if prompt.is_question else bench.model.encode(prompt.text)
    bench.model.require_room(ids, bench.request.most_tokens)
    return ids


def _decode(bench: Bench, prompt: FixedPrompt, ids: list[int]) -> None:
    """One prompt plainly, then with every draft at every γ."""
    limits = bench.limits(bench.request.most_tokens)
    plain = decode_plainly(bench.target, ids, limits, bench.teller(f"{prompt.name}, plain"))
    bench.prompts.append(_facts(prompt, ids, plain, limits))
    for proposer in bench.proposers:
        for gamma in proposer.gammas:
            told = bench.teller(f"{prompt.name}, {proposer.draft.name}, γ = {gamma}")
            limits = bench.limits(proposer.num_tokens)
            done = decode_speculatively(bench.target, proposer.draft, ids, gamma, limits, told)
            _note(bench, prompt, proposer.draft.name, gamma, plain.first(proposer.num_tokens), done)
    plain.logits.clear()  # as large as the vocabulary is, for each token
    bench.sequences.append((ids, plain))


def _facts(prompt: FixedPrompt, ids: Sequence[int], plain: Decoded, limits: Limits) -> PromptFacts:
    return PromptFacts(
        name=prompt.name,
        num_prompt_tokens=len(ids),
        num_tokens=len(plain.ids),
        has_ended=plain.ids[-1] in limits.stop_ids,
        step_s=plain.times.elapsed_s / max(1, len(plain.ids) - 1),
    )


def _note(bench: Bench, prompt: FixedPrompt, draft: str, gamma: int, plain: Decoded, done: Decoded) -> None:
    tolerance = LOGIT_TOLERANCE[bench.request.settings.dtype]
    compared = compare(plain, done, prompt.name, draft, gamma, tolerance)
    bench.comparisons.append(compared)
    answer = Answer(done.rounds, done.times, plain.times.elapsed_s, compared.divergence is None)
    bench.answers.setdefault((draft, gamma), []).append(answer)


def _costs(bench: Bench) -> StepCosts:
    """Every step's cost in the middle of the longest answer."""
    prompt, answer = max(bench.sequences, key=lambda each: len(each[0]) + len(each[1].ids))
    context = [*prompt, *answer.ids[: len(answer.ids) // 2]]
    repeats = _QUICK_REPEATS if bench.request.settings.is_quick else _REPEATS
    drafts = [each.draft for each in bench.proposers]
    return measure_costs(bench.target, drafts, context, bench.request.draft_lengths, repeats, bench.session.say)


def _rollbacks(bench: Bench) -> tuple[PlantedRollback, ...]:
    """The first prompt with a cache that is rolled back to the wrong place, one way and the other."""
    proposer = next(each for each in bench.proposers if each.facts.kind == EARLY_EXIT)
    ids, _ = bench.sequences[0]
    plain = decode_plainly(bench.target, ids, Limits(_PLANTED_TOKENS))
    tolerance = LOGIT_TOLERANCE[bench.request.settings.dtype]
    planted = []
    for off_by in OFFSETS:
        told = bench.teller(f"a planted mistake: {rollback_words(off_by)} in the cache")
        wrong = WronglyRolledBack(bench.model.network, off_by)
        found = plant_rollback(wrong, proposer.draft, proposer.gammas[0], ids, plain, tolerance, told)
        if found is not None:
            planted.append(found)
    if not planted:
        bench.session.left_out.append(
            f"a cache rolled back to the wrong place: no proposal of {proposer.draft.name} was wrong, so nothing was taken back"
        )
    return tuple(planted)


# ── with a temperature ─────────────────────────────────────────────────────────────────────────────


def _draws(bench: Bench) -> tuple[tuple[SampledDraft, ...], tuple[PlantedFault, ...]]:
    """First tokens drawn after several contexts, and the same with mistakes in it."""
    request = bench.request
    shaping = Shaping(request.temperature, request.top_p, _NUM_DRAWS, _NUM_SIMULATIONS, request.settings.seed)
    drafts = [each.draft for each in bench.proposers if each.facts.kind != TARGET]
    contexts = _contexts(bench, drafts)
    say = bench.session.say
    simulated = simulate(contexts, shaping, say)
    sampled = sample_drafts(contexts, [draft.name for draft in drafts], shaping, simulated, say)
    planted = plant_faults(contexts, shaping, simulated, say)
    if unseen := [name for name in MISTAKES if name not in {fault.name for fault in planted}]:
        bench.session.left_out.append(
            f"the planted mistakes {', '.join(unseen)}: at this temperature and top-p they change less than {_NUM_DRAWS:,} draws show"
        )
    return sampled, planted


def _contexts(bench: Bench, drafts: Sequence[Draft]) -> list[Context]:
    target = NetworkDraft(TARGET, bench.model.network, _vocabulary(bench.model))
    contexts: list[Context] = []
    sequences = bench.sequences[:_QUICK_CONTEXTS] if bench.request.settings.is_quick else bench.sequences
    for prompt, answer in sequences:
        bench.session.say("distributions of target and drafts")
        places = sorted({len(prompt) + len(answer.ids) * index // _PLACES for index in range(_PLACES)})
        contexts += contexts_of(target, drafts, [*prompt, *answer.ids], places)
    return contexts


# ── a real server ──────────────────────────────────────────────────────────────────────────────────


def _server(bench: Bench) -> ServerResult | None:
    """The engine's own speculation off and on; None where that was not asked for, or cannot be."""
    request, session, gguf = bench.request, bench.session, bench.model.subject.gguf
    if not request.has_server:
        session.left_out.append("the real server, as asked")
        return None
    if gguf is None:
        session.left_out.append("the real server: the embedded engine serves .gguf files, and this model is none")
        return None
    texts = {
        prompt.name: bench.model.decode(bench.model.chat_ids(prompt.text)) if prompt.is_question else prompt.text
        for prompt in fixed_prompts(request.settings.is_quick)
    }
    middle = request.draft_lengths[len(request.draft_lengths) // 2]
    is_quick = request.settings.is_quick
    if is_quick:
        session.left_out.append("a load on the server by one client; its answers one by one are there")
    concurrencies = _CONCURRENCIES[-1:] if is_quick else _CONCURRENCIES
    asked = Asked(texts, request.most_tokens, middle, session.num_threads, concurrencies)
    try:
        return measure_server(gguf, asked, session.say)
    except (MissingExtraError, WorldError) as error:  # what was measured so far is kept
        session.left_out.append(f"the real server: {error}")
        return None


def _say_what_is_assumed(session: LabSession, request: SpeculateRequest) -> None:
    if request.settings.is_quick:
        session.left_out.append(
            f"three of the eight prompts, answers beyond {request.most_tokens} tokens, and γ other than "
            f"{', '.join(map(str, request.draft_lengths))}"
        )
    session.assumptions.append(
        "Speed-ups are this machine's, of PyTorch at a batch of one; they are no measure of a server's, which the last part measures"
    )
    session.assumptions.append("Times leave out reading the prompt, by the target and by the draft")
