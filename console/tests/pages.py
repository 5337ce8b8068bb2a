"""The authorisation matrix of the console's pages as data: one row for every page below /console.

A new page needs one line in `PAGES`: its area, its methods, and the API route whose object it shows (`of`). The tests
create the object through this route, also for another tenant. `make` creates an object that the API does not have.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.urls import get_resolver

from messaging import csv_batches
from tenants.models import Export, Invitation, User
from tenants.tests.connected_apps import connection_of
from tests.api_contract.authorisation import ROWS, World

Area = Literal["own", "integration", "conversations", "billing", "settings"]
Status = Literal["pending_approval", "rejected", "suspended"]


@dataclass(frozen=True)
class Page:
    """The methods of a page, and who may call it."""

    area: Area
    reads: bool = True
    changes: bool = False
    of: str | None = None
    """The API route (a key of `tests.api_contract.authorisation.ROWS`) that can create the page's object."""
    make: Callable[[World], Mapping[str, Any]] | None = None
    body: Mapping[str, str] = field(default_factory=dict)
    """The fields of the form. `{name}` in a value stands for a part of the page's path."""
    changed_while: frozenset[Status] = frozenset()
    """Tenant statuses, other than active, in which a POST works."""
    audits: str = ""
    """The actions of the audit entries that a successful POST leaves, in order."""

    def made(self, world: World) -> dict[str, Any]:
        """Create the object, and return the parts of the page's path that name it."""
        make = self.make or (ROWS[self.of].ids if self.of else None)
        return dict(make(world)) if make else {}


READS: dict[str, set[Area]] = {
    "owner": {"own", "integration", "conversations", "billing", "settings"},
    "developer": {"own", "integration", "conversations", "settings"},
    "agent": {"own", "conversations"},
    "billing": {"own", "billing", "settings"},
    "read_only": {"own", "integration", "conversations", "billing", "settings"},
}
CHANGES: dict[str, set[Area]] = {
    "owner": {"own", "integration", "conversations", "billing", "settings"},
    "developer": {"own", "integration", "conversations"},
    "agent": {"own", "conversations"},
    "billing": {"own", "billing"},
    "read_only": {"own"},
}

ALWAYS: frozenset[Status] = frozenset({"pending_approval", "rejected", "suspended"})
WAITING: frozenset[Status] = frozenset({"pending_approval"})
KEY = "DELETE /v1/api-keys/{key_id}"
ENDPOINT = "GET /v1/webhooks/{endpoint_id}"
DELIVERY = "GET /v1/webhook-deliveries/{delivery_id}"
EVENT = "GET /v1/events/{event_id}"
NUMBER = "GET /v1/numbers/{phone_number_id}"
MESSAGE = "GET /v1/messages/{message_id}"
BATCH = "GET /v1/messages/batch/{batch_id}"
SCHEDULED = "GET /v1/messages/scheduled/{scheduled_id}"
TEMPLATE = "GET /v1/templates/{template_id}"
INVOICE = "GET /v1/billing/invoices/{invoice_id}"
CREDIT_NOTE = "GET /v1/billing/credit-notes/{credit_note_id}"
REQUEST = "GET /v1/requests/{request_id}"


def _file(world: World) -> dict[str, Any]:
    stored = csv_batches.store_file(
        tenant_id=world.tenant.id, environment="live", name="a.csv", content=b"to,name\n919812345678,Asha\n"
    )
    return {"file_id": stored.pk}


def _member(world: World) -> dict[str, Any]:
    email = f"member-{User.objects.count()}@traders.example"
    return {"user_id": User.objects.create_user(email, tenant=world.tenant, role="read_only").pk}


def _invitation(world: World) -> dict[str, Any]:
    email = f"guest-{Invitation.objects.count()}@traders.example"
    made = Invitation.objects.create(tenant=world.tenant, email=email, role="developer")
    return {"invitation_id": made.id}


def _connected_app(world: World) -> dict[str, Any]:
    return {"connection_id": connection_of(world.tenant).id}


def _conversation(world: World) -> dict[str, Any]:
    make = ROWS[NUMBER].ids
    assert make is not None
    return {"number_id": make(world)["phone_number_id"], "customer_id": "919812345678"}


