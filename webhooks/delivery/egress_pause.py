"""Pause of a dispatcher while the service's egress proxy is down: nothing is claimed then."""

import time

from gateway.outbound.client import Answer

FAILURES = 3
"""In a row, until it pauses: one connection to the proxy may fail by chance."""
SECONDS = 5.0


class EgressPause:
    """`note` is called with every answer; `is_on` while nothing may be claimed. After it a few deliveries try again."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def note(self, answer: Answer) -> None:
        """Count an answer in."""
        if answer.concerns_receiver:
            self._failures = 0
            return
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = time.monotonic() + SECONDS

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self._until
