"""The checklist of a tenant: four first steps. The flow that completes a step calls `mark`."""

from typing import Literal
from uuid import UUID

from gateway.database.statements import Statements
from tenants.models import Tenant

Step = Literal["number_connected", "api_key_created", "webhook_verified", "test_message_sent"]


def marking_test_message(tenant_id: UUID) -> Statements[None]:
    """The SQL statement that marks `test_message_sent`, for flows that do not use Django's ORM."""
    yield (
        "UPDATE tenants_tenant SET test_message_sent = true WHERE id = %s AND NOT test_message_sent",
        [tenant_id],
    )


def mark(*, tenant_id: UUID, step: Step, done: bool = True) -> None:
    """Store the state of a step. Writes only when the state changes."""
    Tenant.objects.filter(pk=tenant_id, **{step: not done}).update(**{step: done})
