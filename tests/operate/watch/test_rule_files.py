"""The alert rules and the dashboard: known names only, every rule tested both ways, and promtool's own verdict where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inference_bench.measure.server_metrics import WANTED
from inference_bench.operate.watch.exporter import EXPORTED
from inference_bench.operate.watch.page import _OWN
from inference_bench.operate.watch.rule_files import RULE_FILES, read_rule_file, write_rule_files

yaml = pytest.importorskip("yaml")

# names beside those that are read here: vLLM, "Production Metrics" and its design page; SGLang, "Production Metrics"
ALSO = {
    "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket", "vllm:request_success_total",
    "sglang:time_to_first_token_seconds_bucket", "sglang:inter_token_latency_seconds_bucket", "sglang:num_requests_total",
    "sglang:http_responses_total", "sglang:num_aborted_requests_total", "http_requests_total",
}  # fmt: skip
KNOWN = WANTED | _OWN | EXPORTED | ALSO
NAME = re.compile(r"\b(?:vllm|sglang|llamacpp):[a-z0-9_]+|\binference_bench_[a-z0-9_]+|\bhttp_[a-z0-9_]+")
GROUPS = {"vllm": "vllm:", "sglang": "sglang:", "llamacpp": "llamacpp:", "exporter": "inference_bench_"}


def rules() -> list[tuple[str, dict[str, Any]]]:
    groups = yaml.safe_load(read_rule_file("alerts.yml"))["groups"]
    return [(group["name"].removeprefix("inference-bench-"), rule) for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found = json.loads(read_rule_file("grafana.json"))
    assert isinstance(found, dict)
    return found


def targets() -> list[dict[str, Any]]:
    return [target for panel in dashboard()["panels"] if panel["type"] != "row" for target in panel["targets"]]


def test_rules_use_only_names_that_servers_or_the_exporter_have_and_of_their_own_group() -> None:
    for group, rule in rules():
        names = set(NAME.findall(rule["expr"]))
        assert names, rule["alert"]
        assert names <= KNOWN, (rule["alert"], names - KNOWN)
        assert any(name.startswith(GROUPS[group]) for name in names), rule["alert"]


def test_every_rule_has_a_severity_a_summary_and_what_to_think_of_it() -> None:
    names = [rule["alert"] for _, rule in rules()]
    assert len(names) == len(set(names)) == 36
    for _, rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize(
    ("what", "groups"),
    [
        ("QueueGrowing", {"vllm", "sglang", "llamacpp", "exporter"}),
        ("SaturationAhead", {"vllm", "sglang", "llamacpp", "exporter"}),
        ("Stalled", {"vllm", "sglang", "llamacpp", "exporter"}),
        ("TtftP99High", {"vllm", "sglang"}),
        ("PreemptionsWorsenT", {"vllm", "sglang", "exporter"}),
        ("Errors", {"vllm", "sglang", "exporter"}),
        ("Timeouts", {"vllm", "sglang", "exporter"}),
        ("NotReady", {"exporter"}),
        ("WatchDown", {"exporter"}),
    ],
)
def test_what_has_to_be_told_is_told_wherever_a_server_says_it(what: str, groups: set[str]) -> None:
    assert {group for group, rule in rules() if what in rule["alert"]} == groups


def test_every_rule_is_tested_where_it_fires_and_where_it_is_silent() -> None:
    fires, silent = set(), set()
    for test in yaml.safe_load(read_rule_file("alerts_test.yml"))["tests"]:
        for case in test["alert_rule_test"]:
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
    names = {rule["alert"] for _, rule in rules()}
    assert (fires, silent) == (names, names)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_runs_every_test_of_every_rule(tmp_path: Path) -> None:
    write_rule_files(tmp_path)
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_a_rule_that_is_removed_fails_the_tests_of_the_rules(tmp_path: Path) -> None:
    write_rule_files(tmp_path)
    tests = yaml.safe_load((tmp_path / "alerts_test.yml").read_text())
    tests["tests"] = [test for test in tests["tests"] if test["name"].startswith("InferenceServerNotAlive")]
    (tmp_path / "alerts_test.yml").write_text(yaml.safe_dump(tests))
    text = (tmp_path / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(text.replace("inference_bench_up == 0", "inference_bench_up == 5"))
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "InferenceServerNotAlive" in done.stdout + done.stderr


def test_the_dashboard_has_a_data_source_variable_that_every_target_uses() -> None:
    found = dashboard()
    variables = {each["name"]: each["type"] for each in found["templating"]["list"]}
    assert variables == {"datasource": "datasource", "target": "query", "instance": "query"}
    assert {json.dumps(target["datasource"]) for target in targets()} == {
        '{"type": "prometheus", "uid": "${datasource}"}'
    }


def test_every_panel_has_targets_of_known_names_a_place_and_words() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert all(panel["targets"] and panel["description"] for panel in panels if panel["type"] != "row")
    for target in targets():
        names = set(NAME.findall(target["expr"]))
        assert names, target
        assert names <= KNOWN, names - KNOWN


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_files_are_written_whole_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        written = write_rule_files(tmp_path / "rules")
        assert [path.name for path in written] == list(RULE_FILES)
        assert (tmp_path / "rules" / "alerts.yml").read_text() == read_rule_file("alerts.yml")
