"""Decisions of staff about a tenant: each changes its status, with an audit entry and a mail, in one transaction.

A decision locks the tenant, so of two reviewers at once one wins and the other gets a Conflict. The key mirror follows
after the commit.
"""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from django.db import transaction

from gateway.api.errors import Conflict, NotFound
from tenants import audit, mail
from tenants.credentials import key_cache
from tenants.models import Tenant

Changes = dict[str, Any]


def decide(
    action: str,
    tenant_id: UUID,
    actor_user_id: int | None,
    allowed_from: Collection[str],
    changes_for: Callable[[Tenant], Changes],
    *,
    mailed: str | Callable[[Tenant], str],
    note: str = "",
) -> Tenant:
    """Check the status, change, audit and mail. `mailed` is the mail's template, or finds it from the former tenant."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",)).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound("There is no such tenant.")
        if tenant.status not in allowed_from:
            raise Conflict(
                f"This tenant is {tenant.get_status_display().lower()} now: it cannot be {_DONE[action]}.",
                details={"status": tenant.status},
            )
        after = changes_for(tenant)
        template = mailed(tenant) if callable(mailed) else mailed
        before = {field: getattr(tenant, field) for field in after}
        for field, value in after.items():
            setattr(tenant, field, value)
        tenant.save(update_fields=list(after))
        audit.record(
            action=f"tenant.{action}",
            target_type="tenant",
            target_id=tenant.id,
            tenant_id=tenant.id,
            actor_user_id=actor_user_id,
            details={"before": before, "after": after, **({"note": note} if note else {})},
        )
        mail.send_to_tenant(tenant=tenant, template=template)
        transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    return tenant


_DONE = {"approve": "approved", "reject": "rejected", "suspend": "suspended", "reinstate": "reinstated"}
