"""Platform apps: their tenants and their keys."""

from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from gateway.api.errors import Conflict, InvalidRequest, NotFound
from gateway.clock import now
from tenants import audit, tenant_status
from tenants.credentials import api_keys, key_cache
from tenants.models import PlatformApp, Tenant
from tenants.signals import sandbox_wanted

# --- Tenants that platform apps create. Decisions of staff are in `tenant_status.py`.

MOST_SANDBOX_TENANTS = 100
"""The maximum number of sandbox tenants of a platform app. Each tenant also has numbers and conversations in the
simulator's memory.
"""


def create_for_app(
    *,
    app_id: UUID,
    name: str,
    external_ref: str | None,
    retention_days: int,
    sandbox: bool,
    acting_key_id: UUID | None = None,
) -> Tenant:
    """Create a tenant of a platform app. It is active at once.

    Raises InvalidRequest for an external_ref that another live tenant, or another sandbox tenant, of the app has, and
    Conflict at the limit of sandbox tenants.
    """
    moment = now()
    try:
        with transaction.atomic():
            if sandbox:
                _require_room_for_sandbox(app_id)
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
                trial_ends_at=None if sandbox else tenant_status.trial_end(moment),
            )
            audit.record(
                action="tenant.create",
                target_type="tenant",
                target_id=tenant.id,
                tenant_id=tenant.id,
                acting_key_id=acting_key_id,
                details={"app_id": str(app_id), "sandbox": sandbox},
            )
            if sandbox:
                sandbox_wanted.send(Tenant, tenant_id=tenant.id)
            transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    except IntegrityError:
        raise InvalidRequest.of(external_ref="Another tenant of this app has this external_ref.") from None
    return tenant


def _require_room_for_sandbox(app_id: UUID) -> None:
    """Raise Conflict when a platform app has the maximum number of sandbox tenants. The app's row is locked, so
    simultaneous calls wait.
    """
    PlatformApp.objects.select_for_update(no_key=True).get(pk=app_id)
    if Tenant.objects.for_app(app_id).sandboxes().count() >= MOST_SANDBOX_TENANTS:
        raise Conflict(
            f"This platform has {MOST_SANDBOX_TENANTS} sandbox tenants, which is the maximum.",
            hint="Use one again for the next test: GET /v1/tenants?external_ref=… finds it.",
            details={"limit": MOST_SANDBOX_TENANTS},
        )


# --- Platform apps and their keys, created by the API, the admin and commands.


def create_app(*, name: str, actor_user_id: int | None = None) -> PlatformApp:
    """Create a platform app, with an audit entry."""
    with transaction.atomic():
        app = PlatformApp.objects.create(name=name)
        audit.record(
            action="app.create",
            target_type="app",
            target_id=app.id,
            actor_user_id=actor_user_id,
            details={"name": name},
        )
    return app


def create_app_key(
    *,
    app_id: UUID,
    name: str,
    environment: str,
    expires_at: datetime | None = None,
    actor_user_id: int | None = None,
) -> api_keys.NewKey:
    """Create a key of a platform app. Raises NotFound for an unknown app."""
    return api_keys.create(
        name=name,
        environment=environment,
        app=find(app_id),
        expires_at=expires_at,
        actor_user_id=actor_user_id,
    )


def find(app_id: UUID) -> PlatformApp:
    """The platform app with this id. Raises NotFound."""
    app = PlatformApp.objects.filter(pk=app_id).first()
    if app is None:
        raise NotFound("There is no such platform app.")
    return app
