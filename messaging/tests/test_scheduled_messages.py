"""`send_at`: messages and batches that are sent at a later time, never early and never twice."""

import asyncio
import itertools
import threading
import time
import zoneinfo
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import orjson
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from phonenumbers.tzdata import TIMEZONE_DATA

from gateway import ids
from gateway.clock import isoformat, now
from gateway.upstream.calls import AsyncPool, UpstreamUnreachable
from messaging import retention
from messaging.batches import held_batch, runner, scheduled_messages, scheduled_sender, sender
from messaging.batches.body import LONGEST_TEXT
from messaging.models import Batch, ScheduledMessage
from messaging.pacing import Pacer
from messaging.sending import customer_hours
from messaging.tests.conftest import connected_number
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import Sender
from tenants.models import Tenant
from tests.database_settings import read_only_for
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator
from webhooks.models import Event, EventPayload

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/v1/messages/scheduled"
CUSTOMER = "+919812345678"
HOUR = timedelta(hours=1)
ALWAYS = {"from": 0, "to": 24}
UNKNOWN_ID = "sch_01M6AYX330E008000000000001"


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs. Tests start the runner themselves."""
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


def text(number: PhoneNumber, **more: Any) -> dict[str, Any]:
    return {
        "from": number.phone_number_id,
        "to": CUSTOMER,
        "type": "text",
        "text": {"body": "Hello"},
        **more,
    }


def in_an_hour() -> str:
    return (now() + HOUR).isoformat()


def schedule_one(api: Api, number: PhoneNumber, **more: Any) -> str:
    answer = api.post(PATH, text(number, send_at=in_an_hour(), **more))
    assert answer.status_code == 202, answer.content
    return str(answer.json()["id"])


def let_time_come(age: timedelta = timedelta(seconds=1)) -> None:
    """Set the times of all scheduled messages and batches to the moment that is `age` before now."""
    ScheduledMessage.objects.filter(status="scheduled").update(send_at=now() - age)
    Batch.objects.filter(waiting_for="scheduled").update(send_at=now() - age)


def received(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    """The messages that Meta received from a number, oldest first."""
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=1000")["data"]
    return [row for row in reversed(rows) if row["path"].endswith("/messages")]


def test_it_is_sent_once_at_its_time_and_says_what_came_of_it(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    send_at = now() + HOUR
    answer = api.post(PATH, text(number, send_at=send_at.isoformat()))
    assert answer.status_code == 202
    waiting = answer.json()
    assert (waiting["status"], waiting["send_at"]) == ("scheduled", isoformat(send_at))
    path = f"{PATH}/{waiting['id']}"
    assert api.get(path).json() == waiting
    runner.run()
    assert received(simulator, number) == []

    let_time_come()
    runner.run()
    runner.run()
    (sent,) = received(simulator, number)
    assert orjson.loads(sent["body"]) == {
        "messaging_product": "whatsapp",
        "to": CUSTOMER,
        "type": "text",
        "text": {"body": "Hello"},
    }
    after = api.get(path).json()
    assert (after["status"], after["http_status"]) == ("accepted", 200)
    assert after["wamid"] == after["response"]["messages"][0]["id"]
    event = Event.objects.get(type="message.outbound")
    assert (ids.encode(ids.EVENT, event.id), event.wamid) == (after["event_id"], after["wamid"])
    assert bytes(ScheduledMessage.objects.get().body) == b""
    tenant.refresh_from_db()
    assert tenant.test_message_sent


def test_it_is_sent_after_the_database_took_no_writes_for_a_moment(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LINGER_SECONDS", 0.5)
    schedule_one(api, number)
    let_time_come()
    with read_only_for(1, "UPDATE ON messaging_scheduledmessage"):
        runner.run()
    assert len(received(simulator, number)) == 1
    assert ScheduledMessage.objects.get().status == "accepted"


def test_a_running_service_sends_it_when_its_time_comes_and_not_before(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LINGER_SECONDS", 3.0)
    send_at = now() + timedelta(seconds=1.5)
    assert api.post(PATH, text(number, send_at=send_at.isoformat())).status_code == 202
    runner.run()
    (sent,) = received(simulator, number)
    assert sent["at"] >= send_at.timestamp()


def test_they_go_at_the_pace_of_their_number(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []
    next_turns = Pacer.turns

    def recorded(self: Pacer) -> list[float]:
        turns.extend(given := next_turns(self))
        return given

    monkeypatch.setattr(Pacer, "turns", recorded)
    PhoneNumber.objects.update(coexistence=True)
    for _ in range(3):
        schedule_one(api, number)
    let_time_come()
    runner.run()
    in_wall_time = time.time() - time.monotonic()
    sent = [row["at"] for row in received(simulator, number)]
    assert len(sent) == len(turns) == 3
    assert all(at > turn + in_wall_time - 0.01 for at, turn in zip(sent, turns, strict=True))


def test_a_time_that_is_none_is_refused_and_leaves_the_key_free(api: Api, number: PhoneNumber) -> None:
    key = {"Idempotency-Key": "appointment-17"}
    for send_at, problem in (
        ("tomorrow", "ISO 8601"),
        ("2999-12-01T09:00:00", "offset"),
        ("2999-12-01", "ISO 8601"),
        (1_900_000_000, "ISO 8601"),
        (None, "ISO 8601"),
        ("2020-01-01T00:00:00Z", "future"),
        ("2999-01-01T00:00:00Z", "90 days"),
        ("9999-12-31T23:59:59-14:00", "90 days"),
    ):
        error = assert_error(api.post(PATH, text(number, send_at=send_at), **key), 400, "invalid_request")
        assert problem in error["details"]["fields"]["send_at"][0]
    assert not ScheduledMessage.objects.exists()
    assert api.post(PATH, text(number, send_at=in_an_hour()), **key).status_code == 202


def test_a_keyed_repeat_schedules_nothing_more(api: Api, number: PhoneNumber) -> None:
    key, body = {"Idempotency-Key": "appointment-17"}, text(number, send_at=in_an_hour())
    first = api.post(PATH, body, **key)
    repeat = api.post(PATH, body, **key)
    assert (repeat.status_code, repeat.content) == (202, first.content)
    assert repeat["Idempotent-Replayed"] == "true"
    assert_error(api.post(PATH, {**body, "to": "+919812345679"}, **key), 422, "idempotency_conflict")
    assert ScheduledMessage.objects.count() == 1


def test_all_that_a_send_checks_is_checked_at_once(
    api: Api, tenant: Tenant, number: PhoneNumber, account: Any
) -> None:
    body = text(number, send_at=in_an_hour())
    assert_error(api.post(PATH, {**body, "type": ""}), 400, "invalid_request")
    assert_error(api.post(PATH, {**body, "from": "123"}), 400, "invalid_request")
    PhoneNumber.objects.update(connection_state="disconnected")
    assert_error(api.post(PATH, body), 409, "number_not_connected")
    assert not ScheduledMessage.objects.exists()


def test_a_send_that_names_a_time_or_hours_does_not_go_out_at_once(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for name, value in (("send_at", in_an_hour()), ("customer_hours", ALWAYS)):
        body = text(number, **{name: value})
        error = assert_error(api.post("/v1/messages", body), 400, "invalid_request")
        assert PATH in error["details"]["fields"][name][0]
        batch = {"from": body.pop("from"), "messages": [body]}
        error = assert_error(api.post("/v1/messages/batch", batch), 400, "invalid_request")
        assert "beside" in error["details"]["fields"][f"messages[0].{name}"][0]
    assert received(simulator, number) == []


def test_its_time_can_be_changed_and_it_can_be_cancelled_while_it_waits(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    later = now() + 2 * HOUR
    assert api.patch(path, {"send_at": later.isoformat()}).json()["send_at"] == isoformat(later)
    error = assert_error(api.patch(path, {"time": later.isoformat()}), 400, "invalid_request")
    assert "send_at" in str(error["details"]["fields"])
    assert_error(api.patch(path, {"send_at": "2020-01-01T00:00:00Z"}), 400, "invalid_request")
    assert api.post(f"{path}/cancel").json()["status"] == "cancelled"
    cancelled = ScheduledMessage.objects.get()
    assert bytes(cancelled.body) == b"", "its text is deleted"
    assert cancelled.ended_at is not None, "its retention begins"
    let_time_come()
    runner.run()
    assert received(simulator, number) == []
    for refused in (api.post(f"{path}/cancel"), api.patch(path, {"send_at": in_an_hour()})):
        assert assert_error(refused, 409, "conflict")["details"] == {"status": "cancelled"}


def test_one_that_is_under_way_is_neither_changed_nor_cancelled(api: Api, number: PhoneNumber) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    let_time_come()
    assert len(scheduled_sender.claim([])) == 1
    for refused in (api.post(f"{path}/cancel"), api.patch(path, {"send_at": in_an_hour()})):
        assert assert_error(refused, 409, "conflict")["details"] == {"status": "sending"}


def test_one_that_is_claimed_while_it_is_cancelled_is_either_sent_or_cancelled(
    api: Api, number: PhoneNumber
) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    let_time_come()
    reads, claimed = itertools.count(), list[Any]()

    def claim() -> list[Any]:
        try:
            return scheduled_sender.claim([])
        finally:
            connection.close()

    def claim_after_the_check(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
        done = execute(statement, *rest)
        # The first read finds the message, the second checks whether it still waits.
        if 'FROM "messaging_scheduledmessage"' in statement and next(reads) == 1:
            with ThreadPoolExecutor(1) as pool:
                claimed.extend(pool.submit(claim).result())
        return done

    with connection.execute_wrapper(claim_after_the_check):
        answer = api.post(f"{path}/cancel")
    assert next(reads) > 1
    assert [answer.status_code == 200, len(claimed) == 1].count(True) == 1


def test_two_runners_at_once_send_it_once(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        schedule_one(api, number)
    let_time_come()
    meeting = threading.Barrier(2)

    def meet(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
        if statement == scheduled_sender._CLAIM:
            meeting.wait(timeout=10)
        return execute(statement, *rest)

    def claim(_: int) -> list[Any]:
        try:
            with connection.execute_wrapper(meet):
                return scheduled_sender.claim([])
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        claimed = list(itertools.chain(*pool.map(claim, range(2))))
    assert len({message.id for message in claimed}) == len(claimed) == 3


def test_one_that_was_interrupted_is_reported_and_never_sent_again(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    """A process claimed the message and was killed. It is unknown whether the message was sent."""
    path = f"{PATH}/{schedule_one(api, number)}"
    let_time_come()
    (claimed,) = scheduled_sender.claim([])
    runner.run()
    assert api.get(path).json()["status"] == "sending"
    ScheduledMessage.objects.update(claimed_until=now() - timedelta(seconds=1))
    runner.run()
    after = api.get(path).json()
    assert (after["status"], after["response"]["error"]["code"]) == ("failed", "outcome_unknown")
    event = Event.objects.get(type="message.outbound")
    assert orjson.loads(bytes(EventPayload.objects.get(id=event.id).body))["response"] == after["response"]
    assert received(simulator, number) == []
    # The first process was only slow. Its result arrives too late and changes nothing.
    scheduled_sender.record(
        claimed,
        held_batch.number_of(number.tenant_id, "live", number.phone_number_id),
        held_batch.Outcome(b"{}", accepted=True),
    )
    assert api.get(path).json() == after
    assert Event.objects.filter(type="message.outbound").count() == 1


@pytest.mark.parametrize(
    ("hindrance", "values"),
    [
        ("number_not_connected", {"connection_state": "disconnected"}),
        ("tenant_suspended", {}),
        ("number_released", None),
    ],
)
def test_one_that_cannot_go_waits_a_quarter_of_an_hour_and_then_fails(
    api: Api,
    tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    hindrance: str,
    values: dict[str, Any] | None,
) -> None:
    schedule_one(api, number)
    if values is None:
        PhoneNumber.objects.all().delete()
    elif values:
        PhoneNumber.objects.update(**values)
    else:
        Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    let_time_come(scheduled_sender.PATIENCE - timedelta(seconds=60))
    runner.run()
    assert ScheduledMessage.objects.get().status == "scheduled"
    let_time_come(scheduled_sender.PATIENCE + timedelta(seconds=1))
    runner.run()
    failed = ScheduledMessage.objects.get()
    assert failed.status == "failed"
    assert orjson.loads(bytes(failed.response or b""))["error"]["code"] == hindrance
    event = Event.objects.get(type="message.outbound")
    assert event.waba_id == (None if values is None else number.waba_id)
    assert received(simulator, number) == []


def test_one_that_could_not_go_goes_as_soon_as_it_can(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    schedule_one(api, number)
    PhoneNumber.objects.update(connection_state="disconnected")
    let_time_come()
    runner.run()
    PhoneNumber.objects.update(connection_state="connected")
    runner.run()
    assert len(received(simulator, number)) == 1


def test_a_throttled_one_goes_later(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    rule = {"match": {"phone_number_id": number.phone_number_id}, "action": "throttle", "times": 1}
    simulator.control("PUT", "faults", [rule])
    let_time_come()
    while api.get(path).json()["status"] == "scheduled":
        runner.run()
    assert api.get(path).json()["status"] == "accepted"
    assert len(received(simulator, number)) == 2
    assert Event.objects.filter(type="message.outbound").count() == 1


@pytest.mark.parametrize("code", [131057, 131056, 190, None])
def test_one_that_whatsapp_did_not_take_goes_later(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
) -> None:
    """A code of maintenance, of the pair rate or of the token, or no connection."""
    path = f"{PATH}/{schedule_one(api, number)}"
    let_time_come()
    with monkeypatch.context() as outage:
        if code is None:

            async def unreachable(*_: Any) -> Any:
                raise UpstreamUnreachable("connection_error", 0.0, is_unsent=True)

            outage.setattr(AsyncPool, "send", unreachable)
            outage.setattr(sender, "REACH_SECONDS", 0.0)
        else:
            match = {"path": "/messages$"}
            simulator.faults({"match": match, "action": "error", "code": code, "times": 1})
        runner.run()
    runner.run()
    assert api.get(path).json()["status"] == "scheduled", "it is not sent again at once"
    # The check of the token has also seen that the tenant has no webhook.
    PhoneNumber.objects.update(connection_state="connected")
    ScheduledMessage.objects.update(claimed_until=now())
    runner.run()
    assert api.get(path).json()["status"] == "accepted"
    assert len(received(simulator, number)) == (1 if code is None else 2)
    assert Event.objects.filter(type="message.outbound").count() == 1


@pytest.mark.parametrize(
    ("code", "age"),
    [(131057, scheduled_sender.PATIENCE + timedelta(seconds=1)), (131048, timedelta(seconds=1))],
    ids=["too late", "a longer wait than its patience"],
)
def test_one_that_whatsapp_would_not_take_in_time_fails(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, code: int, age: timedelta
) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    simulator.faults({"match": {"path": "/messages$"}, "action": "error", "code": code, "times": 1})
    let_time_come(age)
    runner.run()
    after = api.get(path).json()
    assert (after["status"], after["response"]["error"]["code"]) == ("failed", code)
    assert len(received(simulator, number)) == 1


def test_one_without_an_answer_is_outcome_unknown_and_sent_once(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    lost = {"action": "reset", "when": "after"}
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, **lost})
    let_time_come()
    runner.run()
    simulator.faults()
    runner.run()
    after = api.get(path).json()
    error = after["response"]["error"]
    assert (after["status"], error["code"], error["details"]["reason"]) == (
        "failed",
        "outcome_unknown",
        "connection_error",
    )
    assert len(received(simulator, number)) == 1


def test_after_an_outage_the_processes_record_their_results_before_one_claims_what_was_interrupted() -> None:
    """During the outage the claims of sent messages expire. The processes that sent them still have the answers."""

    called: list[Any] = []

    class Process:
        stopping = False

        async def in_database(self, lane: int, call: Any, *values: Any) -> Any:
            called.append(call)
            if len(called) == 1:
                raise OperationalError("server closed the connection unexpectedly")
            return (False, True, False) if call is scheduled_sender.due else []

    async def look(times: int) -> list[Any]:
        sends = scheduled_sender.ScheduledSends(Process(), None)  # type: ignore[arg-type]
        for _ in range(times):
            await sends.look()
        return called

    due = scheduled_sender.due
    assert asyncio.run(look(2)) == [due, due]
    assert asyncio.run(look(1)) == [due, due, due, scheduled_sender.claim_interrupted], "it saw no outage"


def test_one_that_found_no_connection_is_released_when_the_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("messaging.batches.scheduled_sender.RETRY_SECONDS", 0)
    monkeypatch.setattr("messaging.batches.sender.RETRY_SECONDS", 0)
    monkeypatch.setattr("messaging.batches.sender.REACH_SECONDS", 0.2)
    tried, stored = [], []

    class Ending:
        stopping = False
        slots = asyncio.Semaphore(0)

        async def in_database(self, lane: int, call: Any, *values: Any) -> None:
            stored.append(call)

    class Away:
        async def send(self, call: Any) -> Any:
            tried.append(call)
            process.stopping = True
            raise UpstreamUnreachable("connection_error", 0.0, is_unsent=True)

    process = Ending()
    sends = scheduled_sender.ScheduledSends(process, Away())  # type: ignore[arg-type]
    message = scheduled_sender.Claimed(
        ids.uuid7(), ids.uuid7(), "live", "100", b"{}", ids.uuid7(), None, None, is_late=False
    )
    number = Sender("100", "200", "token", "live", "connected", None, "919800000001", None, False)
    pacer = Pacer(phone_number_id="100", rate=80)
    asyncio.run(sends._send(message, number, pacer, time.monotonic() + 60))
    assert (len(tried), stored) == (1, [scheduled_sender.release])


def test_one_that_was_released_and_claimed_by_another_stays_the_others(api: Api, number: PhoneNumber) -> None:
    """A process was paused for a long time. It releases a message that another process is now sending."""
    schedule_one(api, number)
    let_time_come()
    (former,) = scheduled_sender.claim([])
    ScheduledMessage.objects.update(status="scheduled", claimed_until=None)
    (now_claimed,) = scheduled_sender.claim([])
    scheduled_sender.release(former)
    row = ScheduledMessage.objects.get()
    assert (row.status, row.claim) == ("sending", now_claimed.claim)
    scheduled_sender.release(now_claimed)
    assert len(scheduled_sender.claim([])) == 1


def test_what_was_claimed_long_ago_is_released_unsent(
    api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message's claim may expire during the call. Then another process would report it as interrupted."""
    schedule_one(api, number)
    looked_up = []
    number_of = held_batch.number_of

    def slow_at_first(*owner: Any) -> Any:
        looked_up.append(len(received(simulator, number)))
        if len(looked_up) == 1:
            time.sleep(2 * safe)  # longer than SAFE_SECONDS
        return number_of(*owner)

    safe = 0.5
    monkeypatch.setattr(scheduled_sender, "SAFE_SECONDS", safe)
    monkeypatch.setattr(held_batch, "number_of", slow_at_first)
    let_time_come()
    while ScheduledMessage.objects.get().status == "scheduled":
        runner.run()
    assert len(looked_up) >= 2
    assert set(looked_up) == {0}, "it was claimed again without being sent"
    assert len(received(simulator, number)) == 1


