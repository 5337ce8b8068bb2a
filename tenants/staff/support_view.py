"""Support views: a staff member sees the console as a business does, read only, for half an hour.

A view is kept in the session of the staff member, so it ends with the log-out. `console/visit.py` makes a visit of it,
and `console/page.py` says what it opens.
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


@dataclass(frozen=True, slots=True)
class SupportView:
    """A business that a staff member looks at, until a moment."""

    tenant: Tenant
    until: datetime


def begin(request: HttpRequest, *, tenant: Tenant, user: User, reason: str) -> None:
    """Begin a view of a business and record it in its audit log, which names the staff member and the reason."""
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
    """The view that a person has open. None once it is over, and for members who may not enter the staff admin."""
    kept = request.session.get(_KEY)
    if kept is None or kept["user"] != user.pk:
        return None
    until = datetime.fromisoformat(kept["until"])
    if until <= now() or not user.is_staff or not user.has_perm(PERMISSION) or lacks_second_factor(user):
        return None
    tenant = Tenant.objects.filter(pk=kept["tenant"]).first()
    return SupportView(tenant, until) if tenant else None


def end(request: HttpRequest, user: User) -> Tenant | None:
    """End the view that a person has open, and record that. Returns its business; None when none was open."""
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
