"""Alert rules and a dashboard that come with this package, written out as files.

In:   a folder
Out:  alerts.yml for Prometheus, alerts_test.yml for `promtool test rules`, grafana.json
Leaves out: loading them into anything
Read next by: cli.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from inference_bench.errors import StorageError
from inference_bench.files import require_file_name, shown_name, write_whole

RULE_FILES: Final = ("alerts.yml", "alerts_test.yml", "grafana.json")


def read_rule_file(name: str) -> str:
    """The text of one of them."""
    return (files("inference_bench.operate.watch") / "data" / name).read_text(encoding="utf-8")


def write_rule_files(folder: Path) -> tuple[Path, ...]:
    """Write all of them; the folder is made where it is not there, and files of these names are replaced.

    Raises:   RequestError for a name that cannot be one; StorageError
    """
    require_file_name(str(folder), "folder of the rules")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{shown_name(folder)} cannot be made: {(error.strerror or 'unknown').lower()}") from None
    written = []
    for name in RULE_FILES:
        write_whole(folder / name, read_rule_file(name))
        written.append(folder / name)
    return tuple(written)
