"""Approve, reject, suspend, reinstate: the transitions, their results, and two simultaneous reviewers."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, transaction

from gateway.api.errors import Conflict
from gateway.clock import now
from tenants import tenant_status
from tenants.models import AuditEntry, OutboundMail, Tenant, User
from tests.fixtures import Api, assert_error
from tests.threads import at_once

S = Tenant.Status
MAILED = {
    **dict.fromkeys(("approve", S.ACTIVE), "account is approved"),
    S.REJECTED: "account was not approved",
    **dict.fromkeys(("suspend", S.SUSPENDED), "account is suspended"),
    "reinstate": "account is active again",
}
"""The end of a mail's subject, by the decision, or by the new status of a tenant that was never approved."""
BODY: dict[str, Any] = {
    "reject": {"reason": "The website shows another business."},
    "suspend": {"reason": "abuse"},
}


@pytest.fixture
def waiting(db: None) -> Tenant:
    """A tenant that waits, like an earlier one that nobody decides about."""
    Tenant.objects.create(name="Bina Foods", contact_email="owner@bina.example")
    return Tenant.objects.create(name="Chitra Foods", contact_email="owner@chitra.example")


def decide(api: Api, tenant: Tenant, action: str) -> Any:
    return api.post(f"/v1/admin/tenants/{tenant.id}/{action}", BODY.get(action))


@pytest.mark.parametrize(
    ("start", "ever_approved", "action", "end"),
    [
        (S.PENDING_APPROVAL, False, "approve", S.ACTIVE),
        (S.PENDING_APPROVAL, False, "reject", S.REJECTED),
        (S.PENDING_APPROVAL, False, "suspend", S.SUSPENDED),
        (S.PENDING_APPROVAL, False, "reinstate", None),
        (S.ACTIVE, True, "approve", None),
        (S.ACTIVE, True, "reject", None),
        (S.ACTIVE, True, "suspend", S.SUSPENDED),
        (S.ACTIVE, True, "reinstate", None),
        (S.REJECTED, False, "approve", S.ACTIVE),
        (S.REJECTED, False, "reject", None),
        (S.REJECTED, False, "suspend", S.SUSPENDED),
        (S.REJECTED, False, "reinstate", None),
        (S.SUSPENDED, True, "approve", None),
        (S.SUSPENDED, True, "reject", None),
        (S.SUSPENDED, True, "suspend", None),
        (S.SUSPENDED, True, "reinstate", S.ACTIVE),
        (S.SUSPENDED, False, "reinstate", S.ACTIVE),
    ],
)
def test_every_transition(
    staff_api: Api, waiting: Tenant, start: str, ever_approved: bool, action: str, end: str | None
) -> None:
    Tenant.objects.filter(pk=waiting.pk).update(status=start, approved_at=now() if ever_approved else None)
    answer = decide(staff_api, waiting, action)
    waiting.refresh_from_db()
    if end is None:
        error = assert_error(answer, 409, "conflict")
        assert error["details"] == {"status": start}
        assert f"This tenant is {start.replace('_', ' ')} now" in error["message"]
        assert waiting.status == start
        assert not AuditEntry.objects.filter(tenant_id=waiting.id).exists()
        assert not OutboundMail.objects.exists()
    else:
        assert answer.status_code == 200, answer.content
        assert answer.json()["status"] == waiting.status == end
        assert AuditEntry.objects.get(tenant_id=waiting.id).action == f"tenant.{action}"
        assert OutboundMail.objects.get().to == "owner@chitra.example"
        assert OutboundMail.objects.get().subject.endswith(MAILED[action if ever_approved else end])


def test_approval_starts_the_trial_and_is_audited_with_before_and_after(
    staff_api: Api, staff: User, waiting: Tenant
) -> None:
    body = decide(staff_api, waiting, "approve").json()
    assert list(body) == ["id", "status", "approved_at", "billing_status", "trial_ends_at"]
    assert body["billing_status"] == "trialing"
    waiting.refresh_from_db()
    assert waiting.trial_ends_at is not None
    assert waiting.trial_ends_at - now() > timedelta(days=13, hours=23)
    entry = staff_api.get(f"/v1/admin/audit?tenant_id={waiting.id}&action=tenant.approve").json()["data"][0]
    assert entry["actor_user_id"] == staff.pk
    assert entry["target_type"] == "tenant"
    assert entry["details"]["before"]["status"] == "pending_approval"
    assert entry["details"]["after"]["status"] == "active"


