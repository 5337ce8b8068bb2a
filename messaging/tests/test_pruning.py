"""What the message flows forget, and what they keep a little longer."""

from datetime import timedelta

import pytest
from django.conf import settings

from gateway.clock import now
from gateway.pruning import delete_before
from messaging import pruning
from messaging.models import IdempotencyRecord, KeptNotification
from tenants.models import Tenant

pytestmark = pytest.mark.django_db


def test_kept_notifications_go_after_their_days() -> None:
    for age in (timedelta(days=settings.UNROUTED_DAYS - 1), timedelta(days=settings.UNROUTED_DAYS + 1)):
        KeptNotification.objects.create(
            reason="malformed", body_sha256=str(age.days), body=b"x", received_at=now() - age
        )
    assert pruning.forget_kept_notifications() == 1
    assert [kept.body_sha256 for kept in KeptNotification.objects.all()] == [str(settings.UNROUTED_DAYS - 1)]


def test_idempotency_records_go_after_a_day(tenant: Tenant) -> None:
    for hours in (23, 25):
        IdempotencyRecord.objects.create(
            tenant_id=tenant.id,
            environment="live",
            key=str(hours),
            path="/v1/messages",
            body_hash=b"x",
            started_at=now() - timedelta(hours=hours),
        )
    assert pruning.forget_idempotency_records() == 1
    assert [record.key for record in IdempotencyRecord.objects.all()] == ["23"]


def test_more_rows_than_one_batch_all_go() -> None:
    KeptNotification.objects.bulk_create(
        KeptNotification(
            reason="malformed", body_sha256=str(n), body=b"", received_at=now() - timedelta(days=n)
        )
        for n in range(25)
    )
    assert delete_before(KeptNotification, "received_at", now() - timedelta(days=4.5), batch=7) == 20
    assert KeptNotification.objects.count() == 5
