"""The frame of the console's pages: navigation, environment (live or test), time zone, and what a person's role opens.

Each app registers its own pages and warnings by its `pages` module, imported with the URLs; this one only holds the
lists.
Each page names the area that it belongs to (`console_page`); the roles of `gateway/roles.py` open areas.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, wraps
from itertools import groupby
from typing import Any, Concatenate, Literal, ParamSpec, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import resolve, reverse
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from gateway import roles
from gateway.api.errors import NotFound, ServiceError
from gateway.roles import Area
from tenants.console import outbox
from tenants.models import ApiKey, Tenant, User

log = structlog.get_logger(__name__)

LIVE, TEST = ApiKey.Environment.LIVE, ApiKey.Environment.TEST
ENVIRONMENT = "environment"
"""The session's note of the environment that the person looks at."""
FOR_ENVIRONMENT = "for_environment"
"""The form field with the environment that the person saw while filling it in; another tab may have switched since."""
LINKED_ENVIRONMENT = "in"
"""The query parameter by which a mail's link names the environment of its page."""
TIME_ZONE = "time_zone"
"""The cookie with the time zone that the person reads times in."""
TIME_ZONES = {"Asia/Kolkata": "IST", "UTC": "UTC"}


class Section(Enum):
    """A heading of the navigation, in the order in which the headings are shown. The first pages have none."""

    OVERVIEW = ""
    TRY = "Try it out"
    MESSAGES = "Messaging"
    WEBHOOKS = "Webhooks"
    DEVELOPERS = "Developers"
    ACCOUNT = "Account"


SECTIONS = list(Section)


@dataclass(frozen=True, slots=True)
class Page:
    """An entry of the navigation, at its `order` in its section.

    `prefix` is what the paths of the page and of those below it begin with.
    """

    title: str
    url_name: str
    prefix: str
    section: Section
    order: int


@dataclass(frozen=True, slots=True)
class HomeWarning:
    """Something that needs the customer: a sentence, and the page on which it is repaired."""

    text: str
    button: str
    url: str
    level: Literal["bad", "warn"] = "warn"


Warnings = Callable[[Tenant, str], list[HomeWarning]]
Panel = Callable[["Visit"], SafeString | None]
"""A part of the home page as HTML; None when there is nothing to show."""
AREA, OF_ENVIRONMENT = "console_area", "console_environment"
"""The attributes of a page's view that hold its area, and the environment that the page is always in, or None."""

_pages: list[Page] = []
_warnings: list[tuple[Area, Warnings]] = []
_panels: list[tuple[Area, Panel]] = []


def register(*pages: Page) -> None:
    """Add an app's pages to the navigation, each in the place that its `order` says."""
    _pages.extend(pages)
    _pages.sort(key=lambda page: (SECTIONS.index(page.section), page.order))


def warns(area: Area) -> Callable[[Warnings], Warnings]:
    """Register an app's warnings on the home page for those who may read the area: (tenant, environment) → warnings."""

    def registered(function: Warnings) -> Warnings:
        _warnings.append((area, function))
        return function

    return registered


def shows(area: Area) -> Callable[[Panel], Panel]:
    """Register a part of the home page for those who may read the area."""

    def registered(function: Panel) -> Panel:
        _panels.append((area, function))
        return function

    return registered


@dataclass(frozen=True, slots=True)
class Visit:
    """A customer's look at the console: who, of which tenant, in which environment, in which time zone."""

    user: User
    tenant: Tenant
    environment: str
    zone: ZoneInfo

    @property
    def zone_name(self) -> str:
        return TIME_ZONES[self.zone.key]

    @property
    def switchable(self) -> bool:
        """Whether there are two environments to look at; a sandbox tenant has `test` alone."""
        return not self.tenant.sandbox

    @property
    def waits(self) -> bool:
        """Whether the account waits for approval."""
        return self.tenant.status == Tenant.Status.PENDING_APPROVAL

    def is_open(self, environment: str) -> bool:
        """Whether the account's status lets an environment be changed; while it waits for approval, `test` alone."""
        return self.tenant.status == Tenant.Status.ACTIVE or (self.waits and environment == TEST)

    def may_read(self, area: Area | None) -> bool:
        """Whether the person's role opens an area; a page without one is everybody's."""
        return area is None or roles.may_read(self.user.role, area)

    def may_change(self, area: Area | None) -> bool:
        """Whether the person's role changes an area."""
        return area is None or roles.may_change(self.user.role, area)


