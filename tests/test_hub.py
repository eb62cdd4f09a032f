from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from facts.test_gguf_model import write_model
from hub_server import FakeHub, RemoteFile, running
from inference_bench import hub as hub_module
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.cli.main import main
from inference_bench.errors import (
    DownloadError,
    InferenceBenchError,
    MissingExtraError,
    ModelConfigError,
    ModelFileError,
    RequestError,
    UnknownNameError,
)
from inference_bench.facts.models import LoadedModel
from inference_bench.hub import load_model, parse_hub_id

D, F, V, LAYERS, HEADS, KV, H = 64, 96, 100, 3, 4, 2, 16
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": D,
    "intermediate_size": F,
    "vocab_size": V,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": H,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
TOKEN = "hf_notarealtokenatallx"


def shapes() -> dict[str, list[int]]:
    found = {"model.embed_tokens.weight": [V, D], "lm_head.weight": [V, D], "model.norm.weight": [D]}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        found |= {
            at + "self_attn.q_proj.weight": [HEADS * H, D],
            at + "self_attn.k_proj.weight": [KV * H, D],
            at + "self_attn.v_proj.weight": [KV * H, D],
            at + "self_attn.o_proj.weight": [D, HEADS * H],
            at + "mlp.gate_proj.weight": [F, D],
            at + "mlp.up_proj.weight": [F, D],
            at + "mlp.down_proj.weight": [D, F],
            at + "input_layernorm.weight": [D],
            at + "post_attention_layernorm.weight": [D],
        }
    return found


def safetensors_file(tensors: dict[str, list[int]]) -> RemoteFile:
    at, header = 0, {}
    for name, shape in tensors.items():
        num_bytes = 2
        for size in shape:
            num_bytes *= size
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + num_bytes]}
        at += num_bytes
    text = json.dumps(header).encode()
    head = struct.pack("<Q", len(text)) + text
    return RemoteFile(head, len(head) + at, readable=len(head))


def text_file(value: Any) -> RemoteFile:
    return RemoteFile(value if isinstance(value, bytes) else json.dumps(value).encode())


def sharded() -> dict[str, RemoteFile]:
    names = list(shapes())
    parts = {"model-00001-of-00002.safetensors": names[:10], "model-00002-of-00002.safetensors": names[10:]}
    files = {shard: safetensors_file({name: shapes()[name] for name in held}) for shard, held in parts.items()}
    index = {
        "metadata": {"total_size": 1},
        "weight_map": {name: shard for shard, held in parts.items() for name in held},
    }
    return files | {"model.safetensors.index.json": text_file(index), "config.json": text_file(CONFIG)}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub (extra hub) is not installed")
    repos = {
        "org/single": {
            "config.json": text_file(CONFIG),
            "model.safetensors": safetensors_file(shapes()),
            "a.bin": RemoteFile(b"", 1 << 40, 0),
        },
        "org/sharded": sharded(),
        "org/bin-only": {"config.json": text_file(CONFIG), "pytorch_model.bin": RemoteFile(b"", 1 << 40, 0)},
        "org/empty": {"README.md": text_file(b"hello")},
    }
    with running(FakeHub(repos)) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1,localhost")
        yield fake


@pytest.mark.parametrize("repo", ["org/single", "org/sharded", "org/sharded@v2"])
def test_a_model_is_sized_from_its_headers_and_nothing_else_is_read(hub: FakeHub, repo: str) -> None:
    model = load_model(repo)
    weights = count_loaded_weights(model)
    params = count_params(model.spec)
    assert weights.total == 2 * params.total == 2 * sum(tensor.num_values for tensor in model.tensors or ())
    assert (weights.embedding, weights.head, weights.norm) == (2 * V * D, 2 * V * D, 2 * (2 * LAYERS + 1) * D)
    assert weights.attention == 2 * params.attention
    assert hub.refused == []
    assert hub.num_bytes_sent < 40_000


def test_the_file_s_own_formats_are_counted_not_the_config_s(hub: FakeHub) -> None:
    hub.repos["org/single"]["config.json"] = text_file(CONFIG | {"torch_dtype": "float32"})
    assert count_loaded_weights(load_model("org/single")).format_name == "bf16"


def test_a_redirect_to_another_host_is_followed_without_the_token(hub: FakeHub) -> None:
    hub.redirects = True
    assert load_model("org/single").tensors
    assert any(value and TOKEN in value for value in hub.authorizations)
    assert None in hub.authorizations


def test_a_model_without_safetensors_is_counted_from_its_config(hub: FakeHub) -> None:
    model = load_model("org/bin-only")
    assert model.tensors is None
    assert count_loaded_weights(model).total == 2 * count_params(model.spec).total
    assert hub.refused == []


