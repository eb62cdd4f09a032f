"""The formula of a step's time from the steps that were measured, where that can be had.

In:   StepObservations, the model in the formats it is served in, the machine's ceilings, which server it was
Out:  Fitted: StepCalibration and GapReading, or in words why there is none
Leaves out: fitting (calibrate.steps), decomposing (gap)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from inference_bench.calibrate.steps.fitting import fit_steps
from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepObservation
from inference_bench.engines.base import EngineIdentity
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.gap.parts import GapReading
from inference_bench.gap.proposals import usual_choices
from inference_bench.gap.reading import read_gap
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.profile_fields import ProfileCache
from inference_bench.simulate.step_profile import save_profile
from inference_bench.verify.engine_rules import EngineRules


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was fitted; without a calibration, notes say why."""

    calibration: StepCalibration | None = None
    gap: GapReading | None = None
    notes: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """The fitted profile as a file, where there is one.

        Raises:   StorageError
        """
        if self.calibration is not None:
            save_profile(self.calibration.profile, path)


def fit_sweep(
    observations: Sequence[StepObservation],
    served: ServedModel,
    machine: HardwareSpec,
    engine: EngineIdentity,
    rules: EngineRules | None = None,
) -> Fitted:
    """The calibration of a sweep and where its steps' time goes.

    Where:  the rules go into the profile, and no change that is proposed has more sequences than they allow
    """
    setup = None if rules is None else rules.setup
    named = " ".join(filter(None, (engine.name or "unknown engine", engine.version)))
    try:
        calibration = fit_steps(
            observations,
            served,
            machine,
            engine=named,
            source="the calibration sweep of a verification",
            as_of=datetime.now(UTC).date().isoformat(),
            scheduler=None if setup is None else setup.scheduler,
            cache=None if setup is None else ProfileCache(setup.memory.budget_bytes, setup.memory.block_size),
        )
    except RequestError as error:
        return Fitted(notes=(f"no step time was fitted: {error}",))
    choices = usual_choices(engine.name or "")
    if setup is not None:
        choices = replace(choices, max_batch=setup.scheduler.max_running)
    return Fitted(calibration, read_gap(calibration, choices))
