"""The media ids of files that were sent with an idempotency key, so that a repeat has the same body."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from whabuzz.cli.profiles import write_private

_KEPT_SECONDS = 2 * 24 * 3600
"""Longer than the service knows an idempotency key, and shorter than WhatsApp keeps a file."""


def uploaded_once(place: Path, key: list[str], file: Path, upload: Callable[[], str]) -> str:
    """The media id of a file's earlier upload with the same key, stored at `place`. Otherwise that of a new upload."""
    digest = hashlib.sha256(json.dumps([*key, file.name]).encode())
    digest.update(file.read_bytes())
    name, now = digest.hexdigest(), time.time()
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        stored = json.loads(place.read_text())
        known = {each: found for each, found in stored.items() if now - found["at"] < _KEPT_SECONDS}
    if name in known:
        return str(known[name]["id"])
    media_id = upload()
    with suppress(OSError):  # The send matters more than the note.
        write_private(place, {**known, name: {"id": media_id, "at": now}})
    return media_id
