"""What a running llama.cpp server says about itself over HTTP.

In:   a Target: the address of a server, and a key if it asks for one
Out:  ServerReport: its answers to /v1/models, /props and /slots, read into EngineFigures and EngineIdentity
Leaves out: load and timing (measure); buffer sizes, which llama.cpp only logs
Read next by: llama_cpp.

A server that is not llama.cpp but lists its models is still identified, with fewer figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.errors import ServerError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.sender import get_json, post_json
from inference_bench.measure.target import Target

_LONGEST_TEXT: Final = 4096  # more than any path or name; only a server that means harm says more
_UNNAMED_BUILD: Final = "b0-unknown"  # what llama.cpp prints when it was built outside its repository


def ask_server(target: Target, path: str, timeout_s: float, body: object = None) -> Any:
    """The JSON a server answers to a GET, or to a POST if there is a body.

    Raises:   ServerError
    """
    limits = Timeouts(connect_s=timeout_s, idle_s=timeout_s, total_s=timeout_s)
    return get_json(target, path, limits) if body is None else post_json(target, path, body, limits)


def inside(value: Any, *keys: str) -> Any:
    """What stands in nested JSON objects under these keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def whole_number(value: Any) -> int | None:
    """A JSON value if it is a count above zero, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    """A JSON value if it is text, short and such as a file can hold, else None."""
    return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The raw answers of one server; those it does not give are None."""

    models: Any
    props: Any = None
    slots: Any = None

    @classmethod
    def read(cls, target: Target, timeout_s: float) -> ServerReport:
        """Ask a server for everything it tells.

        Raises:   ServerError if it does not even list its models
        """

        def optional(path: str) -> Any:
            try:
                return ask_server(target, path, timeout_s)
            except ServerError:
                return None

        models = ask_server(target, "/v1/models", timeout_s)
        report = cls(models, optional("/props"), optional("/slots"))
        if report.first_model() is None:
            raise ServerError(f"{target.base_url}/v1/models lists no model; is a model loaded there?")
        return report

    def first_model(self) -> dict[str, Any] | None:
        """The first entry of the list of models."""
        entries = inside(self.models, "data")
        first = entries[0] if isinstance(entries, list) and entries else None
        return first if isinstance(first, dict) and _text(first.get("id")) else None

    def figures(self) -> EngineFigures:
        """The figures among the answers, each with its endpoint."""
        meta = inside(self.first_model(), "meta")
        num_slots = len(self.slots) if isinstance(self.slots, list) else None
        per_slot = inside(self.props, "default_generation_settings", "n_ctx")
        candidates = (
            ("num_params", inside(meta, "n_params"), "/v1/models meta.n_params"),
            ("model_bytes", inside(meta, "size"), "/v1/models meta.size"),
            ("n_ctx_train", inside(meta, "n_ctx_train"), "/v1/models meta.n_ctx_train"),
            ("num_slots", inside(self.props, "total_slots"), "/props total_slots"),
            ("num_slots", num_slots, "/slots"),
            ("context_tokens_per_slot", per_slot, "/props default_generation_settings.n_ctx"),
            ("context_tokens_per_slot", inside(self.first_model(), "max_model_len"), "/v1/models max_model_len"),
        )
        values: dict[str, Any] = {}
        read_from: dict[str, str] = {}
        for name, value, where in candidates:
            if name not in values and (number := whole_number(value)) is not None:
                values[name], read_from[name] = number, where
        return EngineFigures(**values, read_from=read_from)

    def build(self) -> str | None:
        """The build of llama.cpp, where it knows its own."""
        build = _text(inside(self.props, "build_info"))
        return None if build == _UNNAMED_BUILD else build

    def identity(self) -> EngineIdentity:
        """Who the server says it is."""
        owner = _text(inside(self.first_model(), "owned_by"))
        is_llama_cpp = owner == "llamacpp" or inside(self.props, "total_slots") is not None
        return EngineIdentity(
            name="llama.cpp" if is_llama_cpp else owner,
            source="reported by the server",
            version=self.build(),
            build=self.build(),
            model_name=_text(inside(self.first_model(), "id")),
            model_path=_text(inside(self.props, "model_path")),
        )
