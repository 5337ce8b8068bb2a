"""Events of messages, written to the event log."""

from typing import Any

from gateway import ids
from gateway.database.statements import run
from gateway.upstream.notifications.change import MessageFacts
from tenants.models import Tenant
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import Publication, publishing

SECOND = 1_793_500_000
AT = {"sent": SECOND + 1, "delivered": SECOND + 5, "read": SECOND + 60, "failed": SECOND + 90}


def outbound(wamid: str | None = "wamid.A", *, environment: str = "live", **facts: Any) -> NewEvent:
    return NewEvent(
        type="message.outbound",
        environment=environment,
        dedupe_key=f"out:{wamid or ids.uuid7()}",
        data=b"{}",
        wamid=wamid,
        wa_id="919812345678",
        phone_number_id="200300400500600",
        message=MessageFacts(
            **{
                "direction": "outbound",
                "status": "accepted",
                "is_message": True,
                "type": "template",
                "template": "order_update",
                "at_ms": SECOND * 1000,
                **facts,
            }
        ),
    )


def status(name: Any, wamid: str = "wamid.A", *, environment: str = "live", **facts: Any) -> NewEvent:
    return NewEvent(
        type="message.status",
        environment=environment,
        dedupe_key=f"status:{wamid}:{name}:{facts}",
        data=b"{}",
        wamid=wamid,
        message=MessageFacts(**{"direction": "outbound", "status": name, "at_ms": AT[name] * 1000, **facts}),
    )


def write(tenant: Tenant, *groups: list[NewEvent]) -> None:
    """Publish groups of events, each group with a statement of its own."""
    for events in groups:
        run(publishing([Publication(tenant.id, events)]))
