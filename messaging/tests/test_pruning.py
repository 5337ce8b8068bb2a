"""Pruning of the message flows: rows that are deleted with a batch, and tables that are pruned in several steps."""

from datetime import timedelta

import pytest

from gateway.clock import now
from gateway.database.partitions import delete_before
from messaging import retention
from messaging.models import Batch, BatchItem, KeptNotification
from tenants.models import Tenant

pytestmark = pytest.mark.django_db


def test_batches_go_with_their_items_after_the_tenants_retention(tenant: Tenant) -> None:
    for days, completed in ((89, True), (91, True), (91, False)):
        moment = now() - timedelta(days=days)
        batch = Batch.objects.create(
            tenant=tenant,
            environment="live",
            phone_number_id=f"{days}{completed}",
            total=2,
            rate_per_sec=80,
            created_at=moment,
            completed_at=moment if completed else None,
        )
        BatchItem.objects.bulk_create(BatchItem(batch=batch, idx=idx, body=b"{}") for idx in range(2))
    assert tenant.retention_days == 90
    assert retention.prune_batches() == 1
    assert set(Batch.objects.values_list("phone_number_id", flat=True)) == {"89True", "91False"}
    assert BatchItem.objects.count() == 4


def test_more_rows_than_one_batch_all_go() -> None:
    KeptNotification.objects.bulk_create(
        KeptNotification(
            reason="malformed", body_sha256=str(n), body=b"", received_at=now() - timedelta(days=n)
        )
        for n in range(25)
    )
    assert delete_before(KeptNotification, "received_at", timedelta(days=4.5), batch=7) == 20
    assert KeptNotification.objects.count() == 5
