"""Does it fit, how fast could it be, what does the real server do, and where is the gap.

The public calls, each with a typed result. They are loaded when first used, so importing this package costs nothing and
needs nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from inference_bench.facts.formats import number_format as number_format
    from inference_bench.facts.hardware import hardware as hardware
    from inference_bench.facts.load import known_model as known_model
    from inference_bench.facts.load import load_hardware as load_hardware
    from inference_bench.facts.load import load_model as load_model
    from inference_bench.labs.batch.flow import run_lab as lab_batch  # noqa: F401  # six of that name
    from inference_bench.labs.batch.request import BatchRequest as BatchRequest
    from inference_bench.labs.cache.flow import run_lab as lab_cache  # noqa: F401  # six of that name
    from inference_bench.labs.cache.request import CacheRequest as CacheRequest
    from inference_bench.labs.grammar.flow import run_lab as lab_grammar  # noqa: F401  # six of that name
    from inference_bench.labs.grammar.request import GrammarRequest as GrammarRequest
    from inference_bench.labs.machine.flow import run_lab as lab_machine  # noqa: F401  # six of that name
    from inference_bench.labs.machine.request import MachineRequest as MachineRequest
    from inference_bench.labs.quantise.flow import run_lab as lab_quantise  # noqa: F401  # six of that name
    from inference_bench.labs.quantise.request import QuantiseRequest as QuantiseRequest
    from inference_bench.labs.settings import LabSettings as LabSettings
    from inference_bench.labs.speculate.flow import run_lab as lab_speculate  # noqa: F401  # six of that name
    from inference_bench.labs.speculate.request import SpeculateRequest as SpeculateRequest
    from inference_bench.loadtest.capacity import Limits as Limits
    from inference_bench.loadtest.capacity_run import measure_capacity as measure_capacity
    from inference_bench.loadtest.capacity_search import SearchPlan as SearchPlan
    from inference_bench.loadtest.flow import LoadRequest as LoadRequest
    from inference_bench.loadtest.flow import measure_load as measure_load
    from inference_bench.loadtest.sweep import Axis as Axis
    from inference_bench.loadtest.sweep import SweepPlan as SweepPlan
    from inference_bench.loadtest.sweep import measure_sweep as measure_sweep
    from inference_bench.measure.machine import probe as probe
    from inference_bench.predict.fit import FitRequest as FitRequest
    from inference_bench.predict.fit import fit as fit
    from inference_bench.predict.phases import roofline_table as roofline_table
    from inference_bench.predict.plan import plan as plan
    from inference_bench.predict.scenario import scenario_from_mapping as scenario_from_mapping
    from inference_bench.referee.judged import referee as referee_run  # noqa: F401  # `referee` names its package
    from inference_bench.referee.subject import Subject as Subject
    from inference_bench.referee.subject import subject_for as subject_for
    from inference_bench.score.flow import score_tables as score_tables
    from inference_bench.score.own import calibration_from as calibration_from
    from inference_bench.simulate.capacity import find_capacity as find_capacity
    from inference_bench.simulate.fleet import simulate_fleet as simulate_fleet
    from inference_bench.simulate.run import simulate as simulate_workload  # noqa: F401  # `simulate` names its package
    from inference_bench.simulate.summary import summarise_run as summarise_run
    from inference_bench.verify.flow import verify_server as verify_server
    from inference_bench.verify.session import VerifyRequest as VerifyRequest
    from inference_bench.workload import read_trace as read_trace
    from inference_bench.workload import reference_workload as reference_workload

_HOME = {
    "number_format": "facts.formats",
    "hardware": "facts.hardware",
    "known_model": "facts.load",
    "load_hardware": "facts.load",
    "load_model": "facts.load",
    "lab_batch": "labs.batch.flow:run_lab",
    "BatchRequest": "labs.batch.request",
    "lab_cache": "labs.cache.flow:run_lab",
    "CacheRequest": "labs.cache.request",
    "lab_grammar": "labs.grammar.flow:run_lab",
    "GrammarRequest": "labs.grammar.request",
    "lab_machine": "labs.machine.flow:run_lab",
    "MachineRequest": "labs.machine.request",
    "lab_quantise": "labs.quantise.flow:run_lab",
    "QuantiseRequest": "labs.quantise.request",
    "lab_speculate": "labs.speculate.flow:run_lab",
    "SpeculateRequest": "labs.speculate.request",
    "LabSettings": "labs.settings",
    "Limits": "loadtest.capacity",
    "measure_capacity": "loadtest.capacity_run",
    "SearchPlan": "loadtest.capacity_search",
    "LoadRequest": "loadtest.flow",
    "measure_load": "loadtest.flow",
    "Axis": "loadtest.sweep",
    "SweepPlan": "loadtest.sweep",
    "measure_sweep": "loadtest.sweep",
    "probe": "measure.machine",
    "FitRequest": "predict.fit",
    "fit": "predict.fit",
    "roofline_table": "predict.phases",
    "plan": "predict.plan",
    "scenario_from_mapping": "predict.scenario",
    "referee_run": "referee.judged:referee",  # `referee` is the name of its package
    "Subject": "referee.subject",
    "subject_for": "referee.subject",
    "score_tables": "score.flow",
    "calibration_from": "score.own",
    "find_capacity": "simulate.capacity",
    "simulate_fleet": "simulate.fleet",
    "simulate_workload": "simulate.run:simulate",  # `simulate` is the name of its package
    "summarise_run": "simulate.summary",
    "VerifyRequest": "verify.session",
    "verify_server": "verify.flow",
    "read_trace": "workload",
    "reference_workload": "workload",
}
_LAB = "lab_"
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """The public call of that name, from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name.startswith(_LAB):  # by way of what says which package a lab lacks
        return import_module(f"{__name__}.labs.model").load_flow(name.removeprefix(_LAB)).run_lab
    module, _, own_name = _HOME[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), own_name or name)
