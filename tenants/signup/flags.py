"""Flags for the reviewer of a sign-up: `[{code, severity, detail}]`, computed at confirmation.

A flag never blocks. All of these are computed without the network; `website_check.py` may add `website_*` later.
"""

from datetime import timedelta
from typing import Any, Literal

from django.db.models import Q

from gateway.clock import now
from tenants.models import SignUp, Tenant
from tenants.signup import email_domains, tax_ids

Flag = dict[str, str]
Severity = Literal["info", "warning", "high"]

MANY_SIGN_UPS = 3
SAME_ADDRESS_WINDOW = timedelta(days=7)
_COMPANY_WORDS = ("pvt ltd", "private limited", "pvt. ltd", "limited", "ltd", "inc")
_FIRM_WORDS = ("llp",)


def flag(code: str, severity: Severity, detail: str) -> Flag:
    """One flag, in the form that the API shows."""
    return {"code": code, "severity": severity, "detail": detail}


def compute(sign_up: SignUp) -> list[Flag]:
    """Every flag of a sign-up, compared with the tenants that exist."""
    tax = tax_ids.parse(sign_up.tax_id)
    return [*_own(sign_up, tax), *_compared(sign_up, tax)]


def _own(sign_up: SignUp, tax: tax_ids.TaxId) -> list[Flag]:
    flags = []
    name, domain = sign_up.email.split("@")
    website = email_domains.website_domain(sign_up.website)
    if email_domains.registrable(domain) != website:
        flags.append(
            flag(
                "email_domain_differs_from_website",
                "warning",
                f"Email is at {domain}, website at {website}.",
            )
        )
    if name.lower() in email_domains.ROLE_NAMES:
        flags.append(flag("role_email", "info", f"{name}@ is read by several people."))
    if tax.unusual_form:
        flags.append(flag("gstin_unusual_form", "warning", "A GSTIN of another form than PAN + Z."))
    if tax.holder_letter == "P":
        flags.append(flag("pan_individual", "info", "The PAN is an individual's."))
    expected = _expected_holder(sign_up.company)
    if expected and tax.holder_letter and tax.holder_letter != expected:
        detail = f"The name “{sign_up.company}” does not fit the PAN's holder type: {tax.holder}."
        flags.append(flag("pan_holder_type_vs_name", "high", detail))
    if tax.state_code in tax_ids.ADDRESS_STATES and tax.state_code != sign_up.state_code:
        flags.append(
            flag(
                "gstin_state_differs_from_address",
                "warning",
                f"GSTIN of {tax_ids.STATES[tax.state_code]}, address in {tax_ids.STATES[sign_up.state_code]}.",
            )
        )
    if not sign_up.phone.startswith("+91"):
        flags.append(flag("non_indian_phone", "info", "The phone number is not an Indian one."))
    return flags


def _compared(sign_up: SignUp, tax: tax_ids.TaxId) -> list[Flag]:
    flags = []
    domain = email_domains.registrable(sign_up.email.split("@")[1])
    same_tax_id = Q(tax_id=tax.number)
    same_pan = Q(tax_id__contains=tax.pan) if tax.pan else Q(pk__in=[])
    # Hosts below no public suffix have no domain to be compared: they are not each other's.
    same_domain = Q(email_domain=domain) if domain else Q(pk__in=[])
    same_website = Q(website=sign_up.website)
    others: Any = Tenant.objects.exclude(tax_id__isnull=True)
    if sign_up.tenant_id is not None:
        others = others.exclude(pk=sign_up.tenant_id)
    for code, severity, same, what in (
        ("duplicate_tax_id", "high", same_tax_id, "this tax id"),
        ("duplicate_pan", "warning", same_pan & ~same_tax_id, "this PAN under another tax id"),
        ("duplicate_email_domain", "warning", same_domain, "this email domain"),
        ("duplicate_website", "warning", same_website, "this website"),
    ):
        names = list(others.filter(same).values_list("name", flat=True)[:3])
        if names:
            flags.append(flag(code, severity, f"Also with {what}: {', '.join(names)}."))  # type: ignore[arg-type]
    rejected = others.filter(same_tax_id | same_pan | same_domain).filter(rejected_reason__isnull=False)
    if earlier := rejected.order_by("-id").first():
        flags.append(flag("previously_rejected", "high", f"{earlier.name}: {earlier.rejected_reason}"))
    if sign_up.ip:
        recent = SignUp.objects.filter(ip=sign_up.ip, created_at__gt=now() - SAME_ADDRESS_WINDOW).exclude(
            email=sign_up.email
        )
        count = recent.values("email").distinct().count() + 1
        if count >= MANY_SIGN_UPS:
            flags.append(
                flag("many_signups_same_ip", "warning", f"{count} sign-ups from this address within 7 days.")
            )
    return flags


def _expected_holder(company: str) -> str | None:
    """The PAN's fourth letter that a company's name promises."""
    name = company.lower().rstrip(".")
    if name.endswith(_FIRM_WORDS):
        return "F"
    return "C" if name.endswith(_COMPANY_WORDS) else None
