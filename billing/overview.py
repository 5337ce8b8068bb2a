"""The billing overview of a tenant: numbers of this month, the estimate of the next invoice, mandate, open invoices.

Called by `GET /v1/billing`. `serializers.BillingOut` defines the response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from billing import buyers, plan
from billing.models import BillingProfile, Invoice, Mandate, PaymentAttempt
from billing.payments import mandates
from billing.payments.provider import REASONS
from billing.pricing import gst
from billing.pricing.periods import Period, ist_date
from billing.usage import BILLED, ActiveNumber, active_numbers, billed_from
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class NextCharge:
    """The estimate of the next invoice, in paise."""

    period: str
    invoice_on: date
    numbers: int
    lines: Sequence[plan.ChargeLine]
    taxes: Sequence[gst.TaxRow]
    subtotal_paise: int
    tax_paise: int
    total_paise: int


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
    billed = _is_billed(tenant)
    return Overview(
        tenant=tenant,
        numbers=active_numbers(tenant_id=tenant.id, start=period.start, end=period.end) if billed else [],
        next_charge=next_charge(tenant, at),
        mandate=mandates.current(tenant.id),
        unpaid=list(Invoice.objects.for_tenant(tenant.id).unpaid().order_by("period", "id")),
        billing_profile=buyers.profile_of(tenant),
        plan=plan.terms_for(tenant.id, period).as_json(),
    )


def debit_failed_because(seen: Overview) -> str | None:
    """Why the last debit of the unpaid invoices failed, in words. None when none failed or the reason is unknown."""
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


def _is_billed(tenant: Tenant) -> bool:
    return not tenant.sandbox and tenant.billing_status in BILLED


def next_charge(tenant: Tenant, at: datetime) -> NextCharge | None:
    """Estimate the first billed month from a moment on, assuming that every number stays as it is."""
    if not _is_billed(tenant):
        return None
    current = Period.of(at)
    period = max(current, Period.of(tenant.trial_ends_at)) if tenant.trial_ends_at else current
    numbers = active_numbers(tenant_id=tenant.id, start=billed_from(tenant, period), end=period.end)
    charge = plan.charge_for(len(numbers), plan.terms_for(tenant.id, period))
    profile = buyers.profile_of(tenant)
    taxes = charge.taxes(buyers.supply(profile, period.end))
    return NextCharge(
        period=str(period),
        invoice_on=ist_date(period.end),
        numbers=charge.numbers,
        subtotal_paise=charge.subtotal_paise,
        lines=charge.lines,
        taxes=taxes.rows(),
        tax_paise=taxes.total_paise,
        total_paise=charge.subtotal_paise + taxes.total_paise,
    )
