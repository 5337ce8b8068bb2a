"""Pay links: the secret address, in mails, of the page on which an invoice can be paid (`pay_page/views.py`)."""

import secrets
from uuid import UUID

from django.conf import settings
from django.core import signing

from billing.models import INVOICE, Invoice, PayLink
from gateway import ids

_FORMER = signing.Signer(salt="pay-invoice", sep=".")
"""Mails from before the table carry a signature of SECRET_KEY; they work until that key is gone."""


def url_of(invoice: Invoice) -> str:
    """The address of an invoice's pay page, the same for as long as the invoice exists."""
    link, _ = PayLink.objects.get_or_create(invoice=invoice, defaults={"token": secrets.token_urlsafe(32)})
    return f"{settings.APP_URL}/pay/{link.token}"


def return_url_of(invoice: Invoice) -> str:
    """The page to which the provider sends a payer back."""
    return f"{url_of(invoice)}/returned"


def invoice_id_of(token: str) -> UUID | None:
    """The invoice that a pay page's address names, or None for an unknown one."""
    link = PayLink.objects.filter(token=token).first()
    if link is not None:
        return link.invoice_id
    try:
        return ids.decode(INVOICE, _FORMER.unsign(token))
    except signing.BadSignature:
        return None
