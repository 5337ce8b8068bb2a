"""The service's settings with the floors' routes: the same middleware, the same server, another view."""

from gateway.settings import *  # noqa: F403 - settings modules extend each other this way

ROOT_URLCONF = "benchmarks.equipment.floor_urls"
