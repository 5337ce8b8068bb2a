"""The Celery entry points: they take ids, ignore additional arguments from a newer sender, and beat's schedule has
their real names.
"""

from datetime import timedelta

import pytest

from gateway.clock import now
from phone_numbers import tasks
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.test_sync import connect
from tenants.models import Tenant
from tests.simulated import RunningSimulator


@pytest.mark.django_db
def test_an_account_is_read_again_by_its_task(simulator: RunningSimulator, tenant: Tenant) -> None:
    account = connect(simulator, tenant)
    simulator.change_number(account.phone_number_id, quality_rating="RED")
    lease = now() + timedelta(minutes=1)
    BusinessAccount.objects.update(sync_lease_until=lease)
    row = BusinessAccount.objects.get()
    tasks.sync_account(account_id=str(row.pk), lease=lease.isoformat(), added_later="ignored")
    assert PhoneNumber.objects.get().quality_rating == "RED"
