"""`/v1/tenant` for every status, `/v1/tenants*` for platform keys, and acting on a tenant with X-Service-Tenant."""

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from gateway.roles import KeyScope, Role
from tenants import platform_apps, tenant_status
from tenants.credentials import api_keys, bearer_tokens, key_cache
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant, User
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db


def test_a_tenant_reads_itself_with_its_checklist(tenant: Tenant) -> None:
    key = api_keys.create(name="server", environment="live", tenant=tenant).key
    body = Api(key).get("/v1/tenant").json()
    assert list(body) == [
        "id", "name", "external_ref", "status", "sandbox", "retention_days", "billing_status",
        "trial_ends_at", "created_at", "checklist", "billing_email",
    ]  # fmt: skip
    assert body["id"] == str(tenant.id)
    assert body["checklist"] == {
        "number_connected": False,
        "api_key_created": True,
        "webhook_verified": False,
        "test_message_sent": False,
    }


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("pending_approval", "tenant_not_approved"),
        ("rejected", "tenant_not_approved"),
        ("suspended", "tenant_suspended"),
    ],
)
def test_only_reading_the_tenant_is_open_to_every_status(
    api: Api, tenant: Tenant, status: str, code: str
) -> None:
    Tenant.objects.filter(pk=tenant.id).update(status=status)
    assert api.get("/v1/tenant").json()["status"] == status
    assert api.request("HEAD", "/v1/tenant").status_code == 200
    few = api_keys.create(name="x", environment="test", tenant=tenant, scopes={KeyScope.MESSAGES})
    reader = User.objects.create_user("reads@shop.example", "pw", tenant=tenant, role=Role.READ_ONLY)
    for caller in (api, Api(few.key), Api(bearer_tokens.open_session(reader).token)):
        assert_error(caller.patch("/v1/tenant", {"name": "x"}), 403, code)
        assert_error(caller.get("/v1/api-keys"), 403, code)


def test_a_tenant_changes_its_settings_and_the_change_is_audited(
    api: Api, tenant: Tenant, key: api_keys.NewKey
) -> None:
    change = {"name": "New", "retention_days": 30, "billing_email": "a@b.example"}
    assert_error(api.patch("/v1/tenant", {**change, "status": "x"}), 400, "invalid_request")
    answer = api.patch("/v1/tenant", change)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["name"], body["retention_days"], body["billing_email"]) == ("New", 30, "a@b.example")
    entry = AuditEntry.objects.get(action="tenant.update")
    assert entry.details == {
        "before": {"name": tenant.name, "retention_days": 90, "billing_email": None},
        "after": {"name": "New", "retention_days": 30, "billing_email": "a@b.example"},
        "acting_key": key.row.prefix,
    }


def test_only_what_differs_is_a_change(api: Api, tenant: Tenant) -> None:
    same = {"name": tenant.name, "retention_days": 90, "billing_email": None}
    assert api.patch("/v1/tenant", same).json()["name"] == tenant.name
    assert not AuditEntry.objects.filter(action="tenant.update").exists()
    api.patch("/v1/tenant", {**same, "retention_days": 30})
    details = AuditEntry.objects.get(action="tenant.update").details
    assert (details["before"], details["after"]) == ({"retention_days": 90}, {"retention_days": 30})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"retention_days": 31}, "retention_days"),
        ({"retention_days": None}, "retention_days"),
        ({"billing_email": "no"}, "billing_email"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": {"a": 1}}, "name"),
    ],
)
def test_a_bad_setting_names_its_field(api: Api, body: dict[str, Any], field: str) -> None:
    error = assert_error(api.patch("/v1/tenant", body), 400, "invalid_request")
    assert list(error["details"]["fields"]) == [field]


