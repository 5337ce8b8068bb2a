"""Platform apps and their keys: made by staff, by API, admin and command alike."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from gateway.api.errors import NotFound
from tenants import audit
from tenants.credentials import api_keys
from tenants.models import PlatformApp


def create_app(*, name: str, actor_user_id: int | None = None) -> PlatformApp:
    """A new platform app, audited."""
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
    """A new key of a platform app. Raises NotFound for an unknown app."""
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
