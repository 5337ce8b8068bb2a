"""Tenants are created by apps and change their own details. Decisions of staff about them are in `standing/`."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import IntegrityError, transaction

from gateway.api.errors import InvalidRequest
from gateway.clock import now
from tenants import audit
from tenants.credentials import key_cache
from tenants.models import PlatformApp, Tenant

IST = ZoneInfo("Asia/Kolkata")


def trial_end(start: datetime) -> datetime:
    """The end of a trial: at least TRIAL_DAYS, then on to the next start of a month in IST."""
    local = (start + timedelta(days=settings.TRIAL_DAYS)).astimezone(IST)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if local == midnight and local.day == 1:
        return local.astimezone(start.tzinfo)
    first_of_next = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return first_of_next.astimezone(start.tzinfo)


def create_for_app(
    *,
    app_id: UUID,
    name: str,
    external_ref: str | None,
    retention_days: int,
    sandbox: bool,
    acting_key_id: UUID | None = None,
) -> Tenant:
    """A tenant created by a platform app: active at once. Raises InvalidRequest for an external_ref used before."""
    moment = now()
    try:
        with transaction.atomic():
            tenant = Tenant.objects.create(
                app=PlatformApp.objects.get(pk=app_id),
                name=name,
                external_ref=external_ref,
                retention_days=retention_days,
                sandbox=sandbox,
                status=Tenant.Status.ACTIVE,
                created_via="app",
                approved_at=moment,
                billing_status=Tenant.BillingStatus.EXEMPT if sandbox else Tenant.BillingStatus.TRIALING,
                trial_ends_at=None if sandbox else trial_end(moment),
            )
            audit.record(
                action="tenant.create",
                target_type="tenant",
                target_id=tenant.id,
                tenant_id=tenant.id,
                acting_key_id=acting_key_id,
                details={"app_id": str(app_id), "sandbox": sandbox},
            )
            transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    except IntegrityError:
        raise InvalidRequest.of(external_ref="Another tenant of this app has this external_ref.") from None
    return tenant


def change(
    *,
    tenant_id: UUID,
    changes: dict[str, Any],
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> Tenant:
    """Change a tenant's own settings (name, billing_email, retention_days), with before and after audited."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        before = {field: getattr(tenant, field) for field in changes}
        changed = {field: value for field, value in changes.items() if before[field] != value}
        if changed:
            for field, value in changed.items():
                setattr(tenant, field, value)
            tenant.save(update_fields=list(changed))
            audit.record(
                action="tenant.update",
                target_type="tenant",
                target_id=tenant.id,
                tenant_id=tenant.id,
                actor_user_id=actor_user_id,
                acting_key_id=acting_key_id,
                details={"before": {field: before[field] for field in changed}, "after": changed},
            )
    return tenant