def test_a_platform_key_creates_tenants_that_are_active_at_once(app_key: api_keys.NewKey) -> None:
    answer = Api(app_key.key).post("/v1/tenants", {"name": "Shop", "external_ref": "s-1"})
    assert answer.status_code == 201
    body = answer.json()
    assert (body["status"], body["sandbox"], body["billing_status"]) == ("active", False, "trialing")
    assert (body["external_ref"], body["retention_days"]) == ("s-1", 90)
    assert body["trial_ends_at"].endswith("18:30:00.000Z"), "a start of a month in IST"


@pytest.mark.parametrize("environment", ["live", "test"])
def test_a_platforms_tenant_says_who_made_it(platform_app: PlatformApp, environment: str) -> None:
    new = platform_apps.create_app_key(app_id=platform_app.id, name="t", environment=environment)
    body = Api(new.key).post("/v1/tenants", {"name": "Shop", "retention_days": 30}).json()
    row = Tenant.objects.get()
    assert (body["retention_days"], row.retention_days, row.created_via, row.app) == (
        30,
        30,
        "app",
        platform_app,
    )
    assert row.approved_at is not None
    assert abs(row.approved_at - row.created_at) < timedelta(seconds=5)
    entry = AuditEntry.objects.get(action="tenant.create")
    assert (entry.tenant_id, entry.target_id) == (row.id, str(row.id))
    is_sandbox = environment == "test"
    assert entry.details == {
        "app_id": str(platform_app.id),
        "sandbox": is_sandbox,
        "acting_key": new.row.prefix,
    }


@pytest.mark.parametrize(("body", "environment"), [({}, "live"), ({"environment": "test"}, "test")])
def test_a_key_that_staff_make_for_an_app_is_live_unless_they_say_so(
    staff_api: Api, platform_app: PlatformApp, body: dict[str, str], environment: str
) -> None:
    ends = "2100-01-01T00:00:00Z"
    path = f"/v1/admin/apps/{platform_app.id}/keys"
    made = staff_api.post(path, {"name": "server", "expires_at": ends, **body}).json()
    row = ApiKey.objects.get()
    assert (row.environment, made["key"].startswith(f"wb_{environment}_")) == (environment, True)
    assert row.expires_at == datetime.fromisoformat(ends)


@pytest.mark.parametrize("method", ["delete", "rotate"])
def test_a_key_of_another_app_is_not_found_below_an_app(
    staff_api: Api, platform_app: PlatformApp, method: str
) -> None:
    other = platform_apps.create_app(name="Other platform")
    key = platform_apps.create_app_key(app_id=other.id, name="k", environment="live").row
    base = f"/v1/admin/apps/{platform_app.id}/keys"
    assert staff_api.get(base).json()["data"] == []
    path = f"{base}/{key.id}"
    answer = staff_api.delete(path) if method == "delete" else staff_api.post(f"{path}/rotate")
    assert_error(answer, 404, "not_found")
    key.refresh_from_db()
    assert (key.revoked_at, key.expires_at) == (None, None)


def test_a_test_platform_key_creates_sandbox_tenants(platform_app: PlatformApp) -> None:
    key = platform_apps.create_app_key(app_id=platform_app.id, name="t", environment="test").key
    body = Api(key).post("/v1/tenants", {"name": "Shop"}).json()
    assert (body["sandbox"], body["billing_status"], body["trial_ends_at"]) == (True, "exempt", None)


def test_an_external_ref_is_unique_per_app(app_key: api_keys.NewKey) -> None:
    api = Api(app_key.key)
    api.post("/v1/tenants", {"name": "Shop", "external_ref": "s-1"})
    error = assert_error(
        api.post("/v1/tenants", {"name": "Other", "external_ref": "s-1"}), 400, "invalid_request"
    )
    assert list(error["details"]["fields"]) == ["external_ref"]
    other_app = platform_apps.create_app(name="Other platform")
    other = Api(platform_apps.create_app_key(app_id=other_app.id, name="k", environment="live").key)
    assert other.post("/v1/tenants", {"name": "Shop", "external_ref": "s-1"}).status_code == 201
    assert [row["name"] for row in api.get("/v1/tenants?external_ref=s-1").json()["data"]] == ["Shop"]
    assert api.get("/v1/tenants?external_ref=s-2").json()["data"] == []


