"""The signal of a new event, and a decorator for handlers of some types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from whabuzz import types

event_received = Signal()
"""Sent for each new event, with the argument `event`, inside the transaction that stores the event's key.

When a handler raises an error, the transaction is rolled back and the answer is 500. The gateway then delivers the
event again.
"""

Handler = Callable[[types.Event], Any]


def receives(*event_types: str) -> Callable[[Handler], Handler]:
    """Decorate a function that handles each new event of these types. Without types it handles every event."""

    def connected(handler: Handler) -> Handler:
        # Does not use `functools.wraps`. With DEBUG, Django requires **kwargs, which the handler's signature lacks.
        def on_event(*, event: types.Event, **_: Any) -> None:
            if not event_types or event["type"] in event_types:
                handler(event)

        event_received.connect(on_event, weak=False)
        return handler

    return connected
