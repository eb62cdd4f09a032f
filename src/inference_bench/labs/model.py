"""A real model in memory, with its own tokenizer: loaded from safetensors, never from code.

In:   LabSubject, a number format
Out:  LabModel
Leaves out: which model it is (subject)
Read next by: the flow of every lab but machine.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from inference_bench.errors import InferenceBenchError, MissingExtraError, ModelFileError, RequestError
from inference_bench.facts.fields import parse_json_object
from inference_bench.facts.model_files import CONFIG_NAME, read_text
from inference_bench.facts.models import ModelSpec
from inference_bench.files import shown_name
from inference_bench.labs.settings import FLOAT32
from inference_bench.labs.subject import LabSubject

if TYPE_CHECKING:
    import torch

INSTALL: Final = "pip install 'inference-bench[labs]'"
_PACKAGES: Final = ("torch", "transformers", "tokenizers", "safetensors")


@dataclass(frozen=True, slots=True)
class LabModel:
    """A loaded model.

    Where:  network is Transformers' own causal language model in evaluation mode; tokenizer its fast tokenizer
    """

    network: Any
    tokenizer: Any
    spec: ModelSpec
    subject: LabSubject
    dtype: str

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without anything put before or after it; it may be longer than what the model takes at once."""
        return list(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, with every special token shown."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, each once: the tokenizer's own, then those that the model's settings for generating name."""
        named = self.network.generation_config.eos_token_id
        listed = named if isinstance(named, list | tuple) else [named]
        return tuple(dict.fromkeys(int(each) for each in (self.tokenizer.eos_token_id, *listed) if each is not None))

    def chat_ids(self, question: str) -> list[int]:
        """Token ids of one question to the model, up to where its answer begins; the bare text where it has no chat template.

        Raises:  ModelFileError for a template that is broken, or that refuses such a question
        """
        if not getattr(self.tokenizer, "chat_template", None):
            return self.encode(question)
        try:
            said = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # whatever a template makes its sandbox raise
            raise ModelFileError(
                f"the chat template of {self.subject.identity.name} fails on one question of a user: {_reason(error)}"
            ) from error
        return self.encode(str(said))

    def require_room(self, ids: Sequence[int], num_tokens: int) -> None:
        """Refuse a prompt that has no tokens, or that leaves no room for an answer in what the model was made for.

        Raises:  RequestError with the figures
        """
        most = getattr(self.network.config, "max_position_embeddings", None)
        if not ids:
            raise RequestError("the prompt has no token in this model's vocabulary; give another prompt or model")
        if most is not None and len(ids) + num_tokens > most:
            raise RequestError(
                f"the prompt is {len(ids):,} tokens and the answer up to {num_tokens:,}; together they must be at most {most:,}, "
                "the model's context"
            )


def require_packages(*besides: str) -> None:
    """Refuse at once where PyTorch or Transformers is not there.

    Raises:  MissingExtraError with the command that installs them
    """
    for package in (*_PACKAGES, *besides):
        try:
            importlib.import_module(package)
        except (ImportError, OSError) as error:  # a library of the system that PyTorch lacks is an OSError
            raise MissingExtraError(f"the labs need {package} ({error}); install it with: {INSTALL}") from error


def load_flow(lab: str) -> ModuleType:
    """The module whose run_lab is the lab.

    Raises:  MissingExtraError where a package that it is written with is not installed, or cannot be loaded
    """
    try:
        return importlib.import_module(f"inference_bench.labs.{lab}.flow")
    except InferenceBenchError:
        raise
    except (ImportError, OSError) as error:  # a library of the system that PyTorch lacks is an OSError
        if str(getattr(error, "name", None)).startswith(
            "inference_bench"
        ):  # a mistake of this program, which no package mends
            raise
        raise MissingExtraError(
            f"the lab {lab} cannot be loaded ({error}); install what it needs with: {INSTALL}"
        ) from error


def lab_call(lab: str) -> Callable[..., Any]:
    """The lab's run_lab; where it cannot be loaded, a call that says so, so that only running it needs what it is written with."""
    try:
        run_lab: Callable[..., Any] = load_flow(lab).run_lab
        return run_lab
    except MissingExtraError as error:
        reason = str(error)

    def lacking(*_: object, **__: object) -> NoReturn:
        raise MissingExtraError(reason)

    lacking.__name__, lacking.__doc__ = f"lab_{lab}", f"Not here: {reason}."
    return lacking


def load_model(subject: LabSubject, dtype: str = FLOAT32, *, say: Callable[[str], None] | None = None) -> LabModel:
    """The model and its tokenizer, from the folder alone; nothing is looked up anywhere, and no code of the folder is run.

    Raises:  MissingExtraError; ModelFileError for weights or a tokenizer that do not go together, or cannot be read
    """
    if say is not None:
        say(f"loading {subject.identity.name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries' own deprecations; what goes wrong raises
        require_packages()
        with _quiet_transformers():
            _require_known_design(subject.folder)
            tokenizer = _read_tokenizer(subject.folder)
            network = _read_network(subject.folder, dtype)
    num_ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    require_own_tokenizer(num_ids, int(network.get_input_embeddings().weight.shape[0]), subject.identity.name)
    return LabModel(network.eval(), tokenizer, subject.spec, subject, dtype)


def _read_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever broken files make it raise
        raise ModelFileError(
            f"the tokenizer of {folder.name} cannot be read from tokenizer.json and tokenizer_config.json, whose code is never run: "
            f"{_reason(error)}"
        ) from error


def _read_network(folder: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        network, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # so that they are named below
            output_loading_info=True,
        )
    except Exception as error:  # whatever a broken folder makes it raise
        raise ModelFileError(
            f"{folder.name} cannot be loaded as its {CONFIG_NAME} describes it: {_reason(error)}"
        ) from error
    require_every_weight(found, folder.name)
    return network


def require_every_weight(found: Mapping[str, Any], name: str) -> None:
    """Refuse a network of which a part was drawn at random, or weights of which a part was left out.

    Where:   found is what Transformers says of a loading: names that the files lack, names that the model lacks, and other shapes
    Raises:  ModelFileError with the first names
    """
    for key, said in (
        ("missing_keys", "the files lack"),
        ("mismatched_keys", "of another shape in the files are"),
        ("unexpected_keys", "the model has no place for"),
    ):
        names = sorted(each if isinstance(each, str) else str(each[0]) for each in found.get(key) or ())
        if names:
            some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise ModelFileError(
                f"the weights of {name} are not those that its {CONFIG_NAME} describes: {said} {shown_name(some)}; give the "
                f"{CONFIG_NAME} that belongs to them"
            )


def _reason(error: Exception) -> str:
    """What a library said, as one short line."""
    return f"{type(error).__name__}, {' '.join(str(error).split())[:160]}"


def _require_known_design(folder: Path) -> None:
    """Refuse a model that Transformers has no class of its own for; code that lies beside the weights is never run.

    Raises:  ModelConfigError, ModelFileError
    """
    from transformers import CONFIG_MAPPING

    config = parse_json_object(read_text(folder / CONFIG_NAME), CONFIG_NAME)
    design = config.get("model_type")
    if design in CONFIG_MAPPING:
        return
    own = ", and the code that its auto_map names is not run" if config.get("auto_map") else ""
    raise ModelFileError(
        f"Transformers {version('transformers')} does not know the model type {shown_name(str(design))!r} of {folder.name}{own}; "
        "give a model of a type that it knows"
    )


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Transformers without its remarks and bars, for as long as this takes."""
    from transformers.utils import logging

    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()


def require_own_tokenizer(num_ids: int, num_rows: int, name: str) -> None:
    """Refuse a tokenizer that knows ids which the model has no row for, or one that leaves most of its rows without an id.

    Where:   num_ids is one more than the largest id; models are padded by some hundred rows, never by half of them
    Raises:  ModelFileError
    """
    if num_ids > num_rows or 2 * num_ids < num_rows:
        raise ModelFileError(
            f"the tokenizer of {name} has {num_ids} ids and the model {num_rows} rows for them; it is not this model's"
        )


def as_batch(ids: Sequence[int]) -> torch.Tensor:
    """Token ids as a batch of one.

    Shape:  [1, num_tokens]
    """
    import torch

    return torch.tensor([list(ids)], dtype=torch.long)
