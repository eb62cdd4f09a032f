"""Starts of a real vLLM, one after the other: killed under way, refused, and with its cache under several settings."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engines.test_process import wait_until_gone
from inference_bench.engines.folder_server import Launch
from inference_bench.engines.ports import choose_port
from inference_bench.engines.vllm import STARTUP_TIMEOUT_S, VllmConfig, VllmServer, find_vllm
from inference_bench.errors import ServerStartError
from inference_bench.facts.load import load_model
from inference_bench.verify.memory_table import VLLM_CASES, memory_table
from real.vllm_model import ONLY_WHERE_IT_IS, model_folder

pytestmark = ONLY_WHERE_IT_IS


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_folder()


KILLED = """
import sys, time
from pathlib import Path
from inference_bench.engines import keeper
from inference_bench.engines.vllm import VllmConfig, VllmServer, find_vllm, vllm_command, vllm_environment
from inference_bench.engines.process import ServerProcess
config = VllmConfig(sys.argv[1], "m", context_tokens=512, cache_bytes=1 << 28, eager=True)
process = ServerProcess.keep(vllm_command(config, find_vllm(), int(sys.argv[3])), log_path=Path(sys.argv[2]), env=vllm_environment(config))
while len(pids := keeper.descendants(process.pid)) < 3:
    time.sleep(0.1)
print(process.pid, *pids, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_of_it_outlives_the_program_that_started_it(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "log"), str(choose_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(each) for each in parent.stdout.readline().split()]
        assert len(pids) >= 4, "the keeper, the server, and what it has started by then"
        parent.send_signal(number)
        parent.wait(60)
        assert all(map(wait_until_gone, pids))


@pytest.mark.parametrize(
    ("flags", "context_tokens", "words"),
    [
        ({"no-such-thing": True}, 512, r"unrecognized arguments: --no-such-thing .*has no such setting"),
        ({}, 99_999, r"max_model_len \(99999\) is greater than .*a context that the model was made for"),
    ],
)
def test_what_it_refuses_is_said_in_its_own_words_and_one_line(
    folder: Path, tmp_path: Path, flags: dict[str, bool], context_tokens: int, words: str
) -> None:
    config = VllmConfig(str(folder), "m", context_tokens=context_tokens, extra_flags=flags)
    with pytest.raises(ServerStartError, match=words) as caught:
        VllmServer.start(config, find_vllm(), Launch(tmp_path / "log", STARTUP_TIMEOUT_S))
    assert "\n" not in str(caught.value)


def test_its_cache_is_the_one_that_was_counted_under_every_setting_that_it_takes(folder: Path, tmp_path: Path) -> None:
    table = memory_table(VLLM_CASES, {"vllm": folder}, load_model(str(folder)).spec, tmp_path)
    assert [(row.setting, row.what, row.unit, row.difference) for row in table.rows if row.difference != 0] == []
    refused = {refusal.case.setting: refusal.words for refusal in table.refused}
    assert len(table.rows) + 2 * len(refused) == 2 * len(VLLM_CASES)
    assert len(table.rows) >= 4
    (small,) = (words for setting, words in refused.items() if setting.startswith("300 MiB"))
    assert "To serve at least one request" in small
