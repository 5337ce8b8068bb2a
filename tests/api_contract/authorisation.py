"""The authorisation matrix as data: a row for every route, and the kind of caller that each permission admits.

A new route needs one line in `ROWS`. `Row()` is enough if its path names no object. Otherwise `ids` creates an object
of `world.tenant`, and `body` must pass the validation that precedes the look-up of that object.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from django.urls import get_resolver

from billing import buyers
from billing.invoices import credit_notes, issuing
from billing.models import BillingProfile, BillingSnapshot, Invoice
from gateway import ids as public_ids
from gateway.api.authentication import (
    AppCaller,
    ConsoleCaller,
    Environment,
    StaffCaller,
    TenantCaller,
    declared_scope,
)
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from gateway.roles import Area, KeyScope
from messaging.message_templates import mirror
from messaging.models import Batch, Erasure, FlowEndpoint, ScheduledMessage
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.models import Export, PlatformApp, Tenant
from webhooks.models import Delivery, Endpoint, Event, Message

Kind = Literal["open", "tenant", "app", "staff", "console"]
"""Who may call a route: anybody, or callers of this kind."""
Ids = Mapping[str, object]


@dataclass(frozen=True)
class World:
    """The actors: `tenant` owns the objects, and `app` acts only for `app_tenant`."""

    tenant: Tenant
    app: PlatformApp
    app_tenant: Tenant
    environment: Environment = "live"
    """The environment of the objects."""


@dataclass(frozen=True)
class Row:
    """How to call a route. See the module's docstring."""

    ids: Callable[[World], Ids] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    is_shared_name: bool = False
    """Whether every tenant can have an object with these ids, so that each caller finds its own object."""
    live_finds_test: bool = False
    """Whether a live key finds the object of the sandbox too."""
    is_known_to_meta: bool = False
    """Whether only Meta knows the object, so that a caller with any number may request it."""
    audits: str = ""
    """The actions of the audit entries that a successful call leaves, in order."""


def _key(world: World) -> Ids:
    new = api_keys.create(name="server", environment=world.environment, tenant=world.tenant, scopes=["keys"])
    return {"key_id": new.row.id}


def _platform_key(world: World) -> Ids:
    new = platform_apps.create_app_key(app_id=world.app.id, name="k", environment=world.environment)
    return {"key_id": new.row.id}


def _app_key(world: World) -> Ids:
    return {"app_id": world.app.id, **_platform_key(world)}


def _new_endpoint(world: World) -> Endpoint:
    return Endpoint.objects.create(
        tenant=world.tenant,
        environment=world.environment,
        url="http://127.0.0.1:9/",
        event_types=["*"],
        secret="whsec_c2VjcmV0",
        secret_prefix="whsec_c2Vj",
    )


def _endpoint(world: World) -> Ids:
    return {"endpoint_id": _new_endpoint(world).id}


def _event(world: World) -> Event:
    return Event.objects.create(
        tenant_id=world.tenant.id,
        environment=world.environment,
        type="message.inbound",
        dedupe_key=str(public_ids.uuid7()),
        payload_expires_on="2030-01-01",
    )


def _delivery(world: World) -> Ids:
    delivery = Delivery.objects.create(
        tenant_id=world.tenant.id,
        environment=world.environment,
        endpoint_id=_new_endpoint(world).id,
        event_id=_event(world).id,
        event_type="message.inbound",
        status="dead",
    )
    return {"delivery_id": delivery.public_id}


def _event_id(world: World) -> Ids:
    return {"event_id": _event(world).public_id}


def _number(world: World) -> Ids:
    unique = str(public_ids.uuid7().int)[-12:]
    account = BusinessAccount.objects.create(
        tenant=world.tenant, environment=world.environment, waba_id=f"2{unique}", access_token="EAAx"
    )
    number = PhoneNumber.objects.create(
        tenant=world.tenant, account=account, environment=world.environment, phone_number_id=f"1{unique}"
    )
    return {"phone_number_id": number.phone_number_id}


def _account(world: World) -> Ids:
    number = PhoneNumber.objects.select_related("account").get(**_number(world))
    return {"waba_id": number.account.waba_id}


