"""Seller, buyer and place of supply, as an invoice freezes them. Called by issuing and by the estimate of a charge."""

from datetime import datetime
from typing import Any

from django.conf import settings

from billing.buyers import profiles
from billing.models import INDIA, BillingProfile
from billing.pricing import gst
from billing.pricing.periods import financial_year
from tenants.signup import tax_ids
from tenants.signup.tax_ids import STATES


def seller() -> dict[str, str]:
    """The seller from the settings."""
    tax_id = tax_ids.parse(settings.BILLING_SELLER_GSTIN)
    assert tax_id.state_code is not None  # noqa: S101 - checks.py refuses a PAN
    return {
        "name": settings.BILLING_SELLER_NAME,
        "gstin": tax_id.number,
        "address": settings.BILLING_SELLER_ADDRESS,
        "state_code": tax_id.state_code,
        "state": STATES[tax_id.state_code],
        "city": settings.BILLING_SELLER_CITY,
        "pin": settings.BILLING_SELLER_PIN,
        "service": settings.BILLING_SERVICE,
        "pan": tax_id.number[2:12],
        "contact": settings.BILLING_SELLER_CONTACT,
        "bank_account": settings.BILLING_BANK_ACCOUNT,
        "upi_id": settings.BILLING_UPI_ID,
    }


def buyer(profile: BillingProfile) -> dict[str, Any]:
    """The buyer from a profile."""
    own = profile.tax_id_type == profiles.FOREIGN_TAX_ID
    tax_id = tax_ids.parse(profile.tax_id) if profile.tax_id and not (own or _foreign(profile)) else None
    place = f"{profile.city} {profile.pin}".strip()
    state_code = None if _foreign(profile) else profiles.gstin_state(profile) or profile.state_code or None
    return {
        "name": profile.legal_name or profile.tenant.name,
        "gstin": tax_id.number if tax_id and tax_id.kind == "gstin" else None,
        "pan": tax_id.pan if tax_id else None,
        "foreign_tax_id": profile.tax_id if own and _foreign(profile) else None,
        "address": ", ".join(part for part in (profile.address, place) if part) or None,
        "state_code": state_code,
        "state": STATES[state_code] if state_code else None,
        "country": profile.country,
        "city": profile.city or None,
        "pin": profile.pin or None,
        "tds_percent": profile.tds_percent,
    }


def supply(profile: BillingProfile, at: datetime) -> gst.Supply:
    """The place of supply and the taxes of a buyer on an invoice of that day."""
    return gst.supply(
        seller_state=seller()["state_code"],
        gstin_state=profiles.gstin_state(profile),
        address_state=profile.state_code or None,
        is_sez=profile.is_sez,
        foreign=_foreign(profile),
        undertaking=settings.BILLING_LUT_NUMBERS.get(financial_year(at), ""),
    )


def _foreign(profile: BillingProfile) -> bool:
    return profile.country != INDIA
