"""Mails that go out once: a row says so, written in the transaction that queues the mail."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from billing.models import BillingMail


def mail_once(*, tenant_id: UUID, kind: str, key: str, at: datetime, queue: Callable[[], object]) -> bool:
    """Queue a mail unless one of this kind and key was; of two runs at once one waits for the other and queues none."""
    if BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key).exists():
        return False
    with transaction.atomic():
        row = BillingMail(tenant_id=tenant_id, kind=kind, key=key, sent_at=at)
        BillingMail.objects.bulk_create([row], ignore_conflicts=True)
        if not BillingMail.objects.filter(tenant_id=tenant_id, kind=kind, key=key, sent_at=at).exists():
            return False
        queue()
    return True