def test_reinstating_one_that_was_never_approved_approves_it(staff_api: Api, waiting: Tenant) -> None:
    decide(staff_api, waiting, "suspend")
    decide(staff_api, waiting, "reinstate")
    waiting.refresh_from_db()
    assert waiting.approved_at is not None
    assert waiting.trial_ends_at is not None
    assert waiting.billing_status == "trialing"
    assert "is approved" in OutboundMail.objects.latest("id").subject
    approved_at = waiting.approved_at
    decide(staff_api, waiting, "suspend")
    decide(staff_api, waiting, "reinstate")
    waiting.refresh_from_db()
    assert waiting.approved_at == approved_at, "only the first time"
    assert "active again" in OutboundMail.objects.latest("id").subject


def test_a_decision_counts_from_the_next_call_with_a_key_on(
    api: Api, tenant: Tenant, django_capture_on_commit_callbacks: Any
) -> None:
    """The process caches the tenant of a key for a few seconds, but drops the entry as soon as the tenant changes."""
    for decision, status in (
        (partial(tenant_status.suspend, reason="abuse"), 403),
        (tenant_status.reinstate, 200),
    ):
        assert api.get("/v1/webhooks").status_code != status
        with django_capture_on_commit_callbacks(execute=True):
            decision(tenant_id=tenant.id)
        assert api.get("/v1/webhooks").status_code == status


def test_a_sandbox_tenant_is_approved_without_billing(staff_api: Api, waiting: Tenant) -> None:
    Tenant.objects.filter(pk=waiting.pk).update(sandbox=True)
    body = decide(staff_api, waiting, "approve").json()
    assert (body["billing_status"], body["trial_ends_at"]) == ("exempt", None)


def test_rejecting_needs_a_reason_which_is_stored_and_mailed(staff_api: Api, waiting: Tenant) -> None:
    path = f"/v1/admin/tenants/{waiting.id}/reject"
    for body in ({}, {"reason": " "}):
        error = assert_error(staff_api.post(path, body), 400, "invalid_request")
        assert list(error["details"]["fields"]) == ["reason"]
    answer = decide(staff_api, waiting, "reject").json()
    assert answer == {
        "id": str(waiting.id),
        "status": "rejected",
        "rejected_reason": BODY["reject"]["reason"],
    }
    assert BODY["reject"]["reason"] in OutboundMail.objects.get().text


def test_a_second_look_at_a_rejected_tenant_clears_the_reason(staff_api: Api, waiting: Tenant) -> None:
    decide(staff_api, waiting, "reject")
    assert decide(staff_api, waiting, "approve").status_code == 200
    waiting.refresh_from_db()
    assert waiting.rejected_reason is None


def test_suspending_takes_abuse_or_admin_and_keeps_the_note_for_staff(
    staff_api: Api, waiting: Tenant
) -> None:
    path = f"/v1/admin/tenants/{waiting.id}/suspend"
    assert_error(staff_api.post(path, {"reason": "mood"}), 400, "invalid_request")
    answer = staff_api.post(path, {"reason": "admin", "note": "asked by phone"})
    assert answer.json() == {"id": str(waiting.id), "status": "suspended", "suspended_reason": "admin"}
    assert AuditEntry.objects.get(tenant_id=waiting.id).details["note"] == "asked by phone"
    assert "asked by phone" not in OutboundMail.objects.get().text
    assert decide(staff_api, waiting, "reinstate").json() == {
        "id": str(waiting.id),
        "status": "active",
    }
    waiting.refresh_from_db()
    assert waiting.suspended_reason is None


def test_an_unknown_tenant_is_not_found(staff_api: Api) -> None:
    assert_error(staff_api.post(f"/v1/admin/tenants/{uuid4()}/approve"), 404, "not_found")
    assert_error(staff_api.post("/v1/admin/tenants/no-uuid/approve"), 404, "not_found")


@pytest.mark.django_db
def test_a_decision_that_cannot_be_audited_does_not_happen(waiting: Tenant) -> None:
    with pytest.raises(DataError), transaction.atomic():
        tenant_status.reject(tenant_id=waiting.id, reason="x", actor_user_id=2**80)
    waiting.refresh_from_db()
    assert waiting.status == S.PENDING_APPROVAL


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "decision",
    [
        tenant_status.approve,
        partial(tenant_status.reject, reason="no"),
        partial(tenant_status.suspend, reason="admin"),
    ],
    ids=["approve", "reject", "suspend"],
)
def test_of_two_reviewers_at_once_one_wins_and_the_other_gets_a_conflict(
    decision: Callable[..., Tenant],
) -> None:
    tenant = Tenant.objects.create(name="Dev Motors", contact_email="owner@dev.example")
    errors = at_once(*[lambda: decision(tenant_id=tenant.id)] * 4)
    assert [type(error) for error in errors] == [Conflict] * 3
    assert AuditEntry.objects.filter(tenant_id=tenant.id).count() == 1
    assert OutboundMail.objects.filter(to="owner@dev.example").count() == 1
