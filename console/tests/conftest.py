"""Fixtures: the simulator plays Meta, and background workers stop as soon as they have no work."""

from messaging.tests.conftest import _no_lingering_runner, account, number
from webhooks.tests.conftest import _no_lingering

__all__ = ["_no_lingering", "_no_lingering_runner", "account", "number"]
