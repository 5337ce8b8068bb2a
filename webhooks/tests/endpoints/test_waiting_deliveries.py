"""An endpoint that works again gets all waiting deliveries at once, even those whose retry is due hours later."""

from datetime import timedelta
from typing import Any

import pytest

from gateway.clock import now
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks import open_deliveries
from webhooks.delivery import dispatcher
from webhooks.models import Delivery
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("how", ["resume", "verify", "active"])
def test_what_waits_for_a_retry_goes_out_at_once(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, how: str
) -> None:
    for number in range(3):
        publish_one(tenant, f"k{number}")
    later = now() + timedelta(hours=5)
    Delivery.objects.update(status="failed", attempts=4, next_attempt_at=later)
    path = f"/v1/webhooks/{endpoint['id']}"
    if how == "active":
        assert api.patch(path, {"status": "paused"}).status_code == 200
        assert api.patch(path, {"status": "active"}).status_code == 200
    else:
        assert api.post(f"{path}/{how}").status_code == 200
    dispatcher.run()
    assert len(receiver.wait_for(3)) == 3
    assert {(row.status, row.attempts) for row in Delivery.objects.all()} == {("delivered", 5)}


def test_what_a_worker_holds_is_left_to_it_and_one_call_is_bounded(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_deliveries, "MOST_HURRIED", 1)
    for number in range(3):
        publish_one(tenant, f"k{number}")
    held, soon, late = Delivery.objects.order_by("id")
    Delivery.objects.filter(pk=held.pk).update(
        next_attempt_at=now() + timedelta(minutes=1), leased_until=now() + timedelta(minutes=1)
    )
    for row, hours in ((soon, 1), (late, 2)):
        Delivery.objects.filter(pk=row.pk).update(next_attempt_at=now() + timedelta(hours=hours))
    assert api.post(f"/v1/webhooks/{endpoint['id']}/resume").status_code == 200
    due = Delivery.objects.filter(next_attempt_at__lte=now())
    assert [row.id for row in due] == [soon.id]
