"""People at the console, as Django's client plays them: a customer and another business's person; and Chromium."""

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
    """A browser in which a person, a customer or of the staff, is logged in."""
    client = Client()
    client.force_login(person)
    return client


def browser_of(tenant: Tenant, role: str = "owner") -> Client:
    """A logged-in person of a tenant."""
    return logged_in(
        User.objects.create_user(
            f"{role}@{tenant.id}.example", "a long enough password", tenant=tenant, role=role
        )
    )


def text(client: Client, path: str) -> str:
    """A page that opens, with its entities as the characters that a person reads."""
    answer = client.get(path)
    assert answer.status_code == 200, path
    return html.unescape(answer.content.decode())


def staff_pages() -> dict[type[Model], Any]:
    """The pages of the staff admin, by model. They are registered when the URLs are first read."""
    import_module("gateway.urls")
    return admin.site._registry


@pytest.fixture
def browser(tenant: Tenant) -> Client:
    """A person of `tenant`."""
    return browser_of(tenant)


@pytest.fixture
def stranger(other_tenant: Tenant) -> Client:
    """A person of `other_tenant`."""
    return browser_of(other_tenant)


@pytest.fixture(scope="session")
def in_chromium() -> "Iterator[Chromium]":
    """What plays a journey in the browser that all tests of this process share."""
    # Playwright takes a third of a second to import.
    from tests.accessibility import Chromium

    chromium = Chromium()
    yield chromium
    chromium.close()
