"""Pages of billing: the next charge, autopay, the billing profile, invoices and their payment."""

import csv
from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from csp.decorators import csp_update
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import transaction
from django.forms.models import model_to_dict
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse

from billing import accounting, buyers, tenant_overview
from billing.invoices import documents
from billing.models import (
    CREDIT_NOTE,
    INDIA,
    INVOICE,
    BillingProfile,
    CreditNote,
    Invoice,
    Mandate,
    PaymentAttempt,
)
from billing.payments import bank_transfers, mandates, payment_links
from billing.payments.mandates import DEFAULT_CAP_PAISE, LARGEST_CAP_PAISE
from console.change_forms import ChangeForm
from console.visit import Visit, or_404, require_active
from gateway.api import limits
from gateway.api.errors import InvalidRequest, RateLimited, ServiceError
from gateway.api.query import by_public_id
from gateway.clock import now
from tenants import tenant_settings
from tenants.models import Tenant
from tenants.names import check_name
from tenants.signup.tax_ids import ADDRESS_STATES

INVOICES_PER_PAGE = 24
_PROVIDER = [f"http://{urlsplit(settings.RAZORPAY_BASE_URL).netloc}"] if not settings.PRODUCTION else []
V = TypeVar("V", bound=Callable[..., Any])


class ProfileForm(ChangeForm):
    """The buyer named on the invoices. Only changed fields are stored."""

    legal_name = forms.CharField(label="Legal name", max_length=200, validators=[check_name])
    tax_id = forms.CharField(
        label="GSTIN or PAN",
        max_length=20,
        required=False,
        validators=[check_name],
        help_text="With a GSTIN you can claim the tax as input credit. Abroad: the tax number of your country.",
    )
    address = forms.CharField(label="Address", max_length=500, validators=[check_name])
    city = forms.CharField(label="City", max_length=100, validators=[check_name])
    state_code = forms.ChoiceField(
        label="State or union territory",
        required=False,
        choices=[("", "Choose one"), *sorted(ADDRESS_STATES.items(), key=lambda state: state[1])],
        help_text="It decides whether IGST, or CGST and SGST, are charged.",
    )
    pin = forms.RegexField(
        r"^[1-9][0-9]{5}\Z",
        label="PIN code",
        required=False,
        error_messages={"invalid": "A PIN code has six digits."},
    )
    country = forms.ChoiceField(
        label="Country",
        initial=INDIA,
        choices=list(buyers.COUNTRIES.items()),
    )
    phone = forms.RegexField(
        r"^\+[1-9][0-9]{7,14}\Z",
        label="Phone",
        help_text="With country code, e.g. +919800000001. The payment provider asks for it.",
        error_messages={"invalid": "Give it with its country code, e.g. +919800000001."},
    )
    billing_email = forms.EmailField(
        label="Billing email",
        max_length=254,
        help_text="Invoices and reminders are sent to this address.",
    )
    tds_percent = forms.TypedChoiceField(
        label="Tax that you deduct at source (TDS)",
        coerce=int,
        required=False,
        choices=[(rate, f"{rate} % of the taxable value" if rate else "None") for rate in buyers.TDS_RATES],
        help_text="You pay the rest, and send us the certificate later. This also applies to unpaid invoices.",
    )

    def __init__(self, data: Any = None, *, stored: BillingProfile) -> None:
        """Fill the form from a stored profile. A stored country code that is not in ISO's list is added to the choices,
        so that saving keeps it. The form asks for a billing email only if bills have no address yet.
        """
        super().__init__(data, initial=model_to_dict(stored, fields=self.base_fields))
        if buyers.email_of(stored.tenant):
            del self.fields["billing_email"]
        if stored.country not in buyers.COUNTRIES:
            field = cast("forms.ChoiceField", self.fields["country"])
            field.choices = [(stored.country, stored.country), *buyers.COUNTRIES.items()]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("country") == INDIA:
            for name in ("tax_id", "state_code", "pin"):
                if name not in self.errors and not cleaned.get(name):
                    self.add_error(name, "Needed for an address in India.")
        return cleaned

    def save(self, tenant: Tenant, actor_user_id: int) -> BillingProfile:
        """Store the changed values. An empty tax id or tax rate is left out, so the stored value is kept."""
        kept = {"tax_id", "tds_percent"}
        changed = self.changed_values()
        values = {name: value for name, value in changed.items() if name not in kept or value != ""}
        email = values.pop("billing_email", None)
        with transaction.atomic():
            if email:
                tenant_settings.change(
                    tenant_id=tenant.id, changes={"billing_email": email}, actor_user_id=actor_user_id
                )
            return buyers.change(tenant_id=tenant.id, changes=values, actor_user_id=actor_user_id)


