"""The answers of a real llama.cpp server, shortened: xllamacpp 2026.10.11549, as GET /props and the others gave them."""

from __future__ import annotations

import hashlib
from typing import Any

from engines.fake_server import FakeServer

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
TEMPLATE_SHA256 = hashlib.sha256(TEMPLATE.encode()).hexdigest()
MODELS: dict[str, Any] = {
    "object": "list",
    "data": [
        {
            "id": "tiny",
            "owned_by": "llamacpp",
            "meta": {"n_vocab": 264, "n_ctx_train": 256, "n_params": 100_672, "size": 402_688},
        }
    ],
}
PROPS: dict[str, Any] = {
    "default_generation_settings": {
        "n_ctx": 1024,
        "params": {"temperature": 0.800000011920929, "top_k": 40, "top_p": 0.949999988079071, "samplers": ["top_k"]},
    },
    "total_slots": 4,
    "model_ftype": "all F32",
    "model_path": "/nowhere/tiny.gguf",
    "build_info": "b1234-abc",
    "chat_template": TEMPLATE,
}


def say_llama_cpp(server: FakeServer, **props: Any) -> None:
    """The server answers as llama.cpp does, with these properties changed."""
    server.say("/v1/models", MODELS)
    server.say("/props", {**PROPS, **props})
    server.say("/slots", [])
    server.say("/lora-adapters", [])
    server.say("/apply-template", {"prompt": "said"})
    server.say("/tokenize", {"tokens": [1, 2, 3]})
