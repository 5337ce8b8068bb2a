"""Limits of a process of the service: open files, and how seldom the garbage collector runs."""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

FILE_DESCRIPTORS = 65_536
YOUNG_OBJECTS = 50_000
"""New objects before the collector looks for cycles. A batch of 10,000 messages is 80,000 that all stay in use, and
a delivery makes hundreds of short-lived ones: at Python's default of 700 a third of the time goes to the collector."""


def raise_open_files() -> None:
    """Raise the soft limit of open files as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(FILE_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def calm_collector() -> None:
    """Look for cycles seldom, and never among what the process has loaded at its start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)


@contextmanager
def without_collector() -> Iterator[None]:
    """Turn the collector off while modules are loaded: next to nothing of them becomes garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
