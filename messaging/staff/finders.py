"""Batches in the staff's search, and their line on a tenant's page."""

from collections.abc import Iterator

from django.urls import reverse

from gateway import ids
from messaging.models import Batch
from tenants.models import Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.lookup import Hit, Line, register_finder, register_lines


@register_finder("messaging.view_batch")
def _batches(text: str) -> Iterator[Hit]:
    key = ids.decode(ids.BATCH, ids.typed(text))
    for batch in Batch.objects.filter(pk=key).select_related("tenant") if key else ():
        yield Hit(
            "Batch", batch.public_id, f"{batch.tenant.name}, {batch.status}", change_url(Batch, batch.pk)
        )


@register_lines("messaging.view_batch")
def _lines(tenant: Tenant) -> Iterator[Line]:
    newest = Batch.objects.for_tenant(tenant.id).order_by("-id").first()
    if newest is not None:
        text = f"the newest {newest.status}: {newest.accepted:,} of {newest.total:,} accepted, {newest.failed:,} failed"
        yield Line("Batches", text, f"{reverse('admin:messaging_batch_changelist')}?q={tenant.id}")
