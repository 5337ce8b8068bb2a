"""The settings without the message log: what the projection of events onto messages costs is the difference."""

from gateway.settings import *  # noqa: F403 - settings modules extend each other this way
from gateway.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.equipment.without_messages.WithoutMessages"]
