"""Page of customers' data: erasure of one customer's data, receipts of erasures, and export of data to a file."""

from collections.abc import Mapping

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from console.exports import KEPT
from console.visit import Visit, flash_errors, require_active
from gateway.clock import now
from messaging import data_export, erasure
from messaging.data_views import CUSTOMER_ID
from messaging.models import Erasure
from tenants.audit import Actor
from tenants.labels import words
from tenants.models import Export

SHOWN = 50
"""The maximum number of receipts on the page, which shows the newest."""


class CustomerField(forms.RegexField):
    """A customer's typed phone number or user id."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(
            rf"\A(?:{CUSTOMER_ID.pattern})\Z",
            error_messages={
                "invalid": "Give the phone number with its country code, digits only, or the user id."
            },
            **kwargs,  # type: ignore[arg-type]
        )

    def to_python(self, value: object) -> str:
        text = "".join((super().to_python(value) or "").split())
        return text.replace("-", "") if text[:1] in "+0123456789" else text


class EraseForm(forms.Form):
    """The customer whose data is erased."""

    customer = CustomerField(
        label="Customer", help_text="The phone number with its country code, or the user id, such as IN.1234."
    )


class ExportForm(forms.Form):
    """The customer whose data is exported. Without a customer, the data of the whole account is exported."""

    of = CustomerField(label="Only this customer", required=False, help_text="Empty: the whole account.")


def data_page(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the receipts of erasures, the exported files, and the forms to erase and to export.

    A customer is erased only when `confirmed` has the customer that the page named before.
    """
    form = EraseForm(initial={"customer": request.GET.get("customer", "")})
    export_form, confirm, status = ExportForm(), "", 200
    if request.method == "POST":
        require_active(visit)
        if "export" in request.POST:
            export_form = ExportForm(request.POST)
            if export_form.is_valid():
                return _export(request, visit, export_form.cleaned_data["of"] or None)
        else:
            form = EraseForm(request.POST)
            if form.is_valid():
                confirm = form.cleaned_data["customer"]
                if request.POST.get("confirmed") == confirm:
                    return _erase(request, visit, confirm)
        status = 400 if form.errors or export_form.errors else 200
    context = {
        "form": form,
        "export_form": export_form,
        "confirm": confirm,
        "erasures": [
            (row, _what(row.receipt or {}))
            for row in Erasure.objects.for_tenant(visit.tenant.id).order_by("-id")[:SHOWN]
        ],
        "files": Export.objects.filter(
            tenant=visit.tenant, kind__in=data_export.KINDS, created_at__gt=now() - KEPT
        ).order_by("-id"),
        "days": KEPT.days,
    }
    return render(request, "console/data.html", context, status=status)


def _what(erased: Mapping[str, int]) -> str:
    return ", ".join(f"{words(name)}: {count:,}" for name, count in erased.items() if count) or "–"


def _erase(request: HttpRequest, visit: Visit, customer_id: str) -> HttpResponse:
    with flash_errors(request):
        erasure.request(
            tenant_id=visit.tenant.id, customer_id=customer_id, actor=Actor(user_id=visit.user.pk)
        )
        messages.success(request, "The customer's data is being erased. The receipt is below.")
    return redirect("console_data")


def _export(request: HttpRequest, visit: Visit, customer_id: str | None) -> HttpResponse:
    with flash_errors(request):
        data_export.request(
            **visit.scope, customer_id=customer_id, user_id=visit.user.pk, actor=Actor(user_id=visit.user.pk)
        )
        messages.success(
            request, f"We write the file and send a link to {visit.user.email} when it is ready."
        )
    return redirect("console_data")
