"""The JSON of billing: what `/v1/billing*` shows of plan, mandate, invoices and attempts (docs/billing.md)."""

from datetime import datetime
from typing import Any

from billing import plan, profiles
from billing.invoices import gst
from billing.models import Invoice, Mandate, PaymentAttempt
from billing.payments import mandates
from billing.periods import Period, ist_date
from billing.usage import active_numbers, billed_from
from tenants.models import Tenant


def overview(tenant: Tenant, at: datetime) -> dict[str, Any]:
    """`GET /v1/billing`."""
    profile = profiles.profile_of(tenant)
    missing = profiles.missing(profile, tenant)
    period = Period.of(at)
    billed = not tenant.sandbox and tenant.billing_status in {
        Tenant.BillingStatus.TRIALING,
        Tenant.BillingStatus.ACTIVE,
        Tenant.BillingStatus.PAST_DUE,
    }
    numbers = active_numbers(tenant_id=tenant.id, start=period.start, end=period.end) if billed else []
    unpaid = list(Invoice.objects.for_tenant(tenant.id).unpaid())
    mandate = mandates.current(tenant.id)
    return {
        "billing_status": tenant.billing_status,
        "trial_ends_at": tenant.trial_ends_at,
        "past_due_since": tenant.past_due_since,
        "restricted": tenant.billing_restricted,
        "plan": plan.TERMS,
        "active_numbers": len(numbers),
        "numbers": [
            {
                "phone_number_id": number.phone_number_id,
                "display_phone_number": number.display_phone_number,
                "active_since": number.active_since,
            }
            for number in numbers
        ],
        "next_charge": _next_charge(tenant, period) if billed else None,
        "mandate": _standing_mandate(mandate) if mandate else None,
        "amount_due_paise": sum(invoice.amount_due_paise for invoice in unpaid),
        "open_invoices": len(unpaid),
        "billing_profile": {**profile_body(tenant), "complete": not missing, "missing": missing},
    }


def profile_body(tenant: Tenant) -> dict[str, Any]:
    """The billing profile."""
    profile = profiles.profile_of(tenant)
    names = ("legal_name", "tax_id_type", "tax_id", "state_code", "address", "city", "pin", "phone")
    return {name: getattr(profile, name) or None for name in names}


def _next_charge(tenant: Tenant, current: Period) -> dict[str, Any]:
    """The first month that is billed from now on, as if every number stayed as it is."""
    period = max(current, Period.of(tenant.trial_ends_at)) if tenant.trial_ends_at else current
    numbers = active_numbers(tenant_id=tenant.id, start=billed_from(tenant, period), end=period.end)
    charge = plan.charge_for(len(numbers))
    return {
        "period": str(period),
        "invoice_on": ist_date(period.end).isoformat(),
        "numbers": charge.numbers,
        "subtotal_paise": charge.subtotal_paise,
        "tax_paise": charge.tax_paise,
        "total_paise": charge.total_paise,
        "estimate": True,
    }


def _standing_mandate(mandate: Mandate) -> dict[str, Any]:
    return {
        "id": mandate.public_id,
        "status": mandate.status,
        "method": mandate.method,
        "instrument": mandate.instrument,
        "max_amount_paise": mandate.max_amount_paise,
        "expires_at": mandate.expires_at,
    }


def new_mandate(mandate: Mandate) -> dict[str, Any]:
    """`POST /v1/billing/mandate`."""
    return {
        "id": mandate.public_id,
        "status": mandate.status,
        "method": mandate.method,
        "max_amount_paise": mandate.max_amount_paise,
        "authorization_url": mandate.authorization_url,
        "authorization_expires_at": mandate.authorization_expires_at,
        "replaces": mandate.replaces.public_id if mandate.replaces else None,
    }


def summary(invoice: Invoice) -> dict[str, Any]:
    """An invoice in a list."""
    return {
        "id": invoice.public_id,
        "number": invoice.number,
        "period": invoice.period,
        "status": invoice.status,
        "issued_at": invoice.issued_at,
        "due_at": invoice.due_at,
        "paid_at": invoice.paid_at,
        "currency": plan.CURRENCY,
        "active_numbers": invoice.active_numbers,
        "total_paise": invoice.total_paise,
        "amount_due_paise": invoice.amount_due_paise,
    }


def taxes_of(invoice: Invoice) -> gst.Taxes:
    """The invoice's taxes."""
    return gst.Taxes(invoice.cgst_paise, invoice.sgst_paise, invoice.igst_paise)


def full(invoice: Invoice) -> dict[str, Any]:
    """`GET /v1/billing/invoices/{id}` as JSON."""
    return {
        **summary(invoice),
        "seller": {name: invoice.seller[name] for name in ("name", "gstin", "address", "state_code")},
        "buyer": invoice.buyer,
        "place_of_supply": invoice.place_of_supply,
        "supply_type": invoice.supply_type,
        "reverse_charge": False,
        "lines": [
            {
                "description": line.description,
                "sac": line.sac,
                "quantity": line.quantity,
                "unit_paise": line.unit_paise,
                "amount_paise": line.amount_paise,
            }
            for line in invoice.lines.order_by("id")
        ],
        "subtotal_paise": invoice.subtotal_paise,
        "taxes": taxes_of(invoice).rows(),
        "round_off_paise": invoice.round_off_paise,
        "total_in_words": invoice.total_in_words,
        "amount_paid_paise": invoice.amount_paid_paise,
        "credited_paise": invoice.credited_paise,
        "credit_notes": [
            {
                "number": note.number,
                "issued_at": note.issued_at,
                "total_paise": note.total_paise,
                "reason": note.reason,
            }
            for note in invoice.credit_notes.order_by("id")
        ],
        "attempts": [_attempt(attempt) for attempt in invoice.attempts.order_by("-id")],
        "irn": invoice.irn,
    }


def _attempt(attempt: PaymentAttempt) -> dict[str, Any]:
    return {
        "id": attempt.public_id,
        "kind": attempt.kind,
        "status": attempt.status,
        "scheduled_for": attempt.scheduled_for,
        "completed_at": attempt.completed_at,
        "error": attempt.error,
    }


def payment(invoice: Invoice, attempt: PaymentAttempt) -> dict[str, Any]:
    """`POST /v1/billing/invoices/{id}/pay`."""
    return {
        "id": invoice.public_id,
        "status": invoice.status,
        "attempt": {"id": attempt.public_id, "kind": attempt.kind, "status": attempt.status},
        "payment_url": attempt.payment_url,
        "expires_at": attempt.expires_at,
    }
