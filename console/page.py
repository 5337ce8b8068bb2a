"""A page of the console: its address, its view, who may open it, and its entry in the navigation."""

from collections.abc import Callable
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
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.visit import LIVE, TEST, Visit, environment_key, visit_of
from gateway import roles
from gateway.roles import Area

READ = ("GET", "HEAD")
"""The methods of a page that only shows something."""
POST = ("POST",)
"""Those of a button: it changes something and leads to a page."""
FORM = (*READ, *POST)
"""Those of a page whose form is posted to itself."""
FOR_ENVIRONMENT = "for_environment"
"""The form field with the environment that the person saw while filling it in; another tab may have switched since."""
LINKED_ENVIRONMENT = "in"
"""The query parameter by which a mail's link names the environment of its page."""


PREFERENCES = "console_preferences"
SHOWN_TO_SUPPORT = frozenset(
    f"console{name}"
    for name in (
        "",
        "_api_keys",
        "_audit",
        "_batch",
        "_batch_progress",
        "_batches",
        "_billing",
        "_deliveries",
        "_delivery",
        "_endpoint",
        "_endpoints",
        "_events",
        "_figures",
        "_first_steps",
        "_invoice",
        "_ledger",
        "_live",
        "_message",
        "_messages",
        "_number",
        "_numbers",
        "_request",
        "_requests",
        "_search",
        "_search_hits",
        "_settings",
        "_statement",
        "_team",
        "_template",
        "_templates",
    )
)
"""The pages that staff may read as a business, by their routes: all others, new ones too, are closed to them."""


class Section(Enum):
    """A heading of the navigation, in the order in which the headings are shown. The first pages have none."""

    OVERVIEW = ""
    DEVELOPERS = "Developers"
    TRY = "Try it out"
    ACCOUNT = "Account"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation; one without an area is for everybody. `path` also begins the paths below the page.

    `place` is its section, or the route of the entry that it is a tab of; empty in the person's own menu.
    """

    place: Section | str
    title: str
    icon: str
    """A symbol of `icons.svg`."""
    url_name: str
    path: str
    area: Area | None = None
    tab: str = ""
    """Its title among its own tabs."""


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the table in `urls.py`: the path below `/console`, the view, the route's name, the area, the methods.

    The view gets the request, the visit and the parts of the path. `heading` is the place, the title and the icon
    of the entry in the navigation. `environment` is the one that the page is always in, whichever the person looks at.
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
        """The entry in the navigation."""
        return Entry(*self.heading, self.name, self.full_path, self.area, self.tab) if self.heading else None

    def pattern(self) -> URLPattern:
        """The page as Django's URL configuration has it. Strangers log in first."""
        view = never_cache(login_required(self._checked()))
        opened = require_http_methods(self.methods)(view)
        opened.console_page = self  # type: ignore[attr-defined]
        return path(self.full_path.removeprefix("/"), opened, name=self.name)

    def _checked(self) -> Callable[..., HttpResponseBase]:
        """The view for those who may open it.

        People without a business, and those whose role does not open the area, or does not change it when the method is
        not a safe one, get 403. A form that was filled in for the other environment changes nothing.
        """

        @wraps(self.view)
        def checked(request: HttpRequest, **parts: Any) -> HttpResponseBase:
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
            return self.view(request, visit, **parts)

        return checked

    def _require_support_may(self, request: HttpRequest) -> None:
        """Require what a staff member may do who looks at a business: read the pages that hold no texts.

        The one exception changes the staff member's own environment and zone, never the business. Raises
        PermissionDenied.
        """
        if self.name == PREFERENCES or (self.name in SHOWN_TO_SUPPORT and request.method in READ):
            return
        cannot = "open this page" if request.method in READ else "change anything"
        raise PermissionDenied(f"You look at this business as our team: you cannot {cannot}.")

    def _without_business(self, request: HttpRequest) -> HttpResponse:
        """Home leads staff without a business to the staff admin."""
        if self.full_path == "/console" and getattr(request.user, "is_staff", False):
            return redirect("admin:index")
        raise PermissionDenied("This account belongs to no business.")


def page_of(request: HttpRequest) -> Page | None:
    """The row of the requested page; None for pages outside the table, such as the log-in."""
    page: Page | None = getattr(getattr(request.resolver_match, "func", None), "console_page", None)
    return page


def _switched_since(request: HttpRequest) -> HttpResponse:
    """Answer 409 to a form of the other environment: nothing is changed, and one button leads back to its page."""
    page = urlsplit(request.headers.get("Referer", ""))
    back = f"{page.path}?{page.query}" if page.netloc == request.get_host() else reverse("console")
    return render(request, "console/switched_since.html", {"back": back}, status=409)


def _follow_link(request: HttpRequest, visit: Visit) -> HttpResponse | None:
    """Redirect a mail's link to its page, in the environment that it names. None for other requests."""
    wanted = request.GET.get(LINKED_ENVIRONMENT)
    if request.method != "GET" or wanted not in {LIVE, TEST} or not visit.switchable:
        return None
    if wanted != visit.environment:
        request.session[environment_key(visit.tenant)] = wanted
        messages.info(request, f"The link that you followed is about {wanted}: you are in {wanted} now.")
    return redirect(request.path)


def _refusal(visit: Visit, area: Area) -> str:
    role = visit.user.get_role_display()
    cannot = "change anything here" if visit.may_read(area) else "open this page"
    return f"Your role is {role}: you cannot {cannot}. An owner of the account can change your role."
