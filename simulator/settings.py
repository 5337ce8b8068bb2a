"""Settings that can be changed at run time through `PUT /sim/settings`.

With the defaults, the simulator behaves like Meta. The preset `benchmark` is for measurements, `instant` is for tests.
Times are milliseconds unless the name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(slots=True)
class Statuses:
    """When the statuses of an accepted send are sent. With `auto_read` off, `read` waits until the customer opens the
    chat.
    """

    enabled: bool = True
    sent_ms: int = 300
    delivered_ms: int = 800
    read_ms: int = 1500
    auto_read: bool = True


@dataclass(slots=True)
class Notifications:
    """How notifications are sent, including faults. Probabilities are 0 to 1."""

    paused: bool = False
    batch_size: int = 1
    batch_wait_ms: int = 200
    delay_ms: int = 0
    duplicate: float = 0.0
    reorder: float = 0.0
    drop_delivered: float = 0.0
    concurrency: int = 32
    timeout_ms: int = 10000
    # Meta retries for days. This schedule has the same form but lasts about four minutes.
    retry_seconds: list[float] = field(default_factory=lambda: [0.5, 1, 2, 5, 10, 20, 30, 45, 60, 60])
    queue_limit: int = 100000


@dataclass(slots=True)
class Throttling:
    """Which rate limits apply: per number (20, 80 or 1,000 a second), per pair of number and customer, per account."""

    throughput: bool = True
    pair: bool = True
    management: bool = True
    registrations: bool = True


@dataclass(slots=True)
class Recipients:
    """Rules that decide which recipients a message may reach."""

    # Recipients ending in 0026, 0047, 0030, 0429 fail (upstream fact 3.12).
    magic: bool = True
    # Free-form messages need a customer message within 24 hours. Otherwise they fail with 131047.
    window: bool = True


@dataclass(slots=True)
class Templates:
    """How long a submitted template waits for its review."""

    review_ms: int = 2000


@dataclass(slots=True)
class Keep:
    """Limits of the simulator's memory."""

    requests: int = 20000
    messages: int = 50000
    messages_of_number: int = 5000


@dataclass(slots=True)
class Settings:
    """All groups of settings."""

    statuses: Statuses = field(default_factory=Statuses)
    notifications: Notifications = field(default_factory=Notifications)
    throttling: Throttling = field(default_factory=Throttling)
    recipients: Recipients = field(default_factory=Recipients)
    templates: Templates = field(default_factory=Templates)
    keep: Keep = field(default_factory=Keep)

    def view(self) -> dict[str, Any]:
        """All values as JSON."""
        return asdict(self)

    def update(self, changes: Mapping[str, Any]) -> None:
        """Apply a partial tree of values. `{"preset": name}` applies a preset first.

        Raises `ValueError` for an unknown name or a value of the wrong type, and then changes nothing.
        """
        changes = dict(changes)
        preset = changes.pop("preset", None)
        if preset is not None:
            if preset not in PRESETS:
                raise ValueError(f"unknown preset {preset!r}")
            if preset == "default":
                _apply(self, Settings().view(), "")
            _apply(self, PRESETS[preset], "")
        _apply(self, changes, "", dry_run=True)
        _apply(self, changes, "")


def _apply(target: Any, changes: Mapping[str, Any], path: str, *, dry_run: bool = False) -> None:
    names = {item.name for item in fields(target)}
    for name, value in changes.items():
        where = f"{path}{name}"
        if name not in names:
            raise ValueError(f"unknown setting {where!r}")
        current = getattr(target, name)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                raise ValueError(f"{where!r} must be an object")
            _apply(current, value, f"{where}.", dry_run=dry_run)
        elif not _fits(current, value):
            raise ValueError(f"{where!r} must be of the kind {type(current).__name__} and not negative")
        elif not dry_run:
            setattr(target, name, value)


def _fits(current: Any, value: Any) -> bool:
    if isinstance(current, bool):
        return isinstance(value, bool)
    if isinstance(current, list):
        return isinstance(value, list) and all(_fits(0.0, item) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(current, float) or isinstance(value, int))


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # No status follows a send, and no limit applies, so that a measurement measures only the gateway.
    "benchmark": {
        "statuses": {"enabled": False},
        "throttling": {"throughput": False, "pair": False, "management": False, "registrations": False},
        "recipients": {"magic": False, "window": False},
    },
    # Statuses and reviews come at once, for tests that wait for them.
    "instant": {
        "statuses": {"sent_ms": 0, "delivered_ms": 0, "read_ms": 0},
        "templates": {"review_ms": 0},
    },
}
