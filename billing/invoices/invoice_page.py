"""HTML page of an invoice: one A4 page with the contents of CGST rule 46. The style sheet is inline, so that a saved
page prints the same.
"""

import base64
import hashlib
from typing import Any

from django.conf import settings

from billing.models import Invoice
from billing.money import rupees
from billing.periods import Period, ist_date

STYLE = (settings.BASE_DIR / "templates" / "billing" / "invoice.css").read_text()
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"
)


def context_of(invoice: Invoice) -> dict[str, Any]:
    """Everything that `billing/invoice.html` names; amounts as text."""
    period = Period.parse(invoice.period)
    return {
        "style": STYLE,
        "invoice": invoice,
        "issued_on": ist_date(invoice.issued_at),
        "due_on": ist_date(invoice.due_at),
        "paid_on": ist_date(invoice.paid_at) if invoice.paid_at else None,
        "month": ist_date(period.start),
        "lines": [
            {
                "description": line.description,
                "sac": line.sac,
                "quantity": line.quantity,
                "unit": rupees(line.unit_paise),
                "amount": rupees(line.amount_paise),
            }
            for line in invoice.lines_in_order
        ],
        "taxes": [
            {"type": row.type, "percent": row.percent, "amount": rupees(row.amount_paise)}
            for row in invoice.taxes.rows()
        ],
        "subtotal": rupees(invoice.subtotal_paise),
        "round_off": rupees(invoice.round_off_paise) if invoice.round_off_paise else None,
        "total": rupees(invoice.total_paise),
        "paid": rupees(invoice.amount_paid_paise) if invoice.amount_paid_paise else None,
        "credited": rupees(invoice.credited_paise) if invoice.credited_paise else None,
        "due": rupees(invoice.amount_due_paise),
        "credit_notes": [
            {"number": note.number, "total": rupees(note.total_paise), "reason": note.reason}
            for note in invoice.credit_notes_in_order
        ],
    }
