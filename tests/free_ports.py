"""Ports for servers that tests start."""

import secrets
import socket
from contextlib import suppress

PORTS = range(15_000, 32_000)
"""No system gives these ports to an outgoing connection, which could take a port before its server listens on it."""


def free_port() -> int:
    """Return a TCP port of loopback on which nothing listens now.

    It does not come from `random`, because all test processes may have the same seed.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", secrets.choice(PORTS)))
            return int(probe.getsockname()[1])
