"""Rows that a benchmark starts with: businesses with a connected number, and verified endpoints."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from webhooks.models import Endpoint


@dataclass(frozen=True)
class Business:
    """A tenant with an account, a number and a live key."""

    tenant_id: UUID
    waba_id: str
    phone_number_id: str
    display_phone_number: str
    api_key: str


def business(number: int = 1, *, access_token: str = "EAAbench", **values: Any) -> Business:  # noqa: S107 - no secret
    """Create the active business `number` (1, 2, …) with a connected number. `values` are fields of the tenant."""
    from phone_numbers.models import BusinessAccount, PhoneNumber
    from tenants.credentials import api_keys
    from tenants.models import Tenant

    tenant = Tenant.objects.create(name=f"Business {number}", status=Tenant.Status.ACTIVE, **values)
    digits = f"9198{number:08d}"
    account = BusinessAccount.objects.create(
        tenant=tenant,
        environment="live",
        waba_id=f"1002003004{number:05d}",
        access_token=access_token,
        subscribed=True,
    )
    row = PhoneNumber.objects.create(
        account=account,
        tenant=tenant,
        environment="live",
        phone_number_id=f"2003004005{number:05d}",
        display_phone_number=f"+{digits}",
        digits=digits,
        registered=True,
        connection_state=PhoneNumber.State.CONNECTED,
        ever_connected=True,
    )
    key = api_keys.create(name="bench", environment="live", tenant=tenant)
    return Business(tenant.id, account.waba_id, row.phone_number_id, digits, key.key)


def tenants(count: int) -> list[UUID]:
    """Create `count` active tenants without numbers and keys in bulk. Returns their ids."""
    from tenants.models import Tenant

    rows = [Tenant(name=f"Business {number}", status=Tenant.Status.ACTIVE) for number in range(1, count + 1)]
    return [row.id for row in Tenant.objects.bulk_create(rows)]


def endpoint(tenant_id: UUID, url: str, *, event_types: list[str] | None = None) -> tuple[UUID, str]:
    """Create an active endpoint of a tenant at a URL. Returns its id and its secret."""
    row = _endpoint(tenant_id, url, event_types)
    row.save(force_insert=True)
    return row.id, row.secret


def endpoints(wanted: Iterable[tuple[UUID, str]]) -> None:
    """Create active endpoints in bulk, for pairs of a tenant and a URL."""
    from webhooks.models import Endpoint

    Endpoint.objects.bulk_create([_endpoint(tenant_id, url) for tenant_id, url in wanted], batch_size=1_000)


def _endpoint(tenant_id: UUID, url: str, event_types: list[str] | None = None) -> "Endpoint":
    from gateway.clock import now
    from webhooks.models import Endpoint
    from webhooks.requests import signed_request

    secret = signed_request.new_secret()
    return Endpoint(
        tenant_id=tenant_id,
        url=url,
        event_types=event_types or ["*"],
        status=Endpoint.Status.ACTIVE,
        verified_at=now(),
        secret=secret,
        secret_prefix=signed_request.shown_prefix(secret),
    )
