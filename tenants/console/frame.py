"""The frame of the console's pages: navigation, environment (live or test), time zone, and who is asked.

Each app registers its own pages, first steps and warnings in its `AppConfig.ready`; this module only holds the lists.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, cast
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache

from gateway.api.errors import NotFound, ServiceError
from tenants.checklist import Step
from tenants.console import outbox
from tenants.models import ApiKey, Tenant, User

LIVE, TEST = ApiKey.Environment.LIVE, ApiKey.Environment.TEST
ENVIRONMENT = "environment"
"""The session's note of the environment that the person looks at."""
TIME_ZONE = "time_zone"
"""The cookie with the time zone that the person reads times in."""
TIME_ZONES = {"Asia/Kolkata": "IST", "UTC": "UTC"}


@dataclass(frozen=True, slots=True)
class Page:
    """An entry of the navigation. `prefix` is what the paths of the page and of those below it begin with."""

    title: str
    url_name: str
    prefix: str
    order: int


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One of the four first steps: its button leads to `url_name`."""

    step: Step
    title: str
    text: str
    button: str
    url_name: str
    order: int


@dataclass(frozen=True, slots=True)
class HomeWarning:
    """Something that needs the customer: a sentence, and the page on which it is repaired."""

    text: str
    button: str
    url: str
    level: Literal["bad", "warn"] = "warn"


Warnings = Callable[[Tenant, str], list[HomeWarning]]

_pages: list[Page] = []
_steps: list[FirstStep] = []
_warnings: list[Warnings] = []


def register(*, pages: list[Page] | None = None, steps: list[FirstStep] | None = None) -> None:
    """Add an app's pages and first steps, each in the place that its `order` says."""
    _pages.extend(pages or [])
    _pages.sort(key=lambda page: page.order)
    _steps.extend(steps or [])
    _steps.sort(key=lambda step: step.order)


def warns(function: Warnings) -> Warnings:
    """Register what an app warns of on the home page: (tenant, environment) → warnings."""
    _warnings.append(function)
    return function


def steps() -> list[FirstStep]:
    """The first steps, in their order."""
    return _steps


def warnings_of(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """What needs the customer now, the worst first."""
    found = [warning for function in _warnings for warning in function(tenant, environment)]
    return sorted(found, key=lambda warning: warning.level != "bad")


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


def visit_of(request: HttpRequest) -> Visit | None:
    """The visit behind a request; None for strangers and for staff without a tenant."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or user.tenant is None:
        return None
    environment = TEST if user.tenant.sandbox else request.session.get(ENVIRONMENT, LIVE)
    zone = request.COOKIES.get(TIME_ZONE, "")
    return Visit(user, user.tenant, environment, ZoneInfo(zone if zone in TIME_ZONES else "Asia/Kolkata"))


def console_context(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what every page may name. `console` is the visit, for the frame around the page."""
    visit = visit_of(request)
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "base_url": settings.BASE_URL,
        "support_email": settings.SUPPORT_EMAIL,
        "console": visit,
        "has_outbox": outbox.is_open(),
        "console_pages": [{"page": page, "current": _below(request.path, page.prefix)} for page in _pages]
        if visit
        else [],
    }


def _below(path: str, prefix: str) -> bool:
    return path == prefix or (prefix != "/console" and path.startswith(f"{prefix}/"))


P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def console_page(view: Callable[Concatenate[HttpRequest, Visit, P], HttpResponse]) -> View[P]:
    """A page for a logged-in customer: the view gets the visit. Strangers log in first; staff without a tenant: 403."""

    @wraps(view)
    def asked(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        visit = visit_of(request)
        if visit is None:
            raise PermissionDenied("This account belongs to no business.")
        return view(request, visit, *args, **kwargs)

    return cast("View[P]", never_cache(login_required(asked)))


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


def require_active(visit: Visit) -> None:
    """Refuse a change while the account is not active (403)."""
    if visit.tenant.status != Tenant.Status.ACTIVE:
        raise PermissionDenied("This account is not active.")
