from __future__ import annotations

import importlib
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.commands import refused
from inference_bench.cli.lab_options import LABS
from inference_bench.cli.main import main
from inference_bench.errors import StorageError
from inference_bench.labs.checks import missed
from inference_bench.labs.settings import LabSettings
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.lab_page import LabPage
from labs.made_page import MadeResult, made

FLOW, PAGE = "inference_bench.labs.{}.flow", "inference_bench.report.lab_{}"


class Stub:
    """A lab that takes no time: what it was asked, and a page of plain values."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_missed = False

    def run_lab(self, request: Any, progress: Any = None) -> Any:
        progress("cache: halfway")
        self.asked.append(request)
        page = made(is_missed=self.is_missed)
        return MadeResult(page.head, page.checks)

    def lab_page(self, result: MadeResult) -> LabPage:
        return made(is_missed=bool(missed(result.checks)))

    def settings(self) -> LabSettings:
        found = self.asked[-1].settings
        assert isinstance(found, LabSettings)
        return found


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made_up = Stub()
    for lab in LABS:
        monkeypatch.setitem(sys.modules, FLOW.format(lab), SimpleNamespace(run_lab=made_up.run_lab))
        monkeypatch.setattr(f"{PAGE.format(lab)}.lab_page", made_up.lab_page)
    return made_up


@pytest.mark.parametrize("lab", LABS)
def test_every_lab_prints_its_page_and_passes_on_what_was_asked(
    stub: Stub, capsys: pytest.CaptureFixture[str], lab: str
) -> None:
    assert main(["lab", lab, "--quick", "--threads", "2", "--seed", "9"]) == 0
    assert stub.settings() == LabSettings(num_threads=2, seed=9, is_quick=True)
    shown = capsys.readouterr()
    assert "saves 31 times" in shown.out
    assert shown.err == ""  # no progress where nobody watches


@pytest.mark.parametrize("lab", [lab for lab in LABS if lab != "machine"])
def test_a_model_and_its_commit_are_passed_on(stub: Stub, capsys: pytest.CaptureFixture[str], lab: str) -> None:
    assert main(["lab", lab, "--model", "org/name", "--revision", "c0ffee"]) == 0
    assert (stub.settings().model, stub.settings().revision) == ("org/name", "c0ffee")


def test_a_check_that_did_not_hold_ends_with_1_and_is_printed(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.is_missed = True
    assert main(["lab", "cache"]) == 1
    assert "  MISSED  " in capsys.readouterr().out
    assert main(["lab", "cache", "--json"]) == 1


def test_json_is_one_object_that_names_the_lab(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "batch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "inference-bench/lab-batch/1"
    assert found["head"]["question"]
    assert found["checks"][0]["is_met"] is True


def test_a_report_is_written_and_its_place_is_said(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lab.html"
    assert main(["lab", "cache", "--quick", "--report", str(file)]) == 0
    assert capsys.readouterr().out.endswith(f"report: {file}\n")
    page = file.read_text()
    assert "How to repeat it" in page
    assert "inference-bench lab cache --quick --report" in page.replace("</span> <span>", " ")


def test_a_lab_without_a_drawing_says_so_where_a_chart_is_wanted(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PAGE.format('cache')}.lab_page", lambda _result: replace(made(), drawings=()))
    assert main(["lab", "cache", "--chart", str(tmp_path / "a.svg")]) == 2
    shown = capsys.readouterr()
    assert "nothing to draw" in shown.err
    assert "saves 31 times" in shown.out  # what was measured is not lost with it


def test_the_first_chart_that_has_data_is_drawn(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Drawing("none", "", lambda _width: None)
    page = made()
    monkeypatch.setattr(f"{PAGE.format('cache')}.lab_page", lambda _r: replace(page, drawings=(empty, *page.drawings)))
    assert main(["lab", "cache", "--chart", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["mark"] == "line"


def test_a_disk_that_is_full_does_not_lose_what_was_measured(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_arguments: object) -> None:
        raise StorageError("no space left on device")

    monkeypatch.setattr("inference_bench.cli.lab.write_report", full)
    assert main(["lab", "cache", "--json", "--report", str(tmp_path / "a.html")]) == 3
    assert json.loads(capsys.readouterr().out)["schema"] == "inference-bench/lab-cache/1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--threads", "0"), "0 threads cannot compute"),
        (("--threads", "abc"), "threads 'abc'"),
        (("--seed", "x"), "seed 'x'"),
        (("--revision", "main"), "name that model too"),
        (("--chart", "a.png"), "of no known kind"),
        (("--report", "a.svg"), "of no known kind"),
        (("--chart", "none/a.svg"), "a folder that is not there"),
        (("--report", "none/a.html"), "a folder that is not there"),
        (("--chart", "a.html", "--report", "a.html"), "a file of its own"),
        (("--report", "closed/a.html"), "may not be written"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_run(
    stub: Stub,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr("os.access", lambda path, _mode: "closed" not in str(path))
    assert said in refused(capsys, "lab", "cache", *words)
    assert stub.asked == []


@pytest.mark.parametrize("words", [("lab",), ("lab", "nothing"), ("lab", "machine", "--model", "m")])
def test_what_is_no_lab_is_one_line_and_names_the_help(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_names_every_lab_and_every_lab_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lab", "--help"])
    said = capsys.readouterr().out
    assert all(re.search(rf"^ +{lab}\b", said, re.MULTILINE) for lab in LABS)
    for lab in LABS:
        with pytest.raises(SystemExit):
            main(["lab", lab, "--help"])
        said = capsys.readouterr().out
        assert all(option in said for option in ("--json", "--quick", "--threads", "--seed", "--chart", "--report"))
        assert ("--model" in said) == (lab != "machine")
        assert max(map(len, said.split("\n"))) <= 120


def test_no_lab_is_loaded_before_one_runs() -> None:
    code = (
        "import sys\nfrom inference_bench.cli.main import build_parser\nbuild_parser()\n"
        "heavy = {'torch', 'transformers', 'llguidance', 'numpy', 'marimo', 'inference_bench.labs.model'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("lab", LABS)
def test_without_pytorch_the_command_that_installs_it_is_said(lab: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from inference_bench.cli.main import main\n"
        f"sys.exit(main(['lab', {lab!r}, '--quick']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert "pip install 'inference-bench[labs]'" in done.stderr


def test_ctrl_c_ends_with_130_and_one_line() -> None:
    code = (
        "import sys, time, types\n"
        "def run_lab(request, progress):\n    print('running', flush=True)\n    time.sleep(60)\n"
        "sys.modules['inference_bench.labs.cache.flow'] = types.SimpleNamespace(run_lab=run_lab)\n"
        "from inference_bench.cli.main import main\nsys.exit(main(['lab', 'cache']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as lab:
        assert lab.stdout is not None
        assert lab.stderr is not None
        assert lab.stdout.readline() == "running\n"
        start_s = time.perf_counter()
        lab.send_signal(signal.SIGINT)
        assert lab.wait(timeout=20) == 130
        assert lab.stderr.read() == "inference-bench: interrupted\n"
        assert time.perf_counter() - start_s < 10


@pytest.mark.parametrize("lab", LABS)
def test_every_lab_has_a_page_of_its_own_result(lab: str) -> None:
    assert callable(importlib.import_module(PAGE.format(lab)).lab_page)
