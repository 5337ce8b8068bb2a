"""Fences of the delivery engine: an overtaken worker changes nothing, a probe belongs to one worker, secrets expire."""

from collections.abc import Sequence
from datetime import timedelta
from threading import Thread
from typing import Any

import msgspec
import pytest
from cryptography.fernet import Fernet
from django.db import connection, transaction
from pytest_django import Settings

from gateway import ids
from gateway.clock import now
from gateway.database.statements import run
from gateway.outbound.connection import Answer
from tenants.models import Tenant
from tests.fixtures import Api
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import Claimed, claim, claiming, finding_ready
from webhooks.delivery.recorder import Outcome, disable, evaluating, record, recording
from webhooks.delivery.retries_and_attempt_log import Decision
from webhooks.endpoints.circuit_breaker import (
    DISABLE_AFTER,
    DISABLE_ATTEMPTS,
    FAILURES_IN_A_ROW,
    WINDOW_ATTEMPTS,
)
from webhooks.models import Delivery, Endpoint
from webhooks.open_deliveries import TARGET_COLUMNS, StoredTarget, releasing
from webhooks.requests import signed_request
from webhooks.requests.signed_request import key_of
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

ROOM = Room(10, 10)


def overtaken(tenant: Tenant) -> tuple[Claimed, Claimed]:
    """One delivery, claimed by a worker whose lease then expired, and claimed again by a second worker."""
    publish_one(tenant)
    (late,) = claim(ROOM)
    moment = now() - timedelta(seconds=1)
    Delivery.objects.update(next_attempt_at=moment, leased_until=moment)
    (newer,) = claim(ROOM)
    assert newer.id == late.id
    return late, newer


