"""The embedded model converted: the engine serves it, its tokenizer gives the engine's ids, and its logits are the engine's."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_bench.convert.cached import KeptModel, kept_conversion
from inference_bench.convert.flow import ConversionRequest, convert_model
from inference_bench.engines.answers import ask_server
from inference_bench.engines.embedded_model import EmbeddedModel, ensure_embedded_model
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.measure.target import Target

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")
tokenizers = pytest.importorskip("tokenizers")

OTHER_PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
PROGRAM = Path(__file__).with_name("logprobs_of_folder.py")
PROMPTS = (
    "The capital of France is",
    "def fib(n):\n    return",
    "日本の首都は",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time there was a fox who lived in a forest with many other animals. Every day",
)
TEXTS = (
    "",
    " ",
    "\n",
    " \n \n  a",
    "Hello world",
    "  leading",
    "trailing  ",
    "a\n\n\nb\r\n c\t\td",
    "1234567 3.14 ٣٤٥ ½ Ⅷ x²³ ①②",
    "it's we've I'LL don't",
    "日本語のテキスト、中文文本 한국어",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|>x<repo_name>y<file_sep> <|im_start|",
    "é e\u0301 ﬁ \u00a0nbsp\u2003em\u200bzw \ufeffbom \u2028ls",
    "    def f(x):\n        return x**2  # ok",
    "ملاحظة नमस्ते दुनिया 𝔘𝔫𝔦 ſ K",
    "a" * 300,
)
POOLS = (
    range(32, 127),
    range(0x4E00, 0x4F00),
    range(0x1F600, 0x1F640),
    (9, 10, 13, 32, 0xA0, 0x3000),
    range(48, 58),
    range(0x400, 0x460),
    range(0x300, 0x320),
)


def drawn_texts(count: int) -> list[str]:
    draw = random.Random(1)
    return ["".join(chr(draw.choice(draw.choice(POOLS))) for _ in range(draw.randint(1, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    return ensure_embedded_model()


@pytest.fixture(scope="module")
def folder(model: EmbeddedModel) -> KeptModel:
    return kept_conversion(model.path, model.sha256, "hf")


@pytest.fixture(scope="module")
def server(model: EmbeddedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    """The engine on the model in single precision, with a cache in single precision."""
    kept = kept_conversion(model.path, model.sha256, "f32")
    config = HostConfig(
        str(kept.path), kept.path.stem, 512, 1, os.cpu_count() or 1, cache_type_k="f32", cache_type_v="f32"
    )
    log_path = tmp_path_factory.mktemp("converted") / "engine.log"
    with LlamaCppServer.start(config, log_path=log_path, model_sha256=kept.sha256) as running:
        assert running.figures.model_bytes == kept.tensor_bytes == 538_060_032
        yield running


def ask(server: LlamaCppServer, path: str, body: dict[str, Any]) -> Any:
    return ask_server(Target(server.base_url), path, 60.0, body)


def test_the_embedded_model_in_its_own_formats_is_itself_to_the_bit(model: EmbeddedModel, tmp_path: Path) -> None:
    made = convert_model(ConversionRequest(model.path, tmp_path / "same.gguf", "q4_1"))
    assert made.target_sha256 == model.sha256
    assert made.counted_bytes == 96_576_768


def test_the_tokenizer_of_the_folder_gives_the_ids_of_the_engine(server: LlamaCppServer, folder: KeptModel) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    texts = [*TEXTS, *drawn_texts(200)]
    different = []
    for text in texts:
        asked = {"content": text, "add_special": True, "parse_special": True}
        if ask(server, "/tokenize", asked)["tokens"] != tokenizer.encode(text).ids:
            different.append(text)
    assert different == []


@pytest.mark.vllm
def test_transformers_finds_the_logits_of_the_engine_with_the_folder(server: LlamaCppServer, folder: KeptModel) -> None:
    """Largest difference seen: 0.005, where a wrong order of rows or a wrong rotation changes whole nats."""
    if not OTHER_PYTHON.exists():
        pytest.skip("there is no .venv-vllm (make vllm-env)")
    command = [str(OTHER_PYTHON), str(PROGRAM), str(folder.path), json.dumps(PROMPTS)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["loading"] == {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}
    assert said["chat"].endswith("<|im_start|>user\nhi<|im_end|>\n")
    assert len(said["prompts"]) == len(PROMPTS)
    for found in said["prompts"]:
        asked = {"prompt": found["ids"], "n_predict": 1, "n_probs": 20, "temperature": 0, "cache_prompt": False}
        reply = ask(server, "/completion", asked)
        engine = {entry["id"]: entry["logprob"] for entry in reply["completion_probabilities"][0]["top_logprobs"]}
        both = [(score, engine[index]) for index, score in found["top"] if index in engine]
        assert len(both) >= 18
        assert max(abs(theirs - ours) for theirs, ours in both) < 0.02
