"""The registry of work that begins with each web process: each app adds its own when it is ready.

Called by the entry points of both kinds of web process, once their modules are imported and before they listen.
"""

from collections.abc import Callable

_works: list[Callable[[], None]] = []


def register(work: Callable[[], None]) -> None:
    """Add work that begins with a web process. It returns at once: what takes long has a thread of its own."""
    _works.append(work)


def begin() -> None:
    """Begin all of it."""
    for work in _works:
        work()
