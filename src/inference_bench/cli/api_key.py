"""The API key that a person keeps in an environment variable."""

from __future__ import annotations

import os

from inference_bench.errors import RequestError
from inference_bench.measure.target import ApiKey


def api_key(variable: str | None) -> ApiKey | None:
    """The key in an environment variable; it goes into one request header and nowhere else.

    Raises:  RequestError when the variable is not set
    """
    if variable is None:
        return None
    secret = os.environ.get(variable)
    if not secret:
        raise RequestError(f"the environment variable {variable!r} is not set; it should hold the API key")
    return ApiKey(secret)
