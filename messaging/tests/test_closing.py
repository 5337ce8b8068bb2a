"""Closing a tenant: its open batches end, and the contents of its events are deleted on request."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.template.loader import render_to_string

from gateway import ids
from gateway.clock import now
from gateway.database import partitions
from messaging.models import Batch, OptOut, ScheduledMessage
from phone_numbers import leaving
from tenants.models import Export, Tenant
from webhooks.models import EventPayload
from webhooks.tests.publishing import make, readable

pytestmark = pytest.mark.django_db


def queued(tenant: Tenant, **values: object) -> Batch:
    return Batch.objects.create(
        tenant=tenant,
        environment="live",
        phone_number_id=str(uuid4().int)[:15],
        total=0,
        rate_per_sec=80,
        **values,
    )


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_closed_tenant_sends_nothing_more_and_its_contents_go_when_asked(
    tenant: Tenant, other_tenant: Tenant, delete_data: bool
) -> None:
    mine, theirs = queued(tenant), queued(other_tenant)
    done = queued(tenant, status=Batch.Status.COMPLETED)
    for owner in (tenant, other_tenant):
        ScheduledMessage.objects.create(
            tenant_id=owner.id,
            environment="live",
            phone_number_id="1",
            send_at=now() + timedelta(days=1),
            body=b"{}",
        )
    for owner in (tenant, other_tenant):
        for kind in ("account", "messages"):
            # A key or staff asked for the file, so it does not end with the access of a member.
            Export.objects.create(tenant=owner, environment="test", kind=kind, query="", rows=1)
        OptOut.objects.create(
            tenant_id=owner.id,
            environment="live",
            phone_number_id="1",
            customer="91",
            id=ids.uuid7(),
            wa_id="91",
            wrote_stop=True,
            wrote_at=now(),
        )
    (event,), (foreign,) = make(tenant, wa_id="91"), make(other_tenant, wa_id="91")
    receipt = leaving.close(tenant_id=tenant.id, delete_data=delete_data)
    status = {batch.pk: batch.status for batch in Batch.objects.all()}
    assert (status[mine.pk], status[theirs.pk], status[done.pk]) == ("cancelled", "queued", "completed")
    assert receipt.ended["batches"] == 1
    assert receipt.ended["scheduled messages"] == 1
    assert [(row.status, bytes(row.body)) for row in ScheduledMessage.objects.order_by("id")] == [
        ("cancelled", b""),
        ("scheduled", b"{}"),
    ]
    assert readable(event, foreign) == [not delete_data, True]
    assert (receipt.data_until is None) is delete_data
    assert ("events" in receipt.ended) is delete_data
    deleted = [receipt.ended.get(name) for name in ("opt-outs", "export files")]
    assert deleted == ([1, 2] if delete_data else [None, None])
    assert [model.objects.filter(tenant_id=tenant.id).count() for model in (OptOut, Export)] == (
        [0, 0] if delete_data else [1, 2]
    )
    assert [model.objects.filter(tenant_id=other_tenant.id).count() for model in (OptOut, Export)] == [1, 2]
    assert leaving.close(tenant_id=tenant.id).ended["batches"] == 0


def test_the_receipt_of_a_closed_tenant_names_the_day_in_india() -> None:
    receipt = leaving.Receipt(
        tenant_id=uuid4(),
        closed_at=datetime(2026, 11, 30, 20, 30, tzinfo=UTC),
        ended={},
        data_until=None,
    )
    context = {
        "tenant": Tenant(name="Asha"),
        "service": "Gateway",
        "support_email": "support@gateway.example",
    }
    mail = render_to_string("mail/closed.txt", {**context, "receipt": receipt})
    assert "was closed on 1 December 2026, 02:00 IST." in mail


def test_the_receipt_names_the_day_on_which_the_last_contents_are_deleted(tenant: Tenant) -> None:
    (event,) = make(tenant)
    until = leaving.close(tenant_id=tenant.id).data_until
    assert until is not None
    partitions.maintain(today=until - timedelta(days=1))
    assert readable(event) == [True]
    partitions.maintain(today=until)
    assert not EventPayload.objects.filter(tenant_id=tenant.id).exists()
