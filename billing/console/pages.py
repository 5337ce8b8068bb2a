"""Console pages of billing: the next charge, autopay, the profile, invoices and their payment."""

from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from csp.decorators import csp_update
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing import overview
from billing.buyers import profiles
from billing.console.forms import MandateForm, ProfileForm
from billing.invoices import invoice_page, pdf, printed_fields
from billing.models import CREDIT_NOTE, INVOICE, CreditNote, Invoice, Mandate
from billing.payments import mandates, payment_links
from billing.payments.provider import ProviderRefused, ProviderUnreachable
from billing.pricing import plan
from gateway import ids
from gateway.api.errors import InvalidRequest, TooManyInFlight
from gateway.api.limits import in_flight
from gateway.clock import now
from gateway.roles import Area
from tenants.console.frame import Visit, console_page, require_active

INVOICES_PER_PAGE = 24
_PROVIDER = [f"http://{urlsplit(settings.RAZORPAY_BASE_URL).netloc}"] if not settings.PRODUCTION else []
V = TypeVar("V", bound=Callable[..., Any])


def leads_to_provider(view: V) -> V:
    """Let the page's forms lead to the provider: browsers allow only what the policy names."""
    return cast("V", csp_update({"form-action": ["'self'", "https:", *_PROVIDER]})(view))


@leads_to_provider
@require_safe
@console_page(Area.BILLING)
def billing(request: HttpRequest, visit: Visit) -> HttpResponse:
    """What is due, what the next invoice will be, autopay, and the invoices."""
    return _billing(request, visit, MandateForm())


@leads_to_provider
@require_POST
@console_page(Area.BILLING)
def set_up_autopay(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Ask for a mandate, and go to the provider's page on which it is approved."""
    _require_billing()
    require_active(visit)
    form = MandateForm(request.POST)
    if not form.is_valid():
        return _billing(request, visit, form, status=400)
    try:
        with in_flight.upstream.held(visit.tenant.id):
            mandate = mandates.ask_for(
                tenant_id=visit.tenant.id,
                method=form.cleaned_data["method"],
                max_amount_paise=form.max_amount_paise,
                return_url=settings.APP_URL + reverse("console_billing"),
                at=now(),
            )
    except (InvalidRequest, TooManyInFlight, ProviderRefused, ProviderUnreachable) as error:
        messages.error(request, error.text)
        return redirect("console_billing")
    return HttpResponseRedirect(mandate.authorization_url or reverse("console_billing"), status=303)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.BILLING)
def profile(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Who invoices are made out to. Invoices that were issued stay as they are."""
    _require_billing()
    stored = profiles.profile_of(visit.tenant)
    form = ProfileForm(request.POST or None, stored=stored)
    if request.method == "POST" and form.is_valid():
        try:
            profiles.change(tenant_id=visit.tenant.id, changes=form.changes(), actor_user_id=visit.user.pk)
        except InvalidRequest as error:
            form.add_error("tax_id", error.text)
        else:
            messages.success(request, "Saved. It applies to invoices from now on.")
            return redirect("console_billing")
    return render(
        request,
        "console/billing/profile.html",
        {"form": form, "missing": [_FIELDS[name] for name in profiles.missing(stored)]},
        status=400 if form.errors else 200,
    )


@require_safe
@console_page(Area.BILLING)
def invoice(request: HttpRequest, visit: Visit, invoice_id: str) -> HttpResponse:
    """An invoice as the page that prints, or with `?as=pdf` as PDF."""
    found = _invoice(visit, invoice_id)
    if request.GET.get("as") == "pdf":
        return _pdf(found.number, printed_fields.of_invoice(found))
    response = HttpResponse(invoice_page.render(found))
    response["Content-Security-Policy"] = invoice_page.CONTENT_SECURITY_POLICY
    return response


@require_safe
@console_page(Area.BILLING)
def credit_note(request: HttpRequest, visit: Visit, credit_note_id: str) -> HttpResponse:
    """A credit note as PDF."""
    own = CreditNote.objects.filter(invoice__tenant_id=visit.tenant.id).select_related("invoice")
    key = ids.decode(CREDIT_NOTE, credit_note_id)
    note = own.filter(pk=key).first() if key else None
    if note is None:
        raise Http404("There is no such credit note.")
    return _pdf(note.number, printed_fields.of_credit_note(note))


@leads_to_provider
@require_POST
@console_page(Area.BILLING)
def pay(request: HttpRequest, visit: Visit, invoice_id: str) -> HttpResponse:
    """The payment page of an unpaid invoice."""
    _require_billing()
    found = _invoice(visit, invoice_id)
    try:
        with in_flight.upstream.held(visit.tenant.id):
            attempt = payment_links.pay_now(invoice=found, at=now())
    except (payment_links.InvoiceNotPayable, TooManyInFlight, ProviderRefused, ProviderUnreachable) as error:
        messages.error(request, error.text)
        return redirect("console_billing")
    return HttpResponseRedirect(attempt.payment_url or reverse("console_billing"), status=303)


def _billing(request: HttpRequest, visit: Visit, form: MandateForm, status: int = 200) -> HttpResponse:
    if not settings.BILLING_ENABLED:
        return render(request, "console/billing/off.html", {"tenant": visit.tenant})
    at = now()
    seen = overview.of(visit.tenant, at)
    invoices = Invoice.objects.for_tenant(visit.tenant.id).prefetch_related("credit_notes").order_by("-id")
    missing = profiles.missing(seen.billing_profile)
    return render(
        request,
        "console/billing/billing.html",
        {
            "tenant": visit.tenant,
            "overview": seen,
            "now": at,
            "autopay": seen.mandate is not None and seen.mandate.status == Mandate.Status.ACTIVE,
            "waits": seen.mandate is not None and seen.mandate.status == Mandate.Status.PENDING,
            "missing": [_FIELDS[name] for name in missing],
            "debit_failed_because": overview.debit_failed_because(seen),
            "form": form,
            "plan": plan.TERMS,
            "page": Paginator(invoices, INVOICES_PER_PAGE).get_page(request.GET.get("page")),
        },
        status=status,
    )


_FIELDS = {name: str(field.label) for name, field in ProfileForm.base_fields.items()} | {
    "billing_email": "Billing email"
}


def _require_billing() -> None:
    if not settings.BILLING_ENABLED:
        raise Http404("Billing is not switched on.")


def _invoice(visit: Visit, invoice_id: str) -> Invoice:
    key = ids.decode(INVOICE, invoice_id)
    found = Invoice.objects.for_tenant(visit.tenant.id).filter(pk=key).first() if key else None
    if found is None:
        raise Http404("There is no such invoice.")
    return found


def _pdf(number: str, document: Any) -> HttpResponse:
    response = HttpResponse(pdf.render(document), content_type="application/pdf")
    response["Content-Disposition"] = f'inline; filename="{pdf.file_name(number)}"'
    return response
