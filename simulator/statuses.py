"""Statuses of accepted sends: sent, delivered, read, or failed, as `messages` notifications (upstream fact 3.5).

`graph/messages.py` calls `accepted` after a 200. The phone page calls `opened`. Accounts to which the app is not
subscribed get no statuses.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from simulator.customers import contact, is_phone, names
from simulator.errors import status_error
from simulator.notifier import Notifier
from simulator.settings import Settings
from simulator.world.records import Account, Message, Number
from simulator.world.state import State

FREE_FORM = "service"
SETTABLE = ("sent", "delivered", "read", "played")


class Statuses:
    """Sends the statuses of each accepted message in order."""

    def __init__(
        self, settings: Settings, state: State, notifier: Notifier, changed: Callable[[Message], None]
    ) -> None:
        self._settings = settings
        self._state = state
        self._notifier = notifier
        self._changed = changed
        self._timers: set[asyncio.TimerHandle] = set()

    def clear(self) -> None:
        """Drop all statuses that have not been sent."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def accepted(
        self,
        message: Message,
        *,
        category: str,
        failure: int | None,
        details: str | None = None,
        is_read: bool = True,
        late_ms: int = 0,
    ) -> None:
        """Schedule the statuses of a message. `failure` is the error code of a later failure, if any. `details`
        explains the failure.
        """
        settings = self._settings.statuses
        if not settings.enabled:
            return
        if failure is not None:
            self.later(settings.delivered_ms, self._fail, message, failure, details)
            return
        self.later(late_ms + settings.sent_ms, self._advance, message, "sent", category)
        if message.body.get("type") == "reaction":
            return
        self.later(late_ms + settings.delivered_ms, self._advance, message, "delivered", category)
        if settings.auto_read and is_read:
            self.later(late_ms + settings.read_ms, self._advance, message, "read", category)

    def opened(self, phone_number_id: str, customer: str) -> None:
        """Open the conversation as the customer: delivered messages become read."""
        for message in self._state.messages.between(phone_number_id, customer):
            if message.direction == "outbound" and message.status == "delivered":
                self._advance(message, "read", FREE_FORM)

    def fail(self, message: Message, code: int) -> None:
        """Fail a message now, even after `sent` (upstream fact 3.3, rule 4)."""
        self._fail(message, code, None)

    def set(self, message: Message, status: str) -> None:
        """Send one status now, whatever the earlier statuses. Raises `ValueError` for an unknown status."""
        if status not in SETTABLE:
            raise ValueError(f"status is one of {', '.join(SETTABLE)}, failed")
        message.status = status
        self._changed(message)
        self._send(message, status, FREE_FORM)

    def after_delivery(self, milliseconds: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function after a delay. The delay starts when a message that is accepted now is delivered."""
        self.later(self._settings.statuses.delivered_ms + milliseconds, call, *arguments)

    def later(self, milliseconds: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function after a delay, unless the simulator is reset or stopped during the delay."""
        if milliseconds == 0:
            asyncio.get_running_loop().call_soon(call, *arguments)
            return

        def due() -> None:
            self._timers.discard(timer)
            call(*arguments)

        timer = asyncio.get_running_loop().call_later(milliseconds / 1000, due)
        self._timers.add(timer)

    def _advance(self, message: Message, status: str, category: str) -> None:
        if message.status in {"failed", "read"} or message.id not in self._state.messages:
            return
        message.status = status
        self._changed(message)
        drop = self._settings.notifications.drop_delivered
        if status == "delivered" and drop and random.random() < drop:
            return
        self._send(message, status, category)

    def _send(self, message: Message, status: str, category: str) -> None:
        item = self._item(message, status)
        if item is None:
            return
        account, number, entry = item
        if status in {"sent", "delivered"}:
            # Delivered service messages are charged since October 2026 (upstream fact 0.7).
            entry["pricing"] = {
                "billable": True,
                "pricing_model": "PMP",
                "type": "regular",
                "category": category,
            }
        if message.body.get("recipient_type") == "group":
            self._send_of_group(account, number, entry)
            return
        self._publish(
            account, number, entry, contacts=[contact(self._state, account, message.customer, username=False)]
        )

    def _send_of_group(self, account: Account, number: Number, entry: dict[str, Any]) -> None:
        """Send one status for each participant. A group without participants gets one status that names nobody."""
        group = self._state.objects.get(f"{number.id}/groups", {}).get(entry["recipient_id"], {})
        participants = group.get("participants", [])
        for participant in participants:
            wa_id, user_id = names(self._state, account, participant["wa_id"])
            named = {"recipient_participant_id": wa_id, "recipient_participant_user_id": user_id}
            person = contact(self._state, account, participant["wa_id"], username=False)
            of_one = {**entry, **{name: id_ for name, id_ in named.items() if id_}}
            self._publish(account, number, of_one, contacts=[person])
        if not participants:
            self._publish(account, number, entry, contacts=None)

    def _fail(self, message: Message, code: int, details: str | None) -> None:
        if message.id not in self._state.messages:
            return
        message.status = "failed"
        message.error = status_error(code, details)
        self._changed(message)
        item = self._item(message, "failed")
        if item is None:
            return
        account, number, entry = item
        entry["errors"] = [message.error]
        self._publish(account, number, entry, contacts=None)

    def _item(self, message: Message, status: str) -> tuple[Account, Number, dict[str, Any]] | None:
        number = self._state.numbers.get(message.phone_number_id)
        account = self._state.accounts.get(number.waba_id) if number else None
        if number is None or account is None or not account.subscribed:
            return None
        entry: dict[str, Any] = {"id": message.id, "status": status, "timestamp": str(int(time.time()))}
        if message.body.get("recipient_type") == "group":
            entry.update(recipient_id=message.customer, recipient_type="group")
        else:
            wa_id, user_id = names(self._state, account, message.customer)
            by_phone = is_phone(message.customer) and message.body.get("to") is not None
            if wa_id or by_phone:
                entry["recipient_id"] = message.customer
            if user_id and (status != "failed" or not by_phone):
                entry["recipient_user_id"] = user_id
        opaque = message.body.get("biz_opaque_callback_data")
        if opaque:
            entry["biz_opaque_callback_data"] = opaque
        return account, number, entry

    def _publish(
        self,
        account: Account,
        number: Number,
        entry: dict[str, Any],
        *,
        contacts: list[dict[str, Any]] | None,
    ) -> None:
        value: dict[str, Any] = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": number.digits, "phone_number_id": number.id},
        }
        if contacts:
            value["contacts"] = contacts
        value["statuses"] = [entry]
        self._notifier.publish(waba_id=account.waba_id, field="messages", value=value)
