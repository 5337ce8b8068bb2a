"""Helpers for tests of handlers: make an event, and deliver it to the view with a valid signature."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from django.test import Client
from django.urls import reverse

from whabuzz.django.views import secrets, webhook
from whabuzz.webhooks import signed_headers


def inbound_text(text: str, *, wa_id: str = "919812345678", **members: Any) -> dict[str, Any]:
    """A `message.inbound` event with a text. `members` replace members of the envelope."""
    event_id = f"evt_test{uuid.uuid4().hex}"
    wamid = f"wamid.{uuid.uuid4().hex}"
    return {
        "id": event_id,
        "type": "message.inbound",
        "created_at": "2026-11-01T07:21:41.120Z",
        "phone_number_id": "100200300400500",
        "wamid": wamid,
        "wa_id": wa_id,
        "user_id": None,
        "dedupe_key": f"msg:{wamid}",
        "data": {
            "messaging_product": "whatsapp",
            "contacts": [{"profile": {"name": "Asha R"}, "wa_id": wa_id}],
            "message": {
                "id": wamid,
                "from": wa_id,
                "timestamp": "1793517701",
                "type": "text",
                "text": {"body": text},
            },
        },
        **members,
    }


def deliver(event: Mapping[str, Any], *, client: Client | None = None, path: str | None = None) -> Any:
    """POST an event to the view and return the response. The default of `path` is the view's path in the URLs."""
    body = json.dumps(event).encode()
    headers = signed_headers(secrets()[0], id_=str(event.get("id", "evt_test")), body=body)
    meta: dict[str, Any] = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()
    }
    to = path or reverse(webhook)
    return (client or Client()).post(to, body, content_type="application/json", **meta)
