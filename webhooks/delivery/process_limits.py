"""Process limits of a deliveries worker: file descriptors, and the garbage collector."""

import gc
import resource

FILE_DESCRIPTORS = 65_536
YOUNG_OBJECTS = 100_000
"""A delivery makes hundreds of short-lived objects: at Python's default of 700 a third of the time goes to looking
for cycles among objects that are still in use."""


def raise_open_files() -> None:
    """Raise the soft limit of open files as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(FILE_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prepare() -> None:
    """Raise the soft limit of open files, and collect garbage seldom. Called once, when everything is imported."""
    raise_open_files()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 50, 100)
