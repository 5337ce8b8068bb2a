"""Settings without the message log. The benchmark `projection` measures the cost of the message log with them."""

from gateway.settings import *  # noqa: F403 - settings modules extend each other this way
from gateway.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.equipment.without_messages.WithoutMessages"]
