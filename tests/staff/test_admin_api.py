"""Every operation below /v1/admin with each group of staff. The groups' permissions decide who may change something."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from pytest_django import Settings

from tenants import platform_apps
from tenants.credentials import bearer_tokens
from tenants.models import Tenant, User
from tenants.staff.roles import FINANCE, REVIEWER, SUPPORT
from tests.api_contract.authorisation import ROWS, Route, World, registered_routes
from tests.fixtures import Api, assert_error, shared_rows

DECIDES, REVOKES, HAS_APPS = "tenants.decide_tenant", "tenants.revoke_apikey", "tenants.add_platformapp"
PERMISSIONS = {
    "POST /v1/admin/tenants/{tenant_id}/approve": DECIDES,
    "POST /v1/admin/tenants/{tenant_id}/reject": DECIDES,
    "POST /v1/admin/tenants/{tenant_id}/suspend": DECIDES,
    "POST /v1/admin/tenants/{tenant_id}/reinstate": DECIDES,
    "DELETE /v1/admin/api-keys/{key_id}": REVOKES,
    "POST /v1/admin/apps": HAS_APPS,
    "POST /v1/admin/apps/{app_id}/keys": HAS_APPS,
    "DELETE /v1/admin/apps/{app_id}/keys/{key_id}": HAS_APPS,
    "POST /v1/admin/apps/{app_id}/keys/{key_id}/rotate": HAS_APPS,
}
"""The permission that each operation needs. Operations that only read need a role alone."""
GROUPS = {
    SUPPORT: {"tenants.add_tenantnote"},
    REVIEWER: {"tenants.add_tenantnote", DECIDES, REVOKES},
    FINANCE: {
        "tenants.add_tenantnote",
        "billing.add_creditnote",
        "billing.add_paymentattempt",
        "billing.add_refund",
        "billing.add_closedmonth",
        "billing.change_staffact",
    },
}
"""The permissions of each group, apart from those to view."""
PEOPLE = {"no group": set[str](), **GROUPS, "superuser": set(PERMISSIONS.values())}
ROUTES = registered_routes()
OPERATIONS = [route for route in ROUTES if route.path.startswith("/v1/admin")]


def test_every_operation_that_changes_something_declares_its_permission() -> None:
    assert [route for route in ROUTES if route.kind == "staff"] == OPERATIONS
    assert {route.name for route in OPERATIONS if route.method != "GET"} == set(PERMISSIONS)


@pytest.mark.django_db
def test_each_group_has_its_permissions_and_views_everything() -> None:
    changing, viewing = {}, {}
    for group in Group.objects.all():
        person = User.objects.create_user(f"{group.name}@service.example", is_staff=True)
        person.groups.add(group)
        viewing[group.name] = {one for one in person.get_all_permissions() if ".view_" in one}
        changing[group.name] = person.get_all_permissions() - viewing[group.name]
    assert changing == GROUPS
    assert viewing[SUPPORT] == viewing[REVIEWER] == viewing[FINANCE]
    assert "tenants.view_apikey" in viewing[SUPPORT]


class Staff:
    """A person of each group, with a console token. They are created once for all operations."""

    def __init__(self) -> None:
        app = platform_apps.create_app(name="Shop platform")
        tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        self.world = World(tenant=tenant, app=app, app_tenant=tenant)
        self.apis = {name: self._api(name) for name in PEOPLE}

    def _api(self, name: str) -> Api:
        person = User.objects.create_user(
            f"{name.replace(' ', '-')}@service.example", "pw", is_staff=True, is_superuser=name == "superuser"
        )
        if name in GROUPS:
            person.groups.add(Group.objects.get(name=name))
        return Api(bearer_tokens.open_session(person).token)


@pytest.fixture(scope="class")
def staff_of_each_group(django_db_setup: None, django_db_blocker: Any) -> Iterator[Staff]:
    with django_db_blocker.unblock(), shared_rows():
        yield Staff()


@pytest.mark.django_db
class TestEachOperation:
    @pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: route.name)
    def test_is_open_to_the_groups_that_have_its_permission(
        self, route: Route, staff_of_each_group: Staff, settings: Settings
    ) -> None:
        settings.BILLING_ENABLED = True
        permission, row = PERMISSIONS.get(route.name), ROWS[route.name]
        for name, api in staff_of_each_group.apis.items():
            ids = row.ids(staff_of_each_group.world) if row.ids else {}
            body = None if route.method == "GET" else dict(row.body)
            answer = api.request(route.method, route.path.format(**ids), body)
            if name != "no group" and (permission is None or permission in PEOPLE[name]):
                assert answer.status_code in {200, 201, 400, 404, 409}, (name, answer.content)
            else:
                assert_error(answer, 403, "forbidden")
