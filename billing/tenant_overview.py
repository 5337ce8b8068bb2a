"""A tenant's view of its billing: numbers of this month, the estimate of the next invoice, mandate, open invoices.

Called by `GET /v1/billing` and the console. `serializers.BillingOut` defines the response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing import buyers, next_invoice, plan
from billing.models import BillingProfile, Invoice, Mandate, PaymentAttempt
from billing.next_invoice import NextCharge
from billing.payments import mandates
from billing.payments.provider import REASONS
from billing.pricing.periods import Period
from billing.usage import ActiveNumber, active_numbers
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Overview:
    """The contents of `GET /v1/billing`."""

    tenant: Tenant
    numbers: Sequence[ActiveNumber]
    next_charge: NextCharge | None
    mandate: Mandate | None
    unpaid: Sequence[Invoice]
    billing_profile: BillingProfile
    plan: dict[str, Any]

    @property
    def active_numbers(self) -> int:
        return len(self.numbers)

    @property
    def open_invoices(self) -> int:
        return len(self.unpaid)

    @property
    def amount_due_paise(self) -> int:
        return sum(invoice.amount_due_paise for invoice in self.unpaid)


def of(tenant: Tenant, at: datetime) -> Overview:
    """The overview at a moment."""
    period = Period.of(at)
    billed = next_invoice.is_billed(tenant)
    return Overview(
        tenant=tenant,
        numbers=active_numbers(tenant_id=tenant.id, start=period.start, end=period.end) if billed else [],
        next_charge=next_invoice.estimate(tenant, at),
        mandate=mandates.current(tenant.id),
        unpaid=list(Invoice.objects.for_tenant(tenant.id).unpaid().order_by("period", "id")),
        billing_profile=buyers.profile_of(tenant),
        plan=plan.terms_for(tenant.id, period).as_json(),
    )


def debit_failed_because(seen: Overview) -> str | None:
    """A text with the reason why the last debit of the unpaid invoices failed. None when no debit failed or the reason
    is unknown.
    """
    failed = (
        PaymentAttempt.objects.filter(
            invoice__in=[each.id for each in seen.unpaid],
            kind=PaymentAttempt.Kind.AUTOPAY,
            status=PaymentAttempt.Status.FAILED,
        )
        .order_by("-id")
        .first()
    )
    return REASONS.get(str((failed.error or {}).get("reason") or "")) if failed else None
