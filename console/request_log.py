"""Console pages of the request log: the list of calls, and one call as a curl command."""

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console import lists
from console.error_codes import meaning_of, meanings_of
from console.visit import Visit, or_404
from gateway.api import limits
from gateway.request_log import views
from tenants.credentials.api_keys import PREFIX_CHARACTERS


class RequestFilter(lists.SpanForm):
    """The filter above the request log."""

    status_class = forms.TypedChoiceField(
        label="Answer",
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "Any"), ("2", "2xx: done"), ("4", "4xx: refused"), ("5", "5xx: failed")],
    )
    method = forms.ChoiceField(
        label="Method",
        required=False,
        choices=[("", "Any"), *((name, name) for name in ("GET", "POST", "PUT", "PATCH", "DELETE"))],
    )
    error_code = forms.CharField(label="Error code", required=False, max_length=64)
    key_prefix = forms.CharField(
        label=f"Key (its first {PREFIX_CHARACTERS} characters)",
        required=False,
        # The browser cuts a pasted key, so the page's address does not contain the whole key.
        widget=forms.TextInput(attrs={"maxlength": PREFIX_CHARACTERS}),
    )

    def clean_key_prefix(self) -> str:
        typed: str = self.cleaned_data["key_prefix"]
        return typed[:PREFIX_CHARACTERS]


def request_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List calls of the API, newest first, with a filter."""
    form = RequestFilter(request.GET)
    wanted = lists.filled_fields(form)
    equal, begin, end = lists.split_span(wanted, visit.zone)
    page = views.search(
        **visit.scope,
        equal=equal,
        begin=begin,
        end=end,
        before=lists.before(request),
        limit=lists.ROWS_PER_PAGE,
    )
    return render(
        request,
        "console/requests.html",
        {
            "form": form,
            "rows": page.rows,
            "meanings": meanings_of(call.error_code for call in page.rows),
            "page": lists.KeysetPage(page.rows, page.before),
            "filtered": bool(wanted),
            "days": settings.REQUEST_LOG_DAYS,
            "calls_a_second": settings.API_RATE_PER_SECOND,
            "bytes_a_second": limits.BYTES_PER_SECOND,
        },
    )


def one_request(request: HttpRequest, visit: Visit, request_id: str) -> HttpResponse:
    """Show one call: its durations, the meaning of its error, and a curl command for the call."""
    with or_404():
        found = views.find(**visit.scope, request_id=request_id)
    return render(
        request,
        "console/request.html",
        {
            "call": found,
            "meaning": meaning_of(found.error_code or ""),
            "url": f"{settings.BASE_URL}{found.route or ''}",
        },
    )
