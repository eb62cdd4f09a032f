"""The house rules that a linter cannot hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "inference_bench"
FILES = sorted(SOURCE.rglob("*.py"))
PURE = [
    "errors", "files", "units", "stats", "origin", "records", "failure_view", "metrics",
    "arrival_proof", "arrival_proof.asked", "arrival_proof.concurrency", "arrival_proof.fit_tests", "arrival_proof.proof",
    "arrival_proof.lateness", "arrival_proof.stability", "decode_window", "token_window",
    "referee", "referee.bounds", "referee.causes", "referee.evidence", "referee.judged", "referee.least", "referee.seen", "referee.subject",
    "report.referee_report", "workload.ramps", "workload.arrival_forms",
    "charts.load_capacity", "charts.load_curve", "charts.load_latency", "charts.load_timeline",
    "definitions", "definitions.recomputed", "definitions.rules", "definitions.samples", "report.proof_report",
    "workload", "roofline", "compare", "charts",
    "facts", "facts.config", "facts.families", "facts.formats", "facts.gguf", "facts.gguf_model", "facts.hardware", "facts.load",
    "facts.mixers", "facts.model_files", "facts.models", "facts.quantization", "facts.quantization_methods", "facts.safetensors",
    "facts.safetensors_index", "facts.safetensors_model",
    "accounting.allocation", "accounting.allocation.llama_cpp", "accounting.allocation.vllm", "accounting.cache",
    "accounting.communication", "accounting.step_operations",
    "accounting.experts", "accounting.layer_split", "accounting.llama_cpp_mix", "accounting.parallel", "accounting.params",
    "accounting.rare_mixers", "accounting.rare_work", "accounting.weight_plan", "accounting.weights", "accounting.work",
    "predict.capacity", "predict.engine_command", "predict.explain", "predict.fit", "predict.latency", "predict.naive_error",
    "predict.naive_causes", "predict.naive_examples", "predict.naive_rows", "predict.naive_study", "charts.naive_error",
    "report.article", "report.article_blocks", "report.article_engines", "report.article_html", "report.article_markdown",
    "report.article_reasons", "report.article_tables",
    "predict.intensities", "predict.phases", "predict.placement", "predict.step_sum", "predict.suggest",
    "predict.efficiency", "predict.efficiency.calibration", "predict.efficiency.expectation", "predict.efficiency.served",
    "predict.engine_choice", "predict.engine_formats", "predict.expected_speeds", "predict.plan_expected", "predict.plan_latency",
    "predict.cost", "predict.deployment", "predict.plan", "predict.plan_assumptions", "predict.plan_checks", "predict.plan_cost",
    "predict.plan_load", "predict.plan_speculation", "predict.plan_verdict", "predict.queueing", "predict.remedies",
    "predict.scenario", "predict.scenario_fields", "predict.speculation", "predict.stated_model", "predict.step_cost",
    "predict.efficiency", "predict.efficiency.calibration", "predict.efficiency.effects", "predict.efficiency.expectation",
    "predict.efficiency.bounds", "predict.efficiency.parameters",
    "predict.efficiency.question", "predict.efficiency.setting", "predict.efficiency.terms",
    "score", "score.calibrated", "score.flow", "score.query", "score.reasons", "score.rows", "score.scoring", "score.summary",
    "charts.accuracy", "charts.batch_panels", "charts.break_even", "charts.ceilings", "charts.context", "charts.labels",
    "charts.memory", "charts.other_roofs", "charts.roof_plot", "charts.roofline", "predict.context_curve", "predict.cost_curve",
    "predict.memory_parts", "report.score_json", "report.score_report",
    "conform", "conform.fault_cases", "conform.framing_cases", "conform.oracle", "conform.pacing", "conform.script",
    "conform.shape_cases", "conform.table",
    "workload.arrivals", "workload.burstiness", "workload.chat_trace", "workload.checks", "workload.generate", "workload.lengths",
    "workload.requests", "workload.servegen", "workload.shared", "workload.trace_formats", "workload.trace_source",
    "workload.trace_values", "workload.traces",
    "simulate", "simulate.answers", "simulate.autoscaling", "simulate.batches", "simulate.block_keys", "simulate.replay",
    "simulate.candidates",
    "simulate.json_text", "simulate.estimate",
    "simulate.capacity", "simulate.disaggregated", "simulate.events", "simulate.failures", "simulate.fleet", "simulate.fleet_outcome",
    "simulate.fleet_plan", "simulate.fleet_setup", "simulate.hit_curve", "simulate.kv_blocks", "simulate.outcome", "simulate.pool",
    "simulate.presets", "simulate.replica", "simulate.routing", "simulate.run", "simulate.scheduler", "simulate.sequence",
    "simulate.served", "simulate.server", "simulate.settings", "simulate.step_profile", "simulate.step_sources",
    "simulate.step_table", "simulate.step_time", "simulate.step_work", "simulate.study", "simulate.summary", "simulate.sweep",
    "simulate.processes", "simulate.rate_search", "simulate.ray_tasks", "charts.panels", "charts.simulation", "charts.simulation_runs",
    "simulate.kernel.admission", "simulate.kernel.batch_steps", "simulate.kernel.decoders", "simulate.kernel.engine",
    "simulate.kernel.pricing", "simulate.kernel.state", "simulate.kernel.steps",
    "calibrate.steps", "calibrate.steps.candidates", "calibrate.steps.choosing", "calibrate.steps.columns", "calibrate.steps.fitting",
    "calibrate.steps.forms", "calibrate.steps.intervals", "calibrate.steps.observations", "calibrate.steps.reading",
    "calibrate.steps.solving", "gap", "gap.parts", "gap.step_parts", "gap.part_words", "gap.decompose", "gap.proposals", "gap.changes",
    "gap.reading", "charts.waterfall", "charts.step_fit",
    "calibrate", "calibrate.comparison", "calibrate.fitting", "calibrate.least_squares", "calibrate.log", "calibrate.log_meta",
    "calibrate.served_log",
    "report.against_report", "report.capacity_json", "report.capacity_report", "report.simulate_json", "report.simulate_report",
    "report.closed_loop_answers", "report.closed_loop_words", "report.closed_loop_tables", "report.closed_loop_html",
    "report.closed_loop_text", "report.closed_loop_json", "report.findings", "report.key_figures", "report.result_tables",
    "report.text_result", "report.json_result", "report.identity_rows", "charts.load_check", "charts.batch", "charts.two_runs",
    "report", "report.explain_report", "report.fit_json", "report.fit_report", "report.roofline_report", "report.tables_report",
    "report.html_pieces", "report.key_figure", "report.table", "report.verify_html", "report.wording",
    "report.picture", "report.plan_cost_report", "report.plan_interval_report", "report.plan_json", "report.plan_report",
    "operate", "operate.answers", "operate.client", "operate.client.attempts", "operate.client.backoff", "operate.client.breaker",
    "operate.client.budget", "operate.client.client", "operate.client.connections", "operate.client.course",
    "operate.client.failures", "operate.client.hedge", "operate.client.opening", "operate.client.policy", "operate.client.reading",
    "operate.client.request", "operate.contract.catalog",
    "operate.ledger.busy", "operate.ledger.entry", "operate.ledger.names", "operate.ledger.repeats", "operate.ledger.totals",
    "operate.ledger.money", "charts.ledger", "report.ledger_json", "report.ledger_report", "report.ledger_tables", "report.ledger_notes",
    "charts.canary", "charts.drill", "report.decision_report", "report.shadow_report",
    "manifest", "manifest.canonical", "manifest.components", "manifest.hashing", "manifest.folder", "manifest.from_gguf",
    "manifest.adapters", "manifest.lineage", "manifest.compare", "manifest.store", "manifest.export", "report.manifest_report",
    "operate.watch", "operate.watch.states", "operate.watch.targets", "operate.watch.fetch", "operate.watch.page",
    "operate.watch.history", "operate.watch.evidence", "operate.watch.judge", "operate.watch.observer", "operate.watch.flow",
    "operate.watch.exporter", "operate.watch.rule_files", "report.watch_report",
]  # fmt: skip
PURE += ["labs.settings", "labs.checks", "labs.head"]
PURE += [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for pattern in ("labs/*/request.py", "labs/*/result.py", "report/lab_*.py", "charts/lab_*.py")
    for path in sorted(SOURCE.glob(pattern))
]

BLOCKED_IMPORTS = """
import sys
class OnlyStandardLibrary:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "inference_bench":
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, OnlyStandardLibrary())
sys.path.insert(0, sys.argv[1])
import importlib
for name in sys.argv[2:]:
    importlib.import_module(f"inference_bench.{name}")
print(len(sys.argv[2:]))
"""


def test_the_pure_modules_import_with_everything_but_the_standard_library_blocked() -> None:
    command = [sys.executable, "-I", "-c", BLOCKED_IMPORTS, str(SOURCE.parent), *PURE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == str(len(PURE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_function_is_over_60_lines_and_no_file_over_400(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400, path
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno + 1 <= 60, f"{path}:{node.lineno} {node.name}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != "units.py"], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_scale_factors_live_in_units_alone(path: Path) -> None:
    code = "\n".join(line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines())
    found = re.findall(
        r"(?<![\w.\"'])(?:1e[369]|1e12|1e15|10\*\*(?:3|6|9|12)|2\*\*[1-6]0|1024 ?\*\* ?\d)(?![\w.])", code
    )
    assert not found, f"{path}: {found}"


def test_no_input_is_checked_with_assert() -> None:
    asserts = [
        f"{path}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert asserts == []
