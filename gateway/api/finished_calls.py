"""Finished calls: the doors tell here of each call that acted on a tenant, and the request log listens.

Both doors (Django's middleware and the edge) tell the same facts. Bodies, paths and query strings are no part of them.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple
from uuid import UUID

import orjson

from gateway.api.authentication import Caller

MOST_PARSED_BYTES = 64 * 1024
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)


class FinishedCall(NamedTuple):
    """A call of the API that has its answer. `route` is the pattern, None for a path that no route has."""

    request_id: UUID
    caller: Caller
    method: str
    route: str | None
    status: int
    error_code: str | None
    own_ms: float
    upstream_ms: float


CallListener = Callable[[FinishedCall], None]
_listeners: list[CallListener] = []


def register(listener: CallListener) -> CallListener:
    """Add a function that is told of each finished call, on the call's own thread or event loop: it must not wait."""
    _listeners.append(listener)
    return listener


def forget_listeners() -> None:
    """Tell nobody, for tests."""
    _listeners.clear()


def tell(call: FinishedCall) -> None:
    """Tell the listeners of a call."""
    for listener in _listeners:
        listener(call)


@cache
def template_of(route: str) -> str:
    """A Django route as the API's document writes it: `/v1/numbers/{phone_number_id}`."""
    return "/" + _PARAMETER.sub(r"{\1}", route)


def error_code_of(status: int, body: bytes) -> str | None:
    """The code in an error's body: a word of the service, or the upstream's number. None for a success.

    An error in the form of the Graph API names the service's word in `error_data.gateway_code`.
    """
    if status < 400 or len(body) > MOST_PARSED_BYTES:
        return None
    try:
        error = orjson.loads(body)["error"]
        code = error["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    data = error.get("error_data")
    if isinstance(data, dict) and "gateway_code" in data:
        code = data["gateway_code"]
    text = str(code)
    # An upstream's answer may hold anything.
    return text if isinstance(code, str | int) and _CODE.fullmatch(text) else None
