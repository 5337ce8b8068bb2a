"""Pages for development: the mails that were stored instead of sent, and all components of pages."""

from django import forms
from django.conf import settings
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from tenants.models import OutboundMail

MAILS_PER_PAGE = 50


class SampleForm(forms.Form):
    """A sample form with a field of each kind. If the URL has a query, the form shows errors."""

    text = forms.CharField(label="Text", help_text="What helps to fill it in.")
    choice = forms.ChoiceField(label="Choice", choices=[("", "Choose one"), ("a", "The first")])
    day = forms.DateField(label="Day", widget=forms.DateInput({"type": "date"}))
    number = forms.IntegerField(label="Number", min_value=1, max_value=24)
    agreed = forms.BooleanField(label="Agreed")
    words = forms.CharField(
        label="Words",
        max_length=1024,
        widget=forms.Textarea({"rows": 3, "data-marks": ""}),
    )


def is_open() -> bool:
    """Whether the outbox is served. It is not served in production, and needs EMAIL_MODE `log`, which stores mails
    instead of sending them.
    """
    return not settings.PRODUCTION and settings.EMAIL_MODE == "log"


@require_safe
@never_cache
def mail_list(request: HttpRequest) -> HttpResponse:
    """List the mails, newest first."""
    _require_open()
    page = Paginator(OutboundMail.objects.order_by("-id"), MAILS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "console/outbox.html", {"page": page})


@require_safe
def components(request: HttpRequest) -> HttpResponse:
    """Show every component of the console's pages, for developers of pages."""
    _require_open()
    return render(request, "console/components.html", {"form": SampleForm(request.GET or None)})


@require_safe
@never_cache
def one_mail(request: HttpRequest, mail_id: int) -> HttpResponse:
    """Show a mail's text. Its HTML is a separate page without the console's frame."""
    _require_open()
    mail = get_object_or_404(OutboundMail, pk=mail_id)
    if request.GET.get("as") == "html":
        response = HttpResponse(mail.html)
        response["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        return response
    return render(request, "console/outbox_mail.html", {"mail": mail})


def _require_open() -> None:
    if not is_open():
        raise Http404("There is no outbox here.")
