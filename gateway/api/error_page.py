"""The error page at `/errors`: each code with its causes and repairs; `doc_url` of every error leads here."""

from itertools import groupby

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.api.errors import error_kinds


@require_safe
def error_page(request: HttpRequest) -> HttpResponse:
    """All codes of the service, by their status."""
    kinds = sorted(error_kinds(), key=lambda kind: (kind.code, kind.status))
    codes = [(code, list(same)) for code, same in groupby(kinds, key=lambda kind: kind.code)]
    codes.sort(key=lambda entry: (entry[1][0].status, entry[0]))
    return render(request, "error_page.html", {"codes": codes, "source": settings.SERVICE_NAME})
