"""Issuing tax invoices from snapshots: the contents are frozen in one transaction with the number.

Called by `billing_run.py`. A month without numbers has no invoice. Two runs at once issue one: the snapshot is
locked, and an invoice is unique per snapshot.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import gst, mails, plan, profiles
from billing.invoices.invoice_numbers import take_number
from billing.isolation import each
from billing.models import BillingProfile, BillingSnapshot, Invoice, InvoiceLine
from billing.money import in_words
from tenants.signup import tax_ids
from tenants.signup.tax_ids import STATES


def issue_due(at: datetime) -> int:
    """Issue the invoice of every snapshot that has none; returns how many were issued."""
    waiting = (
        BillingSnapshot.objects.filter(invoice__isnull=True, total_paise__gt=0)
        .order_by("period", "id")
        .values_list("id", flat=True)
    )
    return each(list(waiting), lambda snapshot_id: _issue(snapshot_id, at), step="invoices")


def _issue(snapshot_id: UUID, at: datetime) -> bool:
    with transaction.atomic():
        snapshot = (
            BillingSnapshot.objects.select_for_update(of=("self",))
            .select_related("tenant")
            .get(pk=snapshot_id)
        )
        if Invoice.objects.filter(snapshot=snapshot).exists():
            return False
        profile = profiles.profile_of(snapshot.tenant)
        seller = _seller()
        supply = gst.supply(
            seller_state=seller["state_code"],
            gstin_state=profiles.gstin_state(profile),
            address_state=profile.state_code or None,
            is_sez=profile.is_sez,
        )
        charge = plan.charge_for(snapshot.active_numbers)
        taxes = gst.taxes(charge, supply.kind)
        number, year = take_number(prefix=settings.BILLING_INVOICE_PREFIX, at=at)
        invoice = Invoice.objects.create(
            tenant=snapshot.tenant,
            snapshot=snapshot,
            number=number,
            financial_year=year,
            period=snapshot.period,
            issued_at=at,
            due_at=at + timedelta(days=settings.BILLING_DUE_DAYS),
            seller=seller,
            buyer=_buyer(profile),
            place_of_supply=supply.place,
            supply_type=supply.kind,
            active_numbers=snapshot.active_numbers,
            subtotal_paise=charge.subtotal_paise,
            cgst_paise=taxes.cgst_paise,
            sgst_paise=taxes.sgst_paise,
            igst_paise=taxes.igst_paise,
            total_paise=charge.total_paise,
            total_in_words=in_words(charge.total_paise),
        )
        InvoiceLine.objects.bulk_create(
            InvoiceLine(
                invoice=invoice,
                description=line.description,
                sac=settings.BILLING_SAC,
                quantity=line.quantity,
                unit_paise=line.unit_paise,
                amount_paise=line.amount_paise,
            )
            for line in charge.lines
        )
        mails.invoice_issued(invoice)
    return True


def _seller() -> dict[str, str]:
    tax_id = tax_ids.parse(settings.BILLING_SELLER_GSTIN)
    assert tax_id.state_code is not None  # noqa: S101 - checks.py refuses a PAN
    return {
        "name": settings.BILLING_SELLER_NAME,
        "gstin": tax_id.number,
        "address": settings.BILLING_SELLER_ADDRESS,
        "state_code": tax_id.state_code,
        "state": STATES[tax_id.state_code],
        "service": settings.BILLING_SERVICE,
    }


def _buyer(profile: BillingProfile) -> dict[str, Any]:
    tax_id = tax_ids.parse(profile.tax_id) if profile.tax_id else None
    place = f"{profile.city} {profile.pin}".strip()
    state_code = profiles.gstin_state(profile) or profile.state_code or None
    return {
        "name": profile.legal_name or profile.tenant.name,
        "gstin": tax_id.number if tax_id and tax_id.kind == "gstin" else None,
        "pan": tax_id.pan if tax_id else None,
        "address": ", ".join(part for part in (profile.address, place) if part) or None,
        "state_code": state_code,
        "state": STATES[state_code] if state_code else None,
    }
