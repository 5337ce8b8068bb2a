"""Every operation of the API, page of the console and page of staff that is audited leaves its entry, with its actor.

`API`, `CONSOLE` and `STAFF` name the entries of each operation. Operations without an entry are in `API_WITHOUT` and
`CONSOLE_WITHOUT`, so a new operation fails until one of the tables names it, and so does a new action.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth import SESSION_KEY
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing.models import BillingProfile
from billing.pricing.periods import Period
from console.tests.pages import PAGES
from console.tests.test_authorisation import Visitors
from gateway.clock import now
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import BusinessAccount
from tenants import platform_apps
from tenants.audit import GATEWAY
from tenants.audit_labels import ACTIONS
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import AuditEntry, Tenant, User
from tenants.tests.connected_apps import asked, client_of
from tests.api_contract.authorisation import PIN, ROWS, Ids, World, registered_routes
from tests.fixtures import Api, shared_rows
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator
from tests.staff.test_accessibility import a_row_of_every_table
from tests.staff.test_authorisation import PAGES as STAFF_PAGES
from tests.staff.test_authorisation import path_of
from web import routes
from webhooks.delivery import recorder
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint
from webhooks.tests.publishing import endpoint_of

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """The entries of an operation, and what its call needs beyond the row of its authorisation matrix."""

    actions: str
    body: Fields | Callable[[World], Fields] | None = None
    before: Callable[[World], object] = lambda _: None
    """Prepares the newest row, on which the operation acts."""


def _status(status: str) -> Callable[[World], object]:
    return lambda world: Tenant.objects.filter(pk=world.tenant.pk).update(status=status)


def _endpoint(**fields: object) -> Callable[[World], object]:
    return lambda world: Endpoint.objects.filter(tenant=world.tenant).update(**fields)


def _account(world: World) -> BusinessAccount:
    ROWS["GET /v1/numbers/{phone_number_id}"].ids(world)  # type: ignore[misc]
    return BusinessAccount.objects.filter(tenant=world.tenant).latest("id")


def _second_factor(_: World) -> None:
    TOTP.activate(User.objects.create_user("lost@service.example"), generate_totp_secret())


def _all_suspended(_: World) -> None:
    Tenant.objects.update(status="suspended")


def _gstin(_: World) -> None:
    BillingProfile.objects.update(tax_id="29AAACI1681G1ZL", tax_id_type="gstin", address="1 Road", city="X")


def _inbox(world: World) -> None:
    lifecycle.create(tenant_id=world.tenant.pk, environment="live", actor=GATEWAY, kind="inbox")


ACTIVE = _endpoint(status="active", verified_at=now())
PAUSED = _endpoint(status="paused", verified_at=now())
HOOK = {"url": "http://127.0.0.1:9/new", "event_types": ["*"]}

API = {
    "POST /v1/admin/tenants/{tenant_id}/approve": Entry("tenant.approve", before=_status("pending_approval")),
    "POST /v1/admin/tenants/{tenant_id}/reject": Entry("tenant.reject", before=_status("pending_approval")),
    "POST /v1/admin/tenants/{tenant_id}/suspend": Entry("tenant.suspend"),
    "POST /v1/admin/tenants/{tenant_id}/reinstate": Entry("tenant.reinstate", before=_status("suspended")),
    "POST /v1/admin/apps": Entry("app.create", {"name": "Shop"}),
    "POST /v1/admin/apps/{app_id}/keys": Entry("api_key.create"),
    "DELETE /v1/admin/apps/{app_id}/keys/{key_id}": Entry("api_key.revoke"),
    "POST /v1/admin/apps/{app_id}/keys/{key_id}/rotate": Entry("api_key.rotate"),
    "DELETE /v1/admin/api-keys/{key_id}": Entry("api_key.revoke"),
    "POST /v1/api-keys": Entry("api_key.create", {"name": "x"}),
    "DELETE /v1/api-keys/{key_id}": Entry("api_key.revoke"),
    "POST /v1/api-keys/{key_id}/rotate": Entry("api_key.rotate"),
    "DELETE /v1/platform-keys/{key_id}": Entry("api_key.revoke"),
    "POST /v1/platform-keys/{key_id}/rotate": Entry("api_key.rotate"),
    "POST /v1/tenants": Entry("tenant.create", {"name": "Shop"}),
    "PATCH /v1/tenant": Entry("tenant.update", {"name": "Asha and Sons"}),
    "PATCH /v1/billing/profile": Entry("billing.profile", {"legal_name": "Asha"}),
    "DELETE /v1/customers/{customer_id}/data": Entry("customer.erase"),
    "POST /v1/exports": Entry("data.export"),
    "POST /v1/numbers/migrate": Entry(
        "number.migrate",
        lambda world: {"waba_id": _account(world).waba_id, "cc": "91", "phone_number": "9800000002"},
    ),
    "DELETE /v1/numbers/{phone_number_id}": Entry("number.release account.release"),
    "DELETE /v1/accounts/{waba_id}": Entry("account.release"),
    "POST /v1/numbers/{phone_number_id}/register": Entry("number.register"),
    "POST /v1/numbers/{phone_number_id}/deregister": Entry("number.deregister"),
    "POST /v1/numbers/{phone_number_id}/two-step": Entry("number.two_step"),
    "PUT /v1/numbers/{phone_number_id}/flow-endpoint": Entry("flow_endpoint.set"),
    "DELETE /v1/numbers/{phone_number_id}/flow-endpoint": Entry("flow_endpoint.delete"),
    "POST /v1/numbers/{phone_number_id}/flow-endpoint/rotate-key": Entry("flow_endpoint.rotate_key"),
    "POST /v1/numbers/{phone_number_id}/flow-endpoint/rotate-secret": Entry("flow_endpoint.rotate_secret"),
    "POST /v1/webhooks": Entry("webhook_endpoint.create", HOOK),
    "PATCH /v1/webhooks/{endpoint_id}": Entry("webhook_endpoint.update"),
    "DELETE /v1/webhooks/{endpoint_id}": Entry("webhook_endpoint.delete"),
    "POST /v1/webhooks/{endpoint_id}/resume": Entry("webhook_endpoint.resume", before=PAUSED),
    "POST /v1/webhooks/{endpoint_id}/rotate-secret": Entry("webhook_endpoint.rotate_secret"),
}
API_WITHOUT = {
    "DELETE /v1/console/sessions/current",
    "DELETE /v1/media/{media_id}",
    "DELETE /v1/templates/{template_id}",
    "PATCH /v1/messages/batch/{batch_id}",
    "PATCH /v1/messages/scheduled/{scheduled_id}",
    "POST /v1/billing/invoices/{invoice_id}/pay",
    "POST /v1/billing/mandate",
    "POST /v1/connect-sessions",
    "POST /v1/console/sessions",
    "POST /v1/device-logins",
    "POST /v1/media",
    "POST /v1/messages/batch",
    "POST /v1/messages/batch/{batch_id}/cancel",
    "POST /v1/messages/batch/{batch_id}/retry",
    "POST /v1/messages/scheduled",
    "POST /v1/messages/scheduled/{scheduled_id}/cancel",
    "POST /v1/numbers/{phone_number_id}/business-profile",
    "POST /v1/numbers/{phone_number_id}/request-code",
    "POST /v1/numbers/{phone_number_id}/subscribe",
    "POST /v1/numbers/{phone_number_id}/verify-code",
    "POST /v1/templates",
    "POST /v1/templates/media-handle",
    "POST /v1/templates/sync",
    "POST /v1/templates/{template_id}",
    "POST /v1/test/call-actions",
    "POST /v1/test/calls",
    "POST /v1/test/echoes",
    "POST /v1/test/inbound",
    "POST /v1/test/number-events",
    "POST /v1/test/numbers",
    "POST /v1/test/preferences",
    "POST /v1/test/statuses",
    "POST /v1/test/templates",
    "POST /v1/webhook-deliveries/{delivery_id}/replay",
    "POST /v1/webhooks/{endpoint_id}/preview-filter",
    "POST /v1/webhooks/{endpoint_id}/replay",
    "POST /v1/webhooks/{endpoint_id}/test",
    "POST /v1/webhooks/{endpoint_id}/verify",
}

CLOUD_API = {
    "register": Entry("number.register", PIN),
    "deregister": Entry("number.deregister"),
    "": Entry("number.two_step", PIN),
}
"""The entries of the paths below a number of the Cloud API. `messaging/tests/test_cloud_api.py` has its callbacks."""

CONSOLE = {
    "console_data": Entry("customer.erase", {"customer": "919812345678", "confirmed": "yes"}),
    "console_settings": Entry("tenant.update"),
    "console_connect_app": Entry(
        "connected_app.connect",
        lambda _: {**asked(client_of()), "environment": "test", "scopes": ["messages"]},
    ),
    "console_connected_app_disconnect": Entry("connected_app.disconnect"),
    "console_team": Entry("team.invite", {"email": "new@traders.example", "role": "developer"}),
    "console_team_role": Entry("team.role"),
    "console_team_remove": Entry("team.remove"),
    "console_team_again": Entry("team.invite"),
    "console_team_withdraw": Entry("team.withdraw"),
    "console_api_keys": Entry("api_key.create", {"name": "x", "environment": "live", "scopes": ["keys"]}),
    "console_rotate_key": Entry("api_key.rotate"),
    "console_revoke_key": Entry("api_key.revoke"),
    "console_endpoints": Entry("webhook_endpoint.create", HOOK),
    "console_endpoint_change": Entry("webhook_endpoint.update"),
    "console_endpoint_pause": Entry("webhook_endpoint.update", before=ACTIVE),
    "console_endpoint_resume": Entry("webhook_endpoint.resume", before=PAUSED),
    "console_endpoint_secret": Entry("webhook_endpoint.rotate_secret"),
    "console_endpoint_delete": Entry("webhook_endpoint.delete"),
    "console_conversations_on": Entry("webhook_endpoint.create"),
    "console_conversations_off": Entry("webhook_endpoint.delete", before=_inbox),
    "console_number_register": Entry("number.register"),
    "console_number_flows": Entry("flow_endpoint.delete"),
    "console_number_release": Entry("number.release account.release"),
    "console_billing_profile": Entry(
        "billing.profile",
        {"legal_name": "Asha", "address": "1 Road", "city": "Pune", "country": "IN", "tds_percent": "0"}
        | {"tax_id": "AAAPL1234C", "state_code": "27", "pin": "411001", "phone": "+919800000001"},
    ),
}
CONSOLE_WITHOUT = {
    *("console_batch_cancel", "console_batch_retry", "console_batch_time", "console_billing_autopay"),
    *("console_connect", "console_conversation", "console_csv_start", "console_csv_upload"),
    *("console_delivery_again", "console_endpoint_example", "console_endpoint_recover"),
    *("console_endpoint_verify", "console_export_start", "console_invoice_pay", "console_number_profile"),
    *("console_number_refresh", "console_number_subscribe", "console_pay_all", "console_phone_begin"),
    *("console_phone_flow", "console_phone_write", "console_preferences", "console_scheduled_message"),
    *("console_send", "console_template_delete", "console_template_edit", "console_template_edit_preview"),
    *("console_template_new", "console_template_preview", "console_templates_sync"),
}

REASON = {"reason": "Outage"}
TRANSFER = {"amount": "100", "reference": "U1"}
STAFF = {
    "tenants_platformapp_add": Entry("app.create", {"name": "Shop"}),
    "tenants_platformapp_new_key": Entry("api_key.create", {"name": "x", "environment": "live"}),
    "tenants_apikey_revoke_key": Entry("api_key.revoke"),
    "tenants_apikey_rotate_key": Entry("api_key.rotate"),
    "tenants_emaildomainrule_add": Entry("email_domain.rule", {"domain": "zoho.com", "verdict": "allow"}),
    "tenants_emaildomainrule_delete": Entry("email_domain.delete", {"post": "yes"}),
    "tenants_user_add": Entry("user.create", {"email": "new@service.example", "role": "owner"}),
    "tenants_user_change": Entry(
        "user.change",
        {"email": "changed@service.example", "role": "owner", "is_active": "on"},
        _second_factor,
    ),
    "tenants_user_remove_second_factor": Entry("user.second_factor_lost", REASON, _second_factor),
    "tenants_tenant_approve": Entry("tenant.approve"),
    "tenants_tenant_reject": Entry("tenant.reject", REASON),
    "tenants_tenant_suspend": Entry("tenant.suspend", {"reason": "admin"}),
    "tenants_tenant_reinstate": Entry("tenant.reinstate", before=_all_suspended),
    "tenants_tenant_reinstate_and_approve": Entry("tenant.reinstate", before=_all_suspended),
    "tenants_tenant_see_as": Entry("support.view", REASON),
    "webhooks_endpoint_verify": Entry("webhook_endpoint.verify"),
    "webhooks_endpoint_resume": Entry("webhook_endpoint.resume", before=PAUSED),
    "webhooks_delivery_send_again": Entry("webhook_delivery.replay"),
    "numbers_businessaccount_release": Entry("account.release"),
    "numbers_phonenumber_release": Entry("number.release account.release"),
    "billing_billingprofile_switch_sez": Entry("billing.profile", {"evidence": "L 7"}, _gstin),
    "billing_billingprofile_set_country": Entry("billing.profile", {"evidence": "L 7", "country": "DE"}),
    "billing_invoice_payment": Entry("billing.payment", TRANSFER),
    "billing_invoice_tds": Entry("billing.tds", {"amount": "10"}),
    "billing_invoice_credit": Entry("billing.credit", {"amount": "100", **REASON}),
    "billing_invoice_replace": Entry("billing.credit billing.credit billing.replace", REASON),
    "billing_invoice_write_off": Entry("billing.write_off", REASON),
    "billing_invoice_send_again": Entry("billing.sent_again"),
    "billing_planversion_add": Entry(
        "billing.terms",
        lambda _: (
            {
                "starts": str(Period.of(now()).next),
                "first_number_paise": "600",
                "additional_number_paise": "300",
            }
            | {"due_days": "15", "included_numbers": "1", "gst_percent": "18", "reason": "Prices"}
        ),
    ),
    "billing_staffact_decline": Entry("billing.decline"),
}

ROOT = Path(__file__).resolve().parents[1]
ROUTES = {
    route.name: route
    for route in registered_routes()
    if route.method not in {"GET", "HEAD"} and routes.handler_of(route.method, route.path) is None
}


ELSEWHERE = {
    "account.connect": "phone_numbers/tests/leaving/test_releasing.py",
    "account.move": "phone_numbers/tests/leaving/test_releasing.py",
    "number.move": "phone_numbers/tests/leaving/test_releasing.py",
    "billing.approve": "billing/tests/test_desk.py",
    "billing.ask": "billing/tests/test_desk.py",
    "billing.close": "billing/tests/test_desk.py",
    "billing.einvoice": "billing/tests/test_einvoices.py",
    "billing.refund": "billing/tests/test_ledger.py",
    "support.view_end": "tests/staff/test_support_desk.py",
    "team.join": "tenants/tests/test_team.py",
    "tenant.apply_again": "tenants/tests/test_sign_up.py",
    "tenant.close": "phone_numbers/tests/leaving/test_closing.py",
    "tenant.sign_up": "tenants/tests/test_sign_up.py",
    "webhook_endpoint.recover": "webhooks/tests/test_staff.py",
}
"""Actions that need more than one call. The test that asserts the entry is in this file."""
OF_SEVERAL_CALLS = {
    *("POST /v1/numbers/connect", "POST /v1/numbers/embedded-signup", "POST /v1/device-logins/redeem"),
    *("console_application", "console_device"),
    *("billing_invoice_cancel", "billing_invoice_close", "billing_staffact_approve"),
    *("billing_paymentattempt_refund", "billing_paymentattempt_returned", "webhooks_endpoint_recover"),
}
"""Operations with such an action, and those whose action another operation shows."""
UNASKED = {"tenant.expunge", "webhook_endpoint.disable"}
"""Actions of operators and of the gateway itself."""


class Scene:
    """A tenant with a row of every kind, and the people and keys that act. It is created once for all operations."""

    def __init__(self) -> None:
        self.visitors = Visitors()
        self.world = self.visitors.world
        a_row_of_every_table(self.world)
        key = api_keys.create(name="server", environment="live", tenant=self.world.tenant)
        app_key = platform_apps.create_app_key(app_id=self.world.app.id, name="k", environment="live")
        self.staff = User.objects.create_superuser("boss@service.example")
        self.member = int(self.visitors.browser("of live").session[SESSION_KEY])
        self.callers = {
            "tenant": (Api(key.key), key.row.prefix),
            "app": (Api(app_key.key), app_key.row.prefix),
            "staff": (Api(bearer_tokens.open_session(self.staff).token), self.staff.pk),
        }


@pytest.fixture(scope="class")
def scene(django_db_setup: None, django_db_blocker: Any) -> Iterator[Scene]:
    with django_db_blocker.unblock(), shared_rows():
        yield Scene()


@pytest.fixture(autouse=True)
def _others(settings: Settings, graph: ScriptedGraph) -> None:
    settings.BILLING_ENABLED = True
    graph.always_answers({"success": True, "id": "77", "data": []})


def entries(since: int) -> list[tuple[str, object]]:
    """Return the action and the actor (the id of a person, or the prefix of a key) of each entry after an entry."""
    found = AuditEntry.objects.filter(id__gt=since).order_by("id")
    return [(each.action, each.actor_user_id or each.details.get("acting_key")) for each in found]


def check(
    entry: Entry,
    actor: object,
    world: World,
    call: Callable[[Fields | None], Any],
    *,
    is_of_tenant: bool = True,
) -> None:
    entry.before(world)
    body = entry.body(world) if callable(entry.body) else entry.body
    since = AuditEntry.objects.latest("id").pk
    answer = call(body)
    assert entries(since) == [(action, actor) for action in entry.actions.split()], (
        answer.status_code,
        answer.content.decode()[-3000:],
    )
    if is_of_tenant:
        assert set(AuditEntry.objects.filter(id__gt=since).values_list("tenant_id", flat=True)) == {
            world.tenant.pk
        }


@pytest.mark.django_db
class TestEachOperation:
    @pytest.mark.parametrize("name", API)
    def test_of_the_api_leaves_its_entry(self, name: str, scene: Scene) -> None:
        route, row = ROUTES[name], ROWS[name]
        ids: Ids = row.ids(scene.world) if row.ids else {}
        api, actor = scene.callers[route.kind]
        path = route.path.format(**ids)
        check(
            API[name],
            actor,
            scene.world,
            lambda body: api.request(route.method, path, body or row.body),
            is_of_tenant=route.kind == "tenant",
        )

    @pytest.mark.parametrize("edge", CLOUD_API)
    def test_of_the_cloud_api_leaves_its_entry(self, edge: str, scene: Scene) -> None:
        api, actor = scene.callers["tenant"]
        path = f"/v25.0/{_account(scene.world).numbers.get().phone_number_id}/{edge}".rstrip("/")
        check(CLOUD_API[edge], actor, scene.world, lambda body: api.post(path, body))

    @pytest.mark.parametrize("name", CONSOLE)
    def test_of_the_console_leaves_its_entry(self, name: str, scene: Scene) -> None:
        page, browser = PAGES[name], scene.visitors.browser("of live")
        made = page.made(scene.world)
        fields = {field: value.format(**made) for field, value in page.body.items()}
        path = reverse(name, kwargs=made)
        check(CONSOLE[name], scene.member, scene.world, lambda body: browser.post(path, body or fields))

    @pytest.mark.parametrize("name", STAFF)
    def test_of_staff_leaves_its_entry(self, name: str, scene: Scene) -> None:
        browser = Client()
        browser.force_login(scene.staff)
        check(
            STAFF[name],
            scene.staff.pk,
            scene.world,
            lambda body: browser.post(path_of(name), {"_form_submitted": "on", **(body or {})}),
            is_of_tenant=False,
        )


def test_every_operation_is_in_a_table() -> None:
    acts = {name for name, least in STAFF_PAGES.items() if least in {"reviewer", "superuser"}}
    acts |= {"tenants_user_change", "tenants_tenant_see_as"}
    changing = {name for name, page in PAGES.items() if page.changes}
    named = API.keys() | API_WITHOUT | CONSOLE.keys() | CONSOLE_WITHOUT | STAFF.keys() | OF_SEVERAL_CALLS
    assert acts | changing | set(ROUTES) == named


def test_every_action_has_a_test_of_its_entry() -> None:
    observed = {
        action
        for table in (API, CONSOLE, STAFF)
        for entry in table.values()
        for action in entry.actions.split()
    }
    assert observed | ELSEWHERE.keys() | UNASKED == set(ACTIONS)
    assert not observed & ELSEWHERE.keys()
    unnamed = [action for action, file in ELSEWHERE.items() if f'"{action}"' not in (ROOT / file).read_text()]
    assert unnamed == []


@pytest.mark.django_db
def test_operators_and_the_gateway_leave_an_entry_too(tenant: Tenant) -> None:
    endpoint = endpoint_of(tenant, status="active")
    recorder.disable({endpoint.pk: "gone"})
    call_command("expunge", "--tenant", str(tenant.id), "--all")
    assert entries(0) == [("webhook_endpoint.disable", None), ("tenant.expunge", None)]


@pytest.mark.django_db
def test_an_account_names_who_connected_it(
    api: Api, key: api_keys.NewKey, tenant: Tenant, simulator: RunningSimulator
) -> None:
    endpoint_of(tenant, verified_at=now())
    own, signed_up, hosted = (simulator.account() for _ in range(3))
    api.post("/v1/numbers/connect", {"waba_id": own.waba_id, "access_token": own.access_token})
    body = {"waba_id": signed_up.waba_id, "phone_number_id": signed_up.phone_number_id}
    api.post("/v1/numbers/embedded-signup", {**body, "code": signed_up.code})
    session = sessions.create(tenant_id=tenant.id, environment="live", return_url="https://shop.example/done")
    body = {"waba_id": hosted.waba_id, "phone_number_id": hosted.phone_number_id}
    sessions.finish(session, code=hosted.code, **body)
    by_key = ("account.connect", key.row.prefix)
    assert entries(0) == [by_key, by_key, ("account.connect", None)]
    assert AuditEntry.objects.latest("id").details["connect_session"] == session.public_id
