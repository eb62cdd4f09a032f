"""A real model in memory, with its own tokenizer: loaded from safetensors, never from code.

In:   LabSubject, a number format
Out:  LabModel
Leaves out: which model it is (subject)
Read next by: the flow of every lab but machine.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inference_bench.errors import MissingExtraError, ModelFileError
from inference_bench.facts.models import ModelSpec
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
        """Token ids of a text, without anything put before or after it."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, with every special token shown."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def chat_ids(self, question: str) -> list[int]:
        """Token ids of one question to the model, up to where its answer begins; the bare text where it has no chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            return self.encode(question)
        said = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        return self.encode(str(said))


def require_packages(*besides: str) -> None:
    """Refuse at once where PyTorch or Transformers is not there.

    Raises:  MissingExtraError with the command that installs them
    """
    for package in (*_PACKAGES, *besides):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtraError(f"the labs need {package} ({error}); install it with: {INSTALL}") from error


def load_model(subject: LabSubject, dtype: str = FLOAT32, *, say: Callable[[str], None] | None = None) -> LabModel:
    """The model and its tokenizer, from the folder alone; nothing is looked up anywhere.

    Raises:  MissingExtraError; ModelFileError for weights or a tokenizer that do not go together, or cannot be read
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if say is not None:
        say(f"loading {subject.identity.name}")
    require_packages()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries' own deprecations; what goes wrong raises
        try:
            tokenizer = AutoTokenizer.from_pretrained(subject.folder, local_files_only=True, trust_remote_code=False)
            network = AutoModelForCausalLM.from_pretrained(
                subject.folder,
                dtype=getattr(torch, dtype),
                attn_implementation="sdpa",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except Exception as error:  # whatever a broken folder makes them raise
            reason = " ".join(str(error).split())[:200]
            raise ModelFileError(
                f"{subject.folder.name} cannot be loaded ({type(error).__name__}): {reason}"
            ) from error
    require_own_tokenizer(len(tokenizer), int(network.get_input_embeddings().weight.shape[0]), subject.folder.name)
    return LabModel(network.eval(), tokenizer, subject.spec, subject, dtype)


def require_own_tokenizer(num_tokens: int, num_rows: int, name: str) -> None:
    """Refuse a tokenizer that knows ids which the model has no row for.

    Raises:  ModelFileError
    """
    if num_tokens > num_rows:
        raise ModelFileError(
            f"the tokenizer of {name} knows {num_tokens} tokens and the model has rows for {num_rows}; it is not this model's"
        )


def as_batch(ids: Sequence[int]) -> torch.Tensor:
    """Token ids as a batch of one.

    Shape:  [1, num_tokens]
    """
    import torch

    return torch.tensor([list(ids)], dtype=torch.long)
