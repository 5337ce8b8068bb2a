"""The members of the event envelope, defined once: publishing, reading and the API's schema all follow `NewEvent`.

A new member takes three edits: a field here, a column of `webhooks.models.Event`, and the flow that knows its value.
"""

from dataclasses import dataclass, fields
from uuid import UUID

from gateway.upstream.notifications.message_facts import MessageFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to publish: the envelope's members (specification 6) that its flow knows, in the envelope's order."""

    id: UUID | None = None
    """Given by a flow that stores the event's id in a row of its own; otherwise publishing makes one."""
    type: str
    environment: str
    """Whose endpoints get it: those of the account, batch or session that caused it. Not shown in the envelope."""
    waba_id: str | None = None
    phone_number_id: str | None = None
    display_phone_number: str | None = None
    wamid: str | None = None
    wa_id: str | None = None
    user_id: str | None = None
    dedupe_key: str
    data: bytes
    """JSON, delivered byte for byte."""
    raw_path: str | None = None
    message: MessageFacts | None = None
    """What a `message.*` event tells about its message, for the message log. Not shown in the envelope."""

    @property
    def status(self) -> str | None:
        """The status that the event reports of its message, for lists of events."""
        return (self.message.word or self.message.status) if self.message else None

    @property
    def error_code(self) -> int | None:
        """The upstream's error code that the event reports, for lists of events."""
        return self.message.error_code if self.message else None


STORED = tuple(field.name for field in fields(NewEvent) if field.name not in {"data", "message"})
"""The envelope's members that an event's row holds; `data` and `raw` are bodies."""
COLUMNS = (*STORED, "status", "error_code")
"""What a row is made of. All are text except the id and the error code."""
LISTED = tuple(name for name in STORED if name not in {"id", "type", "environment", "raw_path"})
"""The members that the envelope shows between `tenant_id` and `data`."""
ENVELOPE = ("id", "type", "api_version", "created_at", "tenant_id", *LISTED, "data", "raw", "raw_path")
"""The envelope's members in the order in which a customer gets them."""
