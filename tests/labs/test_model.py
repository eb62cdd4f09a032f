from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from inference_bench.errors import MissingExtraError, ModelFileError, RequestError
from inference_bench.labs.model import (
    LabModel,
    as_batch,
    load_flow,
    load_model,
    require_own_tokenizer,
    require_packages,
)
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.subject import find_subject
from labs import tiny

pytest.importorskip("torch")


def load(folder: Path, dtype: str = "float32") -> LabModel:
    return load_model(find_subject(LabSession("cache", "", LabSettings(str(folder), dtype=dtype))), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_weights_are_those_of_the_file_in_the_format_that_was_asked_for(whole: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import load_file

    network = load(whole, dtype).network
    stored = load_file(whole / "model.safetensors")["model.embed_tokens.weight"]
    assert network.get_input_embeddings().weight.dtype is getattr(torch, dtype)
    assert torch.equal(network.get_input_embeddings().weight, stored.to(getattr(torch, dtype)))
    assert not network.training


def test_text_goes_to_ids_and_back_with_nothing_put_before_it(whole: Path) -> None:
    model = load(whole)
    ids = model.encode("the whale and the sea")
    assert ids == [1, 2, 6, 1, 4]
    assert model.decode(ids) == "the whale and the sea"
    assert model.chat_ids("the whale") == [1, 2]  # no chat template: the bare text
    assert as_batch(ids).shape == (1, 5)


def test_a_text_longer_than_the_model_takes_at_once_is_encoded_without_a_remark(whole: Path) -> None:
    model, said = load(whole), list[str]()
    model.tokenizer.model_max_length = 4
    noting = logging.Handler()
    noting.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(noting)
    try:
        assert len(model.encode("the whale and the sea")) == 5
    finally:
        logging.getLogger("transformers").removeHandler(noting)
    assert said == []


def test_a_prompt_and_its_answer_fit_the_model_s_context_to_the_last_token_or_are_refused(whole: Path) -> None:
    model = load(whole)
    model.require_room([1] * 100, 28)
    with pytest.raises(RequestError, match="100 tokens and the answer up to 29; together they must be at most 128"):
        model.require_room([1] * 100, 29)
    with pytest.raises(RequestError, match="no token in this model's vocabulary"):
        model.require_room([], 1)


def test_nothing_is_looked_up_and_nothing_is_changed_for_what_comes_after(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = dict(os.environ), constants.HF_HUB_OFFLINE
    load(whole)
    assert (dict(os.environ), constants.HF_HUB_OFFLINE) == before


@pytest.mark.parametrize(("num_ids", "num_rows"), [(65, 64), (31, 64), (0, 64)])
def test_a_tokenizer_of_another_model_is_refused(num_ids: int, num_rows: int) -> None:
    require_own_tokenizer(64, 64, "m")
    require_own_tokenizer(63, 64, "m")  # rows are padded
    with pytest.raises(ModelFileError, match=f"{num_ids} ids and the model {num_rows} rows"):
        require_own_tokenizer(num_ids, num_rows, "m")


@pytest.mark.parametrize("num_ids", [20, 80])
def test_a_folder_with_another_model_s_tokenizer_is_refused(folder: Path, num_ids: int) -> None:
    tiny.write_tokenizer(folder, num_ids)
    with pytest.raises(ModelFileError, match=f"the tokenizer of little-llama has {num_ids} ids and the model 64 rows"):
        load(folder)


@pytest.mark.parametrize("content", ["", "{", "{}", '{"model": {"type": "WordLevel"}}', "\x00", '["a"]'])
def test_a_tokenizer_that_is_broken_is_refused_in_one_line(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelFileError, match="little-llama") as told:
        load(folder)
    assert "\n" not in str(told.value)


def test_code_beside_the_weights_is_never_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    own = {"auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}}
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Model: ...\nclass Config: ...\n")
    (folder / "config.json").write_text(json.dumps(config | own))
    load(folder)  # a type that Transformers knows is loaded by its own class
    subject = find_subject(LabSession("cache", "", LabSettings(str(folder))))
    (folder / "config.json").write_text(json.dumps(config | own | {"model_type": "zebra"}))
    with pytest.raises(
        ModelFileError, match=r"does not know the model type 'zebra' of little-llama, and .* is not run"
    ):
        load_model(subject)
    assert not (tmp_path / "ran").exists()


def test_a_design_that_transformers_does_not_know_is_refused_by_name(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llamazebra"}))
    with pytest.raises(ModelFileError, match="does not know the model type 'llamazebra' of little-llama; give"):
        load(folder)


def test_a_tensor_of_another_shape_is_refused(folder: Path) -> None:
    subject = find_subject(LabSession("cache", "", LabSettings(str(folder))))
    tiny.write(folder, num_rows=48, num_ids=48)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 64}))
    with pytest.raises(ModelFileError, match=r"of another shape in the files are model\.embed_tokens"):
        load_model(subject)


@pytest.mark.parametrize("package", ["torch", "transformers", "llguidance"])
def test_without_a_package_the_message_says_what_to_install(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from inference_bench.errors import MissingExtraError\n"
        "from inference_bench.labs.model import require_packages\n"
        "try: require_packages('llguidance')\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"need {package} " in done.stdout
    assert "pip install 'inference-bench[labs]'" in done.stdout


def test_a_flow_of_ours_that_cannot_be_imported_is_not_blamed_on_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("inference_bench.labs.cache.flow", "inference_bench.labs.cache.result"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(
        sys.modules, "inference_bench.labs.cache.result", ModuleType("inference_bench.labs.cache.result")
    )
    with pytest.raises(ImportError) as told:
        load_flow("cache")
    assert not isinstance(told.value, MissingExtraError)


def test_a_package_of_one_lab_alone_is_asked_for_too() -> None:
    with pytest.raises(MissingExtraError, match="no_such_package_at_all"):
        require_packages("no_such_package_at_all")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("num_hidden_layers", 3, r"the files lack model\.layers\.2"),
        ("num_hidden_layers", 1, r"the model has no place for model\.layers\.1"),
        ("intermediate_size", 40, r"of another shape in the files are model\.layers\.0\.mlp"),
    ],
)
def test_a_network_that_is_not_wholly_the_files_is_refused_by_the_weights_names(
    folder: Path, field: str, value: int, said: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(ModelFileError, match=said):
        load(folder)


@pytest.mark.parametrize("template", ["{% for %} {{ broken", "{{ raise_exception('no') }}", "{{ range(10000000000) }}"])
def test_a_chat_template_that_fails_is_a_fault_of_the_model(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelFileError, match=r"the chat template of little-llama fails on one question of a user"):
        load(folder).chat_ids("the whale")


def test_a_system_library_that_pytorch_lacks_is_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr("inference_bench.labs.model.importlib.import_module", fail)
    with pytest.raises(MissingExtraError, match=r"the labs need torch .*libgomp.*pip install"):
        require_packages()


@pytest.mark.parametrize(("named", "ends"), [(None, (2,)), (2, (2,)), (5, (2, 5)), ([5, 2, 7], (2, 5, 7))])
def test_an_answer_ends_at_what_the_tokenizer_or_the_models_settings_name(
    named: int | list[int] | None, ends: tuple[int, ...]
) -> None:
    network = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=named))
    assert LabModel(network, SimpleNamespace(eos_token_id=2), None, None, "float32").end_ids == ends  # type: ignore[arg-type]
