"""Every operation of the API, page of the console and page of staff that is audited leaves its entry, with its actor.

The rows of the authorisation matrices (`audits`) and `STAFF` name the actions. A new action fails until one of them
names it.
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
from tenants import audit, platform_apps
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
from webhooks.delivery import recorder
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import endpoint_of

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """What the call of an operation needs beyond the row of its authorisation matrix."""

    body: Fields | Callable[[World], Fields] | None = None
    before: Callable[[World], object] = lambda _: None
    """Prepares the newest row, on which the operation acts."""


def _status(status: str) -> Callable[[World], object]:
    return lambda world: Tenant.objects.filter(pk=world.tenant.pk).update(status=status)


def _with_address_for_bills(world: World) -> None:
    Tenant.objects.filter(pk=world.tenant.pk).update(billing_email="bills@traders.example")


def _endpoint(**fields: object) -> Callable[[World], object]:
    return lambda world: Endpoint.objects.filter(tenant=world.tenant).update(**fields)


def _delivered(world: World) -> None:
    endpoint_of(world.tenant)
    publish_one(world.tenant, "audited")


def _account(world: World) -> BusinessAccount:
    ROWS["GET /v1/numbers/{phone_number_id}"].ids(world)  # type: ignore[misc]
    return BusinessAccount.objects.filter(tenant=world.tenant).latest("id")


def _second_factor(_: World) -> None:
    TOTP.activate(User.objects.create_user("lost@service.example"), generate_totp_secret())


def _all_suspended(_: World) -> None:
    Tenant.objects.update(status="suspended")


def _gstin(_: World) -> None:
    BillingProfile.objects.update(tax_id="29AAACI1681G1ZL", tax_id_type="gstin", address="1 Road", city="X")


def _addressed(world: World) -> None:
    Tenant.objects.filter(pk=world.tenant.pk).update(contact_email="asha@traders.example")


def _inbox(world: World) -> None:
    lifecycle.create(tenant_id=world.tenant.pk, environment="live", actor=GATEWAY, kind="inbox")


ACTIVE = _endpoint(status="active", verified_at=now())
PAUSED = _endpoint(status="paused", verified_at=now())
HOOK = {"url": "http://127.0.0.1:9/new", "event_types": ["*"]}

API_CALLS = {
    "POST /v1/admin/tenants/{tenant_id}/approve": Call(before=_status("pending_approval")),
    "POST /v1/admin/tenants/{tenant_id}/reject": Call(before=_status("pending_approval")),
    "POST /v1/admin/tenants/{tenant_id}/reinstate": Call(before=_status("suspended")),
    "POST /v1/admin/apps": Call({"name": "Shop"}),
    "POST /v1/api-keys": Call({"name": "x"}),
    "POST /v1/tenants": Call({"name": "Shop"}),
    "PATCH /v1/tenant": Call({"name": "Asha and Sons"}),
    "PATCH /v1/billing/profile": Call({"legal_name": "Asha"}),
    "POST /v1/numbers/migrate": Call(
        lambda world: {"waba_id": _account(world).waba_id, "cc": "91", "phone_number": "9800000002"}
    ),
    "POST /v1/webhooks": Call(HOOK),
    "POST /v1/webhooks/{endpoint_id}/resume": Call(before=PAUSED),
}

CLOUD_API = {
    "register": ("number.register", Call(PIN)),
    "deregister": ("number.deregister", Call()),
    "": ("number.two_step", Call(PIN)),
}
"""The actions of the paths below a number of the Cloud API. `messaging/tests/test_cloud_api.py` has its callbacks."""

CONSOLE_CALLS = {
    "console_data": Call({"customer": "919812345678", "confirmed": "919812345678"}),
    "console_connect_app": Call(
        lambda _: {**asked(client_of()), "environment": "test", "scopes": ["messages"]}
    ),
    "console_team": Call({"email": "new@traders.example", "role": "developer"}),
    "console_api_keys": Call({"name": "x", "environment": "live", "scopes": ["keys"]}),
    "console_endpoints": Call(HOOK),
    "console_endpoint_pause": Call(before=ACTIVE),
    "console_endpoint_resume": Call(before=PAUSED),
    "console_conversations_off": Call(before=_inbox),
    "console_billing_profile": Call(
        {"legal_name": "Asha", "address": "1 Road", "city": "Pune", "country": "IN", "tds_percent": "0"}
        | {"tax_id": "AAAPL1234C", "state_code": "27", "pin": "411001", "phone": "+919800000001"},
        before=_addressed,
    ),
}

REASON = {"reason": "Outage"}
TRANSFER = {"amount": "100", "reference": "U1"}
STAFF = {
    "tenants_platformapp_add": ("app.create", Call({"name": "Shop"})),
    "tenants_platformapp_new_key": ("api_key.create", Call({"name": "x", "environment": "live"})),
    "tenants_apikey_revoke_key": ("api_key.revoke", Call()),
    "tenants_apikey_rotate_key": ("api_key.rotate", Call()),
    "tenants_emaildomainrule_add": ("email_domain.rule", Call({"domain": "zoho.com", "verdict": "allow"})),
    "tenants_emaildomainrule_delete": ("email_domain.delete", Call({"post": "yes"})),
    "tenants_user_add": ("user.create", Call({"email": "new@service.example", "role": "owner"})),
    "tenants_user_change": (
        "user.change",
        Call(
            {"email": "changed@service.example", "role": "owner", "is_active": "on"},
            _second_factor,
        ),
    ),
    "tenants_user_remove_second_factor": ("user.second_factor_lost", Call(REASON, _second_factor)),
    "tenants_tenant_approve": ("tenant.approve", Call()),
    "tenants_tenant_reject": ("tenant.reject", Call(REASON)),
    "tenants_tenant_suspend": ("tenant.suspend", Call({"reason": "admin"})),
    "tenants_tenant_reinstate": ("tenant.reinstate", Call(before=_all_suspended)),
    "tenants_tenant_reinstate_and_approve": ("tenant.reinstate", Call(before=_all_suspended)),
    "tenants_tenant_see_as": ("support.view", Call(REASON)),
    "webhooks_endpoint_verify": ("webhook_endpoint.verify", Call()),
    "webhooks_endpoint_resume": ("webhook_endpoint.resume", Call(before=PAUSED)),
    "webhooks_delivery_send_again": ("webhook_delivery.replay", Call(before=_delivered)),
    "numbers_businessaccount_release": ("account.release", Call()),
    "numbers_phonenumber_release": ("number.release account.release", Call()),
    "billing_billingprofile_switch_sez": (
        "billing.profile",
        Call({"is_sez": "yes", "evidence": "L 7"}, _gstin),
    ),
    "billing_billingprofile_set_country": ("billing.profile", Call({"evidence": "L 7", "country": "DE"})),
    "billing_invoice_payment": ("billing.payment", Call(TRANSFER)),
    "billing_invoice_tds": ("billing.tds", Call({"amount": "10"})),
    "billing_invoice_credit": ("billing.credit", Call({"amount": "100", **REASON})),
    "billing_invoice_replace": ("billing.credit billing.credit billing.replace", Call(REASON)),
    "billing_invoice_write_off": ("billing.write_off", Call(REASON)),
    "billing_invoice_send_again": ("billing.sent_again", Call(before=_with_address_for_bills)),
    "billing_planversion_add": (
        "billing.terms",
        Call(
            lambda _: (
                {
                    "starts": str(Period.of(now()).next),
                    "first_number_paise": "600",
                    "additional_number_paise": "300",
                }
                | {"due_days": "15", "included_numbers": "1", "gst_percent": "18", "reason": "Prices"}
            ),
        ),
    ),
    "billing_staffact_decline": ("billing.decline", Call()),
}

ROOT = Path(__file__).resolve().parents[1]
ROUTES = {route.name: route for route in registered_routes()}
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
    *("billing_invoice_cancel", "billing_invoice_close", "billing_staffact_approve"),
    *("billing_paymentattempt_refund", "billing_paymentattempt_returned", "webhooks_endpoint_recover"),
}
"""Acts of staff with such an action, and those whose action another act shows."""
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
    actions: str,
    call: Call,
    actor: object,
    world: World,
    send: Callable[[Fields | None], Any],
    *,
    is_of_tenant: bool = True,
) -> None:
    call.before(world)
    body = call.body(world) if callable(call.body) else call.body
    since = AuditEntry.objects.latest("id").pk
    answer = send(body)
    assert entries(since) == [(action, actor) for action in actions.split()], (
        answer.status_code,
        answer.content.decode()[-3000:],
    )
    if is_of_tenant:
        assert set(AuditEntry.objects.filter(id__gt=since).values_list("tenant_id", flat=True)) == {
            world.tenant.pk
        }


@pytest.mark.django_db
class TestEachOperation:
    @pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.audits])
    def test_of_the_api_leaves_its_entry(self, name: str, scene: Scene) -> None:
        route, row = ROUTES[name], ROWS[name]
        ids: Ids = row.ids(scene.world) if row.ids else {}
        api, actor = scene.callers[route.kind]
        path = route.path.format(**ids)
        check(
            row.audits,
            API_CALLS.get(name, Call()),
            actor,
            scene.world,
            lambda body: api.request(route.method, path, body or row.body),
            is_of_tenant=route.kind == "tenant",
        )

    @pytest.mark.parametrize("edge", CLOUD_API)
    def test_of_the_cloud_api_leaves_its_entry(self, edge: str, scene: Scene) -> None:
        api, actor = scene.callers["tenant"]
        path = f"/v25.0/{_account(scene.world).numbers.get().phone_number_id}/{edge}".rstrip("/")
        check(*CLOUD_API[edge], actor, scene.world, lambda body: api.post(path, body))

    @pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.audits])
    def test_of_the_console_leaves_its_entry(self, name: str, scene: Scene) -> None:
        page, browser = PAGES[name], scene.visitors.browser("of live")
        made = page.made(scene.world)
        fields = {field: value.format(**made) for field, value in page.body.items()}
        path = reverse(name, kwargs=made)
        call = CONSOLE_CALLS.get(name, Call())
        check(page.audits, call, scene.member, scene.world, lambda body: browser.post(path, body or fields))

    @pytest.mark.parametrize(
        "name", [name for name, page in PAGES.items() if set(page.audits.split()) - audit.ENDING]
    )
    def test_of_the_console_names_the_daily_limit(
        self, name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page, browser = PAGES[name], scene.visitors.browser("of live")
        made, call = page.made(scene.world), CONSOLE_CALLS.get(name, Call())
        call.before(scene.world)
        own = call.body(scene.world) if callable(call.body) else call.body
        body = own or {field: value.format(**made) for field, value in page.body.items()}
        since = AuditEntry.objects.latest("id").pk
        monkeypatch.setattr(audit, "MOST_A_DAY", 0)
        answer = browser.post(reverse(name, kwargs=made), body, follow=True)
        assert answer.status_code in {200, 400}
        assert "which is the maximum" in answer.content.decode()
        assert entries(since) == []

    @pytest.mark.parametrize("name", STAFF)
    def test_of_staff_leaves_its_entry(self, name: str, scene: Scene) -> None:
        browser = Client()
        browser.force_login(scene.staff)
        check(
            *STAFF[name],
            scene.staff.pk,
            scene.world,
            lambda body: browser.post(path_of(name), {"_form_submitted": "on", **(body or {})}),
            is_of_tenant=False,
        )


def test_every_act_of_staff_is_in_the_table() -> None:
    acts = {name for name, least in STAFF_PAGES.items() if least in {"reviewer", "superuser"}}
    acts |= {"tenants_user_change", "tenants_tenant_see_as"}
    assert acts == STAFF.keys() | OF_SEVERAL_CALLS


def test_every_action_has_a_test_of_its_entry() -> None:
    audited = [row.audits for row in ROWS.values()] + [page.audits for page in PAGES.values()]
    audited += [actions for actions, _ in STAFF.values()]
    observed = {action for actions in audited for action in actions.split()}
    assert observed | ELSEWHERE.keys() | UNASKED == set(ACTIONS)
    assert not observed & ELSEWHERE.keys()
    unnamed = [action for action, file in ELSEWHERE.items() if f'"{action}"' not in (ROOT / file).read_text()]
    assert unnamed == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("former", "current", "before", "after"),
    [
        ({"url": "a", "kind": "http"}, {"url": "b", "kind": "http"}, {"url": "a"}, {"url": "b"}),
        ({"url": "a", "filter": "x"}, {"url": "a"}, {"filter": "x"}, {"filter": None}),
        ({}, {"filter": "x"}, {"filter": None}, {"filter": "x"}),
    ],
)
def test_an_entry_has_what_changed_was_added_and_was_removed(
    former: Fields, current: Fields, before: Fields, after: Fields
) -> None:
    assert audit.difference(former, current) == {"before": before, "after": after}
    assert audit.difference(current, current) == {}


def test_operators_and_the_gateway_leave_an_entry_too(tenant: Tenant) -> None:
    endpoint = endpoint_of(tenant, status="active")
    recorder.disable({endpoint.pk: recorder.Disabling("gone", 0)})
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
