"""Fixtures for pages: Django clients that are logged in as members of teams or as staff, and Chromium."""

import html
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client

from tenants.models import Tenant, User

if TYPE_CHECKING:
    from tests.accessibility import Chromium


def logged_in(person: User) -> Client:
    """Return a client in which a user is logged in."""
    client = Client()
    client.force_login(person)
    return client


def browser_of(tenant: Tenant, role: str = "owner") -> Client:
    """Create a member of a tenant's team. Returns a client in which the member is logged in."""
    return logged_in(
        User.objects.create_user(
            f"{role}@{tenant.id}.example", "a long enough password", tenant=tenant, role=role
        )
    )


def text(client: Client, path: str) -> str:
    """Check that a page opens. Returns its HTML with entities decoded."""
    answer = client.get(path)
    assert answer.status_code == 200, path
    return html.unescape(answer.content.decode())


def staff_pages() -> dict[type[Model], Any]:
    """Return the pages of the staff admin by model. Importing the URLs registers them."""
    import_module("gateway.urls")
    return admin.site._registry


@pytest.fixture
def browser(tenant: Tenant) -> Client:
    """A client in which an owner of `tenant` is logged in."""
    return browser_of(tenant)


@pytest.fixture
def stranger(other_tenant: Tenant) -> Client:
    """A client in which an owner of `other_tenant` is logged in."""
    return browser_of(other_tenant)


@pytest.fixture(scope="session")
def in_chromium() -> "Iterator[Chromium]":
    """The browser that all tests of this process share. Call it with a journey."""
    # Importing Playwright takes a third of a second.
    from tests.accessibility import Chromium

    chromium = Chromium()
    yield chromium
    chromium.close()
