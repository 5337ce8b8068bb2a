"""Each request in the table of hostile requests gets a correct response, and the process stays healthy.

The benchmark `hostile` measures the cost of each request. The short form uses only the messages that need no pauses.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from django.conf import settings

from benchmarks import hostile
from benchmarks.equipment import hostile_requests
from messaging.tests.conftest import connected_number
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.faults.service import LONG, Service, database_url
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]


@pytest.fixture
def service(tmp_path: Path, simulator: RunningSimulator) -> Iterator[Service]:
    service = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        META_GRAPH_URL=simulator.url,
        API_RATE_BURST="10000",
    )
    yield service
    service.close()


def test_each_hostile_request_has_its_answer_and_leaves_the_processes_well(
    service: Service, simulator: RunningSimulator
) -> None:
    tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
    number = connected_number(tenant, simulator.account())
    key = api_keys.create(name="server", environment="live", tenant=tenant).key
    web = service.web().url
    table = hostile_requests.messages(key, number.phone_number_id)
    if LONG:
        table = hostile_requests.requests(
            key=key,
            number=number.phone_number_id,
            app_secret=settings.META_APP_SECRET,
            csrf=hostile.csrf_token(web),
        )
    wrong = {}
    for each in table:
        if each.pause and not LONG:
            continue
        cost = hostile.cost_of(each, web, [])
        if cost.status not in each.statuses:
            wrong[each.what] = cost.status
    assert not wrong
    assert requests.get(f"{web}/v1/health", timeout=10).status_code == 200
    service.assert_well()
