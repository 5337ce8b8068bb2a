"""Buyers and the seller: billing profiles, and the buyer, seller and place of supply that are stored with an invoice.

A profile is first filled from the sign-up, and again after the business has corrected its application. The tenant and
staff can change it. The API, the console and the staff admin read and change profiles. Every flow that needs a buyer
calls this module.
"""

from datetime import datetime
from typing import Any
from unicodedata import normalize
from uuid import UUID

from babel import Locale
from django.conf import settings
from django.db import transaction

from billing.models import INDIA, BillingProfile
from billing.pricing import gst
from billing.pricing.periods import financial_year
from gateway.api.errors import InvalidRequest
from tenants import audit
from tenants.models import SignUp, Tenant
from tenants.signup import tax_ids
from tenants.signup.tax_ids import STATES

TDS_RATES = (0, 2, 10)
"""The TDS rates that a buyer may declare, in percent of the taxable value: 0 for no TDS, 2 for technical services, 10
for professional services.
"""
REQUIRED = ("legal_name", "address", "city", "pin", "state_code", "tax_id", "phone")
REQUIRED_ABROAD = ("legal_name", "address", "city", "phone")
FOREIGN_TAX_ID = "foreign"
"""The kind of a foreign tax id, such as a VAT number."""


_BESIDE_ISO = frozenset(
    ["AC", "CP", "CQ", "DG", "EA", "EU", "EZ", "IC", "QO", "TA", "UN", "XA", "XB", "XK", "ZZ"]
)
"""Two-letter codes of unions, parts of countries and tests. CLDR has these codes, but ISO does not assign them."""

# The codes of ISO 3166-1 with their English names in Unicode's CLDR, from Babel.
COUNTRIES: dict[str, str] = dict(
    sorted(
        (
            (code, name)
            for code, name in Locale("en").territories.items()
            if len(code) == 2 and code.isalpha() and code not in _BESIDE_ISO
        ),
        key=lambda country: normalize("NFKD", country[1]),
    )
)
"""Code → name, such as `IN` → `India`, sorted by name. Åland is sorted under A."""


def profile_of(tenant: Tenant) -> BillingProfile:
    """The tenant's profile. The first call creates it from the sign-up. The profile of a tenant without a sign-up
    begins with the tenant's name and tax id.
    """
    profile = BillingProfile.objects.filter(pk=tenant.pk).first()
    if profile is not None:
        return profile
    sign_up = SignUp.objects.filter(tenant=tenant).first()
    known = (
        {
            "legal_name": sign_up.company,
            "address": sign_up.address,
            "city": sign_up.city,
            "pin": sign_up.pin_code,
            "state_code": sign_up.state_code,
            "tax_id": sign_up.tax_id,
            "tax_id_type": sign_up.tax_id_type,
            "phone": sign_up.phone,
        }
        if sign_up
        else {
            "legal_name": tenant.name,
            "tax_id": tenant.tax_id or "",
            "tax_id_type": tenant.tax_id_type or "",
        }
    )
    BillingProfile.objects.bulk_create([BillingProfile(tenant=tenant, **known)], ignore_conflicts=True)
    return BillingProfile.objects.get(pk=tenant.pk)


def on_application_corrected(*, tenant_id: UUID, **_: Any) -> None:
    """Receiver of `tenants.signals.application_corrected`: delete the profile, which has the former answers. The next
    call of `profile_of` creates it from the corrected ones.
    """
    BillingProfile.objects.filter(pk=tenant_id).delete()


def on_tenant_closing(*, tenant_id: UUID, **_: Any) -> dict[str, int]:
    """Receiver of `tenants.signals.tenant_closing`: store the profile for the last invoices, because the sign-up's
    personal data is deleted. A tenant that was never approved gets no invoice, so its profile is deleted.
    """
    tenant = Tenant.objects.get(pk=tenant_id)
    if tenant.approved_at is None:
        BillingProfile.objects.filter(pk=tenant_id).delete()
    elif settings.BILLING_ENABLED:
        profile_of(tenant)
    return {}


def email_of(tenant: Tenant) -> str | None:
    """The email address for bills: the billing email, else the contact email. None if neither is set."""
    return tenant.billing_email or tenant.contact_email


def missing(profile: BillingProfile) -> list[str]:
    """The fields that a profile lacks for a mandate. `PATCH /v1/tenant` sets one of them, `billing_email`."""
    required = REQUIRED if profile.country == INDIA else REQUIRED_ABROAD
    found = [name for name in required if not getattr(profile, name)]
    return found if email_of(profile.tenant) else [*found, "billing_email"]


