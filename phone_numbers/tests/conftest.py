"""Meta is the simulator in these tests, and an endpoint that has passed its ping is a row."""

import pytest

from gateway.clock import now
from tenants.models import Tenant
from webhooks.models import Endpoint
from webhooks.tests.publishing import endpoint_of


def verified_endpoint(tenant: Tenant) -> Endpoint:
    """A verified, active endpoint of a tenant that wants every event."""
    return endpoint_of(tenant, verified_at=now())


@pytest.fixture
def endpoint(tenant: Tenant) -> Endpoint:
    """Give `tenant` an endpoint that has passed its ping."""
    return verified_endpoint(tenant)