def test_a_gguf_file_is_sized_by_range(hub: FakeHub, tmp_path: Path) -> None:
    raw = write_model(tmp_path / "m.gguf").read_bytes()
    hub.repos["org/gguf"] = {"m.Q8_0.gguf": RemoteFile(raw), "other.gguf": RemoteFile(raw)}
    from inference_bench.facts.gguf_model import load_gguf

    model = load_model("org/gguf/m.Q8_0.gguf")
    assert model.spec.layers == load_gguf(tmp_path / "m.gguf").spec.layers
    with pytest.raises(RequestError, match=r"2 GGUF files.*m\.Q8_0\.gguf"):
        load_model("org/gguf")
    with pytest.raises(RequestError, match="2 GGUF files"):
        load_model("org/gguf/none.gguf")


def test_quantisation_written_beside_the_config_is_read(hub: FakeHub) -> None:
    hub.repos["org/bin-only"]["hf_quant_config.json"] = text_file(
        {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    )
    weights = count_loaded_weights(load_model("org/bin-only"))
    assert weights.linear_format.name == "fp8-tensor"
    assert weights.head == 2 * V * D


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("org/nothing", UnknownNameError, "org/nothing"),
        ("org/single@v9", UnknownNameError, "v9"),
        ("org/empty", ModelConfigError, r"no config\.json"),
        ("org/gated", DownloadError, "gated"),
        ("org/broken", ModelFileError, "shard model-00002-of-00002.safetensors .* missing"),
        ("org/lying", ModelFileError, "lacks the tensor"),
        ("org/nan", ModelConfigError, "NaN"),
        ("org/page", DownloadError, "web page"),
        ("org/binary", ModelConfigError, "UTF-8"),
    ],
)
def test_what_the_hub_cannot_give_is_one_line_of_the_right_class(
    hub: FakeHub, name: str, kind: type[InferenceBenchError], message: str
) -> None:
    hub.repos["org/gated"], hub.gated = hub.repos["org/single"], {"org/gated"}
    hub.repos["org/broken"] = {k: v for k, v in sharded().items() if k != "model-00002-of-00002.safetensors"}
    hub.repos["org/lying"] = sharded() | {"model-00002-of-00002.safetensors": safetensors_file({"x": [1]})}
    hub.repos["org/nan"] = {"config.json": text_file(b'{"hidden_size": NaN}')}
    hub.repos["org/page"] = {"config.json": text_file(b"<html>moved</html>")}
    hub.repos["org/binary"] = {"config.json": text_file(b"\xff\xfe{}")}
    with pytest.raises(kind, match=message) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert hub.refused == []


@pytest.mark.parametrize("fault", ["html", "ignores_ranges", "cuts_after"])
def test_a_broken_connection_is_a_download_error(hub: FakeHub, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "_RETRIES", 0)
    setattr(hub, fault, 5 if fault == "cuts_after" else True)
    with pytest.raises(DownloadError) as caught:
        load_model("org/single")
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_a_download_error(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="org/single"):
        load_model("org/single")


def test_a_hundred_thousand_tensors_in_two_hundred_shards_are_sized(hub: FakeHub) -> None:
    config = CONFIG | {"num_hidden_layers": 1}
    per_shard = {
        f"model-{shard:05d}-of-00200.safetensors": {
            f"model.layers.0.mlp.experts.{shard * 500 + expert}.up_proj.weight": [7168, 2048] for expert in range(500)
        }
        for shard in range(1, 201)
    }
    files = {shard: safetensors_file(held) for shard, held in per_shard.items()}
    index = {"weight_map": {name: shard for shard, held in per_shard.items() for name in held}}
    hub.repos["org/huge"] = files | {"config.json": text_file(config), "model.safetensors.index.json": text_file(index)}
    model = load_model("org/huge")
    assert [tensor.num_bytes for tensor in model.tensors or ()] == [100_000 * 7168 * 2048 * 2]
    assert hub.refused == []


@pytest.mark.parametrize(
    ("text", "repo"), [("a/b", "a/b"), ("a/b@rev/x", "a/b"), ("a/b/c.gguf", "a/b"), ("a/b/q/c.gguf@main", "a/b")]
)
def test_hub_ids_are_told_from_other_names(text: str, repo: str) -> None:
    found = parse_hub_id(text)
    assert found is not None
    assert found.repo == repo


@pytest.mark.parametrize(
    "text", ["qwen3-8b", "a/b/c", "../a", "./a/b", "/a/b", "a/b c", "a/..", "models/x.json", "a/b.gguf", "", "a/"]
)
def test_what_is_no_hub_id_is_left_alone(text: str) -> None:
    assert parse_hub_id(text) is None


def test_known_names_never_ask_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = load_model("Qwen/Qwen3-8B")
    assert isinstance(model, LoadedModel)
    assert model.spec.name == "Qwen3-8B"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[hub\]'") as caught:
        load_model("org/unknown-model")
    assert "\n" not in str(caught.value)
    with pytest.raises(UnknownNameError):
        load_model("unknown-model")


def test_a_model_s_row_is_refreshed_from_the_hub(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--refresh", "org/single", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["params_total"] == count_params(load_model("org/single").spec).total
    assert hub.refused == []


def test_what_is_no_hub_id_cannot_be_refreshed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--refresh", "not an id"]) == 2
    assert "not an id on the Hugging Face hub" in capsys.readouterr().err
