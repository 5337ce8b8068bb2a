"""The commands that create what the first callers need: apps, keys and tokens."""

import io
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from gateway.clock import now
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant, User
from tests.fixtures import Api

pytestmark = pytest.mark.django_db


def printed(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue().strip()


def test_an_app_its_key_and_a_console_token_work_as_printed(staff: User) -> None:
    app_id = printed("create_app", "Platform")
    key = printed("create_key", "--app", app_id, "--environment", "test")
    made = Api(key).post("/v1/tenants", {"name": "Shop"})
    assert made.status_code == 201, made.content
    assert made.json()["sandbox"] is True
    key = printed("create_key", "--tenant", made.json()["id"], "--environment", "test")
    assert Api(key).get("/v1/tenant").json()["id"] == made.json()["id"]
    apps = Api(printed("console_token", staff.email)).get("/v1/admin/apps").json()["data"]
    assert {"id": app_id, "name": "Platform", "tenants": 1} in apps


@pytest.mark.parametrize(
    ("options", "days"),
    [((), None), (("--days", "30"), 30), (("--name", "till", "--environment", "test"), None)],
)
def test_a_printed_key_has_its_options(tenant: Tenant, options: tuple[str, ...], days: int | None) -> None:
    key = printed("create_key", "--tenant", str(tenant.id), *options)
    row = ApiKey.objects.get(key_hash=api_keys.hash_of(key))
    named = ("till", "test") if "till" in options else ("made by command", "live")
    assert (row.tenant, row.name, row.environment) == (tenant, *named)
    if days is None:
        assert row.expires_at is None
    else:
        assert row.expires_at is not None
        assert abs(row.expires_at - now() - timedelta(days=days)) < timedelta(minutes=1)


def test_a_command_refuses_what_it_does_not_know(tenant: Tenant, key: api_keys.NewKey) -> None:
    User.objects.create_superuser("boss@service.example")
    User.objects.create_user("asha@traders.example", tenant=tenant)
    User.objects.create_user("gone@service.example", is_staff=True, is_active=False)
    ApiKey.objects.create(tenant=tenant, name="twin", prefix=key.row.prefix, key_hash="x")
    for command, says in (
        (("create_key", "--tenant", str(uuid4())), "no such tenant"),
        (("create_key", "--app", str(uuid4())), "no such platform app"),
        (("create_key", "--tenant", str(tenant.id), "--days", "0"), "--days must be at least 1"),
        (("console_token", "asha@traders.example"), "no active staff member"),
        (("console_token", "gone@service.example"), "no active staff member"),
        (("revoke_key", key.row.prefix), "2 keys have this id or prefix"),
    ):
        with pytest.raises(CommandError, match=says):
            printed(*command)
    assert ApiKey.objects.filter(revoked_at=None).count() == 2
    assert not User.objects.filter(console_sessions__isnull=False).exists()
