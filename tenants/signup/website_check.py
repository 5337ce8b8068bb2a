"""Website check of a new business: adds flags for the reviewer, never refuses (WEBSITE_CHECK, off by default).

Runs as a task after the confirmation, through the guarded door to the outside.
"""

from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from gateway.outbound import client
from gateway.task_queue import enqueue
from tenants.models import Tenant
from tenants.signup import flags

log = structlog.get_logger(__name__)

_PARKED = (b"domain is for sale", b"buy this domain", b"parked free", b"domain parking", b"sedoparking")


def after_commit(tenant: Tenant) -> None:
    """Check a tenant's website when the current transaction commits, where WEBSITE_CHECK is on."""
    if settings.WEBSITE_CHECK:
        transaction.on_commit(lambda: enqueue("tenants.tasks.check_website", tenant_id=str(tenant.id)))


def check(tenant_id: UUID) -> None:
    """Get the website once and flag it when it does not answer or is a parking page."""
    tenant = Tenant.objects.get(pk=tenant_id)
    if not tenant.website:
        return
    answer = client.get_once(tenant.website, {}, allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS)
    if not answer.concerns_receiver:
        return
    if answer.status is None or answer.status >= 400:
        found = flags.flag("website_unreachable", "warning", "The website did not answer.")
    elif any(words in answer.body.lower() for words in _PARKED):
        found = flags.flag("website_parked", "high", "The website looks like a parking page.")
    else:
        return
    with transaction.atomic():
        row = Tenant.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        row.flags = [*(kept for kept in row.flags if kept["code"] != found["code"]), found]
        row.save(update_fields=["flags"])
