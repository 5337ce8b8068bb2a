"""A dispatcher that ends as soon as it has no work, and an endpoint to which it delivers."""

from typing import Any

import orjson
import pytest
from rest_framework.renderers import JSONRenderer

from gateway.clock import now
from tenants.models import Tenant
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.requests.signed_request import new_secret, shown_prefix
from webhooks.serializers import NewEndpointOut
from webhooks.tests.publishing import endpoint_of


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 0.05)
    monkeypatch.setattr("webhooks.delivery.claimer.PAUSE_SECONDS", 0.05)


@pytest.fixture
def endpoint(tenant: Tenant, receiver: Receiver) -> dict[str, Any]:
    """A verified endpoint of `tenant` at the receiver, as the answer to its creation shows it, with its secret.

    A row stands for the request, whose ping and validation would take most of the time of many tests.
    """
    secret = new_secret()
    row = endpoint_of(
        tenant, url=receiver.url, secret=secret, secret_prefix=shown_prefix(secret), verified_at=now()
    )
    body: dict[str, Any] = orjson.loads(JSONRenderer().render(NewEndpointOut(row).data))
    return body
