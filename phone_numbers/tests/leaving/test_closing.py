"""Closing a tenant: it loses all access, its history stays, and no other tenant is affected."""

from datetime import datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from billing import buyers
from billing.models import BillingProfile
from gateway.api.errors import Conflict
from gateway.clock import now
from phone_numbers import leaving
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.leaving.test_releasing import connect, subscribed
from tenants import tenant_status
from tenants.models import ApiKey, AppConnection, AuditEntry, Invitation, OutboundMail, SignUp, Tenant, User
from tenants.tests.connected_apps import connection_of
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator
from webhooks.events import retention
from webhooks.models import Endpoint, Event

pytestmark = pytest.mark.django_db


def test_a_closed_tenant_has_no_key_endpoint_or_number_and_keeps_its_events(
    api: Api,
    other_api: Api,
    tenant: Tenant,
    other_tenant: Tenant,
    endpoint: Endpoint,
    staff: User,
    simulator: RunningSimulator,
    django_capture_on_commit_callbacks: Any,
) -> None:
    mine, theirs = simulator.account(2), simulator.account()
    connect(api, mine)
    connect(other_api, theirs)
    app, others_app = connection_of(tenant), connection_of(other_tenant)
    events = Event.objects.filter(tenant_id=tenant.id).count()
    User.objects.create_user("second@shop.example", "x", tenant=tenant, role="developer")
    colleague = User.objects.create_user("helper@gateway.example", "x", tenant=tenant, is_staff=True)
    Invitation.objects.create(tenant=tenant, email="third@shop.example", role="developer")
    Tenant.objects.filter(pk=tenant.pk).update(contact_email="owner@shop.example")
    their_people = User.objects.filter(tenant=other_tenant).count()
    with django_capture_on_commit_callbacks(execute=True):
        call_command("close_tenant", str(tenant.id), "--staff", staff.email)
    assert_error(api.get("/v1/numbers"), 401, "unauthorized")
    assert not Endpoint.objects.filter(tenant=tenant).exists()
    assert not PhoneNumber.objects.filter(tenant=tenant).exists()
    assert not subscribed(simulator, mine)
    assert list(AppConnection.objects.filter(pk__in=[app.pk, others_app.pk])) == [others_app]
    assert not User.objects.filter(tenant=tenant).exists()
    colleague.refresh_from_db()
    assert colleague.is_active, "staff only leave the team"
    assert not Invitation.objects.for_tenant(tenant.id).open().exists()
    assert User.objects.filter(tenant=other_tenant).count() == their_people
    receipt = OutboundMail.objects.get(to="owner@shop.example", subject__endswith="is closed")
    until = retention.deleted_on(now(), tenant.retention_days)
    for said in ("2 × numbers", "1 × endpoints", f"deleted by {until.day} {until:%B %Y}"):
        assert said in receipt.text
    tenant.refresh_from_db()
    assert (tenant.status, tenant.suspended_reason) == ("suspended", "admin")
    assert Event.objects.filter(tenant_id=tenant.id).count() >= events
    entry = AuditEntry.objects.get(action="tenant.close")
    assert (entry.tenant_id, entry.actor_user_id, entry.details["numbers"]) == (tenant.id, staff.pk, 2)
    of_staff = AuditEntry.objects.filter(tenant_id=tenant.id, actor_user_id=staff.pk)
    ended = {"tenant.suspend", "api_key.revoke", "connected_app.disconnect", "team.remove"}
    ended |= {"webhook_endpoint.delete", "account.release"}
    assert set(of_staff.values_list("action", flat=True)) == {*ended, "tenant.close"}
    assert of_staff.get(action="connected_app.disconnect").target_id == str(app.pk)
    assert other_api.get("/v1/numbers").json()["data"][0]["connection_state"] != "disconnected"
    assert subscribed(simulator, theirs)
    assert ApiKey.objects.filter(tenant=other_tenant, revoked_at__isnull=True).exists()
    assert connect(other_api, mine).status_code == 200


