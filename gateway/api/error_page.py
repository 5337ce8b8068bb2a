"""The error page at `/errors`: each code with its causes and repairs; `doc_url` of every error leads here."""

from itertools import groupby
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_safe

from gateway.api.errors import ServiceError, error_kinds

_PARTS = ("{}", "<code>{}</code>")
"""What is outside and inside of backticks."""


class Shown(NamedTuple):
    """A kind of error as the page shows it. Kinds that say the same are one."""

    code: str
    status: int
    message: str
    hint: str
    repairs: tuple[tuple[str, str], ...]
    repeat: str


@require_safe
def error_page(request: HttpRequest) -> HttpResponse:
    """All codes of the service, by their status."""
    kinds = sorted({_shown(kind) for kind in error_kinds()})
    codes = [(code, list(same)) for code, same in groupby(kinds, key=lambda kind: kind.code)]
    codes.sort(key=lambda entry: (entry[1][0].status, entry[0]))
    return render(request, "error_page.html", {"codes": codes, "source": settings.SERVICE_NAME})


def _shown(kind: type[ServiceError]) -> Shown:
    """What the page shows of a class: not the class itself, which a template would call."""
    repairs = tuple((detail, _marked(repair)) for detail, repair in getattr(kind, "repairs", {}).items())
    return Shown(kind.code, kind.status, kind.message, _marked(kind.hint), repairs, kind.repeat)


def _marked(sentence: str) -> str:
    """A sentence whose parts in backticks are shown as code."""
    parts = enumerate(sentence.split("`"))
    return format_html_join("", "{}", ((format_html(_PARTS[n % 2], part),) for n, part in parts))
