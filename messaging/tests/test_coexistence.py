"""A number in the WhatsApp Business app. Its data is requested once and in time. The log shows its old chats."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from gateway.clock import now
from gateway.database import partitions
from messaging.conversations import list_and_search
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, post
from phone_numbers import app_data
from phone_numbers.models import AppData, PhoneNumber
from tenants.models import Tenant
from tests.fixtures import Api
from tests.simulated import RunningSimulator
from webhooks.models import Delivery, Event, FigureChange, Message
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

CUSTOMER, USER_ID = "919812345678", "IN.77889900112233445566"
CONTACTS, HISTORY = "smb_app_state_sync", "history"


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    """A connected number that stays in the app. Its data is not requested yet."""
    return connected_number(tenant, simulator.account([{"coexistence": True}]), coexistence=True)


def rows() -> dict[str, AppData]:
    return {row.kind: row for row in AppData.objects.all()}


def shown(api: Api, number: PhoneNumber) -> dict[str, Any]:
    body: dict[str, Any] = api.get(f"/v1/numbers/{number.phone_number_id}/app-data").json()
    return body


def asked(simulator: RunningSimulator, number: PhoneNumber) -> list[str]:
    """The kinds of data that were requested from Meta, in order."""
    calls = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=1000")["data"]
    return [
        CONTACTS if CONTACTS in row["body"] else HISTORY
        for row in reversed(calls)
        if row["path"].endswith("/smb_app_data")
    ]


def take_in(number: PhoneNumber, field: str, **members: Any) -> None:
    metadata = {"display_phone_number": number.digits, "phone_number_id": number.phone_number_id}
    value = {"messaging_product": "whatsapp", "metadata": metadata, **members}
    assert post(notification((number.waba_id, [{"field": field, "value": value}]))).status_code == 200


def old(wamid: str, sender: str, *, days: float, status: str = "READ", **content: Any) -> dict[str, Any]:
    """A message from the old chats, in the form that Meta documents."""
    return {
        "from": sender,
        "id": wamid,
        "timestamp": str(int((now() - timedelta(days=days)).timestamp())),
        **(content or {"type": "text", "text": {"body": f"Old {wamid}"}}),
        "history_context": {"status": status},
    }


def chats(number: PhoneNumber, *messages: dict[str, Any], progress: int = 55, phase: int = 0) -> None:
    metadata = {"phase": phase, "chunk_order": 1, "progress": progress}
    threads = [{"id": CUSTOMER, "messages": list(messages)}]
    take_in(number, HISTORY, history=[{"metadata": metadata, "threads": threads}])


def test_an_onboarding_requests_contacts_then_chats_once(
    api: Api, other_api: Api, tenant: Tenant, simulator: RunningSimulator
) -> None:
    account = simulator.account([{"coexistence": True}, {}])
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    assert api.post("/v1/numbers/connect", body).status_code == 200
    shared = PhoneNumber.objects.get(phone_number_id=account.phone_number_ids[0])
    plain = PhoneNumber.objects.get(phone_number_id=account.phone_number_ids[1])
    before = shown(api, shared)
    assert (before["coexistence"], before["contacts"]["status"], before["history"]["status"]) == (
        True,
        "pending",
        "pending",
    )
    assert shown(api, plain) == {
        "phone_number_id": plain.phone_number_id,
        "coexistence": False,
        "contacts": None,
        "history": None,
    }
    assert other_api.get(f"/v1/numbers/{shared.phone_number_id}/app-data").status_code == 404
    assert app_data.request_due() == 2
    assert app_data.request_due() == 0
    assert asked(simulator, shared) == [CONTACTS, HISTORY]
    assert asked(simulator, plain) == []
    assert all(row.status == "requested" and row.request_id for row in rows().values())
    # A reconnection does not request the data again.
    api.post("/v1/numbers/connect", body)
    assert app_data.request_due() == 0


def test_a_sign_up_whose_last_read_fails_requests_the_data_too(api: Api, simulator: RunningSimulator) -> None:
    account = simulator.account([{"coexistence": True}], variant="no_target_ids")
    simulator.faults({"match": {"path": f"/{account.phone_number_id}$"}, "action": "error", "code": 2})
    body = {
        "code": account.code,
        "waba_id": account.waba_id,
        "phone_number_id": account.phone_number_id,
    }
    assert api.post("/v1/numbers/embedded-signup", body).status_code == 503
    assert {kind: row.status for kind, row in rows().items()} == {CONTACTS: "pending", HISTORY: "pending"}


def test_a_refused_request_is_made_again_until_the_24_hours_are_over(
    number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults({"match": {"path": "smb_app_data"}, "action": "error", "code": 131000})
    app_data.begin(number)
    assert app_data.request_due() == 1
    waiting = rows()[CONTACTS]
    assert (waiting.status, waiting.error_code, waiting.attempts) == ("pending", 131000, 1)
    assert app_data.request_due() == 0
    # After three failed requests for the contacts, the chats are requested without them.
    AppData.objects.filter(kind=CONTACTS).update(attempts=app_data.WAITS_FOR_CONTACTS)
    assert app_data.request_due() == 1
    simulator.faults()
    AppData.objects.update(next_attempt_at=now())
    AppData.objects.filter(kind=CONTACTS).update(ends_at=now())
    assert app_data.request_due() == 2
    assert (rows()[CONTACTS].status, rows()[HISTORY].status) == ("expired", "requested")


@pytest.mark.parametrize("status", AppData.Status.values)
def test_connecting_again_repeats_only_a_sync_that_expired(
    api: Api, tenant: Tenant, simulator: RunningSimulator, status: str
) -> None:
    account = simulator.account([{"coexistence": True}])
    body = {"waba_id": account.waba_id, "access_token": account.access_token}
    assert api.post("/v1/numbers/connect", body).status_code == 200
    number = PhoneNumber.objects.get(phone_number_id=account.phone_number_ids[0])
    earlier = now() - timedelta(days=2)
    AppData.objects.filter(kind=CONTACTS).update(status="requested", ends_at=earlier)
    AppData.objects.filter(kind=HISTORY).update(
        status=status, ends_at=earlier, attempts=9, error_code=2593108
    )
    assert api.post("/v1/numbers/connect", body).status_code == 200
    after = shown(api, number)
    assert after["contacts"]["status"] == "requested"
    assert after["history"]["status"] == ("pending" if status == "expired" else status)
    assert (rows()[HISTORY].ends_at > now()) is (status == "expired")
    if status == "expired":
        assert app_data.request_due() == 1
        assert asked(simulator, number) == [HISTORY]
        assert shown(api, number)["history"]["status"] == "requested"


def test_each_refusal_doubles_the_wait_up_to_half_an_hour(
    number: PhoneNumber, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.faults({"match": {"path": "smb_app_data"}, "action": "error", "code": 131000})
    app_data.begin(number)
    AppData.objects.filter(kind=HISTORY).delete()
    moment = now()
    monkeypatch.setattr(app_data, "now", lambda: moment)
    for attempts, seconds in ((0, 30), (1, 60), (5, 960), (6, 1800), (60, 1800)):
        AppData.objects.update(attempts=attempts, next_attempt_at=moment)
        assert app_data.request_due() == 1
        assert rows()[CONTACTS].next_attempt_at - moment == timedelta(seconds=seconds), attempts


def test_the_chats_wait_for_the_contacts_of_their_own_number(
    number: PhoneNumber, simulator: RunningSimulator
) -> None:
    other = connected_number(number.tenant, simulator.account([{"coexistence": True}]), coexistence=True)
    later = now() + timedelta(hours=1)
    for each in (other, number):
        app_data.begin(each)
    AppData.objects.filter(number=other).update(next_attempt_at=later)
    own = AppData.objects.filter(number=number)
    for status, attempts, waits in (
        ("pending", 0, True),
        ("pending", app_data.WAITS_FOR_CONTACTS - 1, True),
        ("pending", app_data.WAITS_FOR_CONTACTS, False),
        ("requested", 1, False),
        ("expired", 0, False),
    ):
        own.filter(kind=CONTACTS).update(status=status, attempts=attempts, next_attempt_at=later)
        own.filter(kind=HISTORY).update(status="pending", next_attempt_at=now())
        assert app_data.request_due() == (not waits)
        assert own.get(kind=HISTORY).status == ("pending" if waits else "requested")


def test_the_progress_of_the_chats_is_metas_percentage(api: Api, number: PhoneNumber) -> None:
    threads: list[Any] = [{"messages": [{}, {}]}, {"messages": [{}]}]
    for piece, status, progress, code in (
        ({"metadata": {"progress": 99}, "threads": threads}, "receiving", 99, None),
        ({"metadata": {"progress": 100}, "threads": threads}, "completed", 100, None),
        ({"metadata": {"progress": 130}, "threads": threads}, "completed", 100, None),
        ({"metadata": {"progress": -5}, "threads": threads}, "receiving", 0, None),
        ({"metadata": {"progress": "60"}, "threads": threads}, "receiving", 0, None),
        ({"errors": [{"code": 2593109}]}, "declined", 0, 2593109),
        ({"errors": [{"code": 131000}]}, "failed", 0, 131000),
    ):
        AppData.objects.all().delete()
        app_data.apply_notification(
            field=HISTORY, value={"history": [piece]}, phone_number_id=number.phone_number_id
        )
        history = shown(api, number)["history"]
        assert (history["status"], history["progress"], history["error_code"]) == (status, progress, code)
        assert history["received"] == (0 if code else 3)
        assert (history["finished_at"] is not None) is (status != "receiving")


def test_an_answer_to_a_request_changes_nothing_that_arrived_before_it(number: PhoneNumber) -> None:
    app_data.begin(number)
    row = rows()[HISTORY]
    for status in AppData.Status.values:
        AppData.objects.filter(pk=row.pk).update(status=status)
        app_data._settle(row, status="expired")
        assert rows()[HISTORY].status == ("expired" if status == "pending" else status)


@pytest.mark.parametrize(("code", "status"), [(2593107, "requested"), (2593108, "expired")])
def test_what_meta_says_for_good_is_not_asked_again(
    number: PhoneNumber, simulator: RunningSimulator, code: int, status: str
) -> None:
    simulator.faults({"match": {"path": "smb_app_data"}, "action": "error", "code": code})
    app_data.begin(number)
    app_data.request_due()
    assert {row.status for row in rows().values()} == {status}


def test_two_workers_at_once_request_once(number: PhoneNumber, simulator: RunningSimulator) -> None:
    app_data.begin(number)
    meeting = threading.Barrier(2)

    def meet(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
        if "FOR UPDATE" in statement:
            with suppress(threading.BrokenBarrierError):
                meeting.wait(timeout=2)
        return execute(statement, *rest)

    def request(_: int) -> int:
        try:
            with connection.execute_wrapper(meet):
                return app_data.request_due()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(request, range(2))) == 2
    assert asked(simulator, number) == [CONTACTS, HISTORY]


def test_the_progress_never_falls_whatever_comes_first(api: Api, number: PhoneNumber) -> None:
    app_data.begin(number)
    chats(number, old("wamid.1", CUSTOMER, days=1), old("wamid.2", CUSTOMER, days=1), progress=60)
    assert (shown(api, number)["history"]["status"], shown(api, number)["history"]["progress"]) == (
        "receiving",
        60,
    )
    chats(number, old("wamid.3", CUSTOMER, days=2), progress=100, phase=2)
    chats(number, old("wamid.4", CUSTOMER, days=3), progress=30, phase=1)
    history = shown(api, number)["history"]
    assert (history["status"], history["progress"], history["received"]) == ("completed", 100, 4)
    assert history["finished_at"] is not None
    change = {"type": "contact", "contact": {"full_name": "Asha", "phone_number": CUSTOMER}, "action": "add"}
    take_in(number, CONTACTS, state_sync=[{**change, "metadata": {"timestamp": "1793500000"}}])
    contacts = shown(api, number)["contacts"]
    assert (contacts["status"], contacts["received"]) == ("receiving", 1)
    # The pending requests do not replace data that has arrived.
    assert app_data.request_due() == 0


def test_a_later_change_of_a_contact_does_not_hide_that_the_sync_expired(
    api: Api, number: PhoneNumber
) -> None:
    app_data.begin(number)
    AppData.objects.update(status="expired", error_code=app_data.TOO_LATE)
    change = {"type": "contact", "contact": {"full_name": "Asha", "phone_number": CUSTOMER}, "action": "edit"}
    take_in(number, CONTACTS, state_sync=[change])
    contacts = shown(api, number)["contacts"]
    assert (contacts["status"], contacts["received"]) == ("expired", 1)
    assert contacts["error_code"] == app_data.TOO_LATE


def test_a_business_that_does_not_share_its_chats(api: Api, number: PhoneNumber) -> None:
    error = {"code": 2593109, "title": "History sync is turned off by the business"}
    take_in(number, HISTORY, history=[{"errors": [error]}])
    history = shown(api, number)["history"]
    assert (history["status"], history["error_code"]) == ("declined", 2593109)


def test_chunks_at_once_are_all_counted(api: Api, number: PhoneNumber) -> None:
    def send(place: int) -> None:
        try:
            chats(number, old(f"wamid.{place}", CUSTOMER, days=1), progress=10 * place, phase=place)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(1, 5)))
    history = shown(api, number)["history"]
    assert (history["received"], history["progress"], history["status"]) == (4, 40, "receiving")


def test_old_chats_stand_in_the_log_where_they_were_sent(
    api: Api, number: PhoneNumber, tenant: Tenant
) -> None:
    partitions.maintain()
    take_in(
        number,
        "messages",
        messages=[
            {"from": CUSTOMER, "id": "wamid.live", "timestamp": str(int(now().timestamp())), "type": "text"}
        ],
    )
    FigureChange.objects.all().delete()
    chats(
        number,
        old("wamid.a", CUSTOMER, days=170),
        old("wamid.b", number.digits, days=100, status="delivered"),
        old("wamid.c", number.digits, days=40, type="media_placeholder"),
        old("wamid.live", CUSTOMER, days=0),
    )
    listed = api.get("/v1/messages").json()["data"]
    assert [(row["id"], row["direction"], row["status"], row["is_history"]) for row in listed] == [
        ("wamid.live", "inbound", "received", False),
        ("wamid.c", "outbound", "read", True),
        ("wamid.b", "outbound", "delivered", True),
        ("wamid.a", "inbound", "received", True),
    ]
    assert listed[3]["created_at"][:10] == f"{now() - timedelta(days=170):%Y-%m-%d}"
    assert api.get("/v1/messages/wamid.a").json()["message"]["text"] == {"body": "Old wamid.a"}
    assert partitions.rows_in_default()["messages"] == 0
    # Old messages are not counted and open no window.
    assert {each.hour for each in FigureChange.objects.all()} <= {int(now().timestamp() // 3600)}
    customer = api.get(f"/v1/numbers/{number.phone_number_id}/customers/{CUSTOMER}").json()
    assert customer["last_inbound_id"] == "wamid.live"
    # The file of an old message arrives later, with the same message id.
    image = {"id": "51000000000001", "mime_type": "image/jpeg"}
    item = {
        "from": number.digits,
        "to": CUSTOMER,
        "id": "wamid.c",
        "timestamp": "1793500000",
        "type": "image",
        "image": image,
    }
    take_in(number, HISTORY, message_echoes=[item])
    assert Message.objects.filter(key="wamid.c").count() == 1
    found = api.get("/v1/messages/wamid.c").json()
    assert (found["type"], found["message"]["image"], found["is_history"]) == ("image", image, True)


def test_a_time_out_of_range_is_not_taken_as_it_is(api: Api, number: PhoneNumber) -> None:
    partitions.maintain()
    chats(number, old("wamid.1", CUSTOMER, days=9_000), old("wamid.2", CUSTOMER, days=-9_000))
    assert [row["id"] for row in api.get("/v1/messages").json()["data"]] == ["wamid.2", "wamid.1"]
    assert partitions.rows_in_default()["messages"] == 0


def test_old_chats_are_not_unread_and_open_no_window_in_the_list(number: PhoneNumber, tenant: Tenant) -> None:
    chats(number, old("wamid.a", CUSTOMER, days=2), old("wamid.b", CUSTOMER, days=0.5))
    scope = list_and_search.Scope(tenant.id, number.environment)
    [found] = list_and_search.by_number(scope, CUSTOMER, since=now() - timedelta(days=365), limit=1).rows
    assert (found.last.row.key, found.unread, found.open_until) == ("wamid.b", 0, None)
    live = {"from": CUSTOMER, "id": "wamid.live", "timestamp": str(int(now().timestamp())), "type": "text"}
    take_in(number, "messages", messages=[live])
    [found] = list_and_search.by_number(scope, CUSTOMER, since=now() - timedelta(days=365), limit=1).rows
    assert (found.last.row.key, found.unread, found.is_open) == ("wamid.live", 1, True)
    late = {**live, "id": "wamid.late", "timestamp": str(int((now() - timedelta(days=2)).timestamp()))}
    take_in(number, "messages", messages=[late])
    [found] = list_and_search.by_number(scope, CUSTOMER, since=now() - timedelta(days=365), limit=1).rows
    assert (found.unread, found.is_open) == (2, True), (
        "the window is that of the message that was written last"
    )


def test_old_chats_are_no_last_messages_of_a_customer(api: Api, number: PhoneNumber) -> None:
    chats(number, old("wamid.a", CUSTOMER, days=0.5), old("wamid.b", number.digits, days=0.4))
    customer = api.get(f"/v1/numbers/{number.phone_number_id}/customers/{CUSTOMER}").json()
    shown = (customer["window_open"], customer["last_inbound_id"], customer["last_outbound_at"])
    assert shown == (False, None, None)


def test_old_chats_wake_only_those_who_ask_for_them(number: PhoneNumber, tenant: Tenant) -> None:
    everything = endpoint_of(tenant)
    asking = endpoint_of(tenant, event_types=["message.history"])
    chats(number, old("wamid.1", CUSTOMER, days=1), old("wamid.2", number.digits, days=1))
    delivered = sorted((str(row.endpoint_id), row.event_type) for row in Delivery.objects.all())
    assert delivered == sorted(
        [(str(everything.id), "meta.other"), *[(str(asking.id), "message.history")] * 2]
    )
    event = Event.objects.filter(type="message.history").latest("id")
    assert (event.raw_id, event.raw_path) == (None, None)


def test_what_is_written_in_the_app_is_an_outbound_message(api: Api, number: PhoneNumber) -> None:
    text = {"type": "text", "text": {"body": "See you"}}
    item = {"from": number.digits, "to": CUSTOMER, "id": "wamid.e", "timestamp": "1793500000", **text}
    take_in(number, "smb_message_echoes", message_echoes=[item])
    row = api.get("/v1/messages/wamid.e").json()
    assert (row["direction"], row["status"], row["is_history"]) == ("outbound", "sent", False)
    assert row["message"]["text"] == {"body": "See you"}


def test_a_removed_number_is_synchronised_again_when_it_comes_back(number: PhoneNumber) -> None:
    app_data.begin(number)
    for event, kept in (("ACCOUNT_OFFBOARDED", 2), ("PARTNER_REMOVED", 0)):
        value = {"phone_number": number.digits, "event": event}
        body = notification((number.waba_id, [{"field": "account_update", "value": value}]), time=1793500000)
        assert post(body).status_code == 200
        number.refresh_from_db()
        assert (number.connection_state, number.connection_detail) == ("disconnected", "account_removed")
        assert len(rows()) == kept