def pages_of(visit: Visit) -> list[Page]:
    """The pages of the navigation that the person's role opens."""
    return [page for page in _pages if visit.may_read(area_of_page(page.url_name))]


def warnings_of(visit: Visit) -> list[HomeWarning]:
    """What needs the customer now, the worst first. An app whose warnings fail leaves those of the others."""
    found = [
        warning
        for area, function in _warnings
        if visit.may_read(area)
        for warning in _isolated(function, visit)
    ]
    return sorted(found, key=lambda warning: warning.level != "bad")


def _isolated(function: Warnings, visit: Visit) -> list[HomeWarning]:
    try:
        with transaction.atomic():
            return function(visit.tenant, visit.environment)
    except Exception as error:  # noqa: BLE001 - the home page must open whatever one app's rows hold
        log.error("home_warnings_failed", app=function.__module__, error=type(error).__name__)
        text = "Something could not be checked just now. If this stays, write to our support."
        return [HomeWarning(text, "Try again", reverse("console"))]


def panels_of(visit: Visit) -> list[SafeString]:
    """The parts of the home page that the person's role opens. One that fails is left out."""
    shown = []
    for area, function in _panels:
        if not visit.may_read(area):
            continue
        try:
            with transaction.atomic():
                shown.append(function(visit))
        except Exception as error:  # noqa: BLE001 - the home page must open whatever one app's rows hold
            log.error("home_panel_failed", app=function.__module__, error=type(error).__name__)
    return [panel for panel in shown if panel]


def visit_of(request: HttpRequest) -> Visit | None:
    """The visit behind a request; None for strangers and for staff without a tenant."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or user.tenant is None:
        return None
    environment = TEST if user.tenant.sandbox else request.session.get(ENVIRONMENT, _first_seen(user.tenant))
    zone = request.COOKIES.get(TIME_ZONE, "")
    return Visit(user, user.tenant, environment, ZoneInfo(zone if zone in TIME_ZONES else "Asia/Kolkata"))


def _first_seen(tenant: Tenant) -> str:
    """The environment of a person who has not chosen one: the test world while the account waits for approval."""
    return TEST if tenant.status == Tenant.Status.PENDING_APPROVAL else LIVE


def console_context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what every page may name. `console` is the visit, for the frame around the page."""
    visit = visit_of(request)
    area = _area_of(request)
    role_changes = visit is not None and visit.may_change(area)
    is_closed = (
        visit is not None and area == Area.INTEGRATION and not visit.is_open(_environment_of(request, visit))
    )
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "base_url": settings.BASE_URL,
        "support_email": settings.SUPPORT_EMAIL,
        "console": visit,
        "has_outbox": outbox.is_open(),
        "console_may_read": visit is not None and visit.may_read(area),
        "console_may_change": role_changes and not is_closed,
        "console_is_closed": role_changes and is_closed,
        "console_sections": _navigation(visit, request.path) if visit else [],
    }


def _navigation(visit: Visit, path: str) -> list[dict[str, Any]]:
    """The sections of the navigation that have pages for the person, with those pages."""
    return [
        {
            "section": section,
            "entries": [{"page": page, "current": _below(path, page.prefix)} for page in pages],
        }
        for section, pages in groupby(pages_of(visit), key=lambda page: page.section)
    ]


def _area_of(request: HttpRequest) -> Area | None:
    """The area of the page that is asked for."""
    return getattr(getattr(request.resolver_match, "func", None), AREA, None)


