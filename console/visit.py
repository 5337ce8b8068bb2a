"""A person's visit to the console: tenant, role, environment (live or test), time zone, and what they allow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from gateway import roles
from gateway.api.errors import NotFound, ServiceError
from gateway.clock import now
from gateway.roles import Area
from tenants.models import ApiKey, Tenant, User
from tenants.staff import support_view

LIVE, TEST = ApiKey.Environment.LIVE, ApiKey.Environment.TEST
ENVIRONMENT = "environment"
"""The session's key with the environment that the person looks at."""
TIME_ZONE = "time_zone"
"""The field with the time zone that the person reads times in."""
TIME_ZONES = (
    "Asia/Kolkata",
    "UTC",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "Africa/Nairobi",
    "America/Chicago",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Colombo",
    "Asia/Dhaka",
    "Asia/Dubai",
    "Asia/Hong_Kong",
    "Asia/Jakarta",
    "Asia/Karachi",
    "Asia/Kathmandu",
    "Asia/Riyadh",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "Pacific/Auckland",
)
"""Those that a person can choose, by their names in the IANA database."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit to the console: who, of which tenant, in which environment and time zone."""

    user: User
    tenant: Tenant
    environment: str
    zone: ZoneInfo
    support_until: datetime | None = None
    """For a staff member who looks at the business (`tenants/staff/support_view.py`): until when."""

    @property
    def is_support(self) -> bool:
        """Whether a staff member looks: nothing is changed, and no texts are shown."""
        return self.support_until is not None

    @property
    def zone_name(self) -> str:
        """The zone as times name it, e.g. `IST`."""
        return now().astimezone(self.zone).tzname() or self.zone.key

    @property
    def switchable(self) -> bool:
        """Whether both environments can be visited; a sandbox tenant has `test` alone."""
        return not self.tenant.sandbox

    @property
    def awaits_approval(self) -> bool:
        """Whether the account awaits approval."""
        return self.tenant.status == Tenant.Status.PENDING_APPROVAL

    def is_open(self, environment: str) -> bool:
        """Whether the account's status lets an environment be changed; while it awaits approval, `test` alone."""
        return self.tenant.status == Tenant.Status.ACTIVE or (self.awaits_approval and environment == TEST)

    def may_read(self, area: Area | None) -> bool:
        """Whether the person's role opens an area; a page without one is everybody's."""
        if self.is_support:
            return area != Area.CONVERSATIONS
        return area is None or roles.may_read(self.user.role, area)

    def may_change(self, area: Area | None) -> bool:
        """Whether the person's role changes an area."""
        return not self.is_support and (area is None or roles.may_change(self.user.role, area))


def visit_of(request: HttpRequest) -> Visit | None:
    """The visit behind a request; None for strangers, and for staff who look at no business."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    view = support_view.current(request, user)
    tenant = view.tenant if view else user.tenant
    if tenant is None:
        return None
    session = request.session
    chosen = session.get(environment_key(tenant), session.get(ENVIRONMENT, _first_seen(tenant)))
    environment = TEST if tenant.sandbox else chosen
    return Visit(user, tenant, environment, ZoneInfo(user.time_zone), view.until if view else None)


def environment_key(tenant: Tenant) -> str:
    """The session's key with the environment that the person chose. Approval opens live: it ends earlier choices."""
    return "environment_before_approval" if tenant.status == Tenant.Status.PENDING_APPROVAL else ENVIRONMENT


def _first_seen(tenant: Tenant) -> str:
    """The environment of a person who has not chosen one: the sandbox while the account awaits approval."""
    return TEST if tenant.status == Tenant.Status.PENDING_APPROVAL else LIVE


@contextmanager
def or_404() -> Iterator[None]:
    """Turn NotFound of a flow into a page 404."""
    try:
        yield
    except NotFound as error:
        raise Http404(error.text) from None


class flash_errors:  # noqa: N801 - a context manager, read as `with flash_errors(request):`
    """Show a service error as a message on the next page; NotFound is a page 404."""

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
    """Require an active account, or one that awaits approval and changes its sandbox alone. Raises PermissionDenied."""
    if not visit.is_open(visit.environment):
        raise PermissionDenied("This account is not active.")


def require_active(visit: Visit) -> None:
    """Require an active account. Raises PermissionDenied."""
    if visit.tenant.status != Tenant.Status.ACTIVE:
        raise PermissionDenied("This account is not active.")
