"""Metrics of outbound mail: what is due and not sent, and what was given up."""

from datetime import timedelta

from django.db.models import Min

from gateway.clock import now
from gateway.monitoring import metrics
from tenants.models import OutboundMail

GIVEN_UP_DAYS = 7


def oldest_due_age() -> float:
    """For how many seconds the oldest mail that is due has waited."""
    oldest = OutboundMail.objects.filter(next_attempt_at__lte=now()).aggregate(first=Min("next_attempt_at"))
    return (now() - oldest["first"]).total_seconds() if oldest["first"] else 0.0


def given_up() -> int:
    """Mails of the last week that were given up."""
    recent = OutboundMail.objects.filter(created_at__gt=now() - timedelta(days=GIVEN_UP_DAYS))
    return recent.filter(sent_at__isnull=True, next_attempt_at__isnull=True).count()


metrics.gauge(
    "gateway_mail_oldest_due_age_seconds", "Age of the oldest mail that is due and not sent.", oldest_due_age
)
metrics.gauge("gateway_mail_given_up", "Mails of the last 7 days that were given up.", given_up)
