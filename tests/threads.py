"""Calls that run at the same moment, and whose errors are results."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.fixtures import in_threads


def outcomes(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at the same moment. Returns the result or the error of each, in the order of the calls."""
    return in_threads(*(partial(_outcome, call) for call in calls))


def at_once(*calls: Callable[[], object]) -> list[Exception]:
    """Run the calls at the same moment. Returns the errors that they raised."""
    return [outcome for outcome in outcomes(*calls) if isinstance(outcome, Exception)]


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - handed to the test
        return error
