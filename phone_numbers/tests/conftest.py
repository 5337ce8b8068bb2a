"""Fixtures of these tests. The simulator plays Meta, and a row stands for an endpoint that answered its ping."""

import pytest

from gateway.clock import now
from tenants.models import Tenant
from webhooks.models import Endpoint
from webhooks.tests.publishing import endpoint_of


def verified_endpoint(tenant: Tenant) -> Endpoint:
    """A tenant's verified, active endpoint that gets every event."""
    return endpoint_of(tenant, verified_at=now())


@pytest.fixture
def endpoint(tenant: Tenant) -> Endpoint:
    """An endpoint of `tenant` that answered its ping."""
    return verified_endpoint(tenant)
