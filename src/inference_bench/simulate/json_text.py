"""JSON of a person's file, read so that what is wrong with it can be said in plain words.

In:   the text of a file, or of one line
Out:  what it holds
Leaves out: what it means
Read next by: step_profile, calibrate.log.
"""

from __future__ import annotations

import json
from typing import Any, Final

_BYTE_ORDER_MARK: Final = "\ufeff"


def parse_json(text: str) -> Any:
    """What a JSON text holds; a byte order mark in front of it is left out.

    Raises:  ValueError that says what is wrong as the end of a sentence
    """
    try:
        return json.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    except ValueError:
        raise ValueError("it holds a number with thousands of digits") from None