def test_one_that_waited_for_the_former_owners_is_released_unsent_if_that_took_long(
    api: Api,
    other_api: Api,
    other_tenant: Tenant,
    number: PhoneNumber,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both messages were claimed at once, so the claim of the second has nearly expired when the first is done."""
    schedule_one(api, number)
    PhoneNumber.objects.update(tenant=other_tenant)
    schedule_one(other_api, number)
    looked_up: list[UUID] = []
    number_of = held_batch.number_of

    def slow_at_first(tenant_id: UUID, *rest: Any) -> Any:
        looked_up.append(tenant_id)
        if len(looked_up) == 1:
            time.sleep(2 * safe)  # longer than SAFE_SECONDS
        return number_of(tenant_id, *rest)

    safe = 0.5
    monkeypatch.setattr(scheduled_sender, "SAFE_SECONDS", safe)
    monkeypatch.setattr(held_batch, "number_of", slow_at_first)
    let_time_come(scheduled_sender.PATIENCE + timedelta(seconds=1))
    while ScheduledMessage.objects.filter(status="scheduled").exists():
        runner.run()
    assert looked_up.count(other_tenant.id) >= 2, "it was sent under a claim that has nearly expired"
    assert len(received(simulator, number)) == 1


def test_the_new_owners_message_goes_beside_one_of_the_former_owner(
    api: Api, other_api: Api, other_tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    former = schedule_one(api, number)
    PhoneNumber.objects.update(tenant=other_tenant)
    new = schedule_one(other_api, number)
    let_time_come(scheduled_sender.PATIENCE + timedelta(seconds=1))
    runner.run()
    assert api.get(f"{PATH}/{former}").json()["status"] == "failed"
    assert other_api.get(f"{PATH}/{new}").json()["status"] == "accepted"
    assert len(received(simulator, number)) == 1


def test_a_throttled_one_that_has_waited_too_long_fails(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"{PATH}/{schedule_one(api, number)}"
    simulator.faults({"match": {"phone_number_id": number.phone_number_id}, "action": "throttle", "times": 1})
    let_time_come(scheduled_sender.PATIENCE + timedelta(seconds=1))
    runner.run()
    after = api.get(path).json()
    assert (after["status"], after["http_status"]) == ("failed", 400)
    assert len(received(simulator, number)) == 1


def test_a_refused_token_is_questioned(api: Api, number: PhoneNumber) -> None:
    number.account.access_token = "revoked"
    number.account.save()
    schedule_one(api, number)
    let_time_come()
    runner.run()
    number.refresh_from_db()
    assert number.connection_state != "connected"


def test_a_refusal_of_whatsapp_is_its_end(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    path = f"{PATH}/{schedule_one(api, number, type='nonsense')}"
    let_time_come()
    runner.run()
    after = api.get(path).json()
    assert (after["status"], after["http_status"], after["wamid"]) == ("failed", 400, None)
    assert after["response"]["error"]["code"]


def test_a_number_with_many_does_not_hold_up_another(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    """A busy number has a limited number of claims, so the other number's message is claimed next."""
    other = connected_number(tenant, simulator.account())
    moment, body = now() - HOUR, b'{"to":"919812345678","type":"text","text":{"body":"x"}}'
    ScheduledMessage.objects.bulk_create(
        ScheduledMessage(
            tenant_id=tenant.id,
            environment="live",
            phone_number_id=number.phone_number_id,
            send_at=moment,
            body=body,
        )
        for _ in range(scheduled_sender.CLAIMED_AT_ONCE + 5)
    )
    schedule_one(api, other)
    ScheduledMessage.objects.filter(phone_number_id=other.phone_number_id).update(send_at=now())
    first = scheduled_sender.claim([])
    assert {message.phone_number_id for message in first} == {number.phone_number_id}
    assert len(first) == scheduled_sender.CLAIMED_AT_ONCE
    (next_one,) = scheduled_sender.claim([number.phone_number_id])
    assert next_one.phone_number_id == other.phone_number_id


def test_of_too_many_the_earliest_are_claimed_first(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_sender, "CLAIMED_AT_ONCE", 2)
    made = [schedule_one(api, number) for _ in range(4)]
    for minutes, scheduled_id in zip((5, 20, 10, 15), made, strict=True):
        key = ids.decode(ids.SCHEDULED, scheduled_id)
        assert key is not None
        ScheduledMessage.objects.filter(pk=key).update(send_at=now() - timedelta(minutes=minutes))
    assert [each.public_id for each in scheduled_sender.claim([])] == [made[1], made[3]]
    assert [each.public_id for each in scheduled_sender.claim([])] == [made[0], made[2]]
    assert scheduled_sender.claim([]) == []


def test_a_claim_takes_no_more_than_its_share_whatever_the_plan(tenant: Tenant, number: PhoneNumber) -> None:
    """With these statistics, the planner puts the claimed rows on the inner side of the join."""
    ScheduledMessage.objects.bulk_create(
        ScheduledMessage(
            tenant_id=tenant.id,
            environment="live",
            phone_number_id=number.phone_number_id,
            send_at=now() - HOUR,
            body=b"{}",
        )
        for _ in range(2 * scheduled_sender.CLAIMED_AT_ONCE)
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pg_class SET reltuples = 1, relpages = 1000 WHERE oid = 'messaging_scheduledmessage'::regclass"
        )
        for way in ("hashjoin", "mergejoin", "material", "indexscan", "bitmapscan"):
            cursor.execute(f"SET LOCAL enable_{way} TO off")
        assert len(scheduled_sender.claim([])) == scheduled_sender.CLAIMED_AT_ONCE
        # Restores the statistics of the table.
        transaction.set_rollback(True)


def test_ended_ones_go_with_the_retention_and_name_nobody_once_expunged(
    api: Api, tenant: Tenant, number: PhoneNumber
) -> None:
    schedule_one(api, number)
    waits = schedule_one(api, number)
    first = ScheduledMessage.objects.earliest("id")
    ScheduledMessage.objects.filter(pk=first.pk).update(send_at=now())
    runner.run()
    ended = ScheduledMessage.objects.get(status="accepted")
    retention.expunge(tenant_id=tenant.id, wa_id=CUSTOMER[1:])
    ended.refresh_from_db()
    assert (ended.wamid, ended.response) == (None, None)
    ScheduledMessage.objects.filter(pk=ended.pk).update(
        ended_at=now() - timedelta(days=tenant.retention_days, hours=1)
    )
    assert retention.prune_scheduled_messages() == 1
    assert ScheduledMessage.objects.get().public_id == waits


class TestBatches:
    @staticmethod
    def create(api: Api, number: PhoneNumber, send_at: datetime | None = None, **more: Any) -> Any:
        messages = [
            {"to": CUSTOMER, "type": "text", "text": {"body": f"Hello {place}"}} for place in range(2)
        ]
        if send_at is not None:
            more["send_at"] = send_at.isoformat()
        return api.post("/v1/messages/batch", {"from": number.phone_number_id, "messages": messages, **more})

    def test_it_waits_for_its_time_and_lets_newer_ones_go_first(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        send_at = now() + HOUR
        answer = self.create(api, number, send_at)
        assert answer.status_code == 202
        assert (answer.json()["waiting_for"], answer.json()["send_at"]) == ("scheduled", isoformat(send_at))
        path = f"/v1/messages/batch/{answer.json()['id']}"
        newer = self.create(api, number).json()["id"]
        runner.run()
        assert api.get(f"/v1/messages/batch/{newer}").json()["status"] == "completed"
        assert api.get(path).json()["waiting_for"] == "scheduled"
        assert len(received(simulator, number)) == 2
        let_time_come()
        runner.run()
        after = api.get(path).json()
        assert (after["status"], after["accepted"], after["waiting_for"]) == ("completed", 2, None)
        assert len(received(simulator, number)) == 4

    def test_waiting_for_its_time_uses_up_no_patience(self, api: Api, number: PhoneNumber) -> None:
        """Only a wait for its number or tenant ends a batch after 24 hours."""
        batch_id = self.create(api, number, now() + HOUR).json()["id"]
        PhoneNumber.objects.update(connection_state="disconnected")
        runner.run()
        assert Batch.objects.get().waiting_since is None
        let_time_come()
        before = now()
        runner.run()
        batch = Batch.objects.get()
        assert (batch.public_id, batch.waiting_for) == (batch_id, "number_not_connected")
        assert batch.waiting_since is not None
        assert batch.waiting_since >= before

    def test_its_time_is_changed_until_it_begins(
        self, api: Api, other_api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        path = f"/v1/messages/batch/{self.create(api, number, now() + HOUR).json()['id']}"
        later = now() + 2 * HOUR
        assert api.patch(path, {"send_at": later.isoformat()}).json()["send_at"] == isoformat(later)
        assert_error(api.patch(path, {"send_at": "soon"}), 400, "invalid_request")
        assert_error(api.patch(path, {}), 400, "invalid_request")
        assert_error(other_api.patch(path, {"send_at": None}), 404, "not_found")
        at_once = api.patch(path, {"send_at": None}).json()
        assert (at_once["send_at"], at_once["waiting_for"]) == (None, None)
        runner.run()
        assert len(received(simulator, number)) == 2
        assert_error(api.patch(path, {"send_at": in_an_hour()}), 409, "conflict")

    def test_a_restarted_job_finds_its_batch_after_its_time(self, api: Api, number: PhoneNumber) -> None:
        send_at = now() + HOUR
        first = self.create(api, number, send_at, client_ref="reminders")
        let_time_come()
        again = self.create(api, number, now() - HOUR, client_ref="reminders")
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
        assert again.json()["same_messages"] is True
        assert_error(self.create(api, number, now() - HOUR), 400, "invalid_request")


def hours_in(ahead: int) -> dict[str, int]:
    """The hour of the customer's day that begins `ahead` hours after the customer's current hour."""
    first = (now().astimezone(ZoneInfo("Asia/Kolkata")).hour + ahead) % 24
    return {"from": first, "to": first + 1}


def set_hours(hours: dict[str, int]) -> None:
    """Change the hours of everything that waits. This has the same effect as a change of the clock."""
    column = {**hours, "zones": ["Asia/Calcutta"]}
    ScheduledMessage.objects.update(customer_hours=column)
    Batch.objects.update(customer_hours=column)


class TestCustomerHours:
    def test_it_waits_for_its_customers_day(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        hours = hours_in(5)
        made = api.post(PATH, text(number, customer_hours=hours)).json()
        begins = datetime.fromisoformat(made["send_at"]).astimezone(ZoneInfo("Asia/Kolkata"))
        assert (begins.hour, begins.minute, made["customer_hours"]) == (hours["from"], 0, hours)
        assert timedelta(hours=4) <= begins - now() <= timedelta(hours=5)
        path = f"{PATH}/{made['id']}"
        later = now() + timedelta(days=1)
        moved = datetime.fromisoformat(api.patch(path, {"send_at": later.isoformat()}).json()["send_at"])
        assert moved.astimezone(ZoneInfo("Asia/Kolkata")).hour == hours["from"]
        assert moved >= later
        set_hours(ALWAYS)
        let_time_come()
        runner.run()
        (sent,) = received(simulator, number)
        assert b"customer_hours" not in sent["body"].encode()

    def test_a_customer_named_by_user_id_has_the_zone_of_its_country(
        self, api: Api, number: PhoneNumber
    ) -> None:
        hours, message = hours_in(5), text(number, recipient="IN.77889900112233445566")
        del message["to"]
        made = api.post(PATH, {**message, "customer_hours": hours}).json()
        begins = datetime.fromisoformat(made["send_at"]).astimezone(ZoneInfo("Asia/Kolkata"))
        assert (begins.hour, begins.minute) == (hours["from"], 0)

    def test_a_time_within_the_hours_stays_as_it_is(self, api: Api, number: PhoneNumber) -> None:
        send_at = now() + HOUR
        made = api.post(PATH, text(number, send_at=send_at.isoformat(), customer_hours=ALWAYS)).json()
        assert made["send_at"] == isoformat(send_at)

    def test_one_whose_hours_ended_meanwhile_goes_the_next_day(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        made = api.post(PATH, text(number, customer_hours=ALWAYS)).json()
        set_hours(hours_in(3))
        let_time_come()
        runner.run()
        after = api.get(f"{PATH}/{made['id']}").json()
        assert after["status"] == "scheduled"
        assert datetime.fromisoformat(after["send_at"]) > now() + HOUR
        assert received(simulator, number) == []

    @pytest.mark.parametrize("values", [{"connection_state": "disconnected"}, {}])
    def test_one_whose_number_comes_back_within_a_day_goes_in_the_next_hours(
        self,
        api: Api,
        tenant: Tenant,
        number: PhoneNumber,
        simulator: RunningSimulator,
        values: dict[str, Any],
    ) -> None:
        path = f"{PATH}/{api.post(PATH, text(number, customer_hours=ALWAYS)).json()['id']}"
        if values:
            PhoneNumber.objects.update(**values)
        else:
            Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
        let_time_come(timedelta(hours=24) - timedelta(seconds=60))
        runner.run()
        assert ScheduledMessage.objects.get().status == "scheduled"
        Tenant.objects.filter(pk=tenant.pk).update(status="active")
        PhoneNumber.objects.update(connection_state="connected")
        set_hours(hours_in(3))
        runner.run()
        waits = api.get(path).json()
        assert (waits["status"], waits["send_at"] > isoformat(now() + HOUR)) == ("scheduled", True)
        assert received(simulator, number) == []

    @pytest.mark.parametrize(
        ("values", "patience"),
        [({"connection_state": "disconnected"}, timedelta(hours=24)), (None, scheduled_sender.PATIENCE)],
        ids=["not connected", "released"],
    )
    def test_one_whose_number_stays_away_fails(
        self, api: Api, number: PhoneNumber, values: dict[str, Any] | None, patience: timedelta
    ) -> None:
        path = f"{PATH}/{api.post(PATH, text(number, customer_hours=ALWAYS)).json()['id']}"
        if values is None:
            PhoneNumber.objects.all().delete()
        else:
            PhoneNumber.objects.update(**values)
        let_time_come(patience + timedelta(seconds=1))
        runner.run()
        assert api.get(path).json()["status"] == "failed"

    def test_a_throttled_one_waits_as_long_as_its_hours_last(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        path = f"{PATH}/{api.post(PATH, text(number, customer_hours=ALWAYS)).json()['id']}"
        simulator.faults({"match": {"path": "/messages$"}, "action": "throttle", "times": 1})
        let_time_come(scheduled_sender.PATIENCE + timedelta(seconds=1))
        while api.get(path).json()["status"] == "scheduled":
            runner.run()
        assert api.get(path).json()["status"] == "accepted"

    def test_a_batch_is_sent_in_its_customers_hours_alone(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits = TestBatches.create(api, number, customer_hours=hours_in(4)).json()
        assert waits["waiting_for"] == "scheduled"
        assert datetime.fromisoformat(waits["send_at"]) > now() + HOUR
        path = f"/v1/messages/batch/{waits['id']}"
        set_hours(ALWAYS)
        # The hours have begun. They end when the second message has its turn.
        turns: list[float] = []

        async def next_turn(run: sender.BatchRun) -> float:
            turns.append(await turn_of(run))
            return turns[-1]

        turn_of = sender.BatchRun._next_turn
        with monkeypatch.context() as closing:
            closing.setattr(sender.BatchRun, "_next_turn", next_turn)
            for module in (sender, held_batch):
                closing.setattr(
                    module, "closed_until", lambda _, moment: moment + HOUR if len(turns) == 2 else None
                )
            let_time_come()
            runner.run()
        after = api.get(path).json()
        assert (after["status"], after["waiting_for"], after["accepted"]) == ("queued", "scheduled", 1)
        assert api.patch(path, {"send_at": None}).status_code == 409
        let_time_come()
        runner.run()
        after = api.get(path).json()
        assert (after["status"], after["accepted"]) == ("completed", 2)
        assert len(received(simulator, number)) == 2

    def test_a_batchs_time_is_moved_into_them_only_if_it_lies_outside(
        self, api: Api, number: PhoneNumber
    ) -> None:
        later = now() + timedelta(days=1)
        at_once = TestBatches.create(api, number, customer_hours=ALWAYS).json()
        assert (at_once["send_at"], at_once["waiting_for"]) == (None, None)
        kept = TestBatches.create(api, number, later, customer_hours=ALWAYS).json()
        assert (kept["send_at"], kept["waiting_for"]) == (isoformat(later), "scheduled")
        hours = hours_in(5)
        moved = TestBatches.create(api, number, later, customer_hours=hours).json()
        again = api.patch(f"/v1/messages/batch/{moved['id']}", {"send_at": isoformat(later)}).json()
        for answer in (moved, again):
            begins = datetime.fromisoformat(answer["send_at"])
            assert later < begins < later + 6 * HOUR
            assert (begins.astimezone(ZoneInfo("Asia/Kolkata")).hour, begins.second) == (hours["from"], 0)

    def test_a_batch_that_is_claimed_outside_of_them_sends_nothing(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        TestBatches.create(api, number, customer_hours=ALWAYS)
        set_hours(hours_in(3))
        runner.run()
        batch = Batch.objects.get()
        assert (batch.waiting_for, batch.lease_token) == ("scheduled", None)
        assert batch.send_at is not None
        assert batch.send_at > now() + HOUR
        assert received(simulator, number) == []

    def test_a_batch_outside_of_them_is_not_claimed_again(self, api: Api, number: PhoneNumber) -> None:
        TestBatches.create(api, number, customer_hours=ALWAYS)
        (held,) = held_batch.claim_batches(10)
        set_hours(hours_in(3))
        closed = replace(held, customer_hours=orjson.dumps(Batch.objects.get().customer_hours).decode())
        held_batch.release(closed, [])
        batch = Batch.objects.get()
        assert (batch.waiting_for, batch.waiting_since) == ("scheduled", None)
        assert batch.send_at is not None
        assert batch.send_at > now() + HOUR
        assert held_batch.claim_batches(10) == []

    def test_hours_that_are_none_are_refused(self, api: Api, number: PhoneNumber) -> None:
        spans = [{"from": first, "to": last} for first, last in ((20, 9), (9, 25), (9.5, 20), (True, 20))]
        for hours in (9, [9, 20], {}, {"from": 9, "to": 20, "note": "x" * LONGEST_TEXT}, *spans):
            for answer in (
                api.post(PATH, text(number, customer_hours=hours)),
                TestBatches.create(api, number, customer_hours=hours),
            ):
                error = assert_error(answer, 400, "invalid_request")
                assert "whole hours" in error["details"]["fields"]["customer_hours"][0], hours
        assert not ScheduledMessage.objects.exists()
        assert not Batch.objects.exists()

    def test_a_customer_without_a_known_zone_is_refused(self, api: Api, number: PhoneNumber) -> None:
        unknown = ("+9991234567", "9812345678")
        for more in (*({"to": to} for to in unknown), {"to": "g1", "recipient_type": "group"}):
            answer = api.post(PATH, text(number, customer_hours=ALWAYS, **more))
            assert (
                "zone"
                in assert_error(answer, 400, "invalid_request")["details"]["fields"]["customer_hours"][0]
            )
        items = [{"to": to, "type": "text", "text": {"body": "x"}} for to in (CUSTOMER, *unknown, CUSTOMER)]
        items[3]["recipient_type"] = "group"
        body = {"from": number.phone_number_id, "customer_hours": ALWAYS, "messages": items}
        error = assert_error(api.post("/v1/messages/batch", body), 400, "invalid_request")
        assert list(error["details"]["fields"]) == [f"messages[{idx}].to" for idx in (1, 2, 3)]
        assert not Batch.objects.exists()

    def test_hours_that_never_meet_are_refused(self, api: Api, number: PhoneNumber) -> None:
        items = [{"to": to, "type": "text", "text": {"body": "x"}} for to in (CUSTOMER, "+14155550100")]
        body = {"from": number.phone_number_id, "customer_hours": {"from": 9, "to": 17}, "messages": items}
        error = assert_error(api.post("/v1/messages/batch", body), 400, "invalid_request")
        assert "never overlap" in error["details"]["fields"]["customer_hours"][0]

    def test_a_customers_zones_are_those_of_the_area_code_or_of_the_country(self) -> None:
        cases: list[tuple[str | None, list[str]]] = [
            ("919812345678", ["Asia/Calcutta"]),
            ("14155550100", ["America/Los_Angeles"]),
            ("5511912345678", ["America/Sao_Paulo"]),
            ("5215512345678", list(TIMEZONE_DATA["52"])),
            ("61412345678", list(TIMEZONE_DATA["61"])),
            ("IN.77889900112233445566", ["Asia/Kolkata"]),
            ("IN.ENT.77889900112233445566", ["Asia/Kolkata"]),
            # Other countries have the same calling code.
            ("BB.77889900112233445566", ["America/Barbados"]),
            ("GB.77889900112233445566", ["Europe/London"]),
            # The tz database does not list every country.
            ("XK.77889900112233445566", list(TIMEZONE_DATA["383"])),
            ("ZZ.77889900112233445566", []),
            ("9991234567", []),
            # WhatsApp would add the country code of the business. Read as a full number, it would be from Iran.
            ("98123 45678", []),
            ("6581234567", []),
            ("(415) 555-0100", []),
            ("5551234567", []),
            ("+65 8123-4567", ["Asia/Singapore"]),
            (None, []),
        ]
        for customer, zones in cases:
            assert list(customer_hours.zones_of(customer)) == zones, customer

    def test_every_zone_of_the_numbers_is_known_without_the_systems_zones(self) -> None:
        names = {name for zones in TIMEZONE_DATA.values() for name in zones}
        zoneinfo.reset_tzpath([])
        try:
            assert names - zoneinfo.available_timezones() == set()
        finally:
            zoneinfo.reset_tzpath()

    def test_the_next_open_hour(self) -> None:
        for zones, moment, begins in (
            # The moment is before, within or after the hours of one zone.
            (["Asia/Kolkata"], "2026-12-01T00:00:00Z", "2026-12-01T03:30:00Z"),
            (["Asia/Kolkata"], "2026-12-01T05:00:00Z", "2026-12-01T05:00:00Z"),
            (["Asia/Kolkata"], "2026-12-01T14:30:00Z", "2026-12-02T03:30:00Z"),
            # The hours must be open in both zones. At 9:00 in New York, Mumbai has 19:30 in winter and 18:30 in summer.
            (["Asia/Kolkata", "America/New_York"], "2026-12-01T00:00:00Z", "2026-12-01T14:00:00Z"),
            (["Asia/Kolkata", "America/New_York"], "2026-07-01T00:00:00Z", "2026-07-01T13:00:00Z"),
            (["Asia/Kolkata", "America/Los_Angeles"], "2026-12-01T00:00:00Z", "2026-12-01T03:30:00Z"),
            (["Asia/Kolkata", "America/Los_Angeles", "Europe/Berlin"], "2026-12-01T00:00:00Z", None),
            # Winter time begins in this night, which makes it an hour longer.
            (["Europe/Berlin"], "2026-10-24T19:00:00Z", "2026-10-25T08:00:00Z"),
        ):
            hours = customer_hours.CustomerHours(9, 20, tuple(zones))
            found = hours.next_open(datetime.fromisoformat(moment))
            assert found == (datetime.fromisoformat(begins) if begins else None), (zones, moment)

    def test_the_hours_are_of_the_customers_day_when_it_is_another_in_utc(self) -> None:
        hours = customer_hours.CustomerHours(18, 20, ("America/Los_Angeles",))
        afternoon = datetime.fromisoformat("2026-12-01T00:30:00Z")
        assert hours.next_open(afternoon) == datetime.fromisoformat("2026-12-01T02:00:00Z")

    def test_a_message_waits_for_the_next_open_hour_or_else_an_hour(self) -> None:
        moment = datetime.fromisoformat("2026-12-01T00:00:00Z")
        for opens, closes, zones, until in (
            (0, 24, ["Asia/Kolkata"], None),
            (5, 6, ["Asia/Kolkata"], None),
            (6, 7, ["Asia/Kolkata"], "2026-12-01T00:30:00Z"),
            (4, 5, ["Asia/Kolkata"], "2026-12-01T22:30:00Z"),
            (9, 10, ["Asia/Kolkata", "America/Los_Angeles"], "2026-12-01T01:00:00Z"),
        ):
            hours = customer_hours.CustomerHours(opens, closes, tuple(zones))
            found = customer_hours.closed_until(hours, moment)
            assert found == (datetime.fromisoformat(until) if until else None), (opens, zones)
        assert customer_hours.closed_until(None, moment) is None


@pytest.mark.parametrize(
    ("options", "batch_of_later", "message_of_later"),
    [([], "cancelled", "cancelled"), (["--due-only"], "queued", "scheduled")],
)
def test_after_a_restore_open_ones_are_cancelled_also_those_of_later(
    api: Api,
    number: PhoneNumber,
    simulator: RunningSimulator,
    options: list[str],
    batch_of_later: str,
    message_of_later: str,
) -> None:
    """The tenant may have brought forward or cancelled those of later after the backup."""
    for send_at in (None, now() + HOUR):
        assert TestBatches.create(api, number, send_at).status_code == 202
    under_way, due = (schedule_one(api, number) for _ in range(2))
    ScheduledMessage.objects.update(send_at=now())
    oldest = ScheduledMessage.objects.order_by("id")[:1].values("id")
    ScheduledMessage.objects.filter(pk__in=oldest).update(
        status="sending", claim=uuid4(), claimed_until=now() - HOUR
    )
    waits = schedule_one(api, number)
    call_command("cancel_open_batches", *options)
    assert [*Batch.objects.order_by("id").values_list("status", flat=True)] == ["cancelled", batch_of_later]
    states = {row["id"]: row["status"] for row in api.get(PATH).json()["data"]}
    assert states == {under_way: "cancelled", due: "cancelled", waits: message_of_later}
    runner.run()
    assert received(simulator, number) == []
    cancelled = ScheduledMessage.objects.filter(status="cancelled").values_list("ended_at", "body", "claim")
    assert all(ended and not body and claim is None for ended, body, claim in cancelled)


def test_scheduled_ones_have_a_limit(api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_messages, "MOST_SCHEDULED", 2)
    for _ in range(2):
        schedule_one(api, number)
    body = text(number, send_at=in_an_hour())
    for frees_a_place in ({"environment": "test"}, {"status": "cancelled"}):
        newest = ScheduledMessage.objects.filter(environment="live", status="scheduled").latest("id")
        key = {"Idempotency-Key": "-".join(frees_a_place)}
        refused = api.post(PATH, body, **key)
        assert assert_error(refused, 429, "rate_limited")["details"] == {"limit": 2}
        assert refused["Retry-After"]
        ScheduledMessage.objects.filter(pk=newest.pk).update(**frees_a_place)
        assert api.post(PATH, body, **key).status_code == 202
