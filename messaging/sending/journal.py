"""The send journal: entries on the local disk from which the event of an interrupted send can be created.

An entry exists from before the upstream call until the commit. So a send that the upstream accepted always gets its
`message.outbound`, and the Idempotency-Key of each send its answer, or its release if nothing was sent. If its process
is killed, or Postgres is unavailable for longer than a caller can wait, any web process of the same host replays the
journal.

A send holds one slot: a file in `DATA_DIR/sends` that the process has locked. The lock ends with the process, so an
entry in an unlocked file was abandoned. Entries contain the message and are encrypted (AES-GCM, a key per file derived
from `ENCRYPTION_KEYS`). There is no fsync before the call, because it would take longer than the rest of the send. So a
killed process loses no entries, but a power failure loses the entries of the last seconds. An entry left to the replay
is fsynced before its caller gets an answer.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import msgspec
import structlog
from django.conf import settings

from gateway.api.errors import ServiceUnavailable
from gateway.encryption import SALT_BYTES, FileCipher
from gateway.ids import uuid7
from gateway.monitoring.logs import type_alone

log = structlog.get_logger(__name__)

_LENGTH_BYTES = 4
_END = bytes(_LENGTH_BYTES)


class Begun(msgspec.Struct, array_like=True):
    """The first part of an entry: the send, written before the upstream call."""

    event_id: UUID
    tenant_id: UUID
    environment: str
    waba_id: str
    phone_number_id: str
    digits: str
    sent: bytes
    idempotency_key: str | None
    traceparent: str | None = None
    claim: str = ""
    """The `claim` of the key's use."""

    def __repr__(self) -> str:
        return type_alone(self)


class Answered(msgspec.Struct, array_like=True):
    """The second part of an entry: the upstream's answer, and the answer to the caller."""

    http_status: int
    response: bytes
    reply_status: int
    reply_headers: dict[str, str]
    reply_body: bytes
    is_accepted: bool = True
    """Whether the upstream accepted the message, so that the send has an event."""
    is_stored: bool = True
    """Whether the reply is stored for the key. Otherwise the key is released."""

    def __repr__(self) -> str:
        return type_alone(self)


@dataclass(slots=True)
class Slot:
    """A file that holds one send at a time and that this process has locked."""

    path: Path
    descriptor: int
    cipher: FileCipher = field(repr=False)
    end: int = 0

    def begin(self, begun: Begun) -> None:
        """Append the send. Raises OSError."""
        self.end = SALT_BYTES
        self._append(begun)

    def answered(self, answered: Answered) -> None:
        """Append the answer. Raises OSError."""
        self._append(answered)

    def clear(self) -> None:
        """Remove the entry, because the send is recorded or was certainly not made. Raises OSError."""
        os.pwrite(self.descriptor, _END, SALT_BYTES)

    def sync(self) -> None:
        """Fsync the entry, so that it survives a power failure. Raises OSError."""
        os.fsync(self.descriptor)

    def entry(self) -> tuple[Begun, Answered | None] | None:
        """The content of the file. None for an empty file. An incomplete answer counts as missing.

        Raises InvalidTag when no key decrypts the file.
        """
        parts = list(self._parts())
        if not parts:
            return None
        begun = msgspec.msgpack.decode(self.cipher.decrypt(parts[0]), type=Begun)
        if len(parts) == 1:
            return begun, None
        return begun, msgspec.msgpack.decode(self.cipher.decrypt(parts[1]), type=Answered)

    def set_aside(self) -> None:
        """Rename the file of an entry that cannot be replayed. It is kept for an operator and not tried again."""
        self.path = self.path.rename(self.path.with_suffix(".failed"))

    def close(self, *, remove: bool) -> None:
        """Unlock the file. With `remove`, delete the file first."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)

    def _append(self, part: msgspec.Struct) -> None:
        content = self.cipher.encrypt(msgspec.msgpack.encode(part))
        framed = len(content).to_bytes(_LENGTH_BYTES) + content
        if os.pwrite(self.descriptor, framed + _END, self.end) != len(framed) + _LENGTH_BYTES:
            raise OSError("short write")
        self.end += len(framed)

    def _parts(self) -> Iterator[bytes]:
        at = SALT_BYTES
        while length := int.from_bytes(os.pread(self.descriptor, _LENGTH_BYTES, at)):
            content = os.pread(self.descriptor, length, at + _LENGTH_BYTES)
            if len(content) < length:
                return
            yield content
            at += _LENGTH_BYTES + length


class _Slots:
    """The slots of this process that no send uses at present."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Slot] = []

    def take(self) -> Slot:
        """Take a free slot of this process, or create one. Raises OSError."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return _create()

    def release(self, slot: Slot) -> None:
        with self._lock:
            self._free.append(slot)


_slots = _Slots()


def begin(begun: Begun) -> Slot:
    """Journal a send before its upstream call. Raises ServiceUnavailable when this fails, because no send may be made
    without an entry.
    """
    slot = None
    try:
        slot = _slots.take()
        slot.begin(begun)
    except OSError as error:
        log.error("send_journal_unwritable", error=error.strerror, errno=error.errno)
        if slot is not None:
            slot.close(remove=True)
        raise ServiceUnavailable(
            "The service cannot write its journal right now. Nothing was sent; try again."
        ) from None
    return slot


def recorded(slot: Slot) -> None:
    """Free the slot of a send that is recorded or was certainly not made."""
    try:
        slot.clear()
    except OSError as error:
        log.error("send_journal_unwritable", error=error.strerror, errno=error.errno)
        slot.close(remove=True)
        return
    _slots.release(slot)


def leave(slot: Slot) -> None:
    """Release the slot of a send so that the replay finds its entry."""
    try:
        slot.sync()
    except OSError as error:
        log.error("send_journal_unwritable", error=error.strerror, errno=error.errno)
    slot.close(remove=False)


def abandoned() -> Iterator[Slot]:
    """The abandoned slots, each locked while the caller uses it."""
    for path in sorted(directory().glob("*.send")):
        slot = _open(path)
        if slot is not None:
            yield slot


def failed() -> int:
    """How many entries were set aside for an operator."""
    return sum(1 for _ in directory().glob("*.failed"))


def directory() -> Path:
    """The folder for the slots of this host's processes, created on first use."""
    return settings.DATA_DIR / "sends"


def _create() -> Slot:
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory() / f"{uuid7().hex}.send"
    # The file is locked before it is renamed to its final name, so a replay never finds it unlocked.
    hidden = path.with_suffix(".new")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        cipher = FileCipher.new(purpose="send_journal")
        os.pwrite(descriptor, cipher.salt + _END, 0)
        hidden.rename(path)
    except BaseException:
        # While the disk is full, every send fails here, so the file must not stay.
        hidden.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return Slot(path, descriptor, cipher)


def _open(path: Path) -> Slot | None:
    """Lock a file that no process has locked, as a slot. None when the file is locked or deleted."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if os.fstat(descriptor).st_nlink == 0:
        # Another process replayed the entry and removed the file between the calls of `open` and `flock`.
        os.close(descriptor)
        return None
    return Slot(path, descriptor, FileCipher(os.pread(descriptor, SALT_BYTES, 0), purpose="send_journal"))
