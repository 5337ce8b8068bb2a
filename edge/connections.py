"""The connections of a process of the edge: beyond the most it holds, an idle one gives way to a new one."""

from typing import Protocol

MOST_CONNECTIONS = 5_000
"""Of a process. An idle one takes 9 KB, one with a small body that arrives up to 64 KiB more."""


class Closable(Protocol):
    """A connection, as far as it is known here."""

    def give_way(self) -> None:
        """End it: it waits for its next request."""


class Connections:
    """All connections, and in which order those wait that have no request in work.

    A stranger can open more connections than the process has memory for. So one gives way to each new one: first that
    which has waited longest for its first request, then that which has idled longest after its last.
    """

    def __init__(self) -> None:
        self._held = 0
        self._new: dict[Closable, None] = {}
        self._idle: dict[Closable, None] = {}

    def enter(self, connection: Closable) -> bool:
        """Count a new connection in. False: there are too many, and each has a request in work."""
        self._held += 1
        if self._held > MOST_CONNECTIONS:
            waiting = self._new or self._idle
            if not waiting:
                return False
            longest = next(iter(waiting))
            del waiting[longest]
            longest.give_way()
        self._new[connection] = None
        return True

    def leave(self, connection: Closable) -> None:
        """Count a connection out that is closed."""
        self._held -= 1
        self.begin(connection)

    def begin(self, connection: Closable) -> None:
        """The headers of a request have arrived."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def rest(self, connection: Closable) -> None:
        """Every request of the connection has its answer."""
        self._idle[connection] = None


connections = Connections()
