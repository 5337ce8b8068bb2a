"""The registry of work that begins with each web process: each app adds its own when it is ready.

Both kinds of web process begin it once their modules are imported and before they listen; processes that are forked
with the modules in memory each begin their own.
"""

import gc
from collections.abc import Callable
from importlib import import_module

_works: list[Callable[[], None]] = []
_modules: list[str] = []


def register(work: Callable[[], None]) -> None:
    """Add work that begins with a web process. It returns at once: what takes long has a thread of its own."""
    _works.append(work)


def preload(module: str) -> None:
    """Have a module that only some calls need imported before `gateway.wsgi` listens, not while a caller waits."""
    _modules.append(module)


def import_preloaded() -> None:
    """Import them. With gunicorn's --preload that happens once, in the parent of the web processes."""
    for module in _modules:
        import_module(module)


YOUNG_OBJECTS = 50_000
"""A batch of 10,000 messages is 80,000 objects that all stay in use: at Python's default of 700 the collector takes
four times as long over them as the parser (153 ms against 36)."""


def begin() -> None:
    """Begin all of it."""
    for work in _works:
        work()


def calm_collector() -> None:
    """Look for cycles seldom, and never among what the process has loaded at its start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
