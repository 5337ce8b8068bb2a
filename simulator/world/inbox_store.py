"""Inboxes of the simulated servers: one for each name, each a bounded ring buffer with counters.

`inbox_views.py` is the HTTP side. A count-only inbox stores only the id and arrival time of a delivery, so that it
does not slow down a measurement.
"""

import base64
import binascii
import hashlib
import hmac
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MODES = ("ok", "status:<n>", "hang", "slow:<ms>", "redirect", "close", "drip", "big", "gzip_bomb", "gone")
VERIFY_MODES = ("json", "text", "wrong", "mode")
MAX_INBOXES = 2000
_RING_BYTES = 64 * 1024 * 1024
_TOLERANCE_SECONDS = 300
_CROCKFORD = {character: value for value, character in enumerate("0123456789abcdefghjkmnpqrstvwxyz")}


@dataclass(slots=True)
class Delivery:
    """One received POST."""

    number: int
    at: float
    event_id: str
    event_type: str
    signature: str
    headers: dict[str, str]
    body: bytes
    status: int | None

    def view(self) -> dict[str, Any]:
        """The form on the page and in the control API."""
        return {
            "number": self.number,
            "at": round(self.at, 6),
            "event_id": self.event_id,
            "event_type": self.event_type,
            "signature": self.signature,
            "status": self.status,
            "headers": self.headers,
            "body": self.body.decode(errors="replace"),
        }


def check_signature(secrets: Iterable[str], *, headers: dict[str, str], body: bytes, now: float) -> str:
    """Check the signature of Standard Webhooks: `valid`, `invalid`, `stale` (correct, but older than five minutes) or
    `no_secret`.

    Names in `headers` are lower-case. The signed content is `{id}.{timestamp}.{body}`. It is enough that one of the
    signatures matches one registered secret, so both secrets work during a rotation.
    """
    secrets = list(secrets)
    if not secrets:
        return "no_secret"
    stamp = headers.get("webhook-timestamp", "")
    content = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    given = [part[3:] for part in headers.get("webhook-signature", "").split() if part.startswith("v1,")]
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        wanted = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        if any(hmac.compare_digest(wanted, candidate) for candidate in given):
            fresh = stamp.isdigit() and abs(now - int(stamp)) <= _TOLERANCE_SECONDS
            return "valid" if fresh else "stale"
    return "invalid"


def created_at(event_id: str) -> float | None:
    """The Unix time in an id of the form `evt_` + UUIDv7 in Crockford base32. None for other ids."""
    text = event_id.rpartition("_")[2].lower()
    if len(text) != 26 or any(character not in _CROCKFORD for character in text):
        return None
    value = 0
    for character in text[:10]:
        value = value * 32 + _CROCKFORD[character]
    return value / 1000


@dataclass(slots=True)
class Inbox:
    """One simulated server."""

    name: str
    secrets: list[str] = field(default_factory=list)
    mode: str = "ok"
    verify: str = "json"
    keep: int = 500
    count_only: bool = False
    total: int = 0
    pings: int = 0
    duplicates: int = 0
    kept: deque[Delivery] = field(default_factory=deque)
    kept_bytes: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    by_signature: Counter[str] = field(default_factory=Counter)
    by_status: Counter[str] = field(default_factory=Counter)
    # Event id → how often the event was answered with 2xx. 0: the event arrived, but was never accepted.
    accepted: dict[str, int] = field(default_factory=dict)
    arrivals: list[tuple[str, float]] = field(default_factory=list)

    def note(self, event_id: str, status: int | None) -> None:
        """Count a delivery by its event and by the status of its answer (None: no answer)."""
        self.total += 1
        self.by_status[str(status) if status else "none"] += 1
        before = self.accepted.get(event_id, 0)
        taken = status is not None and 200 <= status < 300
        if before and taken:
            self.duplicates += 1
        self.accepted[event_id] = before + taken

    def add(self, delivery: Delivery) -> None:
        """Store a delivery. Beyond the limits, the oldest deliveries are dropped."""
        self.by_type[delivery.event_type] += 1
        self.by_signature[delivery.signature] += 1
        self.kept.append(delivery)
        self.kept_bytes += len(delivery.body)
        while self.kept and (len(self.kept) > self.keep or self.kept_bytes > _RING_BYTES):
            self.kept_bytes -= len(self.kept.popleft().body)

    def clear(self) -> None:
        """Delete the deliveries and counters. Secrets and modes stay."""
        self.total = self.pings = self.duplicates = self.kept_bytes = 0
        for holder in (
            self.kept,
            self.by_type,
            self.by_signature,
            self.by_status,
            self.accepted,
            self.arrivals,
        ):
            holder.clear()

    def summary(self) -> dict[str, Any]:
        """Settings and counters."""
        return {
            "name": self.name,
            "mode": self.mode,
            "verify": self.verify,
            "keep": self.keep,
            "count_only": self.count_only,
            "secrets": len(self.secrets),
            "total": self.total,
            "pings": self.pings,
            "unique": len(self.accepted),
            "accepted": sum(1 for count in self.accepted.values() if count),
            "duplicates": self.duplicates,
            "by_type": dict(self.by_type),
            "by_signature": dict(self.by_signature),
            "by_status": dict(self.by_status),
        }

    def timing(self) -> dict[str, Any]:
        """Statistics of the arrivals at a count-only inbox: count, span, rate, and percentiles of the milliseconds from
        an event's creation to its arrival.
        """
        arrivals = self.arrivals
        if not arrivals:
            return {"count": 0}
        first, last = arrivals[0][1], arrivals[-1][1]
        made = ((created_at(event_id), at) for event_id, at in arrivals)
        late = sorted((at - created) * 1000 for created, at in made if created is not None)
        return {
            "count": len(arrivals),
            "first_at": first,
            "last_at": last,
            "per_second": round((len(arrivals) - 1) / (last - first), 1) if last > first else None,
            "latency_ms": {
                name: round(late[min(len(late) - 1, int(len(late) * share))], 2)
                for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
            }
            if late
            else None,
        }