def test_closing_again_does_what_a_crash_left(
    api: Api, tenant: Tenant, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(api, simulator.account())
    with monkeypatch.context() as patch:
        patch.setattr(leaving, "release_account", _killed)
        with pytest.raises(KeyboardInterrupt):
            leaving.close(tenant_id=tenant.id)
    assert BusinessAccount.objects.filter(tenant=tenant).exists()
    ended = leaving.close(tenant_id=tenant.id).ended
    assert (ended["keys"], ended["endpoints"], ended["numbers"]) == (0, 0, 1)
    assert not BusinessAccount.objects.filter(tenant=tenant).exists()


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_closing_reports_what_becomes_of_the_data(
    tenant: Tenant, staff: User, capsys: pytest.CaptureFixture[str], delete_data: bool
) -> None:
    """The tenant was suspended before, and keeps the reason."""
    Tenant.objects.filter(pk=tenant.pk).update(
        contact_email="owner@shop.example", status="suspended", suspended_reason="billing", retention_days=9
    )
    options = ["--delete-data"] if delete_data else []
    call_command("close_tenant", str(tenant.id), "--staff", staff.email.upper(), *options)
    until = retention.deleted_on(now(), 9)
    said = capsys.readouterr().out
    assert said.endswith(f"Its stored contents: {'deleted' if delete_data else f'kept until {until}'}.\n")
    assert "numbers: 0\n" in said
    entry = AuditEntry.objects.get(action="tenant.close")
    assert entry.details["data"] == ("deleted" if delete_data else f"kept until {until}")
    assert ("were deleted" in OutboundMail.objects.get(to="owner@shop.example").text) is delete_data
    tenant.refresh_from_db()
    assert tenant.suspended_reason == "billing"


@pytest.mark.parametrize("status", ["pending_approval", "rejected"])
def test_a_tenant_that_was_never_active_is_suspended_too(tenant: Tenant, status: str) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status=status, contact_email="owner@shop.example")
    leaving.close(tenant_id=tenant.id)
    tenant.refresh_from_db()
    assert (tenant.status, tenant.suspended_reason) == ("suspended", "admin"), "nobody can approve it"
    assert OutboundMail.objects.get().subject.endswith("is closed"), (
        "nothing is delivered after this suspension"
    )
    with pytest.raises(Conflict, match="This tenant is closed"):
        tenant_status.reinstate(tenant_id=tenant.id)


@pytest.mark.parametrize("approved_at", [None, now()])
def test_a_closed_tenant_leaves_no_personal_data_but_what_its_invoices_need(
    tenant: Tenant, other_tenant: Tenant, settings: Settings, approved_at: datetime | None
) -> None:
    settings.BILLING_ENABLED = True
    for each in (tenant, other_tenant):
        SignUp.objects.create(
            tenant=each, email="a@shop.example", company="Asha", website="https://shop.example", tax_id_type="pan",
            tax_id="AAACI1681G", address="1 Road", city="Pune", state_code="27", pin_code="411001",
            phone="+919845012345", ip="192.0.2.7",
        )  # fmt: skip
    contact = "owner@shop.example"
    Tenant.objects.filter(pk=tenant.pk).update(contact_email=contact, approved_at=approved_at)
    if approved_at is None:
        buyers.profile_of(tenant)
    leaving.close(tenant_id=tenant.id)
    assert OutboundMail.objects.get().to == contact
    tenant.refresh_from_db()
    assert tenant.contact_email == (contact if approved_at else None)
    personal = ("email", "phone", "ip", "address", "city", "pin_code")
    assert SignUp.objects.values_list(*personal).get(tenant=tenant) == ("", "", None, "", "", "")
    assert SignUp.objects.get(tenant=other_tenant).phone == "+919845012345"
    profiles = BillingProfile.objects.values_list("address", "tax_id")
    assert list(profiles) == [("1 Road", "AAACI1681G")] * bool(approved_at)


@pytest.mark.parametrize("former", [{"is_staff": False}, {"is_active": False}])
def test_only_active_staff_close_a_tenant(tenant: Tenant, staff: User, former: dict[str, bool]) -> None:
    User.objects.filter(pk=staff.pk).update(**former)
    with pytest.raises(CommandError, match="not an active member of staff"):
        call_command("close_tenant", str(tenant.id), "--staff", staff.email)


def test_only_staff_close_and_only_a_tenant_that_exists(tenant: Tenant, staff: User) -> None:
    with pytest.raises(CommandError, match="not an active member of staff"):
        call_command("close_tenant", str(tenant.id), "--staff", "stranger@shop.example")
    with pytest.raises(CommandError, match="no such tenant"):
        call_command("close_tenant", "01998f6e-0000-7000-8000-000000000000", "--staff", staff.email)


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
