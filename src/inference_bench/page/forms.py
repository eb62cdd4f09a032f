"""What does a reader fill in? The form of each view, from the fields that the bridge names.

In:   View, and the address lists of suggestions
Out:  HTML text
Leaves out: what a field means (bridge), what happens when it changes (web/app.js)
Read next by: document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.accounting.weight_plan import known_schemes
from inference_bench.bridge.fields import Field, Group, View
from inference_bench.bridge.simulate_fields import LISTS as SIMULATION_LISTS
from inference_bench.bridge.subject import OWN_MACHINE
from inference_bench.facts.formats import known_formats
from inference_bench.facts.hardware import KNOWN_PEAKS, known_hardware
from inference_bench.facts.load import known_models
from inference_bench.report.html_pieces import say

_SHORT_HINT_CHARS: Final = 45
_SHORT_LISTS: Final = frozenset({"weight-formats", "cache-formats", "peaks"})


def form(view: View) -> str:
    """The whole form of a view."""
    groups = "\n".join(_group(view, group) for group in view.groups)
    run = ""
    if not view.is_live:
        run = (
            f'<div class="run"><button type="submit" class="primary">{say(view.run_label)}</button> '
            '<button type="button" class="cancel" hidden>Cancel</button>'
            '<progress max="1" value="0" hidden aria-label="How far it is"></progress></div>'
        )
    return f'<form id="form-{view.name}" data-view="{view.name}" autocomplete="off" novalidate>\n{groups}\n{run}</form>'


def _group(view: View, group: Group) -> str:
    inputs = "\n".join(_input(view, each) for each in group.fields)
    drop = _drop(view) if any(each.name == "config" for each in group.fields) else ""
    inside = f'<div class="fields">\n{inputs}\n{drop}</div>'
    if group.is_folded:
        return f'<details class="group"><summary>{say(group.title)}</summary>\n{inside}</details>'
    return f"<fieldset><legend>{say(group.title)}</legend>\n{inside}</fieldset>"


def _drop(view: View) -> str:
    """Where a model file is dropped or chosen; it is read here and goes nowhere."""
    name = f"file-{view.name}"
    return (
        '<div class="field drop wide" data-field="file">'
        f'<label for="{name}">or a GGUF or safetensors file</label>'
        f'<input type="file" id="{name}" multiple aria-describedby="{name}-hint {name}-wrong" '
        'accept=".gguf,.safetensors,.json">'
        f'<p class="hint" id="{name}-hint">Drop it anywhere on this page. Only its header is read, on this machine; any '
        "size. Of a sharded model, all files together.</p>"
        f'<p class="wrong" id="{name}-wrong"></p>'
        '<p class="file" hidden><output></output> <button type="button" class="forget">Forget it</button></p></div>'
    )


def _input(view: View, each: Field) -> str:
    name = f"{view.name}-{each.name}"
    when = f' data-when="{say(each.when)}"' if each.when else ""
    hint = f'<p class="hint" id="{name}-hint">{say(each.hint)}</p>' if each.hint else ""
    described = " ".join(filter(None, (f"{name}-hint" if each.hint else "", f"{name}-wrong")))
    control = _control(each, f'id="{name}" name="{each.name}" aria-describedby="{described}"')
    return (
        f'<div class="field{_width(each)}" data-field="{each.name}"{when}><label for="{name}">{say(each.label)}</label>'
        f'{control}{_slider(view, each)}{hint}<p class="wrong" id="{name}-wrong"></p></div>'
    )


def _width(each: Field) -> str:
    """Numbers take half a line, names and texts a whole one."""
    is_plain = each.listed in _SHORT_LISTS or not (each.listed or each.options or each.is_text_area or each.power)
    is_short = is_plain and len(each.hint) <= _SHORT_HINT_CHARS
    return "" if is_short else " wide"


def _control(each: Field, attributes: str) -> str:
    if each.is_text_area:
        return f'<textarea {attributes} rows="3" spellcheck="false">{say(each.default)}</textarea>'
    if each.options:
        return f"<select {attributes}>{''.join(_option(each, value, text) for value, text in each.options)}</select>"
    listed = f' list="list-{each.listed}"' if each.listed else ""
    example = " data-example" if each.is_example else ""
    return f'<input type="text" {attributes} value="{say(each.default)}"{listed}{example} spellcheck="false">'


def _option(each: Field, value: str, text: str) -> str:
    chosen = " selected" if value == each.default else ""
    return f'<option value="{say(value)}"{chosen}>{say(text)}</option>'


def _slider(view: View, each: Field) -> str:
    """A slider over powers of two, which moves the field beside it."""
    if each.power is None:
        return ""
    return (
        f'<input type="range" class="power" min="0" max="{each.power}" step="1" value="0" '
        f'data-moves="{each.name}" aria-label="{say(each.label)}, in powers of two" id="{view.name}-{each.name}-power">'
    )


def lists() -> str:
    """What can be chosen by name, each once."""
    return "\n".join(
        f'<datalist id="list-{name}">{"".join(options)}</datalist>'
        for name, options in (
            ("models", list(_models())),
            ("machines", list(_machines())),
            ("weight-formats", [_choice(name, said) for name, said in known_schemes()]),
            ("cache-formats", [_choice(each.name) for each in known_formats()]),
            ("peaks", [_choice(name) for name in KNOWN_PEAKS]),
            *((name, [_choice(value) for value in values]) for name, values in SIMULATION_LISTS.items()),
        )
    )


def _choice(value: str, label: str = "") -> str:
    return f'<option value="{say(value)}">{say(label)}</option>' if label else f'<option value="{say(value)}"></option>'


def _models() -> Iterator[str]:
    for model in known_models():
        yield _choice(model.name, f"as of {model.source.as_of}")


def _machines() -> Iterator[str]:
    yield _choice(OWN_MACHINE, "your own numbers")
    for machine in known_hardware():
        yield _choice(machine.name, f"as of {machine.source.as_of}")