def _template(world: World) -> Ids:
    number = PhoneNumber.objects.select_related("account").get(**_number(world))
    template_id = str(public_ids.uuid7().int)[-15:]
    mirror.store_one(number.account, {"id": template_id, "name": "order"}, since=now())
    return {"template_id": template_id}


def _connect_session(world: World) -> Ids:
    session = sessions.create(
        tenant_id=world.tenant.id, environment=world.environment, return_url="https://shop.example/done"
    )
    return {"session_id": session.public_id}


def _tenant_of_app(world: World) -> Ids:
    return {"tenant_id": world.app_tenant.id}


def _any_tenant(world: World) -> Ids:
    return {"tenant_id": world.tenant.id}


def _app(world: World) -> Ids:
    return {"app_id": platform_apps.create_app(name="Another").id}


def _batch(world: World) -> Ids:
    batch = Batch.objects.create(
        tenant=world.tenant, environment=world.environment, phone_number_id="1", total=1, rate_per_sec=80
    )
    return {"batch_id": batch.public_id}


def _scheduled(world: World) -> Ids:
    message = ScheduledMessage.objects.create(
        tenant_id=world.tenant.id,
        environment=world.environment,
        phone_number_id="1",
        send_at=now() + timedelta(hours=1),
        body=b"{}",
    )
    return {"scheduled_id": message.public_id}


def _flow_endpoint(world: World) -> Ids:
    ids = _number(world)
    FlowEndpoint.objects.create(
        number=PhoneNumber.objects.get(phone_number_id=ids["phone_number_id"]),
        url="https://example.com/flows",
        secret="whsec_c2VjcmV0",
        secret_prefix="whsec_c2Vj",
        key_uploaded_at=now(),
    )
    return ids


def _message(world: World) -> Ids:
    event = _event(world)
    row = Message.objects.create(
        tenant_id=world.tenant.id,
        environment=world.environment,
        key=event.public_id,
        month=public_ids.month_of(event.id),
        id=event.id,
        direction="inbound",
    )
    return {"message_id": row.key}


def _customer(world: World) -> Ids:
    return {**_number(world), "customer_id": "919812345678"}


def _erasure(world: World) -> Ids:
    row = Erasure.objects.create(tenant_id=world.tenant.id, customer_hash=str(public_ids.uuid7()))
    return {"erasure_id": row.pk}


def _data_export(world: World) -> Ids:
    row = Export.objects.create(
        tenant=world.tenant, environment=world.environment, kind="account", query="", rows=0
    )
    return {"export_id": row.pk}


def _media(world: World) -> Ids:
    _number(world)
    return {"media_id": "510000000000001"}


def _invoice(world: World) -> Ids:
    snapshot = BillingSnapshot.objects.create(
        tenant=world.tenant,
        period=f"{2027 + BillingSnapshot.objects.count()}-01",
        active_numbers=1,
        numbers=[],
        terms={},
        subtotal_paise=50_000,
        tax_paise=9_000,
        total_paise=59_000,
        taken_at=now(),
    )
    buyers.profile_of(world.tenant)
    BillingProfile.objects.filter(pk=world.tenant.pk).update(state_code="29")
    issuing.issue_due(now())
    return {"invoice_id": snapshot.invoices.get().public_id}


def _credit_note(world: World) -> Ids:
    _invoice(world)
    invoice = Invoice.objects.filter(tenant=world.tenant).latest("id")
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=1, reason="Test", at=now())
    return {"credit_note_id": note.public_id}


def _request_id(world: World) -> Ids:
    request = ApiRequest.objects.create(
        id=public_ids.uuid7(),
        tenant_id=world.tenant.id,
        environment=world.environment,
        method="GET",
        status=200,
        own_ms=1.0,
        upstream_ms=0.0,
    )
    return {"request_id": request.public_id}


PIN = {"pin": "123456"}

CONNECTING = {"POST /v1/numbers/connect", "POST /v1/numbers/embedded-signup", "POST /v1/numbers/migrate"}
"""Routes that name accounts and numbers that are not connected yet."""

