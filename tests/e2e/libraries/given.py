"""The arguments of all calls: the gateway, the key, the numbers and the texts; and the type of a call."""

import os
import time
from collections.abc import Callable
from typing import Any

GATEWAY, KEY, PHONE, ACCOUNT, CUSTOMER = (
    os.environ[name] for name in ("GATEWAY", "KEY", "PHONE", "ACCOUNT", "CUSTOMER")
)
RECEIVED, MEDIA, PICTURE, CALLBACK = (
    os.environ[name] for name in ("RECEIVED", "MEDIA", "PICTURE", "CALLBACK")
)
GRAPH, LINK = f"{GATEWAY}/v25.0", "https://shop.example/a.jpg"
TEMPLATE, LANGUAGE = "hello_world", "en_US"
BODY = {"type": "BODY", "text": "Hello there."}
BUTTONS = [{"type": "reply", "reply": {"id": "yes", "title": "Yes"}}]
SECTIONS = [{"title": "All", "rows": [{"id": "one", "title": "One"}]}]
NAME = {"formatted_name": "Asha R", "first_name": "Asha"}
FLOW_JSON = {"version": "7.2", "screens": []}

Call = tuple[str, Callable[[], Any]]
"""A call's name and function. Names that begin with `-` are steps that are not counted."""


class Kept(dict[str, Any]):
    """Results of earlier calls that later calls need."""

    def keeping(self, name: str, make: Callable[[], Any]) -> Callable[[], Any]:
        """A call whose result is stored under a name."""

        def made() -> Any:
            self[name] = make()
            return self[name]

        return made


def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition is true, and return its result."""
    ends_at = time.monotonic() + 20
    while not (value := condition()):
        if time.monotonic() > ends_at:
            raise TimeoutError
        time.sleep(0.1)
    return value
