"""What real engines reach over the bounds: a model of few, named efficiencies, fitted on published measurements.

In:   a setting (model, formats, machine, engine) and a question (phase, batch, lengths)
Out:  an expected time with an 80 % interval; the same as a StepCost
Read next by: fit, plan, score.

Read in this order: setting, terms, effects, question, parameters, expectation, calibration.
"""

from inference_bench.predict.efficiency.calibration import Observation, calibrate
from inference_bench.predict.efficiency.expectation import EngineCost, Expectation, expect
from inference_bench.predict.efficiency.parameters import Calibration, Fitted, fitted
from inference_bench.predict.efficiency.question import Phase, Question
from inference_bench.predict.efficiency.setting import DeviceSplit, Setting, engine_family

__all__ = [
    "Calibration",
    "DeviceSplit",
    "EngineCost",
    "Expectation",
    "Fitted",
    "Observation",
    "Phase",
    "Question",
    "Setting",
    "calibrate",
    "engine_family",
    "expect",
    "fitted",
]
