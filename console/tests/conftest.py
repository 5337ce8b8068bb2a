"""Meta is the simulator in these tests, and background work ends as soon as it is idle."""

from messaging.tests.conftest import _no_lingering_runner, account, number
from webhooks.tests.conftest import _no_lingering

__all__ = ["_no_lingering", "_no_lingering_runner", "account", "number"]
