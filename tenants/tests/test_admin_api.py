"""`/v1/admin/*`: lists for staff, page by page, and calls that a role may not make."""

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from tenants import audit
from tenants.credentials import bearer_tokens
from tenants.models import AuditEntry, Tenant, User
from tenants.staff import roles
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db

ADMIN_VIEW = {
    *("id", "name", "external_ref", "status", "sandbox", "retention_days", "billing_status", "trial_ends_at"),
    *("created_at", "checklist", "billing_email", "created_via", "contact_email", "website", "tax_id"),
    *("tax_id_type", "email_domain", "flags", "approved_at", "rejected_reason", "suspended_reason"),
}


def staff_with_role(role: str) -> Api:
    user = User.objects.create_user(f"{role}@service.example", "a long enough password", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return Api(bearer_tokens.open_session(user).token)


def test_tenants_are_listed_with_the_admin_view_newest_first(staff_api: Api, tenant: Tenant) -> None:
    waiting = Tenant.objects.create(name="Waiting")
    body = staff_api.get("/v1/admin/tenants").json()
    assert [row["id"] for row in body["data"]] == [str(waiting.id), str(tenant.id)]
    assert set(body["data"][0]) == ADMIN_VIEW
    assert body["next_cursor"] is None
    queue = staff_api.get("/v1/admin/tenants?status=pending_approval").json()["data"]
    assert [row["id"] for row in queue] == [str(waiting.id)]
    assert_error(staff_api.get("/v1/admin/tenants?status=sleeping"), 400, "invalid_request")


def test_the_audit_log_is_filtered_and_paged(staff_api: Api, tenant: Tenant, other_tenant: Tenant) -> None:
    for owner, action in [(tenant, "a.one"), (tenant, "a.two"), (other_tenant, "a.one")]:
        audit.record(action=action, target_type="tenant", target_id=owner.id, tenant_id=owner.id)
    body = staff_api.get(f"/v1/admin/audit?tenant_id={tenant.id}&limit=1").json()
    assert [row["action"] for row in body["data"]] == ["a.two"]
    assert set(body["data"][0]) == {
        *("id", "tenant_id", "actor_user_id", "action", "target_type", "target_id", "details", "created_at")
    }
    assert isinstance(body["data"][0]["id"], int)
    rest = staff_api.get(f"/v1/admin/audit?tenant_id={tenant.id}&cursor={body['next_cursor']}").json()
    assert [row["action"] for row in rest["data"]] == ["a.one"]
    assert len(staff_api.get("/v1/admin/audit?action=a.one").json()["data"]) == 2
    assert_error(staff_api.get("/v1/admin/audit?tenant_id=x"), 400, "invalid_request")


def test_support_looks_and_does_not_touch(tenant: Tenant) -> None:
    api = staff_with_role(roles.SUPPORT)
    assert api.get("/v1/admin/tenants").status_code == 200
    assert_error(api.post(f"/v1/admin/tenants/{tenant.id}/suspend", {"reason": "admin"}), 403, "forbidden")
    assert_error(api.post("/v1/admin/apps", {"name": "x"}), 403, "forbidden")


def test_the_permission_is_that_of_the_staff_member_who_calls(staff: User, tenant: Tenant) -> None:
    """An earlier member of staff may do everything, and a later one nothing."""
    reviewer, support = staff_with_role(roles.REVIEWER), staff_with_role(roles.SUPPORT)
    path, body = f"/v1/admin/tenants/{tenant.id}/suspend", {"reason": "admin"}
    assert_error(support.post(path, body), 403, "forbidden")
    assert_error(reviewer.post("/v1/admin/apps", {"name": "x"}), 403, "forbidden")
    assert reviewer.post(path, body).status_code == 200
    last = AuditEntry.objects.latest("id")
    assert last.actor_user_id == User.objects.get(email="reviewer@service.example").pk


def test_a_reviewer_decides_and_makes_no_apps(tenant: Tenant) -> None:
    api = staff_with_role(roles.REVIEWER)
    assert api.post(f"/v1/admin/tenants/{tenant.id}/suspend", {"reason": "admin"}).status_code == 200
    assert_error(api.post("/v1/admin/apps", {"name": "x"}), 403, "forbidden")


def test_migrate_keeps_the_roles_up(db: None) -> None:
    Group.objects.get(name=roles.SUPPORT).permissions.clear()
    call_command("migrate", verbosity=0)
    assert Group.objects.get(name=roles.SUPPORT).permissions.filter(codename="view_tenant").exists()
    changes = Group.objects.get(name=roles.SUPPORT).permissions.exclude(codename__startswith="view_")
    assert [permission.codename for permission in changes] == ["add_tenantnote"]
