"""The estimate of a tenant's next invoice."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from billing import buyers, plan
from billing.pricing import gst
from billing.pricing.money import rounded_share
from billing.pricing.periods import Period, ist_date
from billing.usage import BILLED, active_numbers, billed_from
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
    debit_paise: int
    """The amount that a debit takes: the total without the tax that the buyer deducts at source."""


def is_billed(tenant: Tenant) -> bool:
    """Whether the tenant gets invoices."""
    return not tenant.sandbox and tenant.billing_status in BILLED


def estimate(tenant: Tenant, at: datetime) -> NextCharge | None:
    """Estimate the invoice of the first billed month from `at` on, assuming that no number changes. None for a tenant
    that is not billed.
    """
    if not is_billed(tenant):
        return None
    current = Period.of(at)
    period = max(current, Period.of(tenant.trial_ends_at)) if tenant.trial_ends_at else current
    numbers = active_numbers(tenant_id=tenant.id, start=billed_from(tenant, period), end=period.end)
    charge = plan.charge_for(len(numbers), plan.terms_for(tenant.id, period))
    profile = buyers.profile_of(tenant)
    supply = buyers.supply(profile, period.end)
    taxes = charge.taxes(supply)
    total_paise = charge.subtotal_paise + taxes.total_paise
    deducted = 0 if supply.kind == "export" else profile.tds_percent
    return NextCharge(
        period=str(period),
        invoice_on=ist_date(period.end),
        numbers=charge.numbers,
        subtotal_paise=charge.subtotal_paise,
        lines=charge.lines,
        taxes=taxes.rows(),
        tax_paise=taxes.total_paise,
        total_paise=total_paise,
        debit_paise=total_paise - rounded_share(charge.subtotal_paise, deducted, 100),
    )
