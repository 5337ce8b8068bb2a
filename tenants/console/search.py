"""The console's search: what an id, a number or the name of a page leads to, within the visit's tenant and environment.

Each app registers a finder for what it owns. A finder looks up exact, indexed values, and gets only visits whose role
opens its area.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from gateway import ids
from gateway.api.errors import NotFound
from gateway.request_log import search as request_log
from gateway.roles import Area
from tenants.console import frame
from tenants.console.frame import Visit, console_page
from tenants.credentials.api_keys import PREFIX_CHARACTERS
from tenants.models import ApiKey

MOST_HITS = 5
"""Hits of one finder."""
LONGEST_TEXT = 512


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that the search found."""

    kind: str
    title: str
    url: str


Finder = Callable[[Visit, str], Iterable[Hit]]

_finders: list[tuple[Area, Finder]] = []


def finds(area: Area) -> Callable[[Finder], Finder]:
    """Register a finder for those who may read the area: (visit, text) → hits."""

    def registered(finder: Finder) -> Finder:
        _finders.append((area, finder))
        return finder

    return registered


def find(visit: Visit, text: str) -> list[Hit]:
    """Everything that a text names, as far as the visit may see it."""
    wanted = text.strip()[:LONGEST_TEXT]
    if len(wanted) < 2:
        return []
    return [
        hit
        for area, finder in _finders
        if visit.may_read(area)
        for hit in islice(finder(visit, wanted), MOST_HITS)
    ]


@require_safe
@console_page(Area.OWN)
def search_page(request: HttpRequest, visit: Visit) -> HttpResponse:
    """What was found; a single hit opens at once."""
    asked = request.GET.get("q", "")
    hits = find(visit, asked)
    if len(hits) == 1:
        return redirect(hits[0].url)
    return render(request, "console/search.html", {"asked": asked, "hits": hits})


@require_safe
@console_page(Area.OWN)
def search_hits(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The hits alone: the field in the page's head asks for them while somebody types."""
    asked = request.GET.get("q", "")
    return render(request, "console/parts/hits.html", {"asked": asked, "hits": find(visit, asked)})


@finds(Area.OWN)
def _pages(visit: Visit, text: str) -> Iterator[Hit]:
    for page in frame.pages_of(visit):
        if text.lower() in page.title.lower():
            yield Hit("Page", page.title, reverse(page.url_name))


@finds(Area.INTEGRATION)
def _keys(visit: Visit, text: str) -> Iterator[Hit]:
    if text.startswith("wb_"):
        prefix = text[:PREFIX_CHARACTERS]
        for key in ApiKey.objects.for_tenant(visit.tenant.id).filter(prefix__startswith=prefix):
            yield Hit("API key", f"{key.prefix}… {key.name}", reverse("console_rotate_key", args=[key.pk]))


@finds(Area.INTEGRATION)
def _requests(visit: Visit, text: str) -> Iterator[Hit]:
    request_id = ids.typed(text)
    if ids.decode(ids.REQUEST, request_id) is None:
        return
    try:
        call = request_log.find(
            tenant_id=visit.tenant.id, environment=visit.environment, request_id=request_id
        )
    except NotFound:
        return
    yield Hit("Call", f"{call.method} {call.route or ''}", reverse("console_request", args=[request_id]))