class MandateForm(forms.Form):
    """The form for autopay: the method, and the limit of each debit."""

    method = forms.ChoiceField(
        label="Pay with",
        choices=[
            (Mandate.Method.UPI, "UPI"),
            (Mandate.Method.CARD, "Card"),
            (Mandate.Method.EMANDATE, "Bank account (e-mandate)"),
        ],
    )
    max_rupees = forms.IntegerField(
        label="At most, in rupees a month",
        min_value=590,
        initial=DEFAULT_CAP_PAISE // 100,
        help_text="Up to ₹15,000 with UPI and cards; more needs an e-mandate.",
    )

    @property
    def max_amount_paise(self) -> int:
        """The limit of the mandate in paise."""
        return int(self.cleaned_data["max_rupees"]) * 100

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "method" in cleaned and "max_rupees" in cleaned:
            largest = LARGEST_CAP_PAISE[Mandate.Method(cleaned["method"])]
            if self.max_amount_paise > largest:
                raise ValidationError(f"With this payment method, the limit is at most ₹{largest // 100:,}.")
        return cleaned


def leads_to_provider(view: V) -> V:
    """Let the page's forms redirect to the payment provider. Browsers allow this only for targets in the page's content
    security policy.
    """
    return cast("V", csp_update({"form-action": ["'self'", "https:", *_PROVIDER]})(view))


