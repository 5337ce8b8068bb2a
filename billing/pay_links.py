"""Pay links: the signed address, in mails, of the page on which an invoice can be paid (`pages.py`)."""

from uuid import UUID

from django.conf import settings
from django.core import signing

from billing.models import INVOICE, Invoice
from gateway import ids

_SIGNER = signing.Signer(salt="pay-invoice", sep=".")


def url_of(invoice: Invoice) -> str:
    """The address of an invoice's pay page."""
    return f"{settings.APP_URL}/pay/{_SIGNER.sign(invoice.public_id)}"


def invoice_id_of(token: str) -> UUID | None:
    """The invoice that a pay page's address names, or None for a wrong signature."""
    try:
        return ids.decode(INVOICE, _SIGNER.unsign(token))
    except signing.BadSignature:
        return None