def _export(kind: str) -> Callable[[World], Mapping[str, Any]]:
    def made(world: World) -> dict[str, Any]:
        asker = User.objects.create_user(f"asker-{User.objects.count()}@traders.example", tenant=world.tenant)
        export = Export.objects.create(
            tenant=world.tenant, user=asker, environment="live", kind=kind, query="", rows=0
        )
        return {"export_id": export.pk}

    return made


def _does(area: Area, of: str | None = None, *, audits: str = "", **body: str) -> Page:
    """A page with only a POST, for an active tenant."""
    return Page(area, reads=False, changes=True, of=of, body=body, audits=audits)


PAGES: dict[str, Page] = {
    "console": Page("own"),
    "console_first_steps": Page("own"),
    "console_search": Page("own"),
    "console_search_hits": Page("own"),
    "console_preferences": Page("own", reads=False, changes=True, changed_while=ALWAYS),
    "console_application": Page("settings", changes=True),
    "console_data": Page(
        "settings", changes=True, body={"customer": "919812345678"}, audits="customer.erase"
    ),
    "console_settings": Page("settings", changes=True, body={"retention_days": "30"}, audits="tenant.update"),
    "console_audit": Page("settings"),
    "console_connect_app": Page("integration", changes=True, audits="connected_app.connect"),
    "console_connected_apps": Page("integration"),
    "console_connected_app_disconnect": Page(
        "integration",
        reads=False,
        changes=True,
        make=_connected_app,
        changed_while=ALWAYS,
        audits="connected_app.disconnect",
    ),
    "console_export_start": Page("own", reads=False, changes=True, changed_while=ALWAYS),
    "console_export": Page("integration", make=_export("messages")),
    "console_audit_export": Page("settings", make=_export("audit")),
    "console_device": Page("integration", changes=True),
    "console_team": Page("settings", changes=True, audits="team.invite"),
    "console_team_role": Page(
        "settings",
        changes=True,
        make=_member,
        body={"role": "developer"},
        changed_while=ALWAYS,
        audits="team.role",
    ),
    "console_team_remove": Page(
        "settings", changes=True, make=_member, changed_while=ALWAYS, audits="team.remove"
    ),
    "console_team_again": Page("settings", reads=False, changes=True, make=_invitation, audits="team.invite"),
    "console_team_withdraw": Page(
        "settings", reads=False, changes=True, make=_invitation, changed_while=ALWAYS, audits="team.withdraw"
    ),
    "console_quickstart": Page("integration"),
    "console_requests": Page("integration"),
    "console_request": Page("integration", of=REQUEST),
    "console_api_keys": Page("integration", changes=True, audits="api_key.create"),
    "console_rotate_key": Page("integration", changes=True, of=KEY, audits="api_key.rotate"),
    "console_revoke_key": Page(
        "integration",
        changes=True,
        of=KEY,
        body={"name": "server"},
        changed_while=ALWAYS,
        audits="api_key.revoke",
    ),
    "console_endpoints": Page("integration", changes=True, audits="webhook_endpoint.create"),
    "console_endpoint": Page("integration", of=ENDPOINT),
    "console_endpoint_change": Page(
        "integration",
        changes=True,
        of=ENDPOINT,
        body={"url": "http://127.0.0.1:9/", "event_types": "*"},
        audits="webhook_endpoint.update",
    ),
    "console_endpoint_verify": _does("integration", ENDPOINT),
    "console_endpoint_resume": _does("integration", ENDPOINT, audits="webhook_endpoint.resume"),
    "console_endpoint_pause": _does("integration", ENDPOINT, audits="webhook_endpoint.update"),
    "console_endpoint_example": _does("integration", ENDPOINT),
    "console_endpoint_secret": _does(
        "integration", ENDPOINT, overlap_hours="1", audits="webhook_endpoint.rotate_secret"
    ),
    "console_endpoint_recover": _does("integration", ENDPOINT),
    "console_endpoint_delete": Page(
        "integration", changes=True, of=ENDPOINT, audits="webhook_endpoint.delete"
    ),
    "console_deliveries": Page("integration"),
    "console_delivery": Page("integration", of=DELIVERY),
    "console_delivery_again": _does("integration", DELIVERY),
    "console_conversations": Page("conversations"),
    "console_conversation_rows": Page("conversations"),
    "console_conversations_live": Page("conversations"),
    "console_conversations_on": _does("integration", audits="webhook_endpoint.create"),
    "console_conversations_off": Page("integration", changes=True, audits="webhook_endpoint.delete"),
    "console_conversation": Page("conversations", changes=True, make=_conversation),
    "console_conversation_messages": Page("conversations", make=_conversation),
    "console_conversation_variables": Page("conversations", make=_conversation),
    "console_conversation_file": Page("conversations"),
    "console_messages_csv": Page("integration"),
    "console_figures_csv": Page("integration"),
    "console_requests_csv": Page("integration"),
    "console_audit_csv": Page("settings"),
    "console_figures": Page("integration"),
    "console_ledger": Page("integration"),
    "console_live": Page("integration"),
    "console_events": Page("integration"),
    "console_event": Page("integration", of=EVENT),
    "console_phone": Page("integration"),
    "console_phone_thread": Page("integration"),
    "console_phone_begin": Page("integration", reads=False, changes=True, changed_while=WAITING),
    "console_phone_write": Page("integration", reads=False, changes=True, changed_while=WAITING),
    "console_phone_file": Page("integration"),
    "console_phone_flow": Page("integration", changes=True, changed_while=WAITING),
    "console_numbers": Page("integration"),
    "console_connect": _does("integration"),
    "console_number": Page("integration", of=NUMBER),
    "console_number_refresh": _does("integration", NUMBER),
    "console_number_subscribe": _does("integration", NUMBER),
    "console_number_register": _does("integration", NUMBER, pin="123456", audits="number.register"),
    "console_number_two_step": _does("integration", NUMBER, pin="123456", audits="number.two_step"),
    "console_number_profile": Page(
        "integration", changes=True, of=NUMBER, body={"about": "Kites and threads"}
    ),
    "console_number_flows": Page(
        "integration",
        changes=True,
        of="GET /v1/numbers/{phone_number_id}/flow-endpoint",
        body={"do": "delete"},
        audits="flow_endpoint.delete",
    ),
    "console_number_release": Page(
        "integration",
        changes=True,
        of=NUMBER,
        body={"phone_number_id": "{phone_number_id}"},
        audits="number.release account.release",
    ),
    "console_send": Page("integration", changes=True),
    "console_send_variables": Page("integration"),
    "console_send_events": Page("integration"),
    "console_messages": Page("integration"),
    "console_message": Page("integration", of=MESSAGE),
    "console_batches": Page("integration"),
    "console_scheduled": Page("integration"),
    "console_scheduled_message": Page("integration", changes=True, of=SCHEDULED, body={"cancel": ""}),
    "console_csv_upload": Page("integration", changes=True),
    "console_csv_columns": Page("integration", make=_file),
    "console_csv_problems": Page("integration", make=_file),
    "console_csv_start": Page("integration", reads=False, changes=True, make=_file),
    "console_batch": Page("integration", of=BATCH),
    "console_batch_progress": Page("integration", of=BATCH),
    "console_batch_failed": Page("integration", of=BATCH),
    "console_batch_cancel": _does("integration", BATCH),
    "console_batch_retry": _does("integration", BATCH),
    "console_batch_time": _does("integration", BATCH, now=""),
    "console_templates": Page("integration"),
    "console_templates_sync": _does("integration"),
    "console_template_new": Page("integration", changes=True),
    "console_template_preview": _does("integration"),
    "console_template": Page("integration", of=TEMPLATE),
    "console_template_edit": Page("integration", changes=True, of=TEMPLATE),
    "console_template_edit_preview": _does("integration", TEMPLATE),
    "console_template_delete": Page("integration", changes=True, of=TEMPLATE),
    "console_billing": Page("billing"),
    "console_billing_autopay": _does("billing"),
    "console_billing_profile": Page("billing", changes=True, changed_while=ALWAYS, audits="billing.profile"),
    "console_statement": Page("billing"),
    "console_pay_all": Page("billing", reads=False, changes=True, changed_while=ALWAYS),
    "console_invoice": Page("billing", of=INVOICE),
    "console_invoice_pay": Page("billing", reads=False, changes=True, of=INVOICE, changed_while=ALWAYS),
    "console_credit_note": Page("billing", of=CREDIT_NOTE),
}


def registered_pages() -> set[str]:
    """The names of every page below /console."""
    return set(_walk(get_resolver(), ""))


def _walk(resolver: Any, prefix: str) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, path)
        elif path.startswith("console"):
            yield pattern.name
