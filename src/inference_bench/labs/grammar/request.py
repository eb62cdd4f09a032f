"""What is asked of the grammar lab.

In:   plain values
Out:  GrammarRequest
Read next by: flow, cli.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.settings import LabSettings
from inference_bench.measure.target import parse_address

MOST_TOKENS: Final = 4096
MOST_PROMPT_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class GrammarRequest:
    """One run of the lab.

    Where:  schema is the user's own, None for the built-in ones; prompt is what the model is asked then, and is written nowhere;
            num_tokens is the budget of each document, None for the lab's own; allows_unenforced runs a schema with keywords that
            the grammar cannot hold; url is the user's own server, None for the embedded one
    Raises: RequestError
    """

    settings: LabSettings = field(default_factory=LabSettings)
    schema: Mapping[str, object] | None = None
    schema_name: str = "own schema"
    prompt: str | None = field(default=None, repr=False)
    num_tokens: int | None = None
    temperature: float = 1.0
    allows_unenforced: bool = False
    url: str | None = None
    uses_server: bool = True

    def __post_init__(self) -> None:
        if self.num_tokens is not None and not 1 <= self.num_tokens <= MOST_TOKENS:
            raise RequestError(f"a budget of {self.num_tokens} tokens is asked for; give 1 to {MOST_TOKENS}")
        if not (math.isfinite(self.temperature) and 0 < self.temperature <= 10):
            raise RequestError(
                f"a temperature of {self.temperature} is asked for; give more than 0, up to 10 (greedy documents are made besides)"
            )
        if self.prompt is not None and self.schema is None:
            raise RequestError("a prompt of your own goes with a schema of your own; give the schema too")
        if self.prompt is not None and not (self.prompt.strip() and len(self.prompt) <= MOST_PROMPT_CHARS):
            raise RequestError(f"the prompt must be text of 1 to {MOST_PROMPT_CHARS} characters")
        if self.url is not None and not self.uses_server:
            raise RequestError("a server is given and none is to be used; leave out one of the two")
        if self.url is not None:
            parse_address(self.url)
