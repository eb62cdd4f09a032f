"""Does it fit, how fast could it be, what does the real server do, and where is the gap.

The public calls, each with a typed result. They are loaded when first used, so importing this package costs nothing and
needs nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from inference_bench.compare_runs.decide import decide as decide_rollout  # noqa: F401
    from inference_bench.compare_runs.flow import compare_runs as compare_two_runs  # noqa: F401
    from inference_bench.compare_runs.rules import RuleSet as RuleSet
    from inference_bench.conform.suite import run_suite as run_conformance  # noqa: F401
    from inference_bench.convert.flow import ConversionRequest as ConversionRequest
    from inference_bench.convert.flow import convert_model as convert_model
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
    from inference_bench.manifest.check import check_manifest as check_manifest
    from inference_bench.manifest.compare import compare_manifests as compare_manifests
    from inference_bench.manifest.create import Sources as ManifestSources  # noqa: F401
    from inference_bench.manifest.create import create_manifest as create_manifest
    from inference_bench.manifest.export import ExportFormat as ExportFormat
    from inference_bench.manifest.export import export_manifest as export_manifest
    from inference_bench.manifest.outputs import outputs_of as outputs_of
    from inference_bench.manifest.store import read_manifest as read_manifest
    from inference_bench.manifest.store import write_manifest as write_manifest
    from inference_bench.measure.machine import probe as probe
    from inference_bench.measure.target import ApiKey as ApiKey
    from inference_bench.measure.target import Endpoint as Endpoint
    from inference_bench.measure.target import Target as Target
    from inference_bench.metrics import Objective as Objective
    from inference_bench.operate.client.client import Client as Client
    from inference_bench.operate.client.failures import Interrupted as Interrupted
    from inference_bench.operate.client.failures import RequestFailed as RequestFailed
    from inference_bench.operate.client.policy import Policy as ClientPolicy  # noqa: F401
    from inference_bench.operate.client.request import Request as ClientRequest  # noqa: F401
    from inference_bench.operate.client.request import Upstream as Upstream
    from inference_bench.operate.contract.flow import Wish as ContractWish  # noqa: F401
    from inference_bench.operate.contract.flow import check_contract as check_contract
    from inference_bench.operate.drill.flow import DrillRequest as DrillRequest
    from inference_bench.operate.drill.flow import run_drill as run_drill
    from inference_bench.operate.drill.isolation import IsolationRequest as IsolationRequest
    from inference_bench.operate.drill.isolation import probe_isolation as probe_isolation
    from inference_bench.operate.drill.scenarios import scenarios_named as scenarios_named
    from inference_bench.operate.ledger.content_log import Content as LoggedContent  # noqa: F401
    from inference_bench.operate.ledger.content_log import ContentLog as ContentLog
    from inference_bench.operate.ledger.content_log import purge_content as purge_content
    from inference_bench.operate.ledger.flow import keep_ledger as keep_ledger
    from inference_bench.operate.ledger.money import Prices as Prices
    from inference_bench.operate.ledger.recorder import Recorder as Recorder
    from inference_bench.operate.rollout.recorder import TraceRecorder as TraceRecorder
    from inference_bench.operate.rollout.replay import Limits as ReplayLimits  # noqa: F401
    from inference_bench.operate.rollout.replay import replay_run as replay_run
    from inference_bench.operate.rollout.replay import replay_trace as replay_trace
    from inference_bench.operate.rollout.shadow import measure_shadow as measure_shadow
    from inference_bench.operate.rollout.suite import SuiteRequest as SuiteRequest
    from inference_bench.operate.rollout.suite import ask_suite as ask_suite
    from inference_bench.operate.rollout.suite_file import read_suite as read_suite
    from inference_bench.operate.watch.flow import Watch as Watch
    from inference_bench.operate.watch.observer import WatchOptions as WatchOptions
    from inference_bench.operate.watch.targets import watched as watched_servers  # noqa: F401
    from inference_bench.predict.explain import explain_figure as explain_figure
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
    from inference_bench.verify.matrix import MatrixRequest as MatrixRequest
    from inference_bench.verify.matrix import run_matrix as run_matrix
    from inference_bench.verify.own_server import ServeRequest as ServeRequest
    from inference_bench.verify.own_server import serve_model as serve_model
    from inference_bench.verify.session import VerifyRequest as VerifyRequest
    from inference_bench.workload import read_trace as read_trace
    from inference_bench.workload import reference_workload as reference_workload

_HOME = {
    "decide_rollout": "compare_runs.decide:decide",
    "compare_two_runs": "compare_runs.flow:compare_runs",
    "RuleSet": "compare_runs.rules",
    "run_conformance": "conform.suite:run_suite",
    "ConversionRequest": "convert.flow",
    "convert_model": "convert.flow",
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
    "LabSettings": "labs.settings",
    "lab_speculate": "labs.speculate.flow:run_lab",
    "SpeculateRequest": "labs.speculate.request",
    "Limits": "loadtest.capacity",
    "measure_capacity": "loadtest.capacity_run",
    "SearchPlan": "loadtest.capacity_search",
    "LoadRequest": "loadtest.flow",
    "measure_load": "loadtest.flow",
    "Axis": "loadtest.sweep",
    "SweepPlan": "loadtest.sweep",
    "measure_sweep": "loadtest.sweep",
    "check_manifest": "manifest.check",
    "compare_manifests": "manifest.compare",
    "ManifestSources": "manifest.create:Sources",
    "create_manifest": "manifest.create",
    "ExportFormat": "manifest.export",
    "export_manifest": "manifest.export",
    "outputs_of": "manifest.outputs",
    "read_manifest": "manifest.store",
    "write_manifest": "manifest.store",
    "probe": "measure.machine",
    "ApiKey": "measure.target",
    "Endpoint": "measure.target",
    "Target": "measure.target",
    "Objective": "metrics",
    "Client": "operate.client.client",
    "Interrupted": "operate.client.failures",
    "RequestFailed": "operate.client.failures",
    "ClientPolicy": "operate.client.policy:Policy",
    "ClientRequest": "operate.client.request:Request",
    "Upstream": "operate.client.request",
    "ContractWish": "operate.contract.flow:Wish",
    "check_contract": "operate.contract.flow",
    "DrillRequest": "operate.drill.flow",
    "run_drill": "operate.drill.flow",
    "IsolationRequest": "operate.drill.isolation",
    "probe_isolation": "operate.drill.isolation",
    "scenarios_named": "operate.drill.scenarios",
    "LoggedContent": "operate.ledger.content_log:Content",
    "ContentLog": "operate.ledger.content_log",
    "purge_content": "operate.ledger.content_log",
    "keep_ledger": "operate.ledger.flow",
    "Prices": "operate.ledger.money",
    "Recorder": "operate.ledger.recorder",
    "TraceRecorder": "operate.rollout.recorder",
    "ReplayLimits": "operate.rollout.replay:Limits",
    "replay_run": "operate.rollout.replay",
    "replay_trace": "operate.rollout.replay",
    "measure_shadow": "operate.rollout.shadow",
    "SuiteRequest": "operate.rollout.suite",
    "ask_suite": "operate.rollout.suite",
    "read_suite": "operate.rollout.suite_file",
    "Watch": "operate.watch.flow",
    "WatchOptions": "operate.watch.observer",
    "watched_servers": "operate.watch.targets:watched",
    "explain_figure": "predict.explain",
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
    "verify_server": "verify.flow",
    "MatrixRequest": "verify.matrix",
    "run_matrix": "verify.matrix",
    "ServeRequest": "verify.own_server",
    "serve_model": "verify.own_server",
    "VerifyRequest": "verify.session",
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

    if name.startswith(_LAB):  # by way of what says which package a lab lacks, once it is called
        return import_module(f"{__name__}.labs.model").lab_call(name.removeprefix(_LAB))
    module, _, own_name = _HOME[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), own_name or name)
