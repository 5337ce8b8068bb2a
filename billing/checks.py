"""System checks of the billing settings. The checks for production run only while billing is on
(docs/billing-operations.md).
"""

import re
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from billing.invoices import documents
from billing.payments.provider import PROVIDERS
from billing.pricing import gst
from billing.pricing.periods import Period
from gateway.checks import has_example_seller
from tenants.signup import tax_ids


@register(Tags.security)
def check_values(**_: Any) -> list[CheckMessage]:
    """Check for values that are wrong in development and in production."""
    problems: list[CheckMessage] = []
    try:
        for prefix in (settings.BILLING_INVOICE_PREFIX, settings.BILLING_CREDIT_NOTE_PREFIX):
            gst.document_number(prefix, "2627", 1)
    except ValueError as error:
        problems.append(
            Error(f"BILLING_INVOICE_PREFIX, BILLING_CREDIT_NOTE_PREFIX: {error}", id="billing.E001")
        )
    if settings.BILLING_INVOICE_PREFIX == settings.BILLING_CREDIT_NOTE_PREFIX:
        problems.append(
            Error("BILLING_INVOICE_PREFIX and BILLING_CREDIT_NOTE_PREFIX must differ.", id="billing.E001")
        )
    try:
        if tax_ids.parse(settings.BILLING_SELLER_GSTIN).state_code is None:
            problems.append(Error("BILLING_SELLER_GSTIN must be a GSTIN, not a PAN.", id="billing.E002"))
    except tax_ids.InvalidTaxIdError as error:
        problems.append(Error(f"BILLING_SELLER_GSTIN: {error}", id="billing.E002"))
    if not re.fullmatch(r"[1-9]\d{5}", settings.BILLING_SELLER_PIN) or not settings.BILLING_SELLER_CITY:
        problems.append(
            Error(
                "BILLING_SELLER_CITY and BILLING_SELLER_PIN (six digits) must be set: e-invoices contain them.",
                id="billing.E005",
            )
        )
    try:
        documents.require_logo()
    except (OSError, ValueError) as error:
        problems.append(Error(f"BILLING_LOGO_FILE must be an SVG: {error}", id="billing.E006"))
    if settings.PAYMENT_PROVIDER not in PROVIDERS:
        problems.append(Error(f"PAYMENT_PROVIDER must be one of {', '.join(PROVIDERS)}.", id="billing.E004"))
    if settings.BILLING_FIRST_PERIOD:
        try:
            Period.parse(settings.BILLING_FIRST_PERIOD)
        except ValueError:
            problems.append(Error("BILLING_FIRST_PERIOD must be a month such as 2026-12.", id="billing.E003"))
    return problems


@register(Tags.security, deploy=True)
def check_production(**_: Any) -> list[CheckMessage]:
    """Check for development defaults, which must not reach production once billing is on."""
    if not (settings.PRODUCTION and settings.BILLING_ENABLED):
        return []
    findings = {
        "billing.E010": (
            settings.RAZORPAY_KEY_ID.startswith("rzp_sim_"),
            "RAZORPAY_KEY_ID is the simulator's key.",
        ),
        "billing.E011": (
            not settings.RAZORPAY_BASE_URL.startswith("https://"),
            "RAZORPAY_BASE_URL must begin with https://.",
        ),
        "billing.E012": (
            settings.BILLING_SELLER_GSTIN == "27AAPFU0939F1ZV" or has_example_seller(),
            "BILLING_SELLER_NAME, BILLING_SELLER_ADDRESS or BILLING_SELLER_GSTIN is an example.",
        ),
        "billing.E013": (
            not settings.BILLING_FIRST_PERIOD,
            "BILLING_FIRST_PERIOD is empty: say which month is the first to be billed.",
        ),
    }
    return [Error(text, id=code) for code, (wrong, text) in findings.items() if wrong]
