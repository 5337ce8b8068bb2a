"""Notices: the provider's webhooks, stored before they are answered, applied by a task.

A notice only says that something happened. The state is read from the provider (`charging.refresh`,
`mandates.sync`), so the order of notices, a repeated notice and a lost one make no difference.
Called by `webhook_views.py`, the task, `billing_run.py`.
"""

import hashlib
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q

from billing.models import Mandate, PaymentAttempt, ProviderEvent
from billing.payments import charging, mandates
from billing.payments.provider import ProviderRefused, ProviderUnreachable, provider
from gateway.api.errors import InvalidRequest, Unauthorized
from gateway.task_queue import enqueue

log = structlog.get_logger(__name__)

GIVEN_UP_AFTER = timedelta(days=7)


def accept(*, body: bytes, signature: str, event_id: str) -> None:
    """Keep a signed notice once and have it applied. Raises Unauthorized for a wrong signature, InvalidRequest."""
    pay = provider()
    if not pay.is_signed(body, signature):
        raise Unauthorized("The signature does not match the body.")
    try:
        notice = pay.read_notice(body)
    except ValueError:
        raise InvalidRequest("The body is no notice.") from None
    key = (event_id or hashlib.sha256(body).hexdigest())[:100]
    with transaction.atomic():
        event, new = ProviderEvent.objects.get_or_create(
            provider=pay.name, event_id=key, defaults={"type": notice.type[:60], "body": body}
        )
        if new:
            transaction.on_commit(lambda: enqueue("billing.tasks.apply_notice", event_id=event.pk))


def apply_waiting(at: datetime, *, only: int | None = None) -> int:
    """Apply the notices that wait, oldest first, or one; returns how many were. What fails waits for the next run."""
    waiting = ProviderEvent.objects.filter(processed_at__isnull=True).order_by("id")
    if only is not None:
        waiting = waiting.filter(pk=only)
    applied = 0
    for event in list(waiting):
        try:
            _apply(event, at)
        except (ProviderUnreachable, ProviderRefused) as error:
            log.warning("notice_waits", notice=event.pk, error=error.code)
            if event.received_at + GIVEN_UP_AFTER > at:
                continue
        applied += ProviderEvent.objects.filter(pk=event.pk, processed_at__isnull=True).update(
            processed_at=at
        )
    return applied


def _apply(event: ProviderEvent, at: datetime) -> None:
    notice = provider().read_notice(bytes(event.body))
    attempts = PaymentAttempt.objects.filter(
        Q(provider_order_id__in=notice.order_ids) | Q(provider_link_id__in=notice.link_ids)
    )
    for attempt_id in list(attempts.values_list("id", flat=True)):
        charging.refresh(attempt_id, at)
    concerned = Mandate.objects.filter(
        Q(provider_order_id__in=notice.order_ids) | Q(provider_token_id__in=notice.token_ids)
    )
    for mandate_id in list(concerned.values_list("id", flat=True)):
        mandates.sync(mandate_id, at)
