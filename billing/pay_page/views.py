"""Pay page `/pay/<token>`, to which billing mails link. Its button opens the provider's page, which redirects back."""

from urllib.parse import urlsplit

from csp.decorators import csp_update
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from billing.invoices import documents
from billing.models import Invoice
from billing.payments import payment_links
from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date
from gateway.api import limits
from gateway.api.errors import ServiceError
from gateway.clock import now

_PROVIDER = [f"http://{urlsplit(settings.RAZORPAY_BASE_URL).netloc}"] if not settings.PRODUCTION else []
"""Origins that a form may submit to: the provider's page, and in development the simulator's."""

_LOOK_AGAIN_SECONDS = 5


@csp_update({"form-action": ["https:", *_PROVIDER]})  # type: ignore[arg-type]
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def pay(request: HttpRequest, token: str) -> HttpResponse:
    """The amount due, and a button that creates the payment link when pressed."""
    invoice = _invoice_of(token)
    if invoice is None:
        return render(request, "billing/pay_unknown.html", status=404)
    problem = None
    if request.method == "POST":
        try:
            with limits.upstream.held(invoice.tenant_id):
                attempt = (
                    payment_links.pay_all(tenant_id=invoice.tenant_id, at=now())
                    if "all" in request.POST
                    else payment_links.pay_now(invoice=invoice, at=now())
                )
            response = HttpResponse(status=303)
            response["Location"] = attempt.payment_url or ""
        except ServiceError as error:
            problem = error.text
        else:
            return response
        invoice.refresh_from_db()
    payable = payment_links.payable(invoice.tenant_id)
    return render(
        request,
        "billing/pay.html",
        {
            "invoice": invoice,
            "token": token,
            "tds": rupees(tds) if (tds := invoice.tds_paise) else "",
            "upi_qr": documents.upi_qr(invoice, invoice.amount_due_paise),
            "others": len(payable) - 1 if invoice in payable else 0,
            "due_of_all": rupees(sum(each.amount_due_paise for each in payable)),
            "due": rupees(invoice.amount_due_paise),
            "due_on": ist_date(invoice.pay_by),
            "state": documents.payment_state(invoice, now()).code,
            "month": ist_date(Period.parse(invoice.period).start),
            "problem": problem,
        },
        status=409 if problem else 200,
    )


@require_safe
@never_cache
def document(request: HttpRequest, token: str) -> HttpResponse:
    """The invoice itself as a printable page, or with `?as=pdf` as PDF."""
    invoice = _invoice_of(token)
    if invoice is None:
        return render(request, "billing/pay_unknown.html", status=404)
    return (
        documents.pdf_response(invoice)
        if request.GET.get("as") == "pdf"
        else documents.html_response(invoice)
    )


@require_safe
@never_cache
def returned(request: HttpRequest, token: str) -> HttpResponse:
    """The page to which the provider redirects a payer. The provider's notice follows within seconds, so the page has
    no button to pay again.

    Query parameters of the redirect are ignored. Only the provider's signed notices and API answers prove a payment.
    """
    invoice = _invoice_of(token)
    if invoice is None:
        return render(request, "billing/pay_unknown.html", status=404)
    if invoice.status not in {Invoice.Status.OPEN, Invoice.Status.FAILED}:
        return redirect("pay", token)
    response = render(request, "billing/pay_returned.html", {"invoice": invoice, "token": token})
    response["Refresh"] = str(_LOOK_AGAIN_SECONDS)
    return response


def _invoice_of(token: str) -> Invoice | None:
    """The invoice of a pay token. None for an unknown token, and when billing is off."""
    return Invoice.objects.filter(pay_link__token=token).first() if settings.BILLING_ENABLED else None