@leads_to_provider
def billing(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the balance, the next invoice, autopay, and the invoices."""
    return _billing(request, visit, MandateForm())


@leads_to_provider
def set_up_autopay(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Request a mandate, and redirect to the provider's page on which the member approves it."""
    _require_billing()
    require_active(visit)
    form = MandateForm(request.POST)
    if not form.is_valid():
        return _billing(request, visit, form, status=400)
    try:
        with limits.upstream.held(visit.tenant.id):
            mandate = mandates.ask_for(
                tenant_id=visit.tenant.id,
                method=form.cleaned_data["method"],
                max_amount_paise=form.max_amount_paise,
                return_url=settings.APP_URL + reverse("console_billing"),
                at=now(),
            )
    except ServiceError as error:
        messages.error(request, error.text)
        return redirect("console_billing")
    return HttpResponseRedirect(mandate.authorization_url or reverse("console_billing"), status=303)


def profile(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Change the buyer for future invoices. Issued invoices stay unchanged."""
    _require_billing()
    stored = buyers.profile_of(visit.tenant)
    form = ProfileForm(request.POST or None, stored=stored)
    if request.method == "POST" and form.is_valid():
        try:
            form.save(visit.tenant, visit.user.pk)
            bank_transfers.follow_declaration(visit.tenant.id, now())
        except InvalidRequest as error:
            for name, problem in (error.details or {})["fields"].items():
                form.add_error(name, problem)
        except RateLimited as error:
            form.add_error(None, error.text)
        else:
            messages.success(request, "Saved. It applies to invoices from now on.")
            return redirect("console_billing")
    return render(
        request,
        "console/billing/profile.html",
        {"form": form, "missing": [_FIELDS[name] for name in buyers.missing(stored)]},
        status=400 if form.errors else 200,
    )


def invoice(request: HttpRequest, visit: Visit, invoice_id: str) -> HttpResponse:
    """Show an invoice as a printable page, or as PDF with `?as=pdf`."""
    found = _invoice(visit, invoice_id)
    if request.GET.get("as") == "pdf":
        return documents.pdf_response(found)
    return documents.html_response(found)


def credit_note(request: HttpRequest, visit: Visit, credit_note_id: str) -> HttpResponse:
    """Download a credit note as PDF."""
    own = CreditNote.objects.filter(invoice__tenant_id=visit.tenant.id).select_related("invoice")
    with or_404():
        return documents.pdf_response(by_public_id(own, CREDIT_NOTE, credit_note_id, "credit note"))


def statement(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List every invoice, credit and payment, each with the balance after it. `?as=csv` downloads the list as CSV."""
    _require_billing()
    if request.GET.get("as") == "csv":
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="statement.csv"'
        csv.writer(response).writerows(accounting.statement_rows(visit.tenant.id))
        return response
    lines = accounting.statement(visit.tenant.id)[::-1]
    page = Paginator(lines, INVOICES_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "console/billing/statement.html", {"page": page})


@leads_to_provider
def pay_all(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Redirect to the payment page for the whole amount due."""
    _require_billing()
    return _to_payment(request, visit, lambda: payment_links.pay_all(tenant_id=visit.tenant.id, at=now()))


@leads_to_provider
def pay(request: HttpRequest, visit: Visit, invoice_id: str) -> HttpResponse:
    """Redirect to the payment page of an unpaid invoice."""
    _require_billing()
    found = _invoice(visit, invoice_id)
    return _to_payment(request, visit, lambda: payment_links.pay_now(invoice=found, at=now()))


def _to_payment(request: HttpRequest, visit: Visit, link: Callable[[], PaymentAttempt]) -> HttpResponse:
    try:
        with limits.upstream.held(visit.tenant.id):
            attempt = link()
    except ServiceError as error:
        messages.error(request, error.text)
        return redirect("console_billing")
    return HttpResponseRedirect(attempt.payment_url or reverse("console_billing"), status=303)


def _billing(request: HttpRequest, visit: Visit, form: MandateForm, status: int = 200) -> HttpResponse:
    if not settings.BILLING_ENABLED:
        return render(request, "console/billing/off.html", {"tenant": visit.tenant})
    at = now()
    seen = tenant_overview.of(visit.tenant, at)
    invoices = Invoice.objects.for_tenant(visit.tenant.id).prefetch_related("credit_notes").order_by("-id")
    missing = buyers.missing(seen.billing_profile)
    return render(
        request,
        "console/billing/billing.html",
        {
            "tenant": visit.tenant,
            "overview": seen,
            "now": at,
            "autopay": seen.mandate is not None and seen.mandate.status == Mandate.Status.ACTIVE,
            "waits": seen.mandate is not None and seen.mandate.status == Mandate.Status.PENDING,
            "can_set_up": buyers.can_set_up_autopay(seen.billing_profile),
            "missing": [_FIELDS[name] for name in missing],
            "debit_failed_because": tenant_overview.debit_failed_because(seen),
            "form": form,
            "plan": seen.plan,
            "payable": payment_links.payable(visit.tenant.id),
            "page": Paginator(invoices, INVOICES_PER_PAGE).get_page(request.GET.get("page")),
        },
        status=status,
    )


_FIELDS = {name: str(field.label) for name, field in ProfileForm.base_fields.items()}


def _require_billing() -> None:
    if not settings.BILLING_ENABLED:
        raise Http404("Billing is not switched on.")


def _invoice(visit: Visit, invoice_id: str) -> Invoice:
    with or_404():
        return by_public_id(Invoice.objects.for_tenant(visit.tenant.id), INVOICE, invoice_id, "invoice")
