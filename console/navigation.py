"""The navigation, and the other values that the frame of every page needs."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.urls import resolve
from django.utils.module_loading import import_string

from console.page import Entry, Section, page_of
from console.visit import Visit, visit_of
from gateway.roles import Area
from tenants.staff import support_view


def entries_of(visit: Visit) -> list[Entry]:
    """The entries that the member's role may open, in order."""
    # Imported here, because the table of pages imports the views, and the view of the search imports this module.
    entries: list[Entry] = import_string("console.urls.ENTRIES")
    if visit.is_support:
        return [
            entry for entry in entries if entry.url_name in support_view.SHOWN_PAGES or entry.area is None
        ]
    return [entry for entry in entries if visit.may_read(entry.area)]


def opens(visit: Visit, url: str) -> bool:
    """Whether the visit opens the page of a URL, whose area it may read. The person's own pages are outside the
    console, and always open.
    """
    if not visit.is_support:
        return True
    match = resolve(urlsplit(url).path)
    return not hasattr(match.func, "console_page") or support_view.allows(match.url_name or "", is_read=True)


def console_context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the values for every template. `console` is the visit."""
    visit, page = visit_of(request), page_of(request)
    area = page.area if page else None
    role_changes = visit is not None and visit.may_change(area)
    environment = (page and page.environment) or (visit and visit.environment) or ""
    closes = area in {Area.INTEGRATION, Area.CONVERSATIONS}
    is_closed = visit is not None and closes and not visit.is_open(environment)
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "base_url": settings.BASE_URL,
        "support_email": settings.SUPPORT_EMAIL,
        "console": visit,
        "console_may_read": visit is not None and visit.may_read(area),
        "console_may_change": role_changes and not is_closed,
        "console_is_closed": role_changes and is_closed,
        **(_places(visit, request.path) if visit else {}),
    }


def _places(visit: Visit, path: str) -> dict[str, Any]:
    """The sections with their entries, and the tabs of the page. An entry is also current on the pages of its tabs."""
    entries = entries_of(visit)
    sections, shown_tabs = [], []
    for section in Section:
        shown = []
        for entry in entries:
            if entry.place != section:
                continue
            tabs = [entry, *(tab for tab in entries if tab.place == entry.url_name)]
            shown.append({"page": entry, "current": any(_below(path, tab.path) for tab in tabs)})
            if len(tabs) > 1 and path in [tab.path for tab in tabs]:
                shown_tabs = [{"page": tab, "current": tab.path == path} for tab in tabs]
        if shown:
            sections.append({"section": section, "entries": shown})
    return {"console_sections": sections, "console_tabs": shown_tabs}


def _below(path: str, prefix: str) -> bool:
    return path == prefix or (prefix != "/console" and path.startswith(f"{prefix}/"))
