"""`GET /v1/admin/numbers` and the lists of the staff admin: staff see every tenant's numbers."""

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from django.db import connection as database
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.test_connection import make_account, make_number
from tenants.models import Tenant, User
from tests.browsers import logged_in, text
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


@pytest.fixture
def list_of(staff: User, tenant: Tenant, other_tenant: Tenant) -> Callable[..., str]:
    """The lists of the staff admin. They have the numbers 1001 and 1002 of two tenants, and their accounts."""
    for owner, each, digits in ((tenant, "1001", "919800000001"), (other_tenant, "1002", "14155550102")):
        number = make_number(make_account(owner), digits)
        BusinessAccount.objects.filter(pk=number.account_id).update(waba_id=f"7{each}", name=f"N{digits}")
        PhoneNumber.objects.filter(pk=number.pk).update(phone_number_id=each)
    browser = logged_in(staff)
    return lambda model, **query: text(
        browser, f"{reverse(f'admin:numbers_{model}_changelist')}?{urlencode(query)}"
    )


def test_staff_search_the_lists_of_numbers_and_accounts(tenant: Tenant, list_of: Callable[..., str]) -> None:
    both = (str(tenant.id), "asha", "71001")
    for model, first, second, queries in (
        ("phonenumber", ">1001<", ">1002<", ("1001", "98000", *both)),
        ("businessaccount", ">71001<", ">71002<", ("N9198", *both)),
    ):
        assert second in list_of(model)
        for query in queries:
            page = list_of(model, q=query)
            assert (first in page, second in page) == (True, False), query


def test_staff_see_the_state_of_a_number_where_they_find_it(staff: User, tenant: Tenant) -> None:
    account = make_account(tenant)
    numbers = [make_number(account, f"91980000000{serial}") for serial in range(3)]
    browser, rows = logged_in(staff), PhoneNumber.objects.filter(pk=numbers[1].pk)
    rows.update(connection_state="disconnected", connection_detail="deregistered")
    PhoneNumber.objects.filter(pk=numbers[2].pk).update(connection_state="connected", display_phone_number="")
    page = text(browser, f"/admin/tenants/tenant/{tenant.pk}/change/")
    for words in (
        "+919800000000 (live, pending: not_subscribed)",
        "+919800000001 (live, disconnected: deregistered)",
        f"{numbers[2].phone_number_id} (live, connected",
    ):
        assert words in page
    found = text(browser, f"/admin/find/?q={account.waba_id}")
    for words in (
        "Asha Traders, live, pending",
        "Asha Traders, live, disconnected",
        "Asha Traders, live, connected",
    ):
        assert words in found
    assert "+919800000001" not in text(browser, "/admin/find/?q=91980000000")


def test_staff_are_offered_filters_of_numbers_and_accounts(list_of: Callable[..., str]) -> None:
    columns = {"connection_state": "disconnected", "environment": "test"}
    codes = {"connection_detail": "deregistered", "quality_rating": "RED"}
    PhoneNumber.objects.filter(phone_number_id="1001").update(**columns, **codes)
    page = list_of("phonenumber")
    assert [f"{column}__exact={value}" in page for column, value in columns.items()] == [True, True]
    assert [f"{column}={value}" in page for column, value in codes.items()] == [True, True]
    page = list_of("businessaccount")
    assert ["environment__exact=test" in page, "subscribed__exact=0" in page] == [True, True]
