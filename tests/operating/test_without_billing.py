"""Billing is an add-on. Without BILLING_INSTALLED, all checks and migrations pass, and the other pages work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "without_billing"
PROGRAM = """
import django, json
django.setup()
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.urls import get_resolver
from tenants.models import User
call_command("check")
call_command("makemigrations", "--check", "--dry-run", verbosity=0)
call_command("migrate", verbosity=0)
settings.ALLOWED_HOSTS = ["*"]
User.objects.create_superuser("root@service.example", "pw")
browser = Client()
browser.force_login(User.objects.get())
print(json.dumps({
    "apps": [config.label for config in apps.get_app_configs()],
    "tasks": [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()],
    "statuses": {path: Client().get(path).status_code for path in
        ("/v1/tenant", "/v1/openapi.json", "/login", "/pay/x", "/console/billing", "/docs")},
    "staff": browser.get("/admin/").status_code,
    "routes": [name for name in get_resolver().reverse_dict if "billing" in str(name)],
}))
"""


@pytest.fixture
def without_billing(django_db_setup: None) -> dict[str, str]:
    """An environment without billing, and an empty separate database."""
    url = urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(DATABASE)))
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    return {
        **os.environ,
        "BILLING_INSTALLED": "false",
        "BILLING_ENABLED": "true",
        "STAFF_SECOND_FACTOR": "false",
        "DATABASE_URL": urlunsplit(url._replace(path="/" + quote(DATABASE))),
    }


def run(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_everything_else_checks_migrates_and_answers(without_billing: dict[str, str]) -> None:
    seen = json.loads(run(without_billing).splitlines()[-1])
    with psycopg.connect(without_billing["DATABASE_URL"]) as made:
        tables = {row[0] for row in made.execute("SELECT tablename FROM pg_tables").fetchall()}
    assert "tenants_tenant" in tables
    assert not [table for table in tables if table.startswith("billing_")]
    assert "billing" not in seen["apps"]
    assert not [task for task in seen["tasks"] if task.startswith("billing.")]
    assert seen["statuses"] == {
        "/v1/tenant": 401,
        "/v1/openapi.json": 200,
        "/login": 200,
        "/pay/x": 404,
        "/console/billing": 404,
        "/docs": 302,
    }
    assert (seen["staff"], seen["routes"]) == (200, [])
