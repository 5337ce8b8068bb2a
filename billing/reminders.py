"""Reminders of overdue invoices, 0, 3, 7, 14 and 21 days after they became overdue. Called by `billing_run.py`."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from billing.invoices.mailing import waits_for_registration
from billing.isolation import each
from billing.mails import messages
from billing.models import Invoice
from billing.restriction import RESTRICTED_AFTER

DAYS = (0, 3, 7, 14, 21)


def send_due(at: datetime) -> int:
    """Send each reminder that is due, once; several missed ones are one mail. Returns how many were sent.

    An invoice that waits for its registration was not mailed either, so nobody is reminded of it.
    """
    overdue = Invoice.objects.owing().filter(overdue_since__isnull=False, reminders_sent__lt=len(DAYS))
    return each(
        list(overdue.values_list("id", flat=True)), lambda invoice_id: _send(invoice_id, at), step="reminders"
    )


def _send(invoice_id: UUID, at: datetime) -> bool:
    with transaction.atomic():
        invoice = (
            Invoice.objects.select_for_update(of=("self",))
            .select_related("tenant", "snapshot")
            .get(pk=invoice_id)
        )
        if (
            invoice.status not in {Invoice.Status.OPEN, Invoice.Status.FAILED}
            or invoice.overdue_since is None
            or waits_for_registration(invoice, invoice.irn)
        ):
            return False
        due = sum(invoice.overdue_since + timedelta(days=days) <= at for days in DAYS)
        if due <= invoice.reminders_sent:
            return False
        invoice.reminders_sent = due
        invoice.save(update_fields=["reminders_sent"])
        oldest = invoice.tenant.past_due_since or invoice.overdue_since
        messages.payment_reminder(invoice, restricted_in_days=max(0, (oldest + RESTRICTED_AFTER - at).days))
    return True
