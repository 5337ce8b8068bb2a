"""The signal of a new event, and a decorator for handlers of some types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from whabuzz import types

event_received = Signal()
"""A new event, with the argument `event`. Sent inside the transaction that stores its key.

An error of a handler rolls back and answers 500: the gateway delivers the event again.
"""

Handler = Callable[[types.Event], Any]


def receives(*event_types: str) -> Callable[[Handler], Handler]:
    """Call a function with each new event of these types; without any, with every event."""

    def connected(handler: Handler) -> Handler:
        # Not `functools.wraps`: with DEBUG Django looks for **kwargs in the signature, which would be the handler's.
        def on_event(*, event: types.Event, **_: Any) -> None:
            if not event_types or event["type"] in event_types:
                handler(event)

        event_received.connect(on_event, weak=False)
        return handler

    return connected
