"""Closing a tenant for good: staff suspend it, and its keys, endpoints, accounts and numbers end.

Called by `manage.py close_tenant`. Each step commits by itself and is safe to repeat: after a crash, closing again does
what was left. Events and invoices stay for as long as the tenant's retention and the law ask.
"""

from dataclasses import dataclass
from uuid import UUID

from gateway.api.errors import NotFound
from phone_numbers.leaving import releasing
from phone_numbers.models import BusinessAccount
from tenants import audit
from tenants.actors import Actor
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant
from tenants.standing import suspension
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint


@dataclass(frozen=True, slots=True)
class Closed:
    """How much of a tenant was ended by one closing."""

    keys: int
    endpoints: int
    numbers: int


def close(*, tenant_id: UUID, actor_user_id: int | None = None) -> Closed:
    """End everything a tenant can act with. Raises NotFound for an unknown tenant.

    The tenant is suspended with the reason `admin`; reinstating opens it again, without what was ended.
    """
    tenant = Tenant.objects.filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("There is no such tenant.")
    if tenant.status != Tenant.Status.SUSPENDED:
        suspension.suspend(tenant_id=tenant.id, reason="admin", note="Closed.", actor_user_id=actor_user_id)
    keys = ApiKey.objects.filter(tenant=tenant)
    open_keys = list(keys.filter(revoked_at__isnull=True).values_list("pk", flat=True))
    for key_id in open_keys:
        api_keys.revoke(keys=keys, key_id=key_id, actor_user_id=actor_user_id)
    staff = Actor(user_id=actor_user_id)
    held = list(Endpoint.objects.filter(tenant=tenant).values_list("environment", "pk"))
    for environment, endpoint_id in held:
        lifecycle.delete(tenant_id=tenant.id, environment=environment, endpoint_id=endpoint_id, actor=staff)
    released = 0
    for account in BusinessAccount.objects.for_tenant(tenant.id):
        released += len(releasing.release_account(account, actor=staff))
    audit.record(
        action="tenant.close",
        target_type="tenant",
        target_id=tenant.id,
        tenant_id=tenant.id,
        actor_user_id=actor_user_id,
        details={"keys": len(open_keys), "endpoints": len(held), "numbers": released},
    )
    return Closed(keys=len(open_keys), endpoints=len(held), numbers=released)
