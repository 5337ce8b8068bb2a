"""The tenant's four first steps. The apps above call `mark` when a fact of theirs changes."""

from typing import Literal
from uuid import UUID

from gateway.database.statements import Statements
from tenants.models import Tenant

Step = Literal["number_connected", "api_key_created", "webhook_verified", "test_message_sent"]


def marking_test_message(tenant_id: UUID) -> Statements[None]:
    """The statement that marks `test_message_sent`, for a flow that is no function of Django's ORM."""
    yield (
        "UPDATE tenants_tenant SET test_message_sent = true WHERE id = %s AND NOT test_message_sent",
        [tenant_id],
    )


def mark(*, tenant_id: UUID, step: Step, done: bool = True) -> None:
    """Store a step's state; writes only when it changes."""
    Tenant.objects.filter(pk=tenant_id, **{step: not done}).update(**{step: done})
