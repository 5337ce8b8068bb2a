"""Pay links: the secret address, in mails, of the page on which an invoice can be paid (`pay_page/views.py`)."""

import secrets

from django.conf import settings

from billing.models import Invoice, PayLink


def url_of(invoice: Invoice) -> str:
    """The address of an invoice's pay page, the same for as long as the invoice exists."""
    link, _ = PayLink.objects.get_or_create(invoice=invoice, defaults={"token": secrets.token_urlsafe(32)})
    return f"{settings.APP_URL}/pay/{link.token}"