def test_an_app_sees_the_tenants_it_created_and_no_others(app_key: api_keys.NewKey, tenant: Tenant) -> None:
    api = Api(app_key.key)
    made = api.post("/v1/tenants", {"name": "Shop"}).json()
    assert [row["id"] for row in api.get("/v1/tenants").json()["data"]] == [made["id"]]
    assert api.get(f"/v1/tenants/{made['id']}").json() == made
    assert_error(api.get(f"/v1/tenants/{tenant.id}"), 404, "not_found")
    assert_error(api.get(f"/v1/tenants/{uuid4()}"), 404, "not_found")
    assert_error(api.get("/v1/tenants/no-uuid"), 404, "not_found")


def test_tenant_keys_and_strangers_have_no_business_with_tenants(api: Api, staff_api: Api) -> None:
    assert_error(api.get("/v1/tenants"), 403, "forbidden")
    assert_error(staff_api.post("/v1/tenants", {"name": "x"}), 403, "forbidden")
    assert_error(Api(None).get("/v1/tenants"), 401, "unauthorized")


def test_a_platform_key_acts_on_the_tenant_it_names(app_key: api_keys.NewKey, tenant: Tenant) -> None:
    api = Api(app_key.key)
    made = api.post("/v1/tenants", {"name": "Shop"}).json()
    assert api.get("/v1/tenant", X_Service_Tenant=made["id"]).json()["id"] == made["id"]
    assert_error(api.get("/v1/tenant"), 400, "invalid_request")
    for foreign in (str(tenant.id), str(uuid4()), "no-uuid", ""):
        assert_error(api.get("/v1/tenant", X_Service_Tenant=foreign), 404, "not_found")


def test_a_tenant_key_may_name_only_its_own_tenant(api: Api, tenant: Tenant, other_tenant: Tenant) -> None:
    assert api.get("/v1/tenant", X_Service_Tenant=str(tenant.id)).status_code == 200
    assert_error(api.get("/v1/tenant", X_Service_Tenant=str(other_tenant.id)), 403, "forbidden")


