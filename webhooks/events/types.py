"""The closed vocabulary of event types (specification 6). Unknown things are `meta.other`."""

from collections.abc import Mapping

from gateway.upstream.notifications.message_facts import Direction

EVENT_TYPES = (
    "message.inbound",
    "message.status",
    "message.error",
    "message.echo",
    "message.outbound",
    "user.preferences",
    "batch.completed",
    "template.status",
    "template.quality",
    "template.category",
    "number.quality",
    "number.name",
    "number.connection",
    "account.update",
    "account.alerts",
    "account.capability",
    "account.security",
    "token.expiring",
    "token.invalid",
    "webhook.failing",
    "webhook.disabled",
    "webhook.recovered",
    "meta.other",
)
OPERATIONAL_TYPES = tuple(name for name in EVENT_TYPES if name.startswith("webhook."))
"""What the service tells about one endpoint to the others."""
ALL = "*"

STATUSES = ("sent", "delivered", "read", "played", "failed", "deleted")
"""What a `message.status` event tells of a message (upstream fact 3.5)."""
DIRECTION_OF_TYPE: Mapping[str, Direction] = {
    "message.inbound": "inbound",
    "message.outbound": "outbound",
    "message.echo": "outbound",
    "message.status": "outbound",
}
"""Which way the message of an event goes."""
