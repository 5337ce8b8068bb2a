"""The stop of the edge: who gives an answer without an end hears here that the server is stopping."""

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def register(listener: Callable[[], None]) -> None:
    """Call a function when the server begins to stop; it may be called more than once."""
    _listeners.append(listener)


def begin() -> None:
    """The server begins to stop."""
    for listener in _listeners:
        listener()
