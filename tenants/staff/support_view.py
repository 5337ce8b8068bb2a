"""Support views: a staff member sees a tenant's console, read only, for half an hour.

The view is stored in the session of the staff member, so log-out ends it. `console/visit.py` creates a visit from the
view.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.http import HttpRequest

from gateway.clock import now
from tenants import audit
from tenants.credentials.log_in import lacks_second_factor
from tenants.models import Tenant, User

LASTS = timedelta(minutes=30)
PERMISSION = "tenants.view_tenant"
_KEY = "support_view"
SHOWN_PAGES = frozenset(
    f"console{name}"
    for name in (
        "",
        "_api_keys",
        "_audit",
        "_batch",
        "_batch_progress",
        "_batches",
        "_billing",
        "_credit_note",
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
"""The names of the console's routes that a view may read. All other pages, including new ones, are closed to staff."""
PREFERENCES = "console_preferences"
"""The only route on which a view may make changes. There, staff change their own environment and time zone, which does
not affect the tenant.
"""


def allows(page: str, *, is_read: bool) -> bool:
    """Whether a view may read (`is_read`) or change a page of the console, by the name of its route."""
    return page == PREFERENCES or (is_read and page in SHOWN_PAGES)


@dataclass(frozen=True, slots=True)
class SupportView:
    """A tenant that a staff member views, and the end of the view."""

    tenant: Tenant
    until: datetime


def begin(request: HttpRequest, *, tenant: Tenant, user: User, reason: str) -> None:
    """Begin a view of a tenant. The tenant's audit log records the staff member and the reason."""
    until = now() + LASTS
    with transaction.atomic():
        audit.record(
            action="support.view",
            target_type="tenant",
            target_id=tenant.pk,
            tenant_id=tenant.pk,
            actor_user_id=user.pk,
            details={"reason": reason, "until": until.isoformat()},
        )
    request.session[_KEY] = {"user": user.pk, "tenant": str(tenant.pk), "until": until.isoformat()}


def current(request: HttpRequest, user: User) -> SupportView | None:
    """The user's open view. None if no view is open, the view has ended, or the user may not enter the staff admin."""
    kept = request.session.get(_KEY)
    if kept is None or kept["user"] != user.pk:
        return None
    until = datetime.fromisoformat(kept["until"])
    if until <= now() or not user.is_staff or not user.has_perm(PERMISSION) or lacks_second_factor(user):
        return None
    tenant = Tenant.objects.filter(pk=kept["tenant"]).first()
    return SupportView(tenant, until) if tenant else None


def end(request: HttpRequest, user: User) -> Tenant | None:
    """End the open view of a user and record the end. Returns the view's tenant, or None when no view was open."""
    view = current(request, user)
    if view is not None:
        with transaction.atomic():
            audit.record(
                action="support.view_end",
                target_type="tenant",
                target_id=view.tenant.pk,
                tenant_id=view.tenant.pk,
                actor_user_id=user.pk,
            )
    request.session.pop(_KEY, None)
    return view.tenant if view else None