def test_a_late_result_does_not_overwrite_a_newer_failed_attempt(
    tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    late, newer = overtaken(tenant)
    failed = Outcome(
        newer.id,
        newer.tenant_id,
        newer.endpoint_id,
        0,
        Decision("failed", 30.0),
        Answer(500, "http_5xx", 3, b"", None),
    )
    assert record([failed]) == 1
    came_late = Outcome(
        late.id,
        late.tenant_id,
        late.endpoint_id,
        late.attempts,
        Decision("dead"),
        Answer(410, "http_4xx", 9, b"", None),
    )
    assert record([came_late]) == 0
    row = Delivery.objects.get()
    assert (row.status, row.attempts, row.last_http_status) == ("failed", 1, 500)


def test_a_late_result_does_not_bring_a_dead_delivery_back(tenant: Tenant, endpoint: dict[str, Any]) -> None:
    """The endpoint was deleted during the request. The attempt does not count."""
    publish_one(tenant)
    (claimed,) = claim(ROOM)
    Delivery.objects.update(status="dead", leased_until=None)
    answer = Answer(200, None, 9, b"", None)
    for decision in (Decision("failed", 30.0), Decision("delivered")):
        assert record([Outcome(claimed.id, claimed.tenant_id, claimed.endpoint_id, 0, decision, answer)]) == 0
    assert Delivery.objects.get().status == "dead"


def test_what_one_worker_is_claiming_another_passes_over(tenant: Tenant, endpoint: dict[str, Any]) -> None:
    """The second worker claims between the two statements of the first worker."""
    publish_one(tenant)
    others: list[Claimed] = []

    def claim_too() -> None:
        others.extend(claim(ROOM))
        connection.close()

    asked = claiming(run(finding_ready()), ROOM)
    rows: Any = None
    with transaction.atomic(), connection.cursor() as cursor:
        while True:
            try:
                statement, values = asked.send(rows)
            except StopIteration as done:
                claimed = done.value.deliveries
                break
            if "SET next_attempt_at" in statement:
                second = Thread(target=claim_too)
                second.start()
                second.join(30)
                assert not second.is_alive(), "it waits"
            cursor.execute(statement, values)
            rows = cursor.fetchall() if cursor.description else []
    assert (len(claimed), others) == (1, [])


def test_a_release_leaves_what_another_worker_has_claimed(tenant: Tenant, endpoint: dict[str, Any]) -> None:
    late, newer = overtaken(tenant)
    lease = Delivery.objects.get().leased_until
    with transaction.atomic():
        run(releasing([late]))
    assert Delivery.objects.get().leased_until == lease
    with transaction.atomic():
        run(releasing([newer]))
    assert Delivery.objects.get().leased_until is None


def test_of_two_workers_at_a_half_open_circuit_the_second_sends_no_probe(
    tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    publish_one(tenant)
    Endpoint.objects.update(circuit_open_until=now() - timedelta(seconds=1), circuit_opened=1)
    asked = claiming(run(finding_ready()), ROOM)
    rows: Any = None
    with transaction.atomic(), connection.cursor() as cursor:
        while True:
            try:
                statement, values = asked.send(rows)
            except StopIteration as done:
                claimed = done.value.deliveries
                break
            if "UPDATE webhooks_endpoint" in statement:
                # The other worker's probe was committed after the circuit was read and before this statement.
                Endpoint.objects.update(circuit_open_until=now() + timedelta(seconds=60))
            cursor.execute(statement, values)
            rows = cursor.fetchall() if cursor.description else []
    assert claimed == []
    assert Delivery.objects.get().leased_until is None


def ended(deliveries: Sequence[Claimed], *, ok: bool) -> list[Outcome]:
    """The outcomes of attempts, all answered with success or all with failure."""
    answer = Answer(200, None, 3, b"", None) if ok else Answer(500, "http_5xx", 3, b"", None)
    decision = Decision("delivered") if ok else Decision("failed", 30.0)
    return [
        Outcome(
            each.id,
            each.tenant_id,
            each.endpoint_id,
            each.attempts,
            decision,
            answer,
            probe=each.probe,
            circuit_generation=each.circuit_generation,
        )
        for each in deliveries
    ]


def fail_half(deliveries: Sequence[Claimed]) -> None:
    """Let every other attempt fail, which opens the circuit by the share of failures, without ten in a row."""
    outcomes = zip(ended(deliveries[::2], ok=True), ended(deliveries[1::2], ok=False), strict=True)
    record([outcome for pair in outcomes for outcome in pair])


def is_open() -> bool:
    return Endpoint.objects.get().circuit_open_until is not None


def test_attempts_of_before_the_circuit_opened_neither_close_it_nor_open_it_again(
    api: Api, tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    for number in range(WINDOW_ATTEMPTS + 2 * FAILURES_IN_A_ROW + 1):
        publish_one(tenant, f"k{number}")
    deliveries = claim(Room(100, 100))
    fail_half(deliveries[:WINDOW_ATTEMPTS])
    succeeding, *failing = deliveries[WINDOW_ATTEMPTS:]
    assert is_open()
    assert record(ended([succeeding], ok=True)) == 1
    assert is_open()
    assert api.post(f"/v1/webhooks/{endpoint['id']}/resume").status_code == 200
    assert record(ended(failing, ok=False)) == 2 * FAILURES_IN_A_ROW
    assert not is_open()

    Delivery.objects.filter(status="failed").update(next_attempt_at=now())
    record(ended(claim(Room(FAILURES_IN_A_ROW, FAILURES_IN_A_ROW)), ok=False))
    assert is_open(), "what was claimed since then counts"


def answered_410(delivery: Claimed) -> list[Outcome]:
    (outcome,) = ended([delivery], ok=False)
    return [msgspec.structs.replace(outcome, decision=Decision("dead", gone=True))]


def test_a_410_of_before_the_circuit_opened_disables_the_endpoint(
    tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    for number in range(WINDOW_ATTEMPTS + 1):
        publish_one(tenant, f"k{number}")
    late, *others = claim(Room(100, 100))
    fail_half(others)
    assert is_open()
    assert record(answered_410(late)) == 1
    assert (Delivery.objects.get(pk=late.id).status, Endpoint.objects.get().status) == ("dead", "disabled")


@pytest.mark.parametrize("reason", ["gone", "failing"])
@pytest.mark.parametrize("how", ["verify", "resume"])
def test_an_endpoint_that_was_made_active_is_not_disabled_for_what_was_before(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], reason: str, how: str
) -> None:
    """The owner acts after the outcome was counted, and before the endpoint is disabled for it."""
    publish_one(tenant)
    (delivery,) = claim(ROOM)
    outcomes = answered_410(delivery)
    if reason == "failing":
        Endpoint.objects.update(failing_since=now() - DISABLE_AFTER, consecutive_failures=DISABLE_ATTEMPTS)
        outcomes = [msgspec.structs.replace(outcomes[0], decision=Decision("dead"))]
    with transaction.atomic():
        to_disable = run(evaluating(run(recording(outcomes))))
    assert [each.reason for each in to_disable.values()] == [reason]
    assert api.post(f"/v1/webhooks/{endpoint['id']}/{how}").status_code == 200
    disable(to_disable)
    assert Endpoint.objects.get().status == "active"


def test_a_claim_that_met_the_opening_of_the_circuit_does_not_close_it(
    tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    """The circuit opens after the endpoint was read and before the claim."""
    for number in range(WINDOW_ATTEMPTS):
        publish_one(tenant, f"k{number}")
    deliveries = claim(Room(100, 100))
    publish_one(tenant, "met")
    ready = run(finding_ready())
    fail_half(deliveries)
    assert is_open()
    with transaction.atomic():
        (met,) = run(claiming(ready, ROOM)).deliveries
    assert record(ended([met], ok=True)) == 1
    assert is_open()


def test_a_secret_that_was_rotated_away_signs_until_its_end_and_no_longer(endpoint: dict[str, Any]) -> None:
    row = Endpoint.objects.get()
    former, row.previous_secret = row.secret, row.secret
    row.secret = "whsec_" + "MDEyMzQ1Njc4OWFiY2RlZg=="
    row.previous_secret_expires_at = now()
    row.save()
    end = row.previous_secret_expires_at
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {TARGET_COLUMNS} FROM webhooks_endpoint e")  # noqa: S608 - only column names
        stored = StoredTarget(*cursor.fetchone())
    for at, keys in (
        (end - timedelta(microseconds=1), (key_of(row.secret), key_of(former))),
        (end, (key_of(row.secret),)),
    ):
        assert signed_request.target(stored, row.id, at=at).keys == keys, "of a delivery"
        assert signed_request.target_of(row, at=at).keys == keys, "of a ping or a single replay"


def test_a_target_that_was_read_once_is_no_other_endpoints_and_ends_with_its_encryption_key(
    endpoint: dict[str, Any], settings: Settings
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {TARGET_COLUMNS} FROM webhooks_endpoint e")  # noqa: S608 - only column names
        stored = StoredTarget(*cursor.fetchone())
    for endpoint_id in (ids.uuid7(), ids.uuid7()):
        assert signed_request.target(stored, endpoint_id, at=now()).endpoint_id == endpoint_id
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(signed_request.UnreadableSecret):
        signed_request.target(stored, endpoint_id, at=now())
