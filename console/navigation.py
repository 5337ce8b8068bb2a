"""The navigation, and what else the frame around every page shows."""

from itertools import groupby
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string

from console import outbox
from console.page import SHOWN_TO_SUPPORT, Entry, page_of
from console.visit import Visit, visit_of
from gateway.roles import Area


def entries_of(visit: Visit) -> list[Entry]:
    """The entries of the navigation that the person's role opens, in their order."""
    # Read late: the table imports the views, and the search is one that finds entries.
    entries: list[Entry] = import_string("console.urls.ENTRIES")
    if visit.is_support:
        return [entry for entry in entries if entry.url_name in SHOWN_TO_SUPPORT or entry.area is None]
    return [entry for entry in entries if visit.may_read(entry.area)]


def console_context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: values for every template. `console` is the visit."""
    visit, page = visit_of(request), page_of(request)
    area = page.area if page else None
    role_changes = visit is not None and visit.may_change(area)
    environment = (page and page.environment) or (visit and visit.environment) or ""
    is_closed = visit is not None and area == Area.INTEGRATION and not visit.is_open(environment)
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "base_url": settings.BASE_URL,
        "support_email": settings.SUPPORT_EMAIL,
        "console": visit,
        "has_outbox": outbox.is_open(),
        "console_may_read": visit is not None and visit.may_read(area),
        "console_may_change": role_changes and not is_closed,
        "console_is_closed": role_changes and is_closed,
        "console_sections": _sections(visit, request.path) if visit else [],
    }


def _sections(visit: Visit, path: str) -> list[dict[str, Any]]:
    """The sections that have entries for the person, with those entries."""
    return [
        {
            "section": section,
            "entries": [{"page": entry, "current": _below(path, entry.path)} for entry in entries],
        }
        for section, entries in groupby(entries_of(visit), key=lambda entry: entry.section)
    ]


def _below(path: str, prefix: str) -> bool:
    return path == prefix or (prefix != "/console" and path.startswith(f"{prefix}/"))
