"""Does a conversation become the same tokens? A template and a tokenizer are right only together.

In:   a running server that renders and counts, or the files of a model
Out:  components: a hash over the token ids of each conversation here, and how many there are
Leaves out: what the model makes of them
Read next by: from_server, create, run.

llama.cpp renders at /apply-template and counts at /tokenize; vLLM does both at /tokenize. Files are rendered with jinja2 in its
sandbox and counted by tokenizers, where both are installed; nothing else is tried, and what cannot be rendered is unknown. A template
that prints today's date gives other tokens tomorrow: where the template is known to, its tokens are unknown as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inference_bench.convert.hugging_face_tokenizer import special_tokens, tokenizer_json
from inference_bench.convert.metadata import read_raw_metadata
from inference_bench.convert.plan import read_source
from inference_bench.engines.answers import Asker, inside, text_in
from inference_bench.engines.base import LLAMA_CPP
from inference_bench.manifest.canonical import canonical_json, sha256_of
from inference_bench.manifest.components import Component, Group
from inference_bench.manifest.folder import list_folder
from inference_bench.manifest.from_files import read_json, template_texts
from inference_bench.manifest.from_gguf import DEFAULT_TEMPLATE, TEMPLATE_KEY

Messages = Sequence[Mapping[str, str]]

# a change here is another name: what was hashed before stays what it was
CONVERSATIONS: Final[Mapping[str, Messages]] = {
    "one turn, set 1": ({"role": "user", "content": "What is 17 × 24?\nAnswer with the number alone."},),
    "two turns, set 1": (
        {"role": "system", "content": "You answer in one short sentence. Größe zählt nicht; 東京 does."},
        {"role": "user", "content": "  Which city is older,\tRome or Kyōto? 🙂"},
        {"role": "assistant", "content": "Rome, by about fifteen hundred years."},
        {"role": "user", "content": "def f(x):\n    return x ** 2  # 1234567.89\n\nWhat does this do?"},
    ),
}
_DATED: Final = ("strftime_now", "date_string")
_BY_SERVER: Final = "the server's own template and tokenizer"
_BY_FILES: Final = "the template and the tokenizer in the files"

Render = Callable[[Messages], "Sequence[int] | None"]


def is_dated(template: str) -> bool:
    """Whether a template prints the date of the day."""
    return any(word in template for word in _DATED)


def ids_of_server(ask: Asker, model: str | None, engine: str, template: str | None) -> Iterator[Component]:
    """The conversations as the server makes tokens of them; none where it does not.

    Where:    model is its name in requests, engine EngineIdentity.kind; template is the server's, where it says it
    """
    if template is not None and is_dated(template):
        return
    render = _by_llama_cpp if engine == LLAMA_CPP else _by_messages
    yield from _components(lambda messages: render(ask, model, messages), _BY_SERVER)


def _components(render: Render, source: str) -> Iterator[Component]:
    for name, messages in CONVERSATIONS.items():
        ids = render(messages)
        if ids:
            yield Component(Group.TOKEN_IDS, name, source, sha256_of(canonical_json(list(ids))), value=len(ids))


def _by_llama_cpp(ask: Asker, _model: str | None, messages: Messages) -> Sequence[int] | None:
    prompt = inside(ask.post("/apply-template", {"messages": list(messages)}), "prompt")
    if not isinstance(prompt, str):
        return None
    body = {"content": prompt, "add_special": True, "parse_special": True}
    return _ids(ask.post("/tokenize", body))


def _by_messages(ask: Asker, model: str | None, messages: Messages) -> Sequence[int] | None:
    named = {} if model is None else {"model": model}
    return _ids(ask.post("/tokenize", {**named, "messages": list(messages), "add_generation_prompt": True}))


def _ids(answer: Any) -> Sequence[int] | None:
    """The token ids of an answer; None where it holds none, or other things."""
    ids = inside(answer, "tokens")
    is_list = isinstance(ids, list) and all(type(each) is int and each >= 0 for each in ids)
    return ids if is_list else None


def ids_of_files(path: Path) -> Iterator[Component]:
    """The conversations as the files make tokens of them; none where a library, a template or a known tokenizer is missing."""
    try:
        from jinja2.exceptions import TemplateError
        from tokenizers import Tokenizer
    except ImportError:
        return
    try:
        render = _of_folder(path, Tokenizer) if path.is_dir() else _of_gguf(path, Tokenizer)
    except Exception:  # ours of broken files, the library's own of a kind of tokenizer that it does not know
        return
    if render is None:
        return

    def rendered(messages: Messages) -> Sequence[int] | None:
        try:
            return render(messages)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError):
            return None  # it refuses this conversation, such as one with a system prompt

    yield from _components(rendered, _BY_FILES)


def _of_folder(path: Path, kind: Any) -> Render | None:
    files = {file.name: file for _, file in list_folder(path)}
    text = next((text for name, text, _ in template_texts(files) if name == DEFAULT_TEMPLATE), None)
    if text is None or is_dated(text) or "tokenizer.json" not in files:
        return None
    tokenizer = kind.from_file(str(files["tokenizer.json"].path))
    config = read_json(files.get("tokenizer_config.json"))
    marks = {key: _mark(value) for key, value in config.items() if key.endswith("_token")}
    template = _compiled(text)

    def render(messages: Messages) -> Sequence[int]:
        said = template.render(messages=messages, add_generation_prompt=True, **marks)
        return list(tokenizer.encode(said, add_special_tokens=False).ids)

    return render


def _mark(value: Any) -> str | None:
    """A special token, which is a text or an object that holds one."""
    return text_in(value) or text_in(inside(value, "content"))


def _of_gguf(path: Path, kind: Any) -> Render | None:
    source = read_source(path)
    text = source.header.metadata.get(TEMPLATE_KEY)
    if not isinstance(text, str) or is_dated(text):
        return None
    raw = read_raw_metadata(source.header, path)
    tokenizer = kind.from_str(json.dumps(tokenizer_json(source, raw)))
    marks = special_tokens(source, raw)
    template = _compiled(text)
    begins = source.header.get_bool("tokenizer.ggml.add_bos_token") is True
    first = source.header.get_int("tokenizer.ggml.bos_token_id")

    def render(messages: Messages) -> Sequence[int]:
        said = template.render(messages=messages, add_generation_prompt=True, **marks)
        ids: list[int] = list(tokenizer.encode(said, add_special_tokens=False).ids)
        return [first, *ids] if begins and first is not None and ids[:1] != [first] else ids

    return render


def _compiled(text: str) -> Any:
    """A chat template as Transformers compiles one: blocks trimmed, loop controls, no way out of the sandbox."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **more: json.dumps(value, ensure_ascii=False, **more)
    environment.globals["raise_exception"] = refuse
    return environment.from_string(text)
