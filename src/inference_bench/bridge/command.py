"""Which command line asks the same? For whoever wants the answer in a terminal, a script or a bug report.

In:   Values
Out:  a command for a POSIX shell
Leaves out: the files it may need beside it (subject.files_of)
Read next by: the views.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from inference_bench.bridge.fields import Values
from inference_bench.bridge.subject import machine_argument, model_argument


def command_line(
    values: Values,
    *more: str,
    names_model: str | None = None,
    without: Sequence[str] = (),
    has_subject: bool = True,
) -> str:
    """The subcommand of the view with every field that says something the option's absence would not.

    Where:  names_model is the option before the model, None where it stands alone; without are fields left out; more
            stands at the end as it is; has_subject says whether a model and a machine are named at all
    """
    words = ["inference-bench", str(values.view.command)]
    words += _subject(values, names_model) if has_subject else []
    for each in values.view.fields:
        text = values.text(each.name)
        if each.option is not None and each.name not in without and text not in {"", each.implied}:
            words += [each.option, text] if not text.startswith("-") else [f"{each.option}={text}"]
    return shlex.join([*words, *more])


def _subject(values: Values, names_model: str | None) -> list[str]:
    model, machine = model_argument(values), machine_argument(values)
    return [*([] if names_model is None else [names_model]), model, *([] if machine is None else ["--on", machine])]
