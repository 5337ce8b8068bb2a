"""The upstream of these tests is the simulator; what runs in the background ends as soon as it has nothing to do."""

from messaging.tests.conftest import _no_lingering_runner, account, number
from tests.simulated import _simulator_process, simulator
from webhooks.tests.conftest import _no_lingering

__all__ = ["_no_lingering", "_no_lingering_runner", "_simulator_process", "account", "number", "simulator"]