def holds_back(profile: BillingProfile) -> bool:
    """Whether an incomplete profile delays invoices (`invoices/issuing.py`). A profile without GSTIN needs a State as
    the place of supply. A profile with a GSTIN needs an address (CGST rule 46(d)), and for an e-invoice the PIN.
    """
    if profile.tax_id_type == "gstin":
        complete = profile.address and profile.city and (profile.pin or not settings.BILLING_EINVOICES)
        return not complete
    return profile.country == INDIA and not profile.state_code


def gstin_state(profile: BillingProfile) -> str | None:
    """The code of the State in a buyer's GSTIN. None for a buyer without a GSTIN."""
    return tax_ids.parse(profile.tax_id).state_code if profile.tax_id_type == "gstin" else None


def change(
    *,
    tenant_id: UUID,
    changes: dict[str, Any],
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
    evidence: str = "",
) -> BillingProfile:
    """Change the profile, with an audit entry. Only staff can change the country or set a special economic zone, and
    must give `evidence`, because this changes the tax on the buyer's invoices. Raises InvalidRequest for an invalid
    tax id, and for such a change without evidence.
    """
    profile_of(Tenant.objects.get(pk=tenant_id))
    with transaction.atomic():
        profile = BillingProfile.objects.select_for_update().get(pk=tenant_id)
        _require_decided(profile, changes, evidence)
        if "tax_id" in changes:
            changes = changes | _tax_id(changes["tax_id"], changes.get("country", profile.country))
            if changes["tax_id"] != profile.tax_id:  # evidence of a zone is valid for one tax id
                changes = {"is_sez": False} | changes
        changed = {name: value for name, value in changes.items() if getattr(profile, name) != value}
        if changed:
            before = {name: getattr(profile, name) for name in changed}
            for name, value in changed.items():
                setattr(profile, name, value)
            profile.save(update_fields=list(changed))
            audit.record(
                action="billing.profile",
                target_type="tenant",
                target_id=tenant_id,
                tenant_id=tenant_id,
                actor_user_id=actor_user_id,
                acting_key_id=acting_key_id,
                details={"before": before, "after": changed, "evidence": evidence},
            )
    return profile


def _tax_id(text: str, country: str) -> dict[str, str]:
    """A tax id with its kind. A foreign tax id is stored as written, because only its country can validate it."""
    if country != INDIA and (number := " ".join(text.split())):
        return {"tax_id": number, "tax_id_type": FOREIGN_TAX_ID}
    try:
        tax_id = tax_ids.parse(text)
    except tax_ids.InvalidTaxIdError as error:
        raise InvalidRequest.of(tax_id=str(error)) from None
    return {"tax_id": tax_id.number, "tax_id_type": tax_id.kind}


def _require_decided(profile: BillingProfile, changes: dict[str, Any], evidence: str) -> None:
    """Raise InvalidRequest for another country, or for a special economic zone, without evidence."""
    if not evidence and changes.get("country", profile.country) != profile.country:
        raise InvalidRequest.of(
            country="Our team changes the country, on evidence: write to us. Until then GST is charged as before."
        )
    if changes.get("is_sez") and not profile.is_sez:
        if not evidence:
            raise InvalidRequest.of(is_sez="Our team decides that, on evidence.")
        if profile.tax_id_type != "gstin":
            raise InvalidRequest.of(evidence="A buyer in a special economic zone needs a GSTIN.")


def can_set_up_autopay(profile: BillingProfile) -> bool:
    """Whether the buyer can have a mandate. Buyers abroad pay each invoice by its link."""
    return not _foreign(profile)


def seller() -> dict[str, str]:
    """The seller, from the settings."""
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
    """The buyer, from a profile."""
    own = profile.tax_id_type == FOREIGN_TAX_ID
    tax_id = tax_ids.parse(profile.tax_id) if profile.tax_id and not (own or _foreign(profile)) else None
    place = f"{profile.city} {profile.pin}".strip()
    state_code = None if _foreign(profile) else gstin_state(profile) or profile.state_code or None
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
    """The place of supply and the taxes of an invoice to the buyer, dated `at`."""
    return gst.supply(
        seller_state=seller()["state_code"],
        gstin_state=gstin_state(profile),
        address_state=profile.state_code or None,
        is_sez=profile.is_sez,
        foreign=_foreign(profile),
        undertaking=settings.BILLING_LUT_NUMBERS.get(financial_year(at), ""),
    )


def _foreign(profile: BillingProfile) -> bool:
    return profile.country != INDIA


def country_name(code: str) -> str:
    """The name of a country. A code that ISO does not know is returned unchanged."""
    return COUNTRIES.get(code, code)
