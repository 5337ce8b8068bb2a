"""What billing mails: an invoice, a reminder, a mandate that stopped. Inside the transaction of the cause.

Mails carry a link of the service, never one of the provider: a page that starts a payment when it is wanted
(`pages.py`), so the link does not age and no invoice has two payments going.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.core import signing

from billing import profiles
from billing.models import INVOICE, Invoice, Mandate
from billing.money import rupees
from billing.periods import ist_date
from gateway import ids
from tenants import mail
from tenants.models import Tenant

_PAY_LINKS = signing.Signer(salt="pay-invoice", sep=".")


def pay_page_url(invoice: Invoice) -> str:
    """The address of the page on which an invoice can be paid."""
    return f"{settings.APP_URL}/pay/{_PAY_LINKS.sign(invoice.public_id)}"


def invoice_behind(token: str) -> UUID | None:
    """The invoice of a pay page's address, or None when the address is not one of ours."""
    try:
        return ids.decode(INVOICE, _PAY_LINKS.unsign(token))
    except signing.BadSignature:
        return None


def invoice_issued(invoice: Invoice) -> None:
    """The month's invoice, and whether it will be debited or has to be paid."""
    mandate = Mandate.objects.for_tenant(invoice.tenant_id).filter(status=Mandate.Status.ACTIVE).first()
    debited = mandate is not None and invoice.total_paise <= mandate.max_amount_paise
    _send(
        invoice.tenant,
        "invoice_issued",
        {**_facts(invoice), "debited": debited, "above_cap": mandate is not None and not debited},
    )


def payment_due(invoice: Invoice, *, last: bool) -> None:
    """A reminder; the last one says that new numbers are closed now."""
    _send(invoice.tenant, "payment_due", {**_facts(invoice), "last": last})


def mandate_stopped(mandate: Mandate) -> None:
    """Autopay was paused or ended at the bank's or the provider's side."""
    _send(mandate.tenant, "mandate_stopped", {"mandate": mandate})


def _facts(invoice: Invoice) -> dict[str, Any]:
    return {
        "invoice": invoice,
        "total": rupees(invoice.total_paise),
        "due": rupees(invoice.amount_due_paise),
        "due_on": ist_date(invoice.due_at),
        "pay_url": pay_page_url(invoice),
    }


def _send(tenant: Tenant, template: str, context: dict[str, Any]) -> None:
    if to := profiles.email_of(tenant):
        mail.send(to=to, template=template, context={"tenant": tenant, **context})
