"""Provider trouble: the provider refuses the service's own keys or account, which an operator has to fix.

Stored, so that `/v1/admin/health` shows it from every process, and logged as an error. Each customer's payments wait.
"""

from typing import Any

import structlog
from rest_framework import serializers

from billing.models import PaymentAttempt, ProviderEvent, ProviderTrouble
from gateway.clock import now
from gateway.monitoring import admin_health

log = structlog.get_logger(__name__)


def note(provider: str, *, status: int, text: str) -> None:
    """The provider refused the service itself."""
    ProviderTrouble.objects.bulk_create(
        [ProviderTrouble(provider=provider, since=now(), status=status, text=text[:300])],
        ignore_conflicts=True,
    )
    log.error("payment_provider_refuses_service", provider=provider, status=status)


def clear(provider: str) -> None:
    """The provider accepted a request."""
    if ProviderTrouble.objects.filter(pk=provider).delete()[0]:
        log.info("payment_provider_accepts_service", provider=provider)


class BillingHealthOut(serializers.Serializer[Any]):
    provider_refuses_since = serializers.DateTimeField(allow_null=True)
    notices_waiting = serializers.IntegerField()
    payments_unknown = serializers.IntegerField()


@admin_health.register(billing=BillingHealthOut())
def _health() -> dict[str, Any]:
    trouble = ProviderTrouble.objects.order_by("since").first()
    return {
        "billing": {
            "provider_refuses_since": trouble.since if trouble else None,
            "notices_waiting": ProviderEvent.objects.filter(processed_at__isnull=True).count(),
            "payments_unknown": PaymentAttempt.objects.filter(status=PaymentAttempt.Status.UNKNOWN).count(),
        }
    }
