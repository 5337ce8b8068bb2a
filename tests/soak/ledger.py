"""Shared memory of the soak's processes: the pace, the faults at both ends, and a few bytes for each event and message.

The memory of a run with a million events must not grow, so each array holds one number per event or message. One
process writes each array, and the controller reads all.
"""

import ctypes
import mmap
from enum import IntEnum
from pathlib import Path

TENANTS = 4
TENANT_RUN = 20
"""The number of consecutive events that belong to the same tenant."""
BATCHED = 2
"""One of every `BATCHED` messages is sent in a batch, the others as single sends."""


class Receiving(IntEnum):
    """The behaviour of a tenant's receiver."""

    WELL = 0
    HANGS = 1
    DRIPS = 2
    CLOSES_EARLY = 3
    REDIRECTS = 4
    ANSWERS_500 = 5
    ANSWERS_100_MB = 6
    ANSWERS_A_GZIP_BOMB = 7
    IS_SLOW = 8


class Upstream(IntEnum):
    """Meta's behaviour for every third message."""

    WELL = 0
    HANGS = 1
    CLOSES = 2
    ANSWERS_500 = 3
    ANSWERS_HTML = 4
    ANSWERS_429 = 5
    IS_SLOW = 6


class Ledger(ctypes.Structure):
    """The arrays of one run. `open_ledger` maps them into a process."""

    events: int
    sends: int
    allowed: float
    """The fraction (0 to 1) of events and messages that may have started by now."""
    events_done: int
    sends_done: int
    upstream: int
    receiving: "ctypes.Array[ctypes.c_uint8]"
    accepted: "ctypes.Array[ctypes.c_uint8]"
    """1 for each event whose notification was answered 200."""
    arrived: "ctypes.Array[ctypes.c_uint8]"
    event_ids: "ctypes.Array[ctypes.c_uint64]"
    statuses: "ctypes.Array[ctypes.c_uint16]"
    """For each message the last status that its client got; `NO_ANSWER` when the connection broke."""
    taken: "ctypes.Array[ctypes.c_uint8]"
    """How often Meta may have accepted each message. Every response except 429 counts."""
    outbound: "ctypes.Array[ctypes.c_uint8]"
    """1 for each message whose `message.outbound` arrived."""
    outbound_ids: "ctypes.Array[ctypes.c_uint64]"
    again: int
    """Repeated deliveries of an event, with the same event id."""
    doubled: int
    """Deliveries whose event id differs from that of the first delivery for the same event or message."""
    strays: int
    """Deliveries to another tenant's receiver."""

    @property
    def singles(self) -> int:
        """The count of single sends. Messages from this number on are items of batches."""
        return self.sends - self.sends // BATCHED


NO_ANSWER = 1


def open_ledger(file: Path, *, events: int, sends: int) -> Ledger:
    """Open the ledger in a file, or create it empty. All processes that open the file share it."""

    class Sized(Ledger):
        _fields_ = [
            *((name, ctypes.c_uint64) for name in ("events", "sends", "events_done", "sends_done")),
            *((name, ctypes.c_uint64) for name in ("again", "doubled", "strays")),
            *((name, ctypes.c_uint64 * events) for name in ("event_ids",)),
            *((name, ctypes.c_uint64 * sends) for name in ("outbound_ids",)),
            ("allowed", ctypes.c_double),
            ("upstream", ctypes.c_uint8),
            ("receiving", ctypes.c_uint8 * TENANTS),
            *((name, ctypes.c_uint8 * events) for name in ("accepted", "arrived")),
            *((name, ctypes.c_uint8 * sends) for name in ("taken", "outbound")),
            ("statuses", ctypes.c_uint16 * sends),
        ]

    with file.open("a+b") as opened:
        opened.truncate(ctypes.sizeof(Sized))
        ledger = Sized.from_buffer(mmap.mmap(opened.fileno(), 0))
    ledger.events, ledger.sends = events, sends
    return ledger


def tenant_of(event: int) -> int:
    """The tenant that an event belongs to."""
    return event // TENANT_RUN % TENANTS