ROWS: dict[str, Row] = {
    "GET /v1/health": Row(),
    "GET /v1/health/live": Row(),
    "GET /v1/health/ready": Row(),
    "GET /v1/openapi.json": Row(),
    "GET /v1/openapi.yaml": Row(),
    "GET /v1/tenant": Row(),
    "PATCH /v1/tenant": Row(audits="tenant.update"),
    "GET /v1/tenants": Row(),
    "POST /v1/tenants": Row(audits="tenant.create"),
    "GET /v1/tenants/{tenant_id}": Row(_tenant_of_app),
    "GET /v1/api-keys": Row(),
    "POST /v1/api-keys": Row(audits="api_key.create"),
    "DELETE /v1/api-keys/{key_id}": Row(_key, live_finds_test=True, audits="api_key.revoke"),
    "POST /v1/api-keys/{key_id}/rotate": Row(_key, live_finds_test=True, audits="api_key.rotate"),
    "GET /v1/platform-keys": Row(),
    "DELETE /v1/platform-keys/{key_id}": Row(_platform_key, audits="api_key.revoke"),
    "POST /v1/platform-keys/{key_id}/rotate": Row(_platform_key, audits="api_key.rotate"),
    "POST /v1/device-logins": Row(body={"client_name": "laptop"}),
    "POST /v1/device-logins/redeem": Row(body={"device_code": "x"}),
    "POST /v1/console/sessions": Row(),
    "GET /v1/console/sessions/current": Row(),
    "DELETE /v1/console/sessions/current": Row(),
    "GET /v1/admin/tenants": Row(),
    "POST /v1/admin/tenants/{tenant_id}/approve": Row(_any_tenant, audits="tenant.approve"),
    "POST /v1/admin/tenants/{tenant_id}/reject": Row(_any_tenant, {"reason": "x"}, audits="tenant.reject"),
    "POST /v1/admin/tenants/{tenant_id}/suspend": Row(
        _any_tenant, {"reason": "admin"}, audits="tenant.suspend"
    ),
    "POST /v1/admin/tenants/{tenant_id}/reinstate": Row(_any_tenant, audits="tenant.reinstate"),
    "GET /v1/admin/numbers": Row(),
    "GET /v1/admin/health": Row(),
    "GET /v1/admin/audit": Row(),
    "GET /v1/admin/mail/last": Row(),
    "GET /v1/admin/apps": Row(),
    "POST /v1/admin/apps": Row(audits="app.create"),
    "POST /v1/admin/apps/{app_id}/keys": Row(_app, {"name": "x"}, audits="api_key.create"),
    "GET /v1/admin/apps/{app_id}/keys": Row(_app),
    "DELETE /v1/admin/apps/{app_id}/keys/{key_id}": Row(_app_key, audits="api_key.revoke"),
    "POST /v1/admin/apps/{app_id}/keys/{key_id}/rotate": Row(_app_key, audits="api_key.rotate"),
    "GET /v1/admin/api-keys": Row(),
    "DELETE /v1/admin/api-keys/{key_id}": Row(_key, audits="api_key.revoke"),
    "GET /v1/webhooks": Row(),
    "POST /v1/webhooks": Row(audits="webhook_endpoint.create"),
    "GET /v1/webhooks/{endpoint_id}": Row(_endpoint),
    "PATCH /v1/webhooks/{endpoint_id}": Row(
        _endpoint, {"description": "x"}, audits="webhook_endpoint.update"
    ),
    "DELETE /v1/webhooks/{endpoint_id}": Row(_endpoint, audits="webhook_endpoint.delete"),
    "POST /v1/webhooks/{endpoint_id}/verify": Row(_endpoint),
    "POST /v1/webhooks/{endpoint_id}/resume": Row(_endpoint, audits="webhook_endpoint.resume"),
    "POST /v1/webhooks/{endpoint_id}/test": Row(_endpoint, {"event_type": "message.inbound"}),
    "POST /v1/webhooks/{endpoint_id}/preview-filter": Row(_endpoint, {"filter": {"type": "message.inbound"}}),
    "POST /v1/webhooks/{endpoint_id}/rotate-secret": Row(_endpoint, audits="webhook_endpoint.rotate_secret"),
    "POST /v1/webhooks/{endpoint_id}/replay": Row(
        _endpoint, {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    ),
    "DELETE /v1/customers/{customer_id}/data": Row(_customer, is_shared_name=True, audits="customer.erase"),
    "GET /v1/erasures": Row(),
    "GET /v1/erasures/{erasure_id}": Row(_erasure),
    "POST /v1/exports": Row(audits="data.export"),
    "GET /v1/exports/{export_id}": Row(_data_export),
    "GET /v1/exports/{export_id}/file": Row(_data_export),
    "GET /v1/ledger": Row(),
    "GET /v1/usage": Row(),
    "GET /v1/requests": Row(),
    "GET /v1/requests/{request_id}": Row(_request_id),
    "GET /v1/events": Row(),
    "GET /v1/events/stream": Row(),
    "GET /v1/events/{event_id}": Row(_event_id),
    "GET /v1/webhook-deliveries": Row(),
    "GET /v1/webhook-deliveries/{delivery_id}": Row(_delivery),
    "POST /v1/webhook-deliveries/{delivery_id}/replay": Row(_delivery),
    "GET /v1/numbers": Row(),
    "POST /v1/numbers/embedded-signup": Row(),
    "POST /v1/numbers/connect": Row(),
    "POST /v1/numbers/migrate": Row(audits="number.migrate"),
    "GET /v1/numbers/{phone_number_id}": Row(_number),
    "POST /v1/numbers/{phone_number_id}/register": Row(_number, PIN, audits="number.register"),
    "POST /v1/numbers/{phone_number_id}/deregister": Row(_number, audits="number.deregister"),
    "GET /v1/numbers/{phone_number_id}/flow-endpoint": Row(_flow_endpoint),
    "PUT /v1/numbers/{phone_number_id}/flow-endpoint": Row(
        _flow_endpoint, {"url": "https://example.com/flows"}, audits="flow_endpoint.set"
    ),
    "DELETE /v1/numbers/{phone_number_id}/flow-endpoint": Row(_flow_endpoint, audits="flow_endpoint.delete"),
    "POST /v1/numbers/{phone_number_id}/flow-endpoint/rotate-key": Row(
        _flow_endpoint, audits="flow_endpoint.rotate_key"
    ),
    "POST /v1/numbers/{phone_number_id}/flow-endpoint/rotate-secret": Row(
        _flow_endpoint, audits="flow_endpoint.rotate_secret"
    ),
    "POST /v1/numbers/{phone_number_id}/two-step": Row(_number, PIN, audits="number.two_step"),
    "POST /v1/numbers/{phone_number_id}/request-code": Row(_number, {"code_method": "SMS", "language": "en"}),
    "POST /v1/numbers/{phone_number_id}/verify-code": Row(_number, {"code": "123456"}),
    "POST /v1/numbers/{phone_number_id}/subscribe": Row(_number),
    "GET /v1/numbers/{phone_number_id}/health": Row(_number),
    "GET /v1/numbers/{phone_number_id}/app-data": Row(_number),
    "GET /v1/numbers/{phone_number_id}/business-profile": Row(_number),
    "POST /v1/numbers/{phone_number_id}/business-profile": Row(_number, {"about": "x"}),
    "GET /v1/test/recipients": Row(),
    "GET /v1/test/texts": Row(),
    "POST /v1/test/statuses": Row(),
    "POST /v1/test/templates": Row(),
    "POST /v1/test/number-events": Row(),
    "POST /v1/test/numbers": Row(),
    "POST /v1/test/inbound": Row(),
    "POST /v1/test/echoes": Row(),
    "POST /v1/test/preferences": Row(),
    "POST /v1/test/calls": Row(),
    "POST /v1/test/call-actions": Row(),
    "GET /v1/test/conversations": Row(),
    "GET /v1/opt-outs": Row(),
    "POST /v1/connect-sessions": Row(),
    "GET /v1/connect-sessions/{session_id}": Row(_connect_session),
    "GET /v1/billing": Row(),
    "PATCH /v1/billing/profile": Row(audits="billing.profile"),
    "POST /v1/billing/mandate": Row(),
    "GET /v1/billing/invoices": Row(),
    "GET /v1/billing/invoices/{invoice_id}": Row(_invoice),
    "POST /v1/billing/invoices/{invoice_id}/pay": Row(_invoice),
    "GET /v1/billing/credit-notes/{credit_note_id}": Row(_credit_note),
    "GET /v1/admin/billing": Row(),
    "GET /v1/analytics": Row(),
    "GET /v1/messages": Row(),
    "POST /v1/messages": Row(),
    "GET /v1/messages/{message_id}": Row(_message),
    "GET /v1/numbers/{phone_number_id}/customers/{customer_id}": Row(_customer),
    "POST /v1/messages/read": Row(),
    "POST /v1/media": Row(),
    "GET /v1/media/{media_id}": Row(_media, is_known_to_meta=True),
    "DELETE /v1/media/{media_id}": Row(_media, is_known_to_meta=True),
    "GET /v1/messages/batch": Row(),
    "POST /v1/messages/batch": Row(),
    "GET /v1/messages/batch/{batch_id}": Row(_batch),
    "GET /v1/messages/batch/{batch_id}/items": Row(_batch),
    "PATCH /v1/messages/batch/{batch_id}": Row(_batch),
    "POST /v1/messages/batch/{batch_id}/cancel": Row(_batch),
    "POST /v1/messages/batch/{batch_id}/retry": Row(_batch),
    "GET /v1/messages/scheduled": Row(),
    "POST /v1/messages/scheduled": Row(),
    "GET /v1/messages/scheduled/{scheduled_id}": Row(_scheduled),
    "PATCH /v1/messages/scheduled/{scheduled_id}": Row(_scheduled),
    "POST /v1/messages/scheduled/{scheduled_id}/cancel": Row(_scheduled),
    "DELETE /v1/numbers/{phone_number_id}": Row(_number, audits="number.release account.release"),
    "DELETE /v1/accounts/{waba_id}": Row(_account, audits="account.release"),
    "GET /v1/templates": Row(),
    "POST /v1/templates": Row(),
    "GET /v1/templates/{template_id}": Row(_template),
    "POST /v1/templates/{template_id}": Row(_template),
    "DELETE /v1/templates/{template_id}": Row(_template),
    "POST /v1/templates/sync": Row(),
    "GET /v1/templates/library": Row(),
    "POST /v1/templates/media-handle": Row(),
}

KINDS: dict[tuple[type, ...], Kind] = {
    (): "open",
    (TenantCaller,): "tenant",
    (AppCaller,): "app",
    (StaffCaller,): "staff",
    (ConsoleCaller,): "console",
}


@dataclass(frozen=True)
class Route:
    """A registered route, with what its view declares about callers."""

    method: str
    path: str
    kind: Kind
    view: Any
    action: str | None
    """The action of the viewset that serves the route."""
    takes_connected_apps: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def scope(self) -> KeyScope | None:
        """The scope that the view declares for the route. If it is None, any key of the tenant may use the route."""
        view = self.view()
        # For some views the scope depends on the call, for example on whether the path names the caller's own key.
        view.action, view.request, view.kwargs = self.action, None, {}
        return declared_scope(view)

    @property
    def area(self) -> Area | None:
        """The area that the role of a member must include."""
        return self.scope.area if self.scope is not None else None

    @property
    def keeps_to_numbers(self) -> bool:
        """Whether the route filters its response by the numbers of a limited key."""
        return "{phone_number_id}" in self.path or self.action in getattr(self.view, "limited_actions", ())

    @property
    def open_to_any_status(self) -> bool:
        """Whether the view admits tenants in every status. Some views admit them only for one method."""
        declared = getattr(self.view, "open_to_any_status", False)
        if not isinstance(declared, property):
            return bool(declared)
        view = self.view()
        view.request = type("Request", (), {"method": self.method})()
        return bool(view.open_to_any_status)


def registered_routes() -> list[Route]:
    """Return every method of every path under /v1."""
    return sorted(_walk(get_resolver(), ""), key=lambda route: (route.path, route.method))


def _walk(resolver: Any, prefix: str) -> Iterator[Route]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, path)
        elif path.startswith("v1/"):
            view = pattern.callback.cls
            given = getattr(pattern.callback, "initkwargs", {})
            permissions = tuple(given.get("permission_classes", view.permission_classes))
            actions = getattr(pattern.callback, "actions", None)
            for method in actions or [name for name in ("get", "post") if hasattr(view, name)]:
                yield Route(
                    method.upper(),
                    "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path),
                    KINDS[permissions],
                    view,
                    actions[method] if actions else None,
                )
