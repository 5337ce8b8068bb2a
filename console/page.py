"""A page of the console: its path, its view, the roles that may open it, and its entry in the navigation."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import Resolver404, URLPattern, path, resolve, reverse
from django.utils.encoding import escape_uri_path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.visit import LIVE, TEST, Visit, environment_key, flash_errors, visit_of
from gateway import roles
from gateway.api import limits
from gateway.clock import now
from gateway.roles import Area
from tenants.staff import support_view

READ = ("GET", "HEAD")
"""The methods of a page without forms."""
POST = ("POST",)
"""The methods of a button's target, which changes something and redirects."""
FORM = (*READ, *POST)
"""The methods of a page whose form posts to the page itself."""
FOR_ENVIRONMENT = "for_environment"
"""The form field with the environment of the page that showed the form. Another tab may have switched the environment
since then.
"""
LINKED_ENVIRONMENT = "in"
"""The query parameter with which a link of a mail, or of a page that shows both environments, names the environment of
its page.
"""


class Section(Enum):
    """A heading of the navigation, in the order of display. The first pages have no heading."""

    OVERVIEW = ""
    DEVELOPERS = "Developers"
    TRY = "Try it out"
    ACCOUNT = "Account"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation. It is current on all paths below `path`. Every member sees the entries without an
    area.

    `place` is the entry's section. For a tab, it is the route of the tab's entry. For an entry of the personal menu, it
    is empty.
    """

    place: Section | str
    title: str
    icon: str
    """A symbol of `icons.svg`."""
    url_name: str
    path: str
    area: Area | None = None
    tab: str = ""
    """The title of the first tab, which shows the entry's own page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the table in `urls.py`: the path below `/console`, the view, the route's name, the area, the methods.

    The view gets the request, the visit and the parts of the path. `heading` has the place, the title and the icon of
    the page's entry in the navigation. `environment` is the page's fixed environment, regardless of the visit's
    environment.
    """

    path: str
    view: Callable[..., HttpResponseBase]
    name: str
    area: Area
    methods: tuple[str, ...]
    heading: tuple[Section | str, str, str] | None = None
    environment: str | None = None
    tab: str = ""

    @property
    def full_path(self) -> str:
        return f"/console/{self.path}".rstrip("/")

    def entry(self) -> Entry | None:
        """The page's entry in the navigation. None for a page without an entry."""
        return Entry(*self.heading, self.name, self.full_path, self.area, self.tab) if self.heading else None

    def pattern(self) -> URLPattern:
        """The URL pattern for Django. It requires log-in.

        A button's target that is read leads to the page above it. After a log-in, a switch of the environment or a
        reload, browsers read the path that a form was sent to.
        """
        view = require_http_methods(self.methods)(never_cache(login_required(_paced(self._checked()))))

        @wraps(view)
        def opened(request: HttpRequest, **parts: Any) -> HttpResponseBase:
            if self.methods == POST and request.method in READ:
                return redirect(_readable_page(request))
            return view(request, **parts)

        opened.console_page = self  # type: ignore[attr-defined]
        return path(self.full_path.removeprefix("/"), opened, name=self.name)

    def _checked(self) -> Callable[..., HttpResponseBase]:
        """The view with its access checks.

        Raises PermissionDenied for people without a business, and for roles that may not read the area or, with an
        unsafe method, may not change it. A form that was filled in for the other environment is rejected. A service
        error of a form is shown on the page of the form, unless the view shows it.
        """

        @wraps(self.view)
        def checked(request: HttpRequest, **parts: Any) -> HttpResponseBase:
            request.opened_at = now()  # type: ignore[attr-defined]
            visit = visit_of(request)
            if visit is None:
                return self._without_business(request)
            if (redirected := _follow_link(request, visit)) is not None:
                return redirected
            if visit.is_support:
                self._require_support_may(request)
            elif not roles.allows(visit.user.role, self.area, request.method or ""):
                raise PermissionDenied(_refusal(visit, self.area))
            if self.environment is not None:
                visit = replace(visit, environment=self.environment)
            elif request.POST.get(FOR_ENVIRONMENT, visit.environment) != visit.environment:
                return _switched_since(request)
            if request.method in READ:
                return self.view(request, visit, **parts)
            with flash_errors(request):
                return self.view(request, visit, **parts)
            return redirect(_readable_page(request))

        return checked

    def _require_support_may(self, request: HttpRequest) -> None:
        """Raise PermissionDenied for a page that a support view of staff may not open or change."""
        if support_view.allows(self.name, is_read=request.method in READ):
            return
        cannot = "open this page" if request.method in READ else "change anything"
        raise PermissionDenied(f"You are viewing this business as our team: you cannot {cannot}.")

    def _without_business(self, request: HttpRequest) -> HttpResponse:
        """Redirect staff without a business from the home page to the staff admin. Raises PermissionDenied in all other
        cases.
        """
        if self.full_path == "/console" and getattr(request.user, "is_staff", False):
            return redirect("admin:index")
        raise PermissionDenied("This account belongs to no business.")


