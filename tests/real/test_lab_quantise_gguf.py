"""A served file of another format: its bytes, its perplexity beside that of its own weights, and a server that is gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from inference_bench.convert.plan import read_source
from inference_bench.engines.base import LLAMA_CPP
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.engines.process import ServerProcess
from inference_bench.engines.start import EngineSettings, start_engine
from inference_bench.labs.quantise import gguf_quality
from inference_bench.labs.quantise.gguf_files import EngineFile, write_engine_file
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.windows import Windows

pytestmark = pytest.mark.real_engine


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> EngineFile:
    source = read_source(ensure_embedded_model().path)
    return write_engine_file(source, "q4_0", tmp_path_factory.mktemp("gguf"), lambda _line: None)


def test_its_tensors_are_those_that_fit_counts(file: EngineFile) -> None:
    # 106,168,320 weights in the layers at 18 bytes of 32, a table of 49,152 x 576 at 34 of 32, 35,136 norms of 4
    assert file.tensor_bytes == 106_168_320 * 18 // 32 + 49_152 * 576 * 34 // 32 + 35_136 * 4 == file.counted.total


def test_a_server_is_stopped_when_scoring_is_interrupted(
    file: EngineFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ServerProcess] = []

    def noted(*args: object, **kwargs: object) -> object:
        server = start_engine(*args, **kwargs)  # type: ignore[arg-type]
        started.append(server)  # type: ignore[arg-type]
        return server

    def interrupted(*_: object) -> None:
        assert started[0].is_running()
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_quality, "start_engine", noted)
    monkeypatch.setattr(gguf_quality, "engine_perplexity", interrupted)
    plan = gguf_quality._Plan(Windows(0, 24, (tuple(range(100, 124)),)), 4, 1, 1, None)  # type: ignore[arg-type]
    session = LabSession("quantise", "", LabSettings(num_threads=1))
    with pytest.raises(KeyboardInterrupt):
        gguf_quality._served(file, "q4_0", tmp_path, session, plan)
    assert not started[0].is_running()


@pytest.mark.parametrize("fmt", ["q5_0", "mxfp4"])  # iq4_nl is searched for minutes
def test_formats_that_only_the_engine_writes_are_formats_it_serves(tmp_path: Path, fmt: str) -> None:
    source = read_source(ensure_embedded_model().path)
    file = write_engine_file(source, fmt, tmp_path, lambda _line: None)
    settings = EngineSettings(context_tokens=64, num_slots=1, num_threads=1)
    with start_engine(LLAMA_CPP, file.path, settings, log_path=tmp_path / "log") as server:
        assert server.is_running()
    file.path.unlink()
