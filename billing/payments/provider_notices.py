"""Notices: the provider's webhooks, stored before they are answered and applied by a task.

A notice only says that something happened. The state is read from the provider (`attempts.refresh`, `mandates.sync`),
so order, repetition and loss of notices make no difference. Applied by the task and by `billing_run.py`.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from billing.error_isolation import each
from billing.models import Mandate, PaymentAttempt, ProviderEvent, Refund
from billing.payments import attempts, mandates, refunds, settlements
from billing.payments.provider import PROVIDERS, ProviderRefused, provider
from gateway.api.errors import InvalidRequest, MethodNotAllowed, NotFound, Unauthorized, answering_errors
from gateway.api.limits import API_BODY_BYTES, limited_by
from gateway.database.partitions import delete_free
from gateway.task_queue import enqueue

log = structlog.get_logger(__name__)

GIVEN_UP_AFTER = timedelta(days=7)
KEPT = timedelta(days=30)
"""How long an applied notice is kept, for questions about a payment. It contains the payer's address and number, and
nothing reads it, because the state comes from the provider. The provider repeats a notice for a day.
"""


def accept(*, name: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Store a provider's signed notice once and enqueue its task.

    Raises Unauthorized for a wrong signature, InvalidRequest for a body that is not a notice.
    """
    pay = provider(name)
    if not pay.is_signed(body, headers):
        raise Unauthorized(
            "The signature does not match the body.",
            hint="The provider signs the raw bytes of the body. Set the same webhook secret here and at the provider.",
        )
    try:
        notice = pay.read_notice(body)
    except ValueError:
        raise InvalidRequest("The body is not a notice.") from None
    key = (pay.event_id(headers) or hashlib.sha256(body).hexdigest())[:100]
    with transaction.atomic():
        event, new = ProviderEvent.objects.get_or_create(
            provider=pay.name, event_id=key, defaults={"type": notice.type[:60], "body": body}
        )
        if new:
            transaction.on_commit(lambda: enqueue("billing.tasks.apply_notice", event_id=event.pk))


def apply_waiting(at: datetime, *, only: int | None = None) -> int:
    """Apply the waiting notices, or only the notice `only`. Returns how many were applied. A failed notice waits for
    the next run, for up to a week.
    """
    waiting = ProviderEvent.objects.filter(processed_at__isnull=True)
    if only is not None:
        waiting = waiting.filter(pk=only)
    # The order is random. So if the provider does not answer for some notices, they do not block the others in every
    # run. The result does not depend on the order.
    return each(waiting.order_by("?"), lambda event: _apply(event, at), step="notices")


def prune() -> int:
    """Delete the notices that were applied longer ago than they are kept. Returns how many."""
    return delete_free(ProviderEvent.objects.filter(processed_at__lt=Now() - KEPT))


def _apply(event: ProviderEvent, at: datetime) -> int:
    try:
        _read_state(event, at)
    except ProviderRefused as error:
        log.warning("notice_refused", notice=event.pk, error=error.code)
        if event.received_at + GIVEN_UP_AFTER > at:
            return 0
    except Exception:
        if event.received_at + GIVEN_UP_AFTER > at:
            raise
        log.exception("notice_given_up", notice=event.pk)
    return ProviderEvent.objects.filter(pk=event.pk, processed_at__isnull=True).update(processed_at=at)


def _read_state(event: ProviderEvent, at: datetime) -> None:
    """Read from the provider the state of every object that a notice names."""
    notice = provider(event.provider).read_notice(bytes(event.body))
    if notice.is_settlement:
        settlements.reconcile(at)
    attempts_named = PaymentAttempt.objects.filter(
        Q(provider_order_id__in=notice.ids)
        | Q(provider_link_id__in=notice.ids)
        | Q(provider_payment_id__in=notice.ids),
        provider=event.provider,
    )
    refunded = Refund.objects.filter(attempt__provider_payment_id__in=notice.ids, status__in=Refund.IN_FLIGHT)
    mandates_named = Mandate.objects.filter(
        Q(provider_order_id__in=notice.ids) | Q(provider_token_id__in=notice.ids), provider=event.provider
    )
    reads: tuple[tuple[QuerySet[Any], Callable[[UUID, datetime], None]], ...] = (
        (attempts_named, attempts.refresh),
        (refunded, refunds.refresh),
        (mandates_named, mandates.sync),
    )
    for named, read in reads:
        for key in list(named.values_list("id", flat=True)):
            read(key, at)


# --- The route of notices is plain Django, because the signature covers the raw bytes.


@limited_by(API_BODY_BYTES)
@csrf_exempt
@answering_errors
def receive(request: HttpRequest, provider: str) -> HttpResponse:
    """Store a notice that is POSTed, and answer 200 after the commit. Raises NotFound for an unknown provider,
    MethodNotAllowed, and Unauthorized for a wrong signature.
    """
    if provider not in PROVIDERS:
        raise NotFound
    if request.method != "POST":
        raise MethodNotAllowed
    accept(name=provider, body=request.body, headers=request.headers)
    return HttpResponse(b"", content_type="text/plain")
