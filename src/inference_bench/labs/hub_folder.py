"""A model of the Hugging Face hub as a folder on this machine: safetensors, config and tokenizer alone, at one commit.

In:   HubId, a revision
Out:  HubFolder: where it is, and which commit it is
Leaves out: sizing a model without its weights (hub)
Read next by: subject.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference_bench.errors import DownloadError
from inference_bench.hub import HubId


@dataclass(frozen=True, slots=True)
class HubFolder:
    """A downloaded repository; revision is the commit, in full."""

    folder: Path
    revision: str


def fetch_hub_folder(hub_id: HubId, revision: str | None, say: Callable[[str], None]) -> HubFolder:
    """Download what a lab reads of a repository, once.

    Raises:  MissingExtraError, UnknownNameError, DownloadError
    """
    raise DownloadError(f"{hub_id} cannot be fetched yet")
