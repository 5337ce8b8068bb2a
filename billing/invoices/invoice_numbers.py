"""Document numbers without gaps (CGST rule 46(b)): the row of the series stays locked until the document commits."""

from datetime import datetime

from billing import ledger
from billing.models import CreditNote, Invoice, InvoiceSeries
from billing.pricing import gst
from billing.pricing.periods import financial_year


def take_number(
    *, model: type[Invoice] | type[CreditNote], prefix: str, at: datetime
) -> tuple[str, str, datetime]:
    """The next number of a series, its financial year, and the time of issue. The time is never before that of the
    previous number, and never in a closed month.

    Call it inside the transaction that writes the document. If that transaction fails, the next document gets the
    number.
    """
    at = max(at, ledger.closed_until())
    year = financial_year(at)
    InvoiceSeries.objects.bulk_create(
        [InvoiceSeries(prefix=prefix, financial_year=year)], ignore_conflicts=True
    )
    series = InvoiceSeries.objects.select_for_update().get(prefix=prefix, financial_year=year)
    if (open_since := ledger.closed_until()) > at:  # the month was closed meanwhile
        return take_number(model=model, prefix=prefix, at=open_since)
    serial = series.next_serial
    series.next_serial = serial + 1
    series.save(update_fields=["next_serial"])
    before = model._default_manager.filter(number=gst.document_number(prefix, year, max(1, serial - 1)))
    latest = before.values_list("issued_at", flat=True).first()
    return gst.document_number(prefix, year, serial), year, max(at, latest or at)
