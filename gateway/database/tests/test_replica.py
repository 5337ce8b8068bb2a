"""The read replica: lists and analytics come from it while it keeps up, from the primary otherwise.

A connection that may not write plays the replica.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from gateway.clock import now
from gateway.database import replica
from gateway.request_log import search as request_log
from tenants.models import Tenant
from tests.fixtures import Api
from webhooks.figures import reading

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def replicated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    reader = connections.create_connection("default")
    options = {**reader.settings_dict["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    reader.settings_dict = {**reader.settings_dict, "OPTIONS": options}
    connections.databases[replica.REPLICA] = reader.settings_dict
    connections[replica.REPLICA] = reader
    monkeypatch.setattr(replica, "_looked_at", float("-inf"))
    try:
        yield
    finally:
        connections[replica.REPLICA].close()
        del connections[replica.REPLICA]
        del connections.databases[replica.REPLICA]


def read_everything(tenant: Tenant, api: Api) -> None:
    assert api.get("/v1/events").status_code == 200
    assert api.get("/v1/events?type=message.inbound,message.status").status_code == 200
    request_log.search(tenant_id=tenant.id, environment="live", equal={}, limit=10)
    reading.read(
        tenant_id=tenant.id,
        environment="live",
        begin=now() - timedelta(hours=2),
        end=now(),
        interval="hour",
        groups=[],
        equal={},
    )


def reads(alias: str, tenant: Tenant, api: Api) -> int:
    """How many of the lists' statements a database sees."""
    with CaptureQueriesContext(connections[alias]) as seen:
        read_everything(tenant, api)
    named = ("FROM figures\n", "FROM api_requests", 'FROM "events"')
    return sum(any(name in query["sql"] for name in named) for query in seen.captured_queries)


def test_lists_and_analytics_are_read_from_the_replica(replicated: None, tenant: Tenant, api: Api) -> None:
    assert reads(replica.REPLICA, tenant, api) == 4
    assert reads("default", tenant, api) == 0


def test_a_replica_that_is_away_or_behind_is_left_alone(
    replicated: None, tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as late:
        late.setattr(replica, "_LAG", "SELECT 6")
        assert reads("default", tenant, api) == 4
    monkeypatch.setattr(replica, "_looked_at", float("-inf"))
    connections[replica.REPLICA].close()
    monkeypatch.setitem(connections[replica.REPLICA].settings_dict, "HOST", "/nonexistent")
    assert reads("default", tenant, api) == 4


def test_without_a_replica_the_primary_serves() -> None:
    assert replica.alias() == "default"
