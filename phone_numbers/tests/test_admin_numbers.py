"""`GET /v1/admin/numbers`: staff see every tenant's numbers."""

import pytest
from django.db import connection as database
from django.test.utils import CaptureQueriesContext

from phone_numbers.models import PhoneNumber
from phone_numbers.tests.test_connection import make_account, make_number
from tenants.models import Tenant
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db


def test_all_tenants_numbers_newest_first(staff_api: Api, tenant: Tenant, other_tenant: Tenant) -> None:
    first, second = make_number(make_account(tenant)), make_number(make_account(other_tenant))
    rows = staff_api.get("/v1/admin/numbers").json()["data"]
    assert [row["phone_number_id"] for row in rows] == [second.phone_number_id, first.phone_number_id]
    assert rows[1] == {
        "tenant_id": str(tenant.id),
        "tenant_name": "Asha Traders",
        "phone_number_id": first.phone_number_id,
        "display_phone_number": "+919800000001",
        "connection_state": "pending",
        "quality_rating": None,
        "messaging_limit_tier": None,
        "last_event_at": None,
    }


def test_one_state(staff_api: Api, tenant: Tenant) -> None:
    pending, connected = make_number(make_account(tenant)), make_number(make_account(tenant))
    PhoneNumber.objects.filter(pk=connected.pk).update(connection_state="connected")
    for state, number in (("pending", pending), ("connected", connected)):
        rows = staff_api.get(f"/v1/admin/numbers?connection_state={state}").json()["data"]
        assert [row["phone_number_id"] for row in rows] == [number.phone_number_id]
    assert staff_api.get("/v1/admin/numbers?connection_state=disconnected").json() == {
        "data": [],
        "next_cursor": None,
    }
    answer = staff_api.get("/v1/admin/numbers?connection_state=lost")
    assert_error(answer, 400, "invalid_request")


def test_one_number_or_many_cost_the_same(staff_api: Api, tenant: Tenant) -> None:
    counts = []
    for _ in range(2):
        make_number(make_account(tenant))
        with CaptureQueriesContext(database) as queries:
            staff_api.get("/v1/admin/numbers")
        counts.append(len(queries))
    assert counts[0] == counts[1]
