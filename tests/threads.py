"""Calls that run at the same moment, each in a thread with its own database connection."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections


def outcomes(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at the same moment. Returns the result or the error of each, in the order of the calls."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            barrier.wait(10)
            return call()
        except Exception as error:  # noqa: BLE001 - handed to the test
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def at_once(*calls: Callable[[], object]) -> list[Exception]:
    """Run the calls at the same moment. Returns the errors that they raised."""
    return [outcome for outcome in outcomes(*calls) if isinstance(outcome, Exception)]
