"""Postgres accepts no writes: accepted data is not lost, other calls get 503, and no message is sent without a record.

The server itself rejects rows with the SQLSTATE of a full disk (53100), by triggers on the tables that would grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from messaging.models import Batch, KeptNotification
from messaging.sending import flow, journal, journal_replay
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, signature_of, text_change
from messaging.tests.sending.test_journal import ANSWERED, abandon, begun
from messaging.tests.sending.test_send import sent_bodies, text
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, wait_until
from tests.simulated import RunningSimulator
from web.tests.client import FrontClient
from webhooks.models import Event

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = ("events", "event_payloads")
ALL = (*EVENTS, "event_keys", "messaging_keptnotification", "messaging_idempotencyrecord", "messaging_batch")
_FULL = """
CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$
"""


@contextmanager
def disk_full(*tables: str) -> Iterator[None]:
    """Let these tables reject new rows."""
    with connection.cursor() as cursor:
        cursor.execute(_FULL)
        for table in tables:
            cursor.execute(f"CREATE TRIGGER disk_full BEFORE INSERT ON {table} EXECUTE FUNCTION disk_full()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION disk_full() CASCADE")


@contextmanager
def read_only() -> Iterator[None]:
    """Let the server reject writes on all connections, as a standby does."""
    _configure("ALTER SYSTEM SET default_transaction_read_only = on", shown="on")
    try:
        yield
    finally:
        _configure("ALTER SYSTEM RESET default_transaction_read_only", shown="off")


def _configure(statement: str, *, shown: str) -> None:
    parameters = connection.get_connection_params()
    parameters.pop("cursor_factory", None)
    with psycopg.connect(**parameters, autocommit=True) as operator:
        operator.execute(statement)
        operator.execute("SELECT pg_reload_conf()")

    def is_shown() -> bool:
        # The server accepts a new connection only after it has signalled the change to all earlier ones.
        with psycopg.connect(**parameters) as fresh:
            row = fresh.execute("SHOW default_transaction_read_only").fetchone()
        return row is not None and row[0] == shown

    wait_until(is_shown, "the server has read its configuration again")


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account())


def notify(front: FrontClient, body: bytes) -> Any:
    signature = signature_of(body, django_settings.META_APP_SECRET)
    return front.ask("POST", "/upstream/webhook", body, X_Hub_Signature_256=signature)


def send(front: FrontClient, key: api_keys.NewKey, body: Any, **headers: str) -> Any:
    named = {"Authorization": f"Bearer {key.key}", **headers}
    return front.ask("POST", "/v1/messages", orjson.dumps(body), **named)


def test_a_notification_is_503_and_its_repeat_is_stored_once(front: FrontClient, number: PhoneNumber) -> None:
    body = notification((number.account.waba_id, [text_change(number.phone_number_id, "wamid.1")]))
    with disk_full(*ALL):
        for each in (body, b"malformed"):
            answer = notify(front, each)
            assert_error(answer, 503, "service_unavailable")
            assert answer["Retry-After"] == "1"
    assert not Event.objects.exists()
    for each in (body, body, b"malformed", b"malformed"):
        assert notify(front, each).status_code == 200
    assert (Event.objects.count(), KeptNotification.objects.count()) == (1, 1)


def test_a_send_that_cannot_be_noted_first_is_not_made(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    with disk_full(*ALL):
        assert_error(send(front, key, text(number), Idempotency_Key="k"), 503, "service_unavailable")
    assert sent_bodies(simulator, number) == []
    assert send(front, key, text(number), Idempotency_Key="k").status_code == 200
    assert (len(sent_bodies(simulator, number)), Event.objects.count()) == (1, 1)


@pytest.mark.parametrize("own_key", [None, "k"])
def test_a_send_that_the_upstream_took_is_answered_and_becomes_its_event(
    front: FrontClient,
    key: api_keys.NewKey,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    own_key: str | None,
    tmp_path: Any,
    settings: Any,
) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(journal, "_slots", journal._Slots())
    monkeypatch.setattr(flow, "RECORD_PATIENCE_SECONDS", 0.5)
    headers = {"Idempotency_Key": own_key} if own_key else {}
    with disk_full(*EVENTS):
        assert send(front, key, text(number), **headers).status_code == 200
        assert not journal_replay.replay(), "it waits for the disk"
    assert journal_replay.replay()
    event = Event.objects.get(type="message.outbound")
    assert event.wamid
    if own_key:
        assert send(front, key, text(number), **headers)["Idempotent-Replayed"] == "true"
    assert len(sent_bodies(simulator, number)) == 1


def test_a_batch_is_503_and_nothing_of_it_is_kept(api: Api, number: PhoneNumber) -> None:
    messages = [{"to": "919812345678", "type": "text", "text": {"body": "Hi"}}]
    body = {"from": number.phone_number_id, "client_ref": "may", "messages": messages}
    for table in ("messaging_batch", "messaging_batchitem"):
        with disk_full(table):
            assert_error(api.post("/v1/messages/batch", body), 503, "service_unavailable")
        assert not Batch.objects.exists()


def test_a_server_that_became_read_only_is_503_and_keeps_the_journal(
    front: FrontClient,
    api: Api,
    tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    settings: Any,
) -> None:
    """After a fail-over, a former primary accepts connections but rejects writes."""
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(journal, "_slots", journal._Slots())
    body = notification((number.account.waba_id, [text_change(number.phone_number_id, "wamid.1")]))
    slot = journal.begin(begun(tenant, number))
    slot.answered(ANSWERED)
    abandon(slot)
    with read_only():
        assert_error(notify(front, body), 503, "service_unavailable")
        assert_error(api.post("/v1/messages", text(number), Idempotency_Key="k"), 503, "service_unavailable")
        assert not journal_replay.replay(), "it waits for a server that writes"
    assert journal_replay.replay()
    assert notify(front, body).status_code == 200
    assert sorted(Event.objects.values_list("type", flat=True)) == ["message.inbound", "message.outbound"]
    assert sent_bodies(simulator, number) == []
