"""The send journal. A send that is interrupted after Meta accepted the message still gets its event, and only one."""

import errno
import os
import stat
import subprocess
import sys
import time
from typing import Any

import orjson
import pytest
from django.conf import settings
from django.db import OperationalError
from psycopg.errors import LockNotAvailable

from gateway.database.statements import run
from gateway.ids import uuid7
from messaging import idempotency
from messaging.idempotency import KeyUse
from messaging.models import IdempotencyRecord
from messaging.sending import flow, journal, journal_replay
from messaging.sending.flow import SendRuntime
from messaging.sending.journal import Answered, Begun, Slot
from messaging.tests.sending.test_send import sent_bodies, text
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.database_settings import read_only_for
from tests.fixtures import Api, assert_error, wait_until
from tests.simulated import RunningSimulator
from webhooks.models import Event, EventPayload

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_directory(settings: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(journal, "_slots", journal._Slots())


def begun(tenant: Tenant, number: PhoneNumber, *, key: str | None = None, claim: str = "") -> Begun:
    return Begun(
        event_id=uuid7(),
        tenant_id=tenant.id,
        environment="live",
        waba_id=number.account.waba_id,
        phone_number_id=number.phone_number_id,
        digits=number.digits,
        sent=b'{"to":"919812345678","type":"text"}',
        idempotency_key=key,
        claim=claim,
    )


ANSWER = b'{"contacts":[{"wa_id":"919812345678"}],"messages":[{"id":"wamid.7"}]}'
ANSWERED = Answered(200, ANSWER, 200, {"Content-Type": "application/json"}, ANSWER)


def abandon(slot: Slot) -> None:
    """Leave a slot as it is after its process has ended: unlocked, with its file still there."""
    slot.close(remove=False)


def files() -> list[str]:
    return sorted(path.name for path in journal.directory().iterdir())


def data_of(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = orjson.loads(bytes(EventPayload.objects.get(id=event.id).body))
    return data


def test_a_send_leaves_nothing_behind_and_its_file_serves_the_next(api: Api, number: PhoneNumber) -> None:
    for _ in range(3):
        assert api.post("/v1/messages", text(number)).status_code == 200
    (name,) = files()
    path = journal.directory() / name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.directory().stat().st_mode) == 0o700
    assert journal_replay.replay()
    assert files() == [name], "a file that its process holds is left alone"
    assert Event.objects.count() == 3


def test_an_entry_is_not_readable_without_the_keys(
    tenant: Tenant, number: PhoneNumber, settings: Any
) -> None:
    slot = journal.begin(begun(tenant, number))
    content = slot.path.read_bytes()
    assert b"919812345678" not in content
    assert number.phone_number_id.encode() not in content
    abandon(slot)
    settings.ENCRYPTION_KEYS = ["A" * 43 + "="]
    assert journal_replay.replay()
    assert files() == [slot.path.with_suffix(".failed").name], "kept for an operator, looked at no more"


def test_an_answered_send_becomes_its_event_once(tenant: Tenant, number: PhoneNumber) -> None:
    slot = journal.begin(entry := begun(tenant, number))
    slot.answered(ANSWERED)
    abandon(slot)
    for _ in range(2):
        assert journal_replay.replay()
    event = Event.objects.get()
    assert (event.id, event.wamid, event.dedupe_key) == (entry.event_id, "wamid.7", "out:wamid.7")
    assert data_of(event)["response"] == orjson.loads(ANSWER)
    assert files() == []
    tenant.refresh_from_db()
    assert tenant.test_message_sent


def test_an_entry_is_replayed_after_a_new_key_was_put_in_front(
    tenant: Tenant, number: PhoneNumber, settings: Any
) -> None:
    slot = journal.begin(begun(tenant, number))
    slot.answered(ANSWERED)
    abandon(slot)
    settings.ENCRYPTION_KEYS = ["A" * 43 + "=", *settings.ENCRYPTION_KEYS]
    assert journal_replay.replay()
    assert (Event.objects.get().wamid, files()) == ("wamid.7", [])


def test_a_send_that_was_recorded_before_its_process_ended_is_not_doubled(
    api: Api, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "recorded", abandon)
    assert api.post("/v1/messages", text(number)).status_code == 200
    assert journal_replay.replay()
    assert Event.objects.count() == 1


def test_a_send_without_an_answer_is_reported_as_unknown(tenant: Tenant, number: PhoneNumber) -> None:
    abandon(journal.begin(begun(tenant, number)))
    assert journal_replay.replay()
    data = data_of(Event.objects.get())
    assert data["http_status"] is None
    assert data["response"]["error"]["code"] == "outcome_unknown"
    assert data["response"]["error"]["details"] == {"reason": "interrupted"}


def test_an_answer_that_was_cut_short_reads_as_missing(tenant: Tenant, number: PhoneNumber) -> None:
    slot = journal.begin(begun(tenant, number))
    slot.answered(ANSWERED)
    os.ftruncate(slot.descriptor, slot.end - 5)
    abandon(slot)
    assert journal_replay.replay()
    assert data_of(Event.objects.get())["http_status"] is None


@pytest.mark.parametrize("key", ["k" * 200, None], ids=["as long", "shorter"])
def test_an_entry_over_an_earlier_one_does_not_keep_its_answer(
    tenant: Tenant, number: PhoneNumber, key: str | None
) -> None:
    slot = journal.begin(begun(tenant, number, key="k" * 200))
    slot.answered(ANSWERED)
    journal.recorded(slot)
    again = journal.begin(begun(tenant, number, key=key))
    assert again is slot
    abandon(again)
    assert journal_replay.replay()
    assert data_of(Event.objects.get())["http_status"] is None


def test_a_database_that_stays_away_keeps_no_caller_waiting_and_loses_no_event(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "RECORD_PATIENCE_SECONDS", 0.3)

    async def away(*_: Any) -> None:
        raise OperationalError("away")

    with monkeypatch.context() as outage:
        outage.setattr(SendRuntime, "write", away)
        outage.setattr(SendRuntime, "publish", away)
        first = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert first.status_code == 200
    assert Event.objects.count() == 0
    with monkeypatch.context() as outage:
        outage.setattr(journal_replay, "_replay", lambda _: (_ for _ in ()).throw(OperationalError("away")))
        assert not journal_replay.replay()
    assert journal_replay.replay()
    assert Event.objects.get().wamid == first.json()["messages"][0]["id"]
    again = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
    assert len(sent_bodies(simulator, number)) == 1


@pytest.mark.parametrize(
    ("fault", "status", "again"),
    [
        ({"action": "error", "code": 131030}, 400, (400, "true", 1)),
        ({"action": "error", "code": 130429}, 429, (200, None, 2)),
        ({"action": "reset", "when": "after"}, 502, (502, "true", 1)),
    ],
    ids=["refused", "throttled", "unknown"],
)
def test_a_key_gets_its_answer_or_is_released_after_an_outage(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    status: int,
    again: tuple[int, str | None, int],
) -> None:
    monkeypatch.setattr(flow, "RECORD_PATIENCE_SECONDS", 0.3)
    simulator.faults({**fault, "times": 1, "match": {"path": "/messages$"}})
    writes = "UPDATE OR DELETE ON messaging_idempotencyrecord"
    with read_only_for(1_000_000, writes, when="OLD.status IS NULL"):
        first = api.post("/v1/messages", text(number), Idempotency_Key="k")
        assert first.status_code == status
        assert not journal_replay.replay()
    assert journal_replay.replay()
    assert (Event.objects.count(), files()) == (0, [])
    repeated = api.post("/v1/messages", text(number), Idempotency_Key="k")
    sent = len(sent_bodies(simulator, number))
    assert (repeated.status_code, repeated.get("Idempotent-Replayed"), sent) == again


def test_a_late_release_of_a_key_does_not_end_the_claim_of_the_next_request(
    tenant: Tenant, number: PhoneNumber
) -> None:
    first, second = (KeyUse(tenant.id, "live", "k", "/v1/messages", b"hash") for _ in range(2))
    run(idempotency.beginning(first))
    slot = journal.begin(begun(tenant, number, key="k", claim=first.claim))
    slot.answered(Answered(429, b"{}", 429, {}, b"{}", is_accepted=False, is_stored=False))
    run(idempotency.releasing(first))
    assert run(idempotency.beginning(second)) is None
    abandon(slot)
    assert journal_replay.replay()
    assert isinstance(run(idempotency.earlier(second)), idempotency.InProgress)


def test_a_send_that_no_row_can_hold_is_answered_and_kept(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after Meta accepted the message would make the caller send it again."""

    async def broken(*_: Any) -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as outage:
        outage.setattr(SendRuntime, "write", broken)
        outage.setattr(SendRuntime, "publish", broken)
        assert api.post("/v1/messages", text(number)).status_code == 200
    assert journal_replay.replay()
    assert Event.objects.count() == 1


def test_one_entry_that_cannot_be_replayed_does_not_stop_the_others(
    tenant: Tenant, number: PhoneNumber
) -> None:
    bad, good = (journal.begin(begun(tenant, number)) for _ in range(2))
    os.pwrite(bad.descriptor, b"\xff" * 40, bad.end - 40)
    for slot in (bad, good):
        abandon(slot)
    assert journal_replay.replay()
    assert Event.objects.count() == 1
    assert files() == [bad.path.with_suffix(".failed").name]


def test_one_entry_that_meets_a_lock_is_tried_again_and_does_not_stop_the_others(
    tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (journal.begin(begun(tenant, number)) for _ in range(2))
    for slot in (bad, good):
        abandon(slot)
    replay_of = journal_replay._replay

    def locked(slot: Slot) -> None:
        if slot.path == bad.path:
            raise OperationalError("lock timeout") from LockNotAvailable()
        replay_of(slot)

    with monkeypatch.context() as now:
        now.setattr(journal_replay, "_replay", locked)
        assert not journal_replay.replay()
    assert (Event.objects.count(), files()) == (1, [bad.path.name])
    assert journal_replay.replay()
    assert (Event.objects.count(), files()) == (2, [])


def test_what_cannot_be_journalled_is_not_sent_and_its_key_is_free(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, settings: Any
) -> None:
    there, settings.DATA_DIR = settings.DATA_DIR, settings.DATA_DIR / "file"
    settings.DATA_DIR.write_text("in the way")
    refused = api.post("/v1/messages", text(number), Idempotency_Key="k")
    assert_error(refused, 503, "service_unavailable")
    assert sent_bodies(simulator, number) == []
    assert not IdempotencyRecord.objects.exists()
    settings.DATA_DIR = there
    assert api.post("/v1/messages", text(number), Idempotency_Key="k").status_code == 200


def test_a_full_disk_leaves_no_file_of_a_refused_send(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        assert_error(api.post("/v1/messages", text(number)), 503, "service_unavailable")
    assert files() == []
    assert api.post("/v1/messages", text(number)).status_code == 200


def test_a_recorded_send_whose_entry_cannot_be_cleared_leaves_no_file(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Slot) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(Slot, "clear", broken)
        assert api.post("/v1/messages", text(number)).status_code == 200
        wait_until(lambda: files() == [], "the entry is deleted")
    assert api.post("/v1/messages", text(number)).status_code == 200


def test_a_refused_send_makes_no_event_by_its_journal(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults({"action": "error", "code": 131030, "match": {"path": "/messages$"}})
    assert api.post("/v1/messages", text(number)).status_code == 400
    for path in journal.directory().glob("*.send"):
        assert Slot(path, os.open(path, os.O_RDWR), journal._slots._free[0].cipher).entry() is None


KILLED = """
import os, signal, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"
import django
django.setup()
from gateway.ids import uuid7
from messaging.sending import journal
from uuid import UUID
for _ in range(3):
    slot = journal.begin(journal.Begun(
        uuid7(), UUID(sys.argv[1]), "live", "1", "2", "3", b'{"to":"1"}', None
    ))
print("ready", flush=True)
signal.pause()
"""


def test_a_living_process_keeps_its_entries_and_a_killed_one_leaves_them(tenant: Tenant) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tenant.id)],
        env={**os.environ, "DATA_DIR": str(settings.DATA_DIR)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert journal_replay.replay()
        assert Event.objects.count() == 0
        process.kill()
    deadline = time.monotonic() + 30
    while Event.objects.count() < 3 and time.monotonic() < deadline:
        assert journal_replay.replay()
    assert Event.objects.count() == 3
    assert files() == []
