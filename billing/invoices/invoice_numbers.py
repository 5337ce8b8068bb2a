"""Document numbers without gaps (CGST rule 46(b)): the series' row stays locked until the document commits."""

from datetime import datetime

from billing.models import InvoiceSeries
from billing.pricing import gst
from billing.pricing.periods import financial_year


def take_number(*, prefix: str, at: datetime) -> tuple[str, str]:
    """The next number of a series and its financial year. Inside the transaction that writes the document:
    if that fails, the number is the next one's again.
    """
    year = financial_year(at)
    InvoiceSeries.objects.bulk_create(
        [InvoiceSeries(prefix=prefix, financial_year=year)], ignore_conflicts=True
    )
    series = InvoiceSeries.objects.select_for_update().get(prefix=prefix, financial_year=year)
    serial = series.next_serial
    series.next_serial = serial + 1
    series.save(update_fields=["next_serial"])
    return gst.document_number(prefix, year, serial), year
