"""Forgetting what the message flows keep only for a time. Called hourly by beat."""

from datetime import timedelta

from django.conf import settings

from gateway.clock import now
from gateway.pruning import delete_before
from messaging.idempotency import WINDOW
from messaging.models import IdempotencyRecord, KeptNotification


def forget_kept_notifications() -> int:
    """Forget notifications that nobody asked for within UNROUTED_DAYS. Returns how many."""
    return delete_before(KeptNotification, "received_at", now() - timedelta(days=settings.UNROUTED_DAYS))


def forget_idempotency_records() -> int:
    """Forget the outcomes whose 24 hours are over (section 8). Returns how many."""
    return delete_before(IdempotencyRecord, "started_at", now() - WINDOW)
