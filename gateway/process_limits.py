"""Limits of a service process: open files, and the frequency of garbage collection."""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

FILE_DESCRIPTORS = 65_536
YOUNG_OBJECTS = 50_000
"""New objects between two garbage collections. A batch of 10,000 messages has 80,000 objects that all stay in use,
and a delivery creates hundreds of short-lived ones. With Python's default of 700 the collector would take a third
of the CPU time.
"""


def raise_open_files() -> None:
    """Raise the soft limit of open files as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(FILE_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def calm_collector() -> None:
    """Make the garbage collector run rarely and skip the objects that exist now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)


@contextmanager
def without_collector() -> Iterator[None]:
    """Turn the garbage collector off while modules are loaded. Loading produces hardly any garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
