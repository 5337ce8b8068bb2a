"""A visit to the console: the person, the tenant, the environment (live or test), the time zone, and what the person
may do.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from gateway import roles
from gateway.api.errors import NotFound, ServiceError
from gateway.clock import now
from gateway.roles import Area
from phone_numbers.models import PhoneNumber
from tenants.models import ApiKey, Tenant, User
from tenants.staff import support_view

LIVE, TEST = ApiKey.Environment.LIVE, ApiKey.Environment.TEST
ENVIRONMENT = "environment"
"""The session key of the chosen environment."""
TIME_ZONE = "time_zone"
"""The form field of the time zone in which pages show times to the person."""
MOST_CHOICES = 2_000
"""The maximum number of phone numbers that a form offers."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit to the console: person, tenant, environment and time zone."""

    user: User
    tenant: Tenant
    environment: str
    zone: ZoneInfo
    support_until: datetime | None = None
    """The end of a staff member's support view (`tenants/staff/support_view.py`)."""

    @property
    def scope(self) -> dict[str, Any]:
        """The arguments that limit queries to the visit's tenant and environment. Pass them on with `**`."""
        return {"tenant_id": self.tenant.id, "environment": self.environment}

    @property
    def is_support(self) -> bool:
        """Whether staff see the console in a support view. A support view changes nothing and shows no texts of
        messages.
        """
        return self.support_until is not None

    @property
    def zone_name(self) -> str:
        """The abbreviation that the zone has now, e.g. `IST`."""
        return now().astimezone(self.zone).tzname() or self.zone.key

    @property
    def switchable(self) -> bool:
        """Whether the tenant has both environments. A sandbox tenant has only `test`."""
        return not self.tenant.sandbox

    @property
    def awaits_approval(self) -> bool:
        """Whether the account awaits approval."""
        return self.tenant.status == Tenant.Status.PENDING_APPROVAL

    def is_open(self, environment: str) -> bool:
        """Whether the account's status allows changes in an environment. Before the approval, only `test` can be
        changed.
        """
        return self.tenant.status == Tenant.Status.ACTIVE or (self.awaits_approval and environment == TEST)

    def may_read(self, area: Area | None) -> bool:
        """Whether the person may read an area. Everybody may read a page without an area."""
        if self.is_support:
            return area != Area.CONVERSATIONS
        return area is None or roles.may_read(self.user.role, area)

    def may_change(self, area: Area | None) -> bool:
        """Whether the person may change an area. Nobody may change anything in a support view."""
        return not self.is_support and (area is None or roles.may_change(self.user.role, area))


def visit_of(request: HttpRequest) -> Visit | None:
    """The visit of a request. None for anonymous requests, and for staff outside of a support view."""
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
    """The session key of the chosen environment. Before the approval another key is used, so a choice made then does
    not apply after the approval.
    """
    return "environment_before_approval" if tenant.status == Tenant.Status.PENDING_APPROVAL else ENVIRONMENT


def _first_seen(tenant: Tenant) -> str:
    """The default environment: the sandbox while the account awaits approval, then live."""
    return TEST if tenant.status == Tenant.Status.PENDING_APPROVAL else LIVE


def shown_numbers(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """The phone numbers as shown to people, by `phone_number_id`. Numbers that have left the tenant are missing."""
    rows = PhoneNumber.objects.for_environment(**visit.scope).filter(
        phone_number_id__in={id_ for id_ in ids if id_}
    )
    names = rows.values_list("phone_number_id", "display_phone_number")
    return {number: shown or number for number, shown in names}


def sending_numbers(visit: Visit) -> list[tuple[str, str]]:
    """The numbers that can send, newest first."""
    rows = PhoneNumber.objects.for_environment(**visit.scope).filter(
        connection_state=PhoneNumber.State.CONNECTED
    )
    names = rows.order_by("-id").values_list("phone_number_id", "display_phone_number", "verified_name")
    return [
        (number, " ".join(filter(None, (shown or number, name))))
        for number, shown, name in names[:MOST_CHOICES]
    ]


@contextmanager
def or_404() -> Iterator[None]:
    """Show a 404 page when the block raises NotFound."""
    try:
        yield
    except NotFound as error:
        raise Http404(error.text) from None


class flash_errors:  # noqa: N801 - a context manager, read as `with flash_errors(request):`
    """Show a service error as a message on the next page. NotFound becomes a 404 page."""

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
    """Raise PermissionDenied for an account that is not active. An account that awaits approval may change
    its sandbox.
    """
    if not visit.is_open(visit.environment):
        raise PermissionDenied("This account is not active.")


def require_active(visit: Visit) -> None:
    """Raise PermissionDenied for an account that is not active."""
    if visit.tenant.status != Tenant.Status.ACTIVE:
        raise PermissionDenied("This account is not active.")
