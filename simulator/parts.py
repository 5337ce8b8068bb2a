"""The parts of the simulator in one object, which every handler uses.

`app.py` creates it, and starts and stops its background tasks. Handlers get it as `request.app[SIMULATOR]`.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from simulator.config import Config
from simulator.event_stream import Channel
from simulator.faults import Rule
from simulator.message_templates.reviews import Reviews
from simulator.notifier import Notifier
from simulator.request_log import RequestLog
from simulator.settings import Settings
from simulator.statuses import Statuses
from simulator.throttling import Throttle
from simulator.world.inbox_store import Inboxes
from simulator.world.records import Message
from simulator.world.snapshot import Snapshot
from simulator.world.state import State


class Simulator:
    """State, settings and background tasks of a running simulator."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = Settings()
        self.state = State(config)
        self.inboxes = Inboxes(self.state.changed)
        self.snapshot = Snapshot(config.state_file, self.state, self.inboxes)
        self.requests = RequestLog(self.settings.keep.requests)
        self.chats = Channel()
        self.notifier = Notifier(config, self.settings.notifications, self.state)
        self.statuses = Statuses(self.settings, self.state, self.notifier, self.message_changed)
        self.reviews = Reviews(self.settings.templates, self.state, self.notifier)
        self.throttle = Throttle(self.settings.throttling)
        self.faults: list[Rule] = []

    async def start(self) -> None:
        """Load the saved state and start the background tasks."""
        self.snapshot.load()
        self.state.on_change = self.snapshot.soon
        await self.notifier.start()
        self.reviews.resume()

    async def stop(self) -> None:
        """Stop the background tasks and save the state."""
        self.statuses.clear()
        self.reviews.clear()
        await self.notifier.stop()
        self.snapshot.save()

    def reset(self, *, keep_accounts: bool = False) -> None:
        """Reset to an empty simulator with default settings, optionally keeping accounts, tokens and inboxes."""
        self.settings.update({"preset": "default"})
        self.faults.clear()
        self.statuses.clear()
        self.reviews.clear()
        self.notifier.clear()
        self.throttle.clear()
        self.requests.clear()
        if keep_accounts:
            self.state.clear_messages()
            for inbox in self.inboxes.by_name.values():
                inbox.clear()
        else:
            self.inboxes.clear()
            self.state.clear()
        self.state.changed()
        self.chats.say({"reload": True})

    def message_changed(self, message: Message) -> None:
        """Signal a change to the phone pages."""
        if self.chats:
            self.chats.say({"message": message.view()})

    def add_message(self, message: Message) -> None:
        """Store a message and signal it to the phone pages."""
        keep = self.settings.keep
        self.state.messages.add(message, most=keep.messages, most_of_number=keep.messages_of_number)
        self.message_changed(message)

    def react(self, reaction: Mapping[str, Any]) -> None:
        """Set or remove the emoji on a message, from either side."""
        target = self.state.messages.get(str(reaction["message_id"]))
        if target is not None:
            target.reaction = str(reaction.get("emoji") or "") or None
            self.message_changed(target)

    def configure(self, changes: dict[str, Any]) -> None:
        """Change settings. Raises `ValueError`."""
        self.settings.update(changes)
        self.requests.resize(self.settings.keep.requests)
        self.notifier.resume()


SIMULATOR: web.AppKey[Simulator] = web.AppKey("simulator", Simulator)
