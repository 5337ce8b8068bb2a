"""`live` and `test` are separate: a key finds no endpoints, events, deliveries and replays of the other environment."""

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from gateway import ids
from gateway.clock import isoformat, now
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.receiver import Receiver
from webhooks import replay
from webhooks.delivery import dispatcher
from webhooks.endpoints import lifecycle
from webhooks.models import Delivery, Endpoint, Event, ReplayChunk
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def test_api(tenant: Tenant) -> Api:
    """The API, called by `tenant` with a test key."""
    return Api(api_keys.create(name="trial", environment="test", tenant=tenant).key)


@pytest.fixture
def test_endpoint(test_api: Api, receiver: Receiver) -> dict[str, Any]:
    """A verified endpoint of `tenant` in the test environment."""
    body: dict[str, Any] = test_api.post("/v1/webhooks", {"url": f"{receiver.url}/test"}).json()
    assert (body["status"], body["environment"]) == ("active", "test")
    return body


def rows_of(answer: Any) -> list[str]:
    return [row["id"] for row in answer.json()["data"]]


def test_an_event_goes_to_endpoints_of_its_environment_alone(
    tenant: Tenant, endpoint: dict[str, Any], test_endpoint: dict[str, Any], receiver: Receiver
) -> None:
    live, test = publish_one(tenant, "k1"), publish_one(tenant, "k2", environment="test")
    dispatcher.run()
    arrived = {(got.headers["webhook-id"], got.path) for got in receiver.wait_for(2)}
    assert arrived == {(ids.encode("evt_", live), "/hook"), (ids.encode("evt_", test), "/hook/test")}
    assert {row.event_id: row.environment for row in Delivery.objects.all()} == {live: "live", test: "test"}


def test_a_replay_of_missed_events_takes_those_of_the_endpoints_environment(
    tenant: Tenant, test_api: Api, receiver: Receiver
) -> None:
    publish_one(tenant, "k1")
    missed = publish_one(tenant, "k2", environment="test")
    body = test_api.post("/v1/webhooks", {"url": receiver.url}).json()
    range_ = {"from": isoformat(now() - timedelta(hours=1)), "to": isoformat(now() + timedelta(hours=1))}
    answer = test_api.post(f"/v1/webhooks/{body['id']}/replay", {**range_, "status": ["missed"]})
    assert answer.json() == {"queued": 1}
    ReplayChunk.objects.update(due_at=now())
    replay.release_due()
    row = Delivery.objects.get()
    assert (row.event_id, row.environment, row.is_replay) == (missed, "test", True)


def test_a_replayed_delivery_stays_in_its_environment(
    tenant: Tenant, test_api: Api, test_endpoint: dict[str, Any], receiver: Receiver
) -> None:
    event_id = publish_one(tenant, raw=b"{}", environment="test")
    Delivery.objects.update(status="dead")
    source = Delivery.objects.get(event_id=event_id)
    single = test_api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()
    range_ = {"from": isoformat(now() - timedelta(hours=1)), "to": isoformat(now() + timedelta(hours=1))}
    test_api.post(f"/v1/webhooks/{test_endpoint['id']}/replay", range_)
    ReplayChunk.objects.update(due_at=now())
    replay.release_due()
    assert single["id"] in rows_of(test_api.get("/v1/webhook-deliveries"))
    assert set(Delivery.objects.values_list("environment", flat=True)) == {"test"}
    assert Delivery.objects.filter(is_replay=True).count() == 2


def test_endpoints_of_one_environment_leave_room_in_the_other(
    api: Api, test_api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    Endpoint.objects.bulk_create(
        Endpoint(tenant=tenant, environment="test", url=receiver.url, event_types=["*"], secret="whsec_eA==")
        for _ in range(lifecycle.MOST_ENDPOINTS)
    )
    assert_error(test_api.post("/v1/webhooks", {"url": receiver.url}), 409, "conflict")
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201


def test_a_test_endpoint_is_no_step_towards_going_live(
    api: Api, tenant: Tenant, test_api: Api, test_endpoint: dict[str, Any], receiver: Receiver
) -> None:
    assert api.get("/v1/tenant").json()["checklist"]["webhook_verified"] is False
    live = api.post("/v1/webhooks", {"url": receiver.url}).json()
    assert api.get("/v1/tenant").json()["checklist"]["webhook_verified"] is True
    test_api.delete(f"/v1/webhooks/{test_endpoint['id']}")
    assert api.get("/v1/tenant").json()["checklist"]["webhook_verified"] is True
    api.delete(f"/v1/webhooks/{live['id']}")
    assert api.get("/v1/tenant").json()["checklist"]["webhook_verified"] is False


def test_a_sandbox_tenant_is_in_the_test_environment_with_every_key(
    api: Api, test_api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
    body = api.post("/v1/webhooks", {"url": receiver.url}).json()
    assert body["environment"] == "test"
    publish_one(tenant, environment="test")
    for caller in (api, test_api):
        assert rows_of(caller.get("/v1/webhooks")) == [body["id"]]
        assert len(rows_of(caller.get("/v1/events"))) == 1
        assert len(rows_of(caller.get("/v1/webhook-deliveries"))) == 1
    assert api.get("/v1/tenant").json()["checklist"]["webhook_verified"] is True


class TestMigration:
    migration = importlib.import_module("webhooks.migrations.0008_environment_of_sandboxes")

    def test_what_a_sandbox_tenant_has_becomes_test_and_nothing_else(
        self, tenant: Tenant, other_tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for n in range(5):
            publish_one(tenant, f"k{n}")
        publish_one(other_tenant)
        Tenant.objects.filter(pk=tenant.pk).update(sandbox=True)
        monkeypatch.setattr(self.migration, "BATCH_ROWS", 2)
        with connection.schema_editor(atomic=False) as editor:
            for _ in range(2):
                self.migration.mark_sandboxes(apps, editor)
        models: Any = (Endpoint, Event, Delivery)
        for model in models:
            assert not model.objects.exclude(environment="test").filter(tenant_id=tenant.id).exists()
        assert Event.objects.get(tenant_id=other_tenant.id).environment == "live"

    def test_the_indexes_are_built_partition_by_partition_and_an_interrupted_build_is_repeated(self) -> None:
        with connection.schema_editor(atomic=False) as editor, connection.cursor() as cursor:
            self.migration.drop_indexes(apps, editor)
            cursor.execute("CREATE INDEX events_default_of_test ON events_default (tenant_id)")
            for _ in range(2):
                self.migration.add_indexes(apps, editor)
            cursor.execute(
                "SELECT i.inhparent::regclass::text, count(*), bool_and(x.indisvalid AND p.indisvalid) "
                "FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid "
                "JOIN pg_index p ON p.indexrelid = i.inhparent "
                "WHERE i.inhparent IN ('event_of_test'::regclass, 'delivery_of_test'::regclass) GROUP BY 1"
            )
            built = {index: (count, valid) for index, count, valid in cursor.fetchall()}
            cursor.execute(
                "SELECT inhparent::regclass::text, count(*) FROM pg_inherits "
                "WHERE inhparent IN ('events'::regclass, 'webhook_deliveries'::regclass) GROUP BY 1"
            )
            partitions = dict(cursor.fetchall())
        assert built == {
            "event_of_test": (partitions["events"], True),
            "delivery_of_test": (partitions["webhook_deliveries"], True),
        }
