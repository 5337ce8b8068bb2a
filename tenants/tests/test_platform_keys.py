"""Revocation of platform keys: by the platform, by staff over the API and in the admin, and by a command."""

from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.credentials.bearer_tokens import open_session
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant, User
from tenants.staff.roles import SUPPORT
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db

SUBMITTED = {"_form_submitted": "on"}
"""The value that the admin theme's dialog sends with its button."""


def another_key(app: PlatformApp, environment: str = "live") -> api_keys.NewKey:
    return platform_apps.create_app_key(app_id=app.id, name="second", environment=environment)


def test_a_platform_lists_rotates_and_revokes_its_own_keys(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    api = Api(app_key.key)
    rotated = api.post(f"/v1/platform-keys/{app_key.row.id}/rotate").json()
    assert rotated["replaces"] == str(app_key.row.id)
    assert rotated["old_key_expires_at"] is not None
    new = Api(rotated["key"])
    assert new.post("/v1/tenants", {"name": "Shop"}).status_code == 201, "it is a key of the same app"
    assert [row["id"] for row in new.get("/v1/platform-keys").json()["data"]] == [
        rotated["id"],
        str(app_key.row.id),
    ]
    assert new.delete(f"/v1/platform-keys/{app_key.row.id}").status_code == 200
    assert_error(api.get("/v1/tenants"), 401, "unauthorized")
    last = AuditEntry.objects.latest("id")
    assert (last.action, last.details["acting_key"]) == ("api_key.revoke", rotated["prefix"])
    for made in AuditEntry.objects.filter(action__in=("api_key.create", "api_key.rotate")):
        assert made.details["app_id"] == str(platform_app.id)


def test_a_test_platform_key_manages_test_keys_only(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    made = another_key(platform_app, "test")
    api = Api(made.key)
    assert [row["id"] for row in api.get("/v1/platform-keys").json()["data"]] == [str(made.row.id)]
    live = Api(app_key.key).get("/v1/platform-keys").json()["data"]
    assert [row["id"] for row in live] == [str(app_key.row.id)], "a live key lists live keys"
    sandbox = Tenant.objects.create(name="Try", app=platform_app, sandbox=True, status="active")
    in_sandbox = Api(app_key.key, **{"X-Service-Tenant": str(sandbox.id)})
    assert in_sandbox.get("/v1/platform-keys").json()["data"] == live, "whatever tenant the header names"
    assert_error(api.delete(f"/v1/platform-keys/{app_key.row.id}"), 404, "not_found")
    assert_error(api.post(f"/v1/platform-keys/{app_key.row.id}/rotate"), 404, "not_found")


def test_staff_list_rotate_and_revoke_an_apps_keys(
    staff_api: Api, platform_app: PlatformApp, app_key: api_keys.NewKey, key: api_keys.NewKey
) -> None:
    base = f"/v1/admin/apps/{platform_app.id}/keys"
    assert [row["id"] for row in staff_api.get(base).json()["data"]] == [str(app_key.row.id)]
    rotated = staff_api.post(f"{base}/{app_key.row.id}/rotate").json()
    assert Api(rotated["key"]).get("/v1/tenants").status_code == 200
    assert staff_api.delete(f"{base}/{rotated['id']}").status_code == 200
    assert_error(Api(rotated["key"]).get("/v1/tenants"), 401, "unauthorized")
    assert_error(staff_api.delete(f"{base}/{key.row.id}"), 404, "not_found")
    assert_error(staff_api.get(f"/v1/admin/apps/{uuid4()}/keys"), 404, "not_found")


def test_staff_create_an_apps_key_that_ends_and_give_it_no_scopes(
    staff_api: Api, platform_app: PlatformApp
) -> None:
    path = f"/v1/admin/apps/{platform_app.id}/keys"
    body = {"name": "Shop", "environment": "test", "expires_at": "2099-01-01T00:00:00.000Z"}
    assert staff_api.post(path, body).status_code == 201
    (made,) = staff_api.get(path).json()["data"]
    assert {name: made[name] for name in body} == body
    for name, value in (("scopes", ["messages"]), ("phone_number_ids", ["1"])):
        error = assert_error(staff_api.post(path, {**body, name: value}), 400, "invalid_request")
        assert list(error["details"]["fields"]) == [name]
    assert len(staff_api.get(path).json()["data"]) == 1


def test_staff_find_a_leaked_key_by_its_prefix_and_revoke_it(
    staff_api: Api, api: Api, key: api_keys.NewKey, tenant: Tenant, staff: User
) -> None:
    another = api_keys.create(tenant=tenant, name="another", environment="test")
    parts = (key.row.prefix, key.row.prefix[:12], key.key[:30], key.key)
    searches = [staff_api.get(f"/v1/admin/api-keys?prefix={part}").json()["data"] for part in parts]
    assert searches == [searches[0]] * len(parts)
    (found,) = searches[0]
    (other,) = staff_api.get("/v1/admin/api-keys?prefix=wb_test_").json()["data"]
    assert (found["id"], other["id"]) == (str(key.row.id), str(another.row.id))
    assert (found["tenant_id"], found["app_id"]) == (str(tenant.id), None)
    assert staff_api.delete(f"/v1/admin/api-keys/{found['id']}").status_code == 200
    assert_error(api.get("/v1/tenant"), 401, "unauthorized")
    last = AuditEntry.objects.latest("id")
    assert (last.action, last.actor_user_id, last.tenant_id) == ("api_key.revoke", staff.pk, tenant.id)


def test_who_may_only_look_revokes_nothing(key: api_keys.NewKey, platform_app: PlatformApp) -> None:
    person = User.objects.create_user("l@service.example", "pw", is_staff=True)
    person.groups.add(Group.objects.get(name=SUPPORT))
    looker = Api(open_session(person).token)
    for path in (f"/v1/admin/api-keys/{key.row.id}", f"/v1/admin/apps/{platform_app.id}/keys/{key.row.id}"):
        assert_error(looker.delete(path), 403, "forbidden")
    assert_error(looker.post(f"/v1/admin/apps/{platform_app.id}/keys/{key.row.id}/rotate"), 403, "forbidden")


def test_the_admin_revokes_any_key_and_rotates_a_platforms(
    staff: User, key: api_keys.NewKey, app_key: api_keys.NewKey
) -> None:
    browser = Client()
    browser.force_login(staff)
    page = browser.get(reverse("admin:tenants_apikey_change", args=[app_key.row.id])).content.decode()
    assert "Rotate" in page
    assert "Revoke" in page
    tenants_page = browser.get(reverse("admin:tenants_apikey_change", args=[key.row.id])).content.decode()
    assert "Rotate this key?" not in tenants_page
    answer = browser.post(reverse("admin:tenants_apikey_rotate_key", args=[app_key.row.id]), SUBMITTED)
    assert "wb_live_" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    browser.post(reverse("admin:tenants_apikey_revoke_key", args=[key.row.id]), SUBMITTED)
    key.row.refresh_from_db()
    assert key.row.revoked_at is not None


def test_staff_never_rotate_a_tenants_key(staff: User, key: api_keys.NewKey) -> None:
    browser = Client()
    browser.force_login(staff)
    answer = browser.post(reverse("admin:tenants_apikey_rotate_key", args=[key.row.id]), SUBMITTED)
    assert "There is no such API key" in answer.content.decode()
    assert ApiKey.objects.get().expires_at is None


def test_a_command_revokes_by_prefix_or_id(key: api_keys.NewKey, app_key: api_keys.NewKey) -> None:
    for named in (key.row.prefix, str(app_key.row.id)):
        call_command("revoke_key", named, stdout=StringIO())
    assert not ApiKey.objects.filter(revoked_at__isnull=True).exists()
    for unknown in ("wb_live_nothing0", "no-id"):
        with pytest.raises(CommandError):
            call_command("revoke_key", unknown)