class Inboxes:
    """All inboxes. An inbox is created when it is first named."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.by_name: dict[str, Inbox] = {}

    def get(self, name: str) -> Inbox:
        """The inbox with that name, created if it is new. Raises `ValueError` when there are `MAX_INBOXES` already."""
        inbox = self.by_name.get(name)
        if inbox is None:
            if len(self.by_name) >= MAX_INBOXES:
                raise ValueError(f"there are {MAX_INBOXES} inboxes already")
            inbox = self.by_name[name] = Inbox(name)
        return inbox

    def configure(self, name: str, changes: dict[str, Any]) -> Inbox:
        """Set secrets, mode, verify, keep, count_only. `add_secret` keeps the other secrets. Raises `ValueError`."""
        changes = dict(changes)
        if "add_secret" in changes:
            changes["secrets"] = [*self.get(name).secrets, changes.pop("add_secret")]
        unknown = set(changes) - {"secrets", "mode", "verify", "keep", "count_only"}
        if unknown:
            raise ValueError(f"unknown members {sorted(unknown)}")
        secrets = changes.get("secrets", [])
        if not isinstance(secrets, list) or not all(_is_secret(secret) for secret in secrets):
            raise ValueError("secrets is a list of whsec_ values")
        if not _is_mode(str(changes.get("mode", "ok"))):
            raise ValueError(f"mode is one of {', '.join(MODES)}")
        if changes.get("verify", "json") not in VERIFY_MODES:
            raise ValueError(f"verify is one of {', '.join(VERIFY_MODES)}")
        keep = changes.get("keep", 1)
        if not isinstance(keep, int) or not 0 <= keep <= 100_000:
            raise ValueError("keep is 0 to 100000")
        if not isinstance(changes.get("count_only", False), bool):
            raise ValueError("count_only is true or false")
        inbox = self.get(name)
        for member, value in changes.items():
            setattr(inbox, member, value)
        self._changed()
        return inbox

    def clear(self) -> None:
        """Delete every inbox."""
        self.by_name.clear()

    def saved(self) -> list[dict[str, Any]]:
        """The settings of the inboxes, which survive a restart."""
        return [
            {"name": i.name, "secrets": i.secrets, "mode": i.mode, "verify": i.verify, "keep": i.keep}
            for i in self.by_name.values()
        ]

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Load the result of `saved`."""
        for row in rows:
            self.by_name[row["name"]] = Inbox(**row)


def _is_secret(secret: Any) -> bool:
    try:
        return isinstance(secret, str) and bool(
            base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        )
    except binascii.Error:
        return False


def _is_mode(mode: str) -> bool:
    kind, _, number = mode.partition(":")
    if kind in {"status", "slow"}:
        return number.isdigit() and (kind == "slow" or 200 <= int(number) <= 599)
    return not number and kind in {"ok", "hang", "redirect", "close", "drip", "big", "gzip_bomb", "gone"}
