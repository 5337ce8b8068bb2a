"""One row of each kind that a tenant can have, for tests of the searches and pages of all apps."""

from dataclasses import dataclass
from datetime import date

from gateway import ids
from gateway.clock import now
from messaging.models import Batch, MessageTemplate
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from webhooks.models import Delivery, Endpoint, Event, Message


@dataclass(frozen=True)
class OneOfEach:
    """The rows of one business."""

    account: BusinessAccount
    number: PhoneNumber
    endpoint: Endpoint
    event: Event
    message: Message
    delivery: Delivery
    batch: Batch
    template: MessageTemplate
    key: api_keys.NewKey


def one_of_each(tenant: Tenant) -> OneOfEach:
    """Create a tenant's rows in its live environment."""
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="2001", name="Asha", access_token="EAA"
    )
    number = PhoneNumber.objects.create(
        tenant=tenant,
        account=account,
        environment="live",
        phone_number_id="1001",
        display_phone_number="+91 98000 00001",
        digits="919800000001",
    )
    endpoint = Endpoint.objects.create(
        tenant=tenant, url="https://hooks.traders.example/in", event_types=["*"], secret="whsec_c2VjcmV0"
    )
    event = Event.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        type="message.inbound",
        dedupe_key="msg:1",
        wamid="wamid.HBgMOTE5ODAw",
        payload_expires_on=date(2030, 1, 1),
    )
    return OneOfEach(
        account=account,
        number=number,
        endpoint=endpoint,
        event=event,
        message=Message.objects.create(
            tenant_id=tenant.id,
            environment="live",
            key="wamid.HBgMOTE5ODAw",
            month=ids.month_of(event.id),
            id=event.id,
            event_id=event.id,
            direction="inbound",
            type="text",
        ),
        delivery=Delivery.objects.create(
            id=ids.uuid7(),
            tenant_id=tenant.id,
            endpoint_id=endpoint.id,
            event_id=event.id,
            event_type=event.type,
        ),
        batch=Batch.objects.create(
            tenant=tenant,
            environment="live",
            phone_number_id="1001",
            total=1,
            rate_per_sec=80,
            client_ref="diwali",
        ),
        template=MessageTemplate.objects.create(
            tenant=tenant, account=account, template_id="41", name="order", document="{}", changed_at=now()
        ),
        key=api_keys.create(name="server", environment="live", tenant=tenant),
    )
