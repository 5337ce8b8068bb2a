"""The service's settings, with time limits that the environment of a test process can change."""

import os

from gateway.settings import *  # noqa: F403 - this settings module extends another
from gateway.settings import BATCH_LEASE_SECONDS, DELIVERY_LEASE_SECONDS, UPSTREAM_TIMEOUT_MS

DELIVERY_LEASE_SECONDS = int(os.environ.get("DELIVERY_LEASE_SECONDS", DELIVERY_LEASE_SECONDS))
BATCH_LEASE_SECONDS = float(os.environ.get("BATCH_LEASE_SECONDS", BATCH_LEASE_SECONDS))
UPSTREAM_TIMEOUT_MS = int(os.environ.get("UPSTREAM_TIMEOUT_MS", UPSTREAM_TIMEOUT_MS))
