"""HTML page of an invoice: one A4 page. The style sheet is inline, so a saved page prints the same."""

import base64
import hashlib

from django.conf import settings
from django.http import HttpResponse
from django.template.loader import render_to_string

from billing.invoices import documents
from billing.models import Invoice

STYLE = (settings.BASE_DIR / "templates" / "billing" / "invoice.css").read_text()
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def render(invoice: Invoice) -> str:
    """Render the page. A narrow screen shows a line as a list, so each cell contains the name of its column."""
    document = documents.of_invoice(invoice)
    lines = [
        {**line, "named_cells": list(zip(document["columns"][1:], line["cells"], strict=True))}
        for line in document["lines"]
    ]
    logo = base64.b64encode(document["logo"].encode()).decode() if document["logo"] else ""
    return render_to_string(
        "billing/invoice.html", {"style": STYLE, "document": {**document, "lines": lines, "logo": logo}}
    )


def response(invoice: Invoice) -> HttpResponse:
    """The page as a response, with a policy that lets it load nothing."""
    answer = HttpResponse(render(invoice))
    answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return answer
