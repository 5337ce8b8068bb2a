"""Messages, customers, batches and templates in the console's search."""

from collections.abc import Iterator

from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from gateway import ids
from gateway.api.errors import NotFound
from gateway.roles import Area
from messaging.models import Batch, MessageTemplate
from messaging.recipient import typed_number
from tenants.console.frame import Visit
from tenants.console.search import MOST_HITS, Hit, finds
from webhooks.events import message_search


@finds(Area.INTEGRATION)
def _messages(visit: Visit, text: str) -> Iterator[Hit]:
    if not text.startswith("wamid."):
        return
    try:
        found = message_search.find(tenant_id=visit.tenant.id, environment=visit.environment, key=text)
    except NotFound:
        return
    yield Hit(
        "Message", f"{found.type or 'message'}, {found.status}", reverse("console_message", args=[text])
    )


@finds(Area.INTEGRATION)
def _customers(visit: Visit, text: str) -> Iterator[Hit]:
    if (number := typed_number(text)) is None:
        return
    found = message_search.search(
        tenant_id=visit.tenant.id, environment=visit.environment, equal={"wa_id": number}, limit=1
    )
    if found.rows:
        url = f"{reverse('console_messages')}?{urlencode({'wa_id': number})}"
        yield Hit("Customer", f"Messages with +{number}", url)


@finds(Area.INTEGRATION)
def _batches(visit: Visit, text: str) -> Iterator[Hit]:
    own = Batch.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    key = ids.decode(ids.BATCH, ids.typed(text))
    for batch in own.filter(Q(pk=key) if key else Q(client_ref=text)):
        title = batch.client_ref or batch.public_id
        yield Hit("Batch", title, reverse("console_batch", args=[batch.public_id]))


@finds(Area.INTEGRATION)
def _templates(visit: Visit, text: str) -> Iterator[Hit]:
    own = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    for row in own.filter(Q(name__icontains=text) | Q(template_id=text)).order_by("name", "language")[
        :MOST_HITS
    ]:
        yield Hit(
            "Template", f"{row.name} ({row.language})", reverse("console_template", args=[row.template_id])
        )
