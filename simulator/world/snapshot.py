"""The part of the state that survives a restart, in one JSON file (`SIMULATOR_STATE`).

The file has accounts, numbers, tokens, templates, profiles, overrides, inbox secrets, and the customers who wrote
within 24 hours. So tokens stored in the gateway stay valid. Messages, media and received requests are not saved.
"""

import asyncio
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from simulator.world.inbox_store import Inboxes
from simulator.world.records import Account, Number, Template, Token
from simulator.world.state import State

logger = logging.getLogger(__name__)

_DELAY_SECONDS = 0.5


class Snapshot:
    """Writes the file shortly after a change and at the end, always atomically."""

    def __init__(self, path: Path | None, state: State, inboxes: Inboxes) -> None:
        self._path = path
        self._state = state
        self._inboxes = inboxes
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Save within half a second. A single save covers all changes until then."""
        if self._path is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_SECONDS, self.save)

    def save(self) -> None:
        """Save now: write a new file, sync it, and replace the old one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        with new.open("wb") as file:
            file.write(orjson.dumps(self._content(), option=orjson.OPT_INDENT_2))
            file.flush()
            os.fsync(file.fileno())
        # The file contains (simulated) tokens and secrets.
        new.chmod(0o600)
        new.replace(self._path)

    def _content(self) -> dict[str, Any]:
        state = self._state
        return {
            "version": 2,
            "accounts": [asdict(account) for account in state.accounts.values()],
            "numbers": [asdict(number) for number in state.numbers.values()],
            "tokens": [asdict(token) for token in state.tokens.values()],
            "templates": [asdict(template) for template in state.templates.values()],
            "objects": state.objects,
            "customers": state.customers,
            "user_ids": state.user_ids,
            "app_subscription": state.app_subscription,
            "windows": state.messages.windows(),
            "inboxes": self._inboxes.saved(),
        }

    def load(self) -> None:
        """Read the file if it exists. A file that cannot be read is renamed, and the simulator starts empty."""
        if self._path is None or not self._path.exists():
            return
        try:
            self._restore(orjson.loads(self._path.read_bytes()))
        except (ValueError, KeyError, TypeError):
            aside = self._path.with_name(self._path.name + ".unreadable")
            self._path.replace(aside)
            self._state.clear()
            logger.warning("state file could not be read, put aside as %s", aside.name)

    def _restore(self, content: dict[str, Any]) -> None:
        state = self._state
        state.accounts = {row["waba_id"]: Account(**row) for row in content["accounts"]}
        state.numbers = {row["id"]: Number(**row) for row in content["numbers"]}
        state.tokens = {row["value"]: Token(**row) for row in content["tokens"]}
        for row in content["templates"]:
            state.add_template(Template(**row))
        # Version 1 stored the names of customers for all accounts together.
        state.customers = content["customers"] if content["version"] > 1 else {}
        state.user_ids = content["user_ids"]
        state.app_subscription = content["app_subscription"]
        state.objects = content.get("objects", {})
        for phone_number_id, customer, timestamp in content.get("windows", []):
            state.messages.open_window(phone_number_id, customer, timestamp)
        self._inboxes.restore(content["inboxes"])
