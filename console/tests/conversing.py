"""Helpers that write messages of conversations to the event log."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from gateway import ids
from gateway.clock import now
from gateway.upstream.notifications.change import MessageFacts
from tenants.models import Tenant
from webhooks.events.envelope import NewEvent
from webhooks.tests.messages import write

PNID = "200300400500600"
WA_ID = "919812345678"


def inbound(tenant: Tenant, text: str = "Where is my order?", **given: Any) -> str:
    """Write a message of a customer. Returns its wamid."""
    body = given.pop("body", {"type": "text", "text": {"body": text}})
    return _write(tenant, "message.inbound", "inbound", body, given)


def outbound(tenant: Tenant, text: str = "On its way.", **given: Any) -> str:
    """Write a message of the business. Returns its wamid."""
    body = given.pop("body", {"type": "text", "text": {"body": text}})
    return _write(tenant, given.pop("kind", "message.outbound"), "outbound", body, given)


def status(tenant: Tenant, wamid: str, name: Any, **facts: Any) -> None:
    """Write a status of a message of the business."""
    at = facts.pop("at", now())
    write(
        tenant,
        [
            NewEvent(
                type="message.status",
                environment=facts.pop("environment", "live"),
                dedupe_key=f"status:{wamid}:{name}",
                data=b"{}",
                wamid=wamid,
                phone_number_id=PNID,
                message=MessageFacts(
                    direction="outbound", status=name, at_ms=int(at.timestamp() * 1000), **facts
                ),
            )
        ],
    )


def _write(tenant: Tenant, kind: Any, direction: Any, body: dict[str, Any], given: dict[str, Any]) -> str:
    at: datetime = given.pop("at", now())
    stored_at: datetime = given.pop("stored_at", at)
    wamid: str = given.pop("wamid", f"wamid.{ids.uuid7().hex}")
    wa_id: str | None = given.pop("wa_id", WA_ID)
    user_id: str | None = given.pop("user_id", None)
    name: str = given.pop("name", "Asha R")
    data: dict[str, Any]
    if direction == "inbound":
        data = {
            "contacts": [{"profile": {"name": name}, "wa_id": wa_id}],
            "message": {"id": wamid, "from": wa_id, "timestamp": str(int(at.timestamp())), **body},
        }
    else:
        data = {"request": {"to": wa_id, **body}, "response": {}}
    template = body.get("template", {})
    event = NewEvent(
        id=UUID(int=ids.first_at(stored_at).int | (ids.uuid7().int & ((1 << 80) - 1))),
        type=kind,
        environment=given.pop("environment", "live"),
        dedupe_key=f"{direction}:{wamid}",
        data=json.dumps(data).encode(),
        wamid=wamid,
        wa_id=wa_id,
        user_id=user_id,
        phone_number_id=given.pop("phone_number_id", PNID),
        message=MessageFacts(
            direction=direction,
            status=given.pop("status", "received" if direction == "inbound" else "accepted"),
            at_ms=int(at.timestamp() * 1000),
            is_message=True,
            type=body["type"],
            template=template.get("name"),
            template_language=template.get("language", {}).get("code"),
            **given,
        ),
    )
    write(tenant, [event])
    return wamid
