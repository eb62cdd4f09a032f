"""A profile as what says how long a step takes, for `fit` and `plan`.

In:   StepProfile; a served model, its machine
Out:  FittedCost
Leaves out: who is in a step: sequences of equal length stand in for them
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference_bench.accounting.work import SequenceStep
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.fitted_cost import FittedCost
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.kernel.pricing import attended_pairs, cached_reads
from inference_bench.simulate.settings import UNLIMITED, BudgetRule
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_time import StepLoad, StepTime
from inference_bench.units import format_count, format_seconds

_CUTTING = frozenset({BudgetRule.MICRO_BATCHES, BudgetRule.EQUAL_BATCHES})


@dataclass(frozen=True, slots=True)
class ProfileSteps:
    """A profile that prices the steps of models on its machine."""

    profile: StepProfile

    @property
    def engine(self) -> str:
        """The engine it was fitted on."""
        return self.profile.engine

    @property
    def most_at_once(self) -> int:
        """Positions that the engine computes with one read of the weights."""
        rules = self.profile.scheduler
        return rules.micro_batch if rules is not None and rules.budget_rule in _CUTTING else UNLIMITED

    def cost(self, served: ServedModel, machine: HardwareSpec | None, devices: int) -> FittedCost:
        """How long steps of a model take.

        Raises:  RequestError for another machine than the profile's
        """
        step_time, most = self.profile.step_time(served, machine, devices), self.most_at_once

        def price(sequences: Sequence[SequenceStep]) -> float:
            return sum(step_time.seconds(_load(step_time, batch)) for batch in cut(sequences, most))

        lines = (*step_time.notes, *self._said_rules())
        profile = self.profile
        return FittedCost(price, lines, profile.request_s, profile.held_out_error, profile.measured)

    def _said_rules(self) -> Iterator[str]:
        rules, request_s = self.profile.scheduler, self.profile.request_s
        if rules is not None:
            yield f"the server that it was fitted to ran up to {format_count(rules.max_running)} sequences at once"
        if self.most_at_once != UNLIMITED:
            yield f"{format_count(self.most_at_once)} positions are computed at once, as the engine does"
        if request_s:
            yield f"a first token takes {format_seconds(request_s)} beside the step of its prompt"


def cut(sequences: Sequence[SequenceStep], size: int) -> Iterator[list[SequenceStep]]:
    """Steps of many equal sequences, cut into batches of so many positions, in order."""
    batch: list[SequenceStep] = []
    left = size
    for cached, new, count in ((each.num_cached, each.num_new, each.count) for each in sequences):
        while count:
            whole = min(count, left // new)
            if whole:
                batch.append(SequenceStep(cached, new, whole))
                left, count = left - whole * new, count - whole
            if count and left:  # one more, of which only a part has room
                batch.append(SequenceStep(cached, left))
                yield batch
                done = left
                while new - done > size:
                    yield [SequenceStep(cached + done, size)]
                    done += size
                batch, left, count = [SequenceStep(cached + done, new - done)], size - (new - done), count - 1
            if not left:
                yield batch
                batch, left = [], size
    if batch:
        yield batch


def _load(step_time: StepTime, sequences: Sequence[SequenceStep]) -> StepLoad:
    """The sums over so many equal sequences."""
    windows = step_time.windows
    load = StepLoad(window_reads=[0] * len(windows), window_pairs=[0] * len(windows))
    for step in sequences:
        cached, new, count = step.num_cached, step.num_new, step.count
        load.positions += count * new
        load.sequences += count
        load.cached += count * cached
        load.pairs += count * attended_pairs(cached, new, cached + new)
        if new == 1 and cached:
            load.decodes += count
            load.decode_context += count * (cached + 1)
        for index, window in enumerate(windows):
            load.window_reads[index] += count * cached_reads(cached, window.max_positions)
            load.window_pairs[index] += count * attended_pairs(cached, new, window.max_positions)
    return load
