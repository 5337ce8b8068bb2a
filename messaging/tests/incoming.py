"""Helpers for tests: notifications in Meta's form, and readers of the resulting events."""

import hashlib
import hmac
import json
from typing import Any

import orjson
from django.conf import settings
from django.test import Client, TestCase

from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from webhooks.events import envelope
from webhooks.models import Event


def number_of(
    tenant: Tenant,
    *,
    waba_id: str,
    phone_number_id: str,
    digits: str = "919800000001",
    environment: str = "live",
) -> PhoneNumber:
    """A tenant's connected number, with its own account."""
    account, _ = BusinessAccount.objects.get_or_create(
        waba_id=waba_id,
        defaults={
            "tenant": tenant,
            "environment": environment,
            "access_token": "EAAincoming",
            "subscribed": True,
        },
    )
    return PhoneNumber.objects.create(
        account=account,
        tenant=tenant,
        environment=environment,
        phone_number_id=phone_number_id,
        display_phone_number=f"+{digits}",
        digits=digits,
        registered=True,
        connection_state="connected",
        ever_connected=True,
    )


def text_change(phone_number_id: str, *wamids: str, body: str = "Hello") -> dict[str, Any]:
    """A change with one inbound text per wamid."""
    return {
        "field": "messages",
        "value": {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "919800000001", "phone_number_id": phone_number_id},
            "contacts": [{"profile": {"name": "Asha R"}, "wa_id": "919812345678"}],
            "messages": [
                {
                    "from": "919812345678",
                    "id": wamid,
                    "timestamp": "1793500000",
                    "type": "text",
                    "text": {"body": body},
                }
                for wamid in wamids
            ],
        },
    }


def notification(*entries: tuple[str, list[Any]], **members: Any) -> bytes:
    """A notification of entries (waba_id, changes), on one line."""
    return json.dumps(
        {
            "object": "whatsapp_business_account",
            "entry": [{"id": waba_id, **members, "changes": changes} for waba_id, changes in entries],
        }
    ).encode()


def signature_of(body: bytes, secret: str) -> str:
    """The value of `X-Hub-Signature-256` for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def post(body: bytes, *, secret: str | None = None, **headers: str) -> Any:
    """POST a notification, by default signed by the live app. Runs the callbacks of its commit."""
    signed = {"X-Hub-Signature-256": signature_of(body, secret or settings.META_APP_SECRET)}
    with TestCase.captureOnCommitCallbacks(execute=True):
        return Client(raise_request_exception=False).post(
            "/upstream/webhook", body, content_type="application/json", headers=signed | headers
        )


def events_of(tenant: Tenant) -> list[Event]:
    """A tenant's events in the order of their creation."""
    return list(Event.objects.for_tenant(tenant.id).order_by("id"))


def delivered(event: Event) -> bytes:
    """The body that an endpoint receives for an event."""
    found = envelope.load([event.id], tenant_id=event.tenant_id)[event.id]
    assert found is not None
    return found.body()


def envelopes_of(tenant: Tenant) -> list[dict[str, Any]]:
    """The bodies that a tenant's endpoints receive, parsed, in the order of the events."""
    return [orjson.loads(delivered(event)) for event in events_of(tenant)]