def _environment_of(request: HttpRequest, visit: Visit) -> str:
    """The environment that the page asked for is in."""
    view = getattr(request.resolver_match, "func", None)
    return getattr(view, OF_ENVIRONMENT, None) or visit.environment


@cache
def area_of_page(url_name: str) -> Area | None:
    """The area of a page by its name."""
    return getattr(resolve(reverse(url_name)).func, AREA, None)


def _below(path: str, prefix: str) -> bool:
    return path == prefix or (prefix != "/console" and path.startswith(f"{prefix}/"))


P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def console_page(
    area: Area, *, environment: str | None = None
) -> Callable[[Callable[Concatenate[HttpRequest, Visit, P], HttpResponse]], View[P]]:
    """A page of an area for a logged-in customer: the view gets the visit. `environment`: the page is always in it.

    Strangers log in first. Staff without a tenant, and people whose role does not open the area, or does not change it
    when the method is not a safe one, get 403. A form that was filled in for the other environment changes nothing.
    """

    def page(view: Callable[Concatenate[HttpRequest, Visit, P], HttpResponse]) -> View[P]:
        @wraps(view)
        def asked(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            visit = visit_of(request)
            if visit is None:
                raise PermissionDenied("This account belongs to no business.")
            if (led := _led_by_link(request, visit)) is not None:
                return led
            if not roles.allows(visit.user.role, area, request.method or ""):
                raise PermissionDenied(_refusal(visit, area))
            if environment is not None:
                visit = replace(visit, environment=environment)
            elif request.POST.get(FOR_ENVIRONMENT, visit.environment) != visit.environment:
                return _switched_since(request)
            return view(request, visit, *args, **kwargs)

        opened = cast("View[P]", never_cache(login_required(asked)))
        setattr(opened, AREA, area)
        setattr(opened, OF_ENVIRONMENT, environment)
        return opened

    return page


def _switched_since(request: HttpRequest) -> HttpResponse:
    """The answer to a form of the other environment: nothing is changed, and one button leads back to it."""
    page = urlsplit(request.headers.get("Referer", ""))
    back = f"{page.path}?{page.query}" if page.netloc == request.get_host() else reverse("console")
    return render(request, "console/switched_since.html", {"back": back}, status=409)


def _led_by_link(request: HttpRequest, visit: Visit) -> HttpResponse | None:
    """The same page in the environment that a mail's link names, when the person looks at the other one."""
    wanted = request.GET.get(LINKED_ENVIRONMENT)
    if request.method != "GET" or wanted not in {LIVE, TEST} or not visit.switchable:
        return None
    if wanted != visit.environment:
        request.session[ENVIRONMENT] = wanted
        messages.info(request, f"The link that you followed is about {wanted}: you are in {wanted} now.")
    return redirect(request.path)


def _refusal(visit: Visit, area: Area) -> str:
    role = visit.user.get_role_display()
    cannot = "change anything here" if visit.may_read(area) else "open this page"
    return f"Your role is {role}: you cannot {cannot}. An owner of the account can change your role."


@contextmanager
def or_404() -> Iterator[None]:
    """Answer the page 404 for what a flow does not find."""
    try:
        yield
    except NotFound as error:
        raise Http404(error.text) from None


class told:  # noqa: N801 - a context manager, read as `with told(request):`
    """Show what a flow refuses as a sentence on the next page; what it does not find is a page 404."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, NotFound):
            raise Http404(error.text) from None
        if isinstance(error, ServiceError):
            messages.error(self.request, error.text)
        return isinstance(error, ServiceError)


def require_open(visit: Visit) -> None:
    """Refuse a change unless the account is active, or waits for approval and changes its test world alone (403)."""
    if not visit.is_open(visit.environment):
        raise PermissionDenied("This account is not active.")


def require_active(visit: Visit) -> None:
    """Refuse a change while the account is not active (403)."""
    if visit.tenant.status != Tenant.Status.ACTIVE:
        raise PermissionDenied("This account is not active.")
