"""The commands that create what the first callers need: apps, keys and tokens."""

import io

import pytest
from django.core.management import call_command

from tenants.models import User
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
