"""Invalid rows affect only themselves: secrets that no key can decrypt, rejected outcomes, broken chunks."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from gateway.clock import isoformat, now
from gateway.database.statements import Statements
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks import replay, wake_up
from webhooks.delivery import dispatcher, senders
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claim, Ready, claim, claiming
from webhooks.delivery.retries_and_attempt_log import log_entry
from webhooks.events import retention
from webhooks.models import Delivery, Endpoint, ReplayChunk, RetentionMove
from webhooks.requests.signed_request import new_secret
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

UNREADABLE = ["gAAAAbroken", "no ciphertext at all", "ä"]


def poison(endpoint_id: Any, ciphertext: str = UNREADABLE[0], column: str = "secret") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE webhooks_endpoint SET {column} = %s WHERE id = %s", [ciphertext, endpoint_id])  # noqa: S608


@pytest.fixture
def others(tenant: Tenant, receiver: Receiver) -> Endpoint:
    """A second endpoint of the tenant."""
    return Endpoint.objects.create(
        tenant=tenant,
        url=receiver.url + "/other",
        event_types=["*"],
        status="active",
        verified_at=now(),
        secret=new_secret(),
        secret_prefix="whsec_",
    )


def unreadable_in_health(staff_api: Api) -> int:
    return int(staff_api.get("/v1/admin/health").json()["endpoints_secret_unreadable"])


@pytest.mark.parametrize("ciphertext", UNREADABLE)
def test_an_unreadable_secret_puts_off_its_own_deliveries_alone(
    staff_api: Api,
    tenant: Tenant,
    endpoint: dict[str, Any],
    others: Endpoint,
    receiver: Receiver,
    ciphertext: str,
) -> None:
    poison(endpoint["id"], ciphertext)
    for number in range(3):
        publish_one(tenant, f"k{number}")

    dispatcher.run()

    assert {got.path for got in receiver.wait_for(3)} == {"/hook/other"}
    put_off = Delivery.objects.filter(endpoint_id=endpoint["id"])
    assert {(row.status, row.attempts, row.last_error, row.leased_until) for row in put_off} == {
        ("pending", 0, "secret_unreadable", None)
    }
    assert unreadable_in_health(staff_api) == 1


def test_an_unreadable_secret_is_read_again_after_a_quarter_of_an_hour(
    api: Api, tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    poison(endpoint["id"])
    publish_one(tenant)
    since = now() - timedelta(hours=2)
    for earlier in (None, since):
        Endpoint.objects.update(circuit_open_until=None, secret_unreadable_since=earlier)
        claim(Room(5, 5))
        shown = api.get(f"/v1/webhooks/{endpoint['id']}").json()["health"]
        wait = datetime.fromisoformat(shown["retry_at"]) - now()
        assert timedelta(minutes=14) < wait <= timedelta(minutes=15)
    assert shown["since"] == isoformat(since), "it has been unreadable since then"


def test_an_endpoint_with_an_unreadable_secret_can_be_managed(api: Api, endpoint: dict[str, Any]) -> None:
    poison(endpoint["id"])
    path = f"/v1/webhooks/{endpoint['id']}"
    assert [row["id"] for row in api.get("/v1/webhooks").json()["data"]] == [endpoint["id"]]
    assert api.get(path).status_code == 200
    assert api.patch(path, {"status": "paused"}).json()["status"] == "paused"
    assert api.patch(path, {"description": "no secret"}).json()["description"] == "no secret"
    verified = api.post(f"{path}/verify")
    assert verified.status_code == 409
    assert "rotate-secret" in verified.json()["error"]["hint"]
    assert api.delete(path).status_code == 200


def test_a_new_secret_repairs_the_endpoint(
    api: Api, staff_api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    poison(endpoint["id"])
    publish_one(tenant)
    dispatcher.run()
    assert receiver.received == []

    rotated = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": 24})

    assert rotated.status_code == 200
    assert rotated.json()["previous_secret_expires_at"] is None, "what cannot be read cannot sign beside it"
    assert unreadable_in_health(staff_api) == 0
    dispatcher.run()
    receiver.wait_for(1)
    assert Delivery.objects.get().status == "delivered"


def test_a_key_that_comes_back_repairs_the_endpoint(
    staff_api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
) -> None:
    keys, settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS, ["x" * 43 + "="]
    publish_one(tenant)
    dispatcher.run()
    assert unreadable_in_health(staff_api) == 1
    settings.ENCRYPTION_KEYS = keys
    Endpoint.objects.update(circuit_open_until=now())
    dispatcher.run()
    receiver.wait_for(1)
    assert unreadable_in_health(staff_api) == 0
    assert Endpoint.objects.get().circuit_open_until is None


def test_an_unreadable_previous_secret_leaves_the_newest_to_sign(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": 24})
    poison(endpoint["id"], column="previous_secret")
    publish_one(tenant)

    dispatcher.run()

    (got,) = receiver.wait_for(1)
    assert got.headers["webhook-signature"].count("v1,") == 1
    assert api.post(f"/v1/webhooks/{endpoint['id']}/verify").status_code == 200


def test_an_outcome_that_postgres_refuses_costs_its_log_entry_alone(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = 0

    def poisoned(*arguments: Any) -> dict[str, Any]:
        nonlocal entries
        entries += 1
        entry = log_entry(*arguments)
        return {**entry, "error": "\0"} if entries == 3 else entry

    monkeypatch.setattr(senders, "log_entry", poisoned)
    for number in range(6):
        publish_one(tenant, f"k{number}")

    dispatcher.run()
    dispatcher.run()

    assert len(receiver.received) == 6, "nothing is delivered twice"
    assert Delivery.objects.filter(status="delivered", attempts=1).count() == 6
    assert sorted(len(row.attempt_log) for row in Delivery.objects.all()) == [0, 1, 1, 1, 1, 1]


def test_a_claim_that_fails_does_not_end_the_dispatcher(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0

    def failing(found: Ready, room: Room, holder: int | None) -> Statements[Claim]:
        nonlocal claims
        claims += 1
        if claims <= 3:
            raise ValueError("bad row")
        return (yield from claiming(found, room, holder))

    monkeypatch.setattr("webhooks.delivery.claimer.claiming", failing)
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 60.0)
    monkeypatch.setattr(dispatcher, "_stopping", threading.Event())
    # A signal from the endpoint's creation may still be waiting, and may hide one failure. After this signal, the
    # dispatcher polls by itself.
    monkeypatch.setattr(wake_up, "soon", lambda _fresh: None)
    publish_one(tenant)

    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        receiver.wait_for(1)
    finally:
        dispatcher.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert Delivery.objects.get().status == "delivered"


def test_a_replay_that_cannot_be_released_stops_no_other(
    tenant: Tenant, endpoint: dict[str, Any], others: Endpoint
) -> None:
    event_id = publish_one(tenant)
    Delivery.objects.all().delete()
    bad = Endpoint.objects.get(pk=endpoint["id"])
    for row in (bad, others):
        ReplayChunk.objects.create(endpoint=row, missed=True, source_ids=[event_id], due_at=now())
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE webhook_deliveries ADD CONSTRAINT poisoned CHECK (endpoint_id <> %s) NOT VALID",
            [bad.id],
        )
    try:
        assert replay.release_due() == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE webhook_deliveries DROP CONSTRAINT poisoned")
    assert ReplayChunk.objects.get().endpoint_id == bad.id
    assert Delivery.objects.get().endpoint_id == others.id
    assert replay.release_due() == 1, "the chunk of the other was kept"


def test_bodies_that_cannot_be_moved_stop_no_other_tenant(
    tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (tenant, other_tenant):
        publish_one(each)
    retention.move_bodies()
    Tenant.objects.update(retention_days=3)
    first = min(tenant.id, other_tenant.id)
    move_events = retention._move_events

    def failing(work: RetentionMove, size: int) -> int:
        moved = move_events(work, size)
        if work.tenant_id == first:
            raise ValueError("bad row")
        return moved

    monkeypatch.setattr(retention, "_move_events", failing)

    assert retention.move_bodies() == 1

    waiting = RetentionMove.objects.filter(after__isnull=False)
    assert [work.tenant_id for work in waiting] == [first], "it is tried again in the next run"
