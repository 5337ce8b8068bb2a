"""Faults between Meta's acceptance and the commit. Every sent message still gets one `message.outbound`.

Postgres becomes unavailable after Meta has accepted sends. The short form also kills the web processes. In the long
form, Postgres is unavailable for longer than a caller waits.
"""

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import requests
from django.db import OperationalError, connection

from messaging.tests.conftest import connected_number
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.faults.service import LONG, Postgres, Service, received, wait_until
from tests.faults.test_postgres import postgres
from tests.faults.test_sending import _recorded
from tests.simulated import RunningSimulator

__all__ = ["postgres"]

pytestmark = pytest.mark.faults

SENDS = 12
AWAY_SECONDS = 75 if LONG else 2


@pytest.mark.parametrize("killed", [False, True] if LONG else [True])
def test_each_message_that_was_sent_becomes_its_event(
    postgres: Postgres, tmp_path: Path, simulator: RunningSimulator, killed: bool
) -> None:
    service = Service(
        tmp_path,
        DATABASE_URL=postgres.url,
        META_GRAPH_URL=simulator.url,
    )
    try:
        _run(service, postgres, simulator, killed=killed)
    finally:
        service.close()


def _run(service: Service, postgres: Postgres, simulator: RunningSimulator, *, killed: bool) -> None:
    tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
    number = connected_number(tenant, simulator.account([{"throughput": "HIGH"}]), throughput_level="HIGH")
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "slow", "ms": 2_000})
    webs = service.webs(2)
    token = api_keys.create(name="server", environment="live", tenant=tenant).key
    answers: list[requests.Response] = []

    def send(place: int) -> None:
        body = {
            "from": number.phone_number_id,
            "to": "+919700000001",
            "type": "text",
            "text": {"body": str(place)},
        }
        key = {"Idempotency-Key": f"k{place}"} if place % 2 else {}
        with contextlib.suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            headers = {"Authorization": f"Bearer {token}", **key}
            answers.append(
                requests.post(f"{webs[place % 2].url}/v1/messages", json=body, headers=headers, timeout=60)
            )

    callers = [threading.Thread(target=send, args=(place,)) for place in range(SENDS)]
    for each in callers:
        each.start()
    wait_until(lambda: len(received(simulator, number)) == SENDS, "the upstream has every message")
    postgres.stop()
    time.sleep(3)
    if killed:
        for web in webs:
            web.kill()
            web.start()
    time.sleep(AWAY_SECONDS)
    for each in callers:
        each.join(60)
    if not killed:
        assert [answer.status_code for answer in answers] == [200] * SENDS
    postgres.start()
    wait_until(lambda: len(_recorded_by_now()) >= SENDS, "every message has its event")
    assert Counter(_recorded()) == Counter(str(place) for place in range(SENDS))
    assert len(received(simulator, number)) == SENDS, "nothing was sent again"
    service.assert_well()


def _recorded_by_now() -> list[str]:
    """The recorded texts. Empty while the database is unavailable."""
    try:
        return _recorded()
    except OperationalError:
        connection.close()
        return []