@pytest.mark.parametrize("role", ["owner", "developer"])
def test_a_persons_token_may_name_only_the_persons_own_tenant(
    tenant: Tenant, other_tenant: Tenant, role: str
) -> None:
    """A call that names another tenant must be rejected. It must not change the member's own tenant."""
    person = User.objects.create_user("asha@traders.example", "pw", tenant=tenant, role=role)
    console = Api(bearer_tokens.open_session(person).token)
    assert console.get("/v1/numbers", X_Service_Tenant=str(tenant.id)).status_code == 200
    refused = console.get("/v1/numbers", X_Service_Tenant=str(other_tenant.id))
    assert_error(refused, 403, "forbidden")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-11-01T00:00:00", "2026-11-30T18:30:00"),
        ("2026-11-16T12:00:00", "2026-11-30T18:30:00"),
        ("2026-11-16T18:30:00", "2026-11-30T18:30:00"),
        ("2026-11-16T18:30:01", "2026-12-31T18:30:00"),
        ("2026-11-20T00:00:00", "2026-12-31T18:30:00"),
    ],
)
def test_a_trial_lasts_14_days_and_on_to_the_next_month_in_ist(start: str, end: str) -> None:
    def moment(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert tenant_status.trial_end(moment(start)) == moment(end)


def test_staff_make_apps_and_their_keys(staff_api: Api, api: Api, app_key: api_keys.NewKey) -> None:
    made = staff_api.post("/v1/admin/apps", {"name": "Till"})
    assert made.status_code == 201
    assert set(made.json()) == {"id", "name"}
    key = staff_api.post(
        f"/v1/admin/apps/{made.json()['id']}/keys", {"name": "server", "environment": "test"}
    )
    assert key.status_code == 201
    assert set(key.json()) == {"id", "app_id", "prefix", "key"}
    assert Api(key.json()["key"]).post("/v1/tenants", {"name": "Shop"}).json()["sandbox"] is True
    listed = {row["name"]: row["tenants"] for row in staff_api.get("/v1/admin/apps").json()["data"]}
    assert listed["Till"] == 1
    assert_error(staff_api.post(f"/v1/admin/apps/{uuid4()}/keys", {"name": "x"}), 404, "not_found")
    for caller in (api, Api(app_key.key)):
        assert_error(caller.get("/v1/admin/apps"), 403, "forbidden")


def test_the_facts_of_a_sandbox_tenant_send_its_calls_to_the_simulator(tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.id).update(sandbox=True)
    facts = key_cache.tenant_by_id(tenant.id)
    assert facts is not None
    assert facts.sandbox


def test_the_database_itself_refuses_to_change_the_audit_log(tenant: Tenant) -> None:
    api_keys.create(name="server", environment="live", tenant=tenant)
    for change in ("UPDATE tenants_auditentry SET action = 'x'", "DELETE FROM tenants_auditentry"):
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(change)
    assert AuditEntry.objects.filter(action="api_key.create").count() == 1


def test_a_test_platform_key_sees_sandbox_tenants_alone(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    live = Api(app_key.key)
    test = Api(platform_apps.create_app_key(app_id=platform_app.id, name="t", environment="test").key)
    business = live.post("/v1/tenants", {"name": "Business"}).json()["id"]
    sandbox = test.post("/v1/tenants", {"name": "Sandbox"}).json()["id"]
    assert [row["id"] for row in test.get("/v1/tenants").json()["data"]] == [sandbox]
    assert {row["id"] for row in live.get("/v1/tenants").json()["data"]} == {business, sandbox}
    assert_error(test.get(f"/v1/tenants/{business}"), 404, "not_found")
    assert_error(test.get("/v1/tenant", X_Service_Tenant=business), 404, "not_found")
    assert test.get("/v1/tenant", X_Service_Tenant=sandbox).status_code == 200


def test_the_references_of_live_tenants_and_of_sandbox_tenants_are_apart(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    """A platform tries its program with a test key, then runs it with a live key: find by the reference, create if
    there is none.
    """
    live = Api(app_key.key)
    test = Api(platform_apps.create_app_key(app_id=platform_app.id, name="t", environment="test").key)
    path, body = "/v1/tenants?external_ref=shop-1", {"name": "Shop", "external_ref": "shop-1"}
    for api, sandbox in ((test, True), (live, False)):
        assert api.get(path).json()["data"] == []
        made = api.post("/v1/tenants", body).json()
        assert made["sandbox"] is sandbox
        assert [row["id"] for row in api.get(path).json()["data"]] == [made["id"]]
        assert_error(api.post("/v1/tenants", body), 400, "invalid_request")


def test_an_external_ref_is_stored_as_given(app_key: api_keys.NewKey) -> None:
    api = Api(app_key.key)
    made = api.post("/v1/tenants", {"name": "Shop", "external_ref": " s-1 "}).json()
    assert made["external_ref"] == " s-1 "
    assert [row["id"] for row in api.get("/v1/tenants?external_ref=%20s-1%20").json()["data"]] == [made["id"]]
    for refused in ("", "a\0b", "x" * 256):
        error = assert_error(
            api.post("/v1/tenants", {"name": "Shop", "external_ref": refused}), 400, "invalid_request"
        )
        assert list(error["details"]["fields"]) == ["external_ref"]


def test_an_upgrade_refuses_a_database_whose_tenants_were_moved(tenant: Tenant) -> None:
    refuse = import_module("tenants.migrations.0021_no_moves_between_cells").refuse_moved_tenants
    refuse(apps, connection.schema_editor())
    Tenant.objects.filter(pk=tenant.id).update(status="moved")
    with pytest.raises(RuntimeError, match="moved to another cell"):
        refuse(apps, connection.schema_editor())
