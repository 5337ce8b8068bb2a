"""The golden notifications, and helpers for tests with notifications."""

import re
from pathlib import Path
from typing import Any

from gateway.upstream.notifications.normalise import Change, EventDraft, normalise

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in GOLDEN.glob("*.expected.json"))
BODIES = {name: (GOLDEN / f"{name}.json").read_bytes() for name in NAMES}


def at_path(body: Any, raw_path: str) -> Any:
    """The value at a path such as `entry[0].changes[0].value` in a parsed notification."""
    for name, index in re.findall(r"([a-z_]+)|\[([0-9]+)\]", raw_path):
        body = body[name] if name else body[int(index)]
    return body


def changes_of(body: bytes) -> tuple[Change, ...]:
    """The changes of a well-formed notification."""
    normalised = normalise(body)
    assert normalised.error is None
    return normalised.changes


def drafts_of(body: bytes) -> list[EventDraft]:
    """The events of a well-formed notification."""
    return [draft for change in changes_of(body) for draft in change.drafts]
