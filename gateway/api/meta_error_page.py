"""Pages of WhatsApp's error codes, such as `/errors/131047`. The service's codes are listed at `/docs/errors/`.

The `doc_url` of every error is `/errors/131047` or `/errors#invalid_request`.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from gateway.meta_errors import error_code

ALL_CODES = "/docs/whatsapp-errors/"
"""The guide that lists all codes."""


@require_safe
def meta_error_page(request: HttpRequest, name: str) -> HttpResponse:
    """The page of one of Meta's codes, or of a range. An unknown code redirects to the list."""
    number = name.partition("-")[0]
    found = error_code(int(number)) if number.isascii() and number.isdecimal() and len(number) < 12 else None
    if found is None:
        return redirect(ALL_CODES)
    if found.name != name:
        return redirect("meta_error_page", found.name)
    return render(request, "meta_error_page.html", {"found": found, "all_codes": ALL_CODES})
