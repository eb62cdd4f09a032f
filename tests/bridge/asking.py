"""Questions to the bridge as the page puts them, and the same on the command line."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from inference_bench import bridge
from inference_bench.cli.main import main
from inference_bench.page.core_archive import core_archive

HOSTILE = (
    "nan", "inf", "1e999", "-1", "-1e5", "", "0", "0.5", "x" * 5_000_000, "x" * 4000, "\u00fcn\u00ef\u202e\x07", "a\nb", "1\n2",
    "99999999999999999999999999", "1e-30", "\u00bd", "\u0663", "1,2", "1:2", "--help", "<script>alert(1)</script>", "1e9", "none", "own",
)  # fmt: skip
STDLIB_ONLY = """
import sys
class OnlyStandardLibrary:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "inference_bench":
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, OnlyStandardLibrary())
sys.path.insert(0, sys.argv[1])
import json
from inference_bench import bridge
print(json.dumps(bridge.answer(json.loads(sys.argv[2])), sort_keys=True))
"""
MAX_MESSAGE_CHARS = 700
OWN_NUMBERS = frozenset({"memory", "bandwidth", "peak", "interconnect"})
_FORBIDDEN = re.compile(r"<script|\sstyle=|\son\w+=|javascript:", re.IGNORECASE)

Json = dict[str, Any]


def steps(view: str, width: str | None = "wide", **fields: str) -> list[Json]:
    return list(bridge.steps({"view": view, "fields": fields, "width": width}))


def ask(view: str, **fields: str) -> Json:
    """The answer as the page gets it: through JSON."""
    last: Json = json.loads(json.dumps(steps(view, **fields)[-1], allow_nan=False))
    return last


def answered(view: str, **fields: str) -> Json:
    found = ask(view, **fields)
    assert "error" not in found, found["error"]
    return found


def refused(view: str, **fields: str) -> tuple[str | None, str]:
    error = ask(view, **fields)["error"]
    return error["field"], error["message"]


def on_the_command_line(
    found: Json, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Json:
    """What the equivalent command line prints, in a folder with the files that it names."""
    for name, text in found["files"].items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(found["command"])
    assert program == "inference-bench"
    assert main([*arguments, "--json"]) in (0, 1), capsys.readouterr().err
    shown: Json = json.loads(capsys.readouterr().out)
    return shown


def as_in_a_browser(folder: Path, view: str, **fields: str) -> Json:
    """The answer of the modules that the page ships, with every other package but the standard library blocked."""
    with zipfile.ZipFile(io.BytesIO(core_archive())) as archive:
        archive.extractall(folder)
    request = json.dumps({"view": view, "fields": fields, "width": "wide"})
    done = subprocess.run(
        [sys.executable, "-I", "-c", STDLIB_ONLY, str(folder), request], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    found: Json = json.loads(done.stdout)
    return found


def require_harmless(html: str) -> None:
    """Nothing that the page's policy forbids, and nothing that a field's text could have brought along."""
    assert _FORBIDDEN.search(html) is None


def require_survives(view: str, name: str, text: str, **others: str) -> None:
    """A hostile text in a field is an answer, or an error of one sentence that names the field."""
    found = ask(view, **{**others, name: text})
    if "error" in found:
        error = found["error"]
        is_of_own = error["field"] == "on" and name in OWN_NUMBERS  # what they make together is no machine
        assert error["field"] == name or is_of_own, error
        assert 10 < len(error["message"]) < MAX_MESSAGE_CHARS
        assert "mistake of this program" not in error["message"]
    else:
        require_harmless(found["html"])
