"""State intervals, by which usage is measured, match the stored states exactly."""

from datetime import timedelta

import pytest
from django.db.models import F
from pytest_django import Settings

from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, NumberStateInterval, PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from tenants.models import Tenant
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db


@pytest.fixture
def number(tenant: Tenant) -> PhoneNumber:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="200", access_token="EAAx", subscribed=True
    )
    return PhoneNumber.objects.create(
        tenant=tenant, account=account, environment="live", phone_number_id="100", registered=True
    )


def intervals(number: PhoneNumber) -> list[tuple[str, bool]]:
    rows = NumberStateInterval.objects.filter(number=number).order_by("id")
    return [(row.connection_state, row.to_at is None) for row in rows]


def test_each_change_of_state_closes_one_interval_and_opens_the_next(
    tenant: Tenant, number: PhoneNumber
) -> None:
    state.recompute(tenant_id=tenant.id)
    assert intervals(number) == []
    verified_endpoint(tenant)
    state.recompute(tenant_id=tenant.id)
    state.recompute(tenant_id=tenant.id)
    assert intervals(number) == [("connected", True)]
    with state.facts_change(tenant_id=tenant.id):
        PhoneNumber.objects.filter(pk=number.pk).update(registered=False)
    with state.facts_change(tenant_id=tenant.id):
        BusinessAccount.objects.update(subscribed=False)
    assert intervals(number) == [("connected", False), ("disconnected", True)]
    first, second = NumberStateInterval.objects.order_by("id")
    assert first.to_at == second.from_at
    assert first.tenant_id == tenant.id


def test_a_change_that_fails_leaves_no_interval(tenant: Tenant, number: PhoneNumber) -> None:
    verified_endpoint(tenant)
    with pytest.raises(RuntimeError), state.facts_change(tenant_id=tenant.id):
        raise RuntimeError
    assert intervals(number) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/numbers/connect", {"waba_id": "1", "access_token": "EAAx"}),
        ("/v1/numbers/embedded-signup", {"code": "c", "waba_id": "1", "phone_number_id": "2"}),
        ("/v1/connect-sessions", {"return_url": "https://shop.example/done"}),
    ],
)
def test_a_tenant_long_past_due_adds_no_numbers(
    api: Api, tenant: Tenant, path: str, body: object, settings: Settings
) -> None:
    settings.BILLING_ENABLED = True
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    error = assert_error(api.post(path, body), 403, "forbidden")
    assert error["details"] == {"reason": "billing_past_due"}


def test_a_closed_interval_keeps_its_end(tenant: Tenant, number: PhoneNumber) -> None:
    verified_endpoint(tenant)
    state.recompute(tenant_id=tenant.id)
    with state.facts_change(tenant_id=tenant.id):
        PhoneNumber.objects.filter(pk=number.pk).update(registered=False)
    first = NumberStateInterval.objects.order_by("id").first()
    assert first is not None
    for registered in (True, False):
        with state.facts_change(tenant_id=tenant.id):
            PhoneNumber.objects.filter(pk=number.pk).update(registered=registered)
    assert NumberStateInterval.objects.get(pk=first.pk).to_at == first.to_at
    assert NumberStateInterval.objects.count() == 4


def test_a_clock_that_steps_back_ends_no_interval_before_it_began(
    tenant: Tenant, number: PhoneNumber
) -> None:
    verified_endpoint(tenant)
    state.recompute(tenant_id=tenant.id)
    NumberStateInterval.objects.update(from_at=F("from_at") + timedelta(hours=1))
    with state.facts_change(tenant_id=tenant.id):
        PhoneNumber.objects.filter(pk=number.pk).update(registered=False)
    ended = NumberStateInterval.objects.get(to_at__isnull=False)
    assert ended.to_at == ended.from_at
