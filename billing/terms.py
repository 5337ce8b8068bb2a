"""Terms by date: versions of price, included numbers, GST rate and days to pay, each from a month of service on.

General versions have a GST rate. A tenant's own version, agreed with staff, uses the general rate. A snapshot stores
the terms of its month, so a later version never changes what was counted or issued.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from billing.models import PlanVersion
from billing.pricing import gst
from billing.pricing.periods import Period
from billing.pricing.plan import Terms
from gateway.api.errors import InvalidRequest
from tenants import audit


def terms_for(tenant_id: UUID | None, period: Period) -> Terms:
    """The terms of a tenant for a month: its own version, else the general one, else the first terms.

    Without a tenant, the general terms.
    """
    month = str(period)
    in_force = PlanVersion.objects.filter(Q(ends="") | Q(ends__gte=month), starts__lte=month)
    newest = in_force.order_by("-starts", "-id")
    general, own = newest.filter(tenant=None).first(), newest.filter(tenant=tenant_id).first()
    version = own or general
    if version is None:
        return Terms()
    rate = general.gst_percent if general else None
    return Terms(
        first_number_paise=version.first_number_paise,
        additional_number_paise=version.additional_number_paise,
        included_numbers=version.included_numbers,
        gst_percent=Terms().gst_percent if rate is None else rate,
        due_days=version.due_days,
        version=str(version.pk),
    )


def require_valid(version: PlanVersion, at: datetime) -> None:
    """Raise InvalidRequest for a month that is over and was billed, and for a GST rate in a tenant's own version."""
    if Period.parse(version.starts) < Period.of(at):
        raise InvalidRequest.of(starts="A month that is over was billed already. Begin with a later one.")
    if version.ends and version.ends < version.starts:
        raise InvalidRequest.of(ends="Must not be before the first month.")
    if (version.gst_percent is None) != (version.tenant_id is not None):
        raise InvalidRequest.of(gst_percent="Everybody's terms have a GST rate; those of one tenant take it.")
    if version.gst_percent not in {None, *gst.RATES}:
        raise InvalidRequest.of(gst_percent=f"GST has the rates {', '.join(map(str, gst.RATES))} %.")


def add(version: PlanVersion, *, at: datetime, actor_user_id: int | None = None) -> PlanVersion:
    """Store a new version, with an audit entry. Raises InvalidRequest like `require_valid`."""
    require_valid(version, at)
    with transaction.atomic():
        version.created_at, version.created_by = at, actor_user_id
        version.save(force_insert=True)
        names = ("starts", "ends", "first_number_paise", "additional_number_paise", "included_numbers")
        audit.record(
            action="billing.terms",
            target_type="plan_version",
            target_id=version.pk,
            tenant_id=version.tenant_id,
            actor_user_id=actor_user_id,
            details={name: getattr(version, name) for name in (*names, "gst_percent", "due_days", "reason")},
        )
    return version
