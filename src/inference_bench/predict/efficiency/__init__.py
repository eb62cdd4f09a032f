"""What real engines reach over the bounds: a model of few, named efficiencies, fitted on published measurements.

In:   a setting (model, formats, machine, engine) and a question (phase, batch, lengths)
Out:  an expected time with an 80 % interval; the same as a StepCost
Read next by: fit, plan, score.

Read in this order: setting, terms, effects, question, bounds, parameters, expectation, calibration, served.
"""

from inference_bench.predict.efficiency.calibration import Observation, OwnMeasurements, calibrate, own_measurements
from inference_bench.predict.efficiency.expectation import (
    EngineCost,
    Expectation,
    Pace,
    expect,
    expected_time,
    step_parameters,
)
from inference_bench.predict.efficiency.parameters import (
    Calibration,
    Familiarity,
    Fitted,
    fitted,
    is_served,
    timed_alone,
)
from inference_bench.predict.efficiency.question import Phase, Question
from inference_bench.predict.efficiency.served import engine_setting
from inference_bench.predict.efficiency.setting import DeviceSplit, Setting, engine_family, known_families

__all__ = [
    "Calibration",
    "DeviceSplit",
    "EngineCost",
    "Expectation",
    "Familiarity",
    "Fitted",
    "Observation",
    "OwnMeasurements",
    "Pace",
    "Phase",
    "Question",
    "Setting",
    "calibrate",
    "engine_family",
    "engine_setting",
    "expect",
    "expected_time",
    "fitted",
    "is_served",
    "known_families",
    "own_measurements",
    "step_parameters",
    "timed_alone",
]