def page_of(request: HttpRequest) -> Page | None:
    """The table's row for the requested page. None for pages outside the table, such as the log-in."""
    page: Page | None = getattr(getattr(request.resolver_match, "func", None), "console_page", None)
    return page


def _paced(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view, within the limit of the pages of a person. Beyond it, a page with the status 429."""

    @wraps(view)
    def paced(request: HttpRequest, **parts: Any) -> HttpResponseBase:
        with limits.paced_page(request.user.pk) as admission:
            if admission.retry_after is None:
                return view(request, **parts)
        # Without the navigation, whose queries would make a refusal as slow as a page.
        seconds = admission.retry_after
        refused = render_to_string("console/too_many_pages.html", {"seconds": seconds})
        return HttpResponse(refused, status=429, headers={"Retry-After": str(seconds)})

    return paced


def _readable_page(request: HttpRequest) -> str:
    """The URL of the requested page if it can be read, else of the nearest page above it, with the same query."""
    readable = request.path
    while readable != "/console":
        with suppress(Resolver404):
            if resolve(readable).func.console_page.methods != POST:  # type: ignore[attr-defined]
                break
        readable = readable.rpartition("/")[0] or "/console"
    query = request.META.get("QUERY_STRING")
    return f"{escape_uri_path(readable)}?{query}" if query else escape_uri_path(readable)


def _switched_since(request: HttpRequest) -> HttpResponse:
    """The 409 response to a form for the other environment. The response has a button that leads to the form's page."""
    back = reverse("console")
    with suppress(ValueError):
        page = urlsplit(request.headers.get("Referer", ""))
        back = f"{page.path}?{page.query}" if page.netloc == request.get_host() else back
    return render(request, "console/switched_since.html", {"back": back}, status=409)


def _follow_link(request: HttpRequest, visit: Visit) -> HttpResponse | None:
    """For a link that names an environment, switch to it and redirect to the page, with the link's other parameters.
    None for other requests.
    """
    wanted = request.GET.get(LINKED_ENVIRONMENT)
    if request.method != "GET" or wanted not in {LIVE, TEST} or not visit.switchable:
        return None
    if wanted != visit.environment:
        request.session[environment_key(visit.tenant)] = wanted
        messages.info(
            request, f"The link belongs to the {wanted} environment, so the console was switched to {wanted}."
        )
    others = request.GET.copy()
    del others[LINKED_ENVIRONMENT]
    return redirect(f"{request.path}?{others.urlencode()}" if others else request.path)


def _refusal(visit: Visit, area: Area) -> str:
    role = visit.user.get_role_display()
    cannot = "change anything here" if visit.may_read(area) else "open this page"
    return f"Your role is {role}: you cannot {cannot}. An owner of the account can change your role."
