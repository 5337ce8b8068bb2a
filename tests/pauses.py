"""Stops the processes of a parallel test run for a second or two at random moments, as a busy host does.

    .venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -p tests.pauses

A test that fails in such a run but not alone relies on two things happening soon after each other. Only the test
processes stop. Their servers, browsers and started services run on, so timeouts that one side counts pass on the other.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

EVERY_SECONDS = 4.0
"""The mean time between two pauses."""
PAUSE_SECONDS = (0.8, 2.5)


def _pause_until(ended: threading.Event) -> None:
    while not ended.wait(random.expovariate(1 / EVERY_SECONDS)):
        # A process may end meanwhile.
        with suppress(psutil.NoSuchProcess, IndexError):
            process = random.choice([each for each in psutil.Process().children() if "python" in each.name()])
            process.suspend()
            try:
                ended.wait(random.uniform(*PAUSE_SECONDS))
            finally:
                process.resume()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Pause test processes as long as the tests of a parallel run take."""
    if hasattr(session.config, "workerinput"):
        return (yield)
    ended = threading.Event()
    thread = threading.Thread(target=_pause_until, args=(ended,))
    thread.start()
    try:
        return (yield)
    finally:
        ended.set()
        thread.join()
