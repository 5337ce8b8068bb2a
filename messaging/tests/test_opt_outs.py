"""Opt-outs by a report of Meta or by a customer's message: where they are shown, and batches that skip them."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import orjson
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F

from gateway.clock import now
from messaging import opt_outs
from messaging.batches import runner
from messaging.models import Batch, OptOut
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, number_of, post
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Delivery, Event, EventPayload
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

WABA, PNID = "100200300400500", "200300400500600"
WA_ID, USER_ID = "919812345678", "IN.77889900112233445566"
T0 = 1_793_500_000
_FAILS = """
CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE {error}; END $$
"""


@pytest.fixture
def here(tenant: Tenant) -> PhoneNumber:
    return number_of(tenant, waba_id=WABA, phone_number_id=PNID)


def take_in(field: str, *, secret: str | None = None, **members: Any) -> None:
    metadata = {"display_phone_number": "919800000001", "phone_number_id": PNID}
    value = {"messaging_product": "whatsapp", "metadata": metadata, **members}
    assert post(notification((WABA, [{"field": field, "value": value}])), secret=secret).status_code == 200


def report(value: str, *, at: int = T0, odd: Mapping[str, Any] | None = None, **who: str) -> None:
    """Post a report of a preference in the form that Meta documents, with the members `odd` instead."""
    preference = {
        **(who or {"wa_id": WA_ID}),
        "detail": f"User requested to {value} marketing messages",
        "category": "marketing_messages",
        "value": value,
        "timestamp": at,
        **(odd or {}),
    }
    take_in(
        "user_preferences", contacts=[{"profile": {"name": "Asha R"}, **who}], user_preferences=[preference]
    )


def write(said: str | dict[str, Any], *, at: int = T0, secret: str | None = None, **more: Any) -> None:
    content = {"type": "text", "text": {"body": said}} if isinstance(said, str) else said
    item = {"from": WA_ID, "from_user_id": USER_ID, "id": f"wamid.{at}.{said}", "timestamp": str(at)}
    contact = {"profile": {"name": "Asha R"}, "wa_id": WA_ID, "user_id": USER_ID}
    take_in("messages", secret=secret, contacts=[contact], messages=[{**item, **content, **more}])


def shown(api: Api, customer: str = WA_ID) -> tuple[bool, str | None, str | None]:
    body = api.get(f"/v1/numbers/{PNID}/customers/{customer}").json()
    return body["opted_out"], body["opted_out_source"], body["opted_out_at"]


def changes() -> list[dict[str, Any]]:
    """The data of the opt-out events, in order."""
    events = Event.objects.filter(type="customer.opt_out").order_by("id")
    return [orjson.loads(bytes(EventPayload.objects.get(id=event.id).body)) for event in events]


@pytest.mark.parametrize(
    "said",
    [
        "STOP",
        " Stop!! ",
        "“unsubscribe”",
        "Stop  Promotions",
        "बंद करो",
        "बंद करें।",
        "நிறுத்து",
        "إلغاء الاشتراك",
        "«توقف؟»",
        "\u200fإيقاف\u200b",
        "बंद॥",
        "„Stopp“ 🙏🏽",
        "stop— ❤️",
        "Désabonner",
        {"type": "button", "button": {"payload": "x", "text": "Stop promotions"}},
        {
            "type": "interactive",
            "interactive": {"type": "button_reply", "button_reply": {"id": "1", "title": "STOP"}},
        },
    ],
)
def test_a_stop_word_opts_out_and_a_start_word_in(api: Api, here: PhoneNumber, said: Any) -> None:
    write(said)
    assert shown(api) == (True, "stop_word", "2026-11-01T02:26:40.000Z")
    assert shown(api, USER_ID) == shown(api)
    write("शुरू करें", at=T0 + 60)
    assert shown(api) == (False, None, None)
    assert [change["opted_out"] for change in changes()] == [True, False]


def test_an_opt_out_by_user_id_is_of_the_number_that_the_customer_has_now(here: PhoneNumber) -> None:
    former: dict[str, Any] = {"from": "919800000077"}
    write("Hi", **former)
    write("My new number", at=T0 + 60)
    report("stop", at=T0 + 120, user_id=USER_ID)
    assert set(OptOut.objects.values_list("customer", flat=True)) == {WA_ID, USER_ID}


def test_a_stop_word_beside_a_repeated_message_counts(api: Api, here: PhoneNumber) -> None:
    contact = {"profile": {"name": "Asha R"}, "wa_id": WA_ID}
    first, second = (
        {"from": WA_ID, "id": f"wamid.{said}", "timestamp": str(T0), "type": "text", "text": {"body": said}}
        for said in ("Hi", "STOP")
    )
    take_in("messages", contacts=[contact], messages=[first])
    take_in("messages", contacts=[contact], messages=[first, second])
    assert shown(api)[0] is True


def test_a_stop_word_in_a_chat_of_metas_agent_counts(api: Api, here: PhoneNumber) -> None:
    item = {"from": WA_ID, "id": "wamid.1", "timestamp": str(T0), "type": "text", "text": {"body": "STOP"}}
    take_in("standby", standby={"contacts": [{"wa_id": WA_ID}], "messages": [item]})
    assert shown(api) == (True, "stop_word", "2026-11-01T02:26:40.000Z")
    assert [change["opted_out"] for change in changes()] == [True]


def test_an_opt_out_stays_when_the_number_moves_to_another_account(
    api: Api, here: PhoneNumber, tenant: Tenant, other_tenant: Tenant
) -> None:
    write("STOP")
    write("START", at=T0 + 60, **{"from": "919812345670", "from_user_id": "IN.0"})
    number_of(other_tenant, waba_id="1", phone_number_id="11")
    for name, digits in (("2", here.digits), ("3", "919800000002")):
        number_of(tenant, waba_id=name, phone_number_id=name, digits=digits)
    rows = api.get("/v1/opt-outs").json()["data"]
    assert sorted((row["phone_number_id"], row["wa_id"]) for row in rows) == [("2", WA_ID), (PNID, WA_ID)]
    assert {row["opted_out_at"] for row in rows} == {"2026-11-01T02:26:40.000Z"}
    first = api.get("/v1/opt-outs?limit=1").json()
    rest = api.get(f"/v1/opt-outs?cursor={first['next_cursor']}").json()
    assert first["data"] + rest["data"] == rows


def test_a_word_during_the_move_of_a_number_counts_in_both_accounts(
    api: Api, here: PhoneNumber, tenant: Tenant
) -> None:
    """The customers still write to the number in its former account until the move is complete."""
    for name, digits in (("2", here.digits), ("3", "919800000002")):
        number_of(tenant, waba_id=name, phone_number_id=name, digits=digits)
    for said, numbers in (("STOP", {PNID, "2"}), ("START", set())):
        write(said, at=T0 - len(numbers))
        assert {row["phone_number_id"] for row in api.get("/v1/opt-outs").json()["data"]} == numbers
    assert [change["opted_out"] for change in changes()] == [True, False]


def test_a_number_that_moved_twice_has_the_last_decisions(
    api: Api, here: PhoneNumber, tenant: Tenant
) -> None:
    write("STOP")
    for place, said in enumerate(("START", "STOP", "START"), 2):
        moved = number_of(tenant, waba_id=str(place), phone_number_id=str(place), digits=here.digits)
        scope = {"tenant_id": tenant.id, "environment": "live", "phone_number_id": moved.phone_number_id}
        was_stopped = OptOut.objects.get(**scope, customer=WA_ID).wrote_stop
        assert was_stopped is (said == "START")
        OptOut.objects.filter(**scope).update(
            wrote_stop=not was_stopped, wrote_at=F("wrote_at") + timedelta(1)
        )


def test_the_last_word_counts_under_whichever_id_it_came(api: Api, here: PhoneNumber) -> None:
    scope: dict[str, Any] = {"tenant_id": here.tenant_id, "environment": "live", "phone_number_ids": [PNID]}
    for place, (said, name) in enumerate(
        (("STOP", {"from": WA_ID}), ("START", {"from_user_id": USER_ID}), ("STOP", {"from_user_id": "IN.2"}))
    ):
        item = {"id": f"wamid.{place}", "timestamp": str(T0 + place), "type": "text", "text": {"body": said}}
        take_in("messages", messages=[{**item, **name}])
    assert opt_outs.among(**scope, customers=[WA_ID, USER_ID, "IN.2"]) == {(PNID, WA_ID), (PNID, "IN.2")}
    write("Hi", at=T0 + 60)
    assert not shown(api)[0]
    assert opt_outs.among(**scope, customers=[WA_ID, USER_ID, "IN.2"]) == {(PNID, "IN.2")}


def test_other_messages_mean_nothing(api: Api, here: PhoneNumber) -> None:
    texts = ("Please stop by at five", "Don't stop", "cancel", "stop" * 20)
    others: list[dict[str, Any]] = [
        {"type": "text", "text": "STOP"},
        {"type": "text", "text": {"body": "STOP"}, "group_id": "120"},
        {"type": "image", "image": {"id": "1", "caption": "STOP"}},
        {"type": "system", "system": {"type": ["user_changed_number"], "wa_id": "919822222222"}},
    ]
    said: Any
    for said in (*texts, *others):
        write(said)
        assert (shown(api)[0], changes()) == (False, []), said


@pytest.mark.parametrize("odd", ["STOP", {"text": {"body": "STOP"}}, {"from": WA_ID, "timestamp": "soon"}])
def test_a_stop_word_after_an_unreadable_message_counts(api: Api, here: PhoneNumber, odd: Any) -> None:
    item = {"from": WA_ID, "id": "wamid.1", "timestamp": str(T0), "type": "text", "text": {"body": "STOP"}}
    take_in("messages", contacts=[{"wa_id": WA_ID}], messages=[odd, item])
    assert shown(api)[0]


def test_the_words_of_a_language_are_on_one_side_alone() -> None:
    words = opt_outs.words()
    assert (words["stop"], words["बंद करो"], words["start"]) == (True, True, False)
    assert all(0 < len(word) <= opt_outs.LONGEST_WORD for word in words)


def test_a_stop_word_after_an_end_in_whatsapp_has_its_own_time(api: Api, here: PhoneNumber) -> None:
    report("stop", at=T0, wa_id=WA_ID)
    report("resume", at=T0 + 10, wa_id=WA_ID)
    write("stop", at=T0 + 60)
    assert shown(api) == (True, "stop_word", "2026-11-01T02:27:40.000Z")
    write("start", at=T0 + 70)
    report("stop", at=T0 + 80, wa_id=WA_ID)
    assert shown(api) == (True, "whatsapp", "2026-11-01T02:28:00.000Z")


def test_a_start_word_does_not_undo_what_was_set_in_whatsapp(api: Api, here: PhoneNumber) -> None:
    write("stop")
    report("stop", at=T0 + 10, wa_id=WA_ID)
    write("start", at=T0 + 20)
    assert shown(api) == (True, "whatsapp", "2026-11-01T02:26:50.000Z")
    report("resume", at=T0 + 30, wa_id=WA_ID)
    assert not shown(api)[0]
    write("stop", at=T0 + 40)
    report("resume", at=T0 + 50, wa_id=WA_ID)
    assert not shown(api)[0]
    assert [(each["opted_out"], each["source"]) for each in changes()] == [
        (True, "stop_word"),
        (False, "whatsapp"),
        (True, "stop_word"),
        (False, "whatsapp"),
    ]


def test_the_later_word_counts_whatever_comes_first(api: Api, here: PhoneNumber) -> None:
    write("start", at=T0 + 60)
    write("stop", at=T0)
    report("resume", at=T0 + 60, wa_id=WA_ID)
    report("stop", at=T0, wa_id=WA_ID)
    assert (shown(api)[0], changes()) == (False, [])


def test_a_preference_under_one_id_is_known_under_the_other(api: Api, here: PhoneNumber) -> None:
    write("Hello")
    report("stop", user_id=USER_ID)
    assert OptOut.objects.filter(reported_stop=True).count() == 2
    (item,) = api.get("/v1/opt-outs").json()["data"]
    assert (item["wa_id"], item["user_id"]) == (WA_ID, USER_ID)


def test_a_customer_known_by_the_user_id_alone_is_in_the_list(api: Api, here: PhoneNumber) -> None:
    report("stop", user_id=USER_ID)
    (item,) = api.get("/v1/opt-outs").json()["data"]
    assert (item["wa_id"], item["user_id"], item["opted_out_source"]) == (None, USER_ID, "whatsapp")


@pytest.mark.parametrize(
    "odd",
    [
        {"category": "utility_messages"},
        {"value": "pause"},
        {"value": None},
        {"timestamp": "179350000000"},
    ],
    ids=str,
)
def test_a_report_of_another_form_changes_nothing(api: Api, here: PhoneNumber, odd: dict[str, Any]) -> None:
    report("stop", wa_id=WA_ID)
    report("resume", at=T0 + 60, odd=odd, wa_id=WA_ID)
    assert (shown(api)[0], len(changes())) == (True, 1)


def test_a_repeat_changes_nothing(api: Api, here: PhoneNumber) -> None:
    for _ in range(2):
        write("stop")
        report("stop", wa_id=WA_ID)
    assert len(changes()) == 1


def test_only_those_who_name_the_event_get_it(api: Api, here: PhoneNumber, tenant: Tenant) -> None:
    everything = endpoint_of(tenant)
    named = endpoint_of(tenant, event_types=["customer.opt_out", "*"])
    write("stop")
    got = {(row.endpoint_id, row.event_type) for row in Delivery.objects.all()}
    assert got == {
        (everything.id, "message.inbound"),
        (named.id, "message.inbound"),
        (named.id, "customer.opt_out"),
    }
    (change,) = changes()
    assert change == {
        "opted_out": True,
        "source": "stop_word",
        "at": "2026-11-01T02:26:40.000Z",
        "wa_id": WA_ID,
        "user_id": USER_ID,
    }


def test_the_list_has_who_opted_out_at_the_keys_numbers(api: Api, tenant: Tenant, here: PhoneNumber) -> None:
    second = number_of(tenant, waba_id=WABA, phone_number_id="200300400500601", digits="919800000002")
    write("stop")
    report("stop", at=T0 + 5, wa_id="919812345679")
    report("resume", at=T0 + 5, wa_id="919812345670")
    newest, first = api.get("/v1/opt-outs").json()["data"]
    assert newest == {
        "phone_number_id": PNID,
        "wa_id": "919812345679",
        "user_id": None,
        "opted_out_at": "2026-11-01T02:26:45.000Z",
        "opted_out_source": "whatsapp",
    }
    assert (first["wa_id"], first["opted_out_source"]) == (WA_ID, "stop_word")
    write("stop", at=T0 + 6, **{"from": "919812345679", "from_user_id": None})
    for source, alone in {"whatsapp": newest, "stop_word": first}.items():
        (row,) = api.get(f"/v1/opt-outs?source={source}").json()["data"]
        assert row["wa_id"] == alone["wa_id"], source
    assert_error(api.get("/v1/opt-outs?source=mail"), 400, "invalid_request")
    limited = api_keys.create(
        name="l", environment="live", tenant=tenant, phone_number_ids=[second.phone_number_id]
    )
    assert Api(limited.key).get("/v1/opt-outs").json()["data"] == []
    assert (
        not Api(limited.key)
        .get(f"/v1/numbers/{second.phone_number_id}/customers/{WA_ID}")
        .json()["opted_out"]
    )


def test_two_words_at_once_leave_the_later_one(api: Api, here: PhoneNumber, tenant: Tenant) -> None:
    """Neither process finds a row, and both write the same row. The later word is valid. Each change has one event."""
    meeting = threading.Barrier(2)

    def meet(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
        if statement == opt_outs._RECORD:
            meeting.wait(timeout=10)
        return execute(statement, *rest)

    def say(at: int) -> None:
        try:
            with connection.execute_wrapper(meet):
                write("stop" if at == T0 + 1 else "start", at=at)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(say, [T0, T0 + 1]))
    assert shown(api)[0]
    assert [change["opted_out"] for change in changes()] == [True]


def test_the_customers_of_a_report_are_recorded_in_the_order_of_their_ids(here: PhoneNumber) -> None:
    """In the order of the reports, two notifications about the same customers could deadlock."""
    others = [(None, "IN.2"), ("919800000003", None), ("919800000002", "IN.1"), ("919800000001", "IN.3")]
    about = {"category": "marketing_messages", "value": "stop", "timestamp": T0}
    write("Hi")
    reports = [{**about, "wa_id": wa_id, "user_id": user_id} for wa_id, user_id in [(None, USER_ID), *others]]
    take_in("user_preferences", user_preferences=reports)
    customers = [(change["wa_id"], change["user_id"]) for change in changes()]
    assert customers == [*others[:1], *reversed(others[1:]), (WA_ID, USER_ID)]


@pytest.mark.parametrize("error", ["deadlock_detected", "lock_not_available", "query_canceled"])
def test_a_stop_word_that_a_lock_or_a_time_out_held_back_is_not_answered_200(
    api: Api, here: PhoneNumber, error: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FAILS.format(error=error))
        cursor.execute(
            "CREATE TRIGGER fails BEFORE INSERT ON messaging_optout FOR EACH ROW EXECUTE FUNCTION fails()"
        )
    metadata = {"display_phone_number": "919800000001", "phone_number_id": PNID}
    item = {"from": WA_ID, "id": "wamid.1", "timestamp": str(T0), "type": "text", "text": {"body": "STOP"}}
    body = notification((WABA, [{"field": "messages", "value": {"metadata": metadata, "messages": [item]}}]))
    try:
        assert_error(post(body), 503, "service_unavailable")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION fails() CASCADE")
    assert not Event.objects.exists()
    assert post(body).status_code == 200
    assert shown(api)[0]


def test_expunging_a_customer_deletes_the_opt_out(api: Api, here: PhoneNumber, tenant: Tenant) -> None:
    write("stop")
    report("stop", wa_id="919812345679")
    call_command("expunge", "--tenant", str(tenant.id), "--wa-id", WA_ID, "--before", "2999-01-01")
    assert OptOut.objects.count() == 3, "an opt-out outlives the messages before a moment"
    out = StringIO()
    call_command("expunge", "--tenant", str(tenant.id), "--wa-id", WA_ID, stdout=out)
    assert [row.customer for row in OptOut.objects.all()] == ["919812345679"]
    assert out.getvalue().splitlines()[1:] == ["Deleted 2 opt-outs."]
    call_command("expunge", "--tenant", str(tenant.id), "--all", stdout=out)
    assert not OptOut.objects.exists()
    assert out.getvalue().splitlines()[3:] == ["Deleted 1 opt-outs."]


@pytest.mark.parametrize(
    ("alone", "to"),
    [
        ({"from_user_id": USER_ID}, {"to": f"+{WA_ID}"}),
        ({"from": WA_ID}, {"recipient": USER_ID}),
        ({"from": "919800000077", "from_user_id": USER_ID}, {"to": f"+{WA_ID}"}),
    ],
    ids=["stopped by user id", "stopped by phone number", "stopped by a former phone number"],
)
def test_a_batch_skips_who_opted_out_under_the_other_id_once_a_message_named_both(
    api: Api,
    here: PhoneNumber,
    monkeypatch: pytest.MonkeyPatch,
    alone: dict[str, str],
    to: dict[str, str],
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    stop = {"id": "wamid.1", "timestamp": str(T0), "type": "text", "text": {"body": "STOP"}}
    take_in("messages", contacts=[{"profile": {"name": "Asha R"}}], messages=[{**alone, **stop}])
    write("Hello", at=T0 + 60)
    message = {**to, "type": "text", "text": {"body": "Sale"}}
    body = {"from": PNID, "skip_opted_out": True, "messages": [message]}
    path = f"/v1/messages/batch/{api.post('/v1/messages/batch', body).json()['id']}/items"
    runner.run()
    (item,) = api.get(path).json()["data"]
    assert (item["status"], item["skip_reason"]) == ("skipped", "opted_out")
    scope: dict[str, Any] = {"tenant_id": here.tenant_id, "environment": "live", "phone_number_ids": [PNID]}
    write("START", at=T0 + 120)
    assert opt_outs.among(**scope, customers=[WA_ID, USER_ID]) == set()


@pytest.mark.parametrize(
    ("system", "new"),
    [
        (
            {
                "type": "user_changed_number",
                "wa_id": "919822222222",
                "user_id": "IN.NEW",
                "previous_user_id": USER_ID,
            },
            ["919822222222", "IN.NEW"],
        ),
        ({"type": "user_changed_user_id", "user_id": "IN.NEW", "previous_user_id": USER_ID}, ["IN.NEW"]),
        ({"type": "customer_changed_number", "new_wa_id": "919822222222"}, ["919822222222"]),
    ],
    ids=["number", "user id", "number, as Meta wrote it formerly"],
)
@pytest.mark.parametrize(
    "former", [{"from": WA_ID}, {"from_user_id": USER_ID}], ids=["by number", "by user id"]
)
@pytest.mark.parametrize("said", [write, report])
def test_an_opt_out_counts_for_the_new_ids_of_the_customer(
    here: PhoneNumber,
    said: Callable[..., None],
    former: dict[str, str],
    system: dict[str, str],
    new: list[str],
) -> None:
    scope: dict[str, Any] = {"tenant_id": here.tenant_id, "environment": "live", "phone_number_ids": [PNID]}
    write("Hi")
    said("stop", at=T0 + 60)
    item = {**former, "id": "wamid.S", "timestamp": str(T0 + 120), "type": "system", "system": system}
    take_in("messages", messages=[item])
    everyone = [*new, WA_ID, USER_ID]
    assert opt_outs.among(**scope, customers=everyone) == {(PNID, customer) for customer in everyone}
    (_, moved) = changes()
    assert (moved["opted_out"], moved["at"]) == (True, "2026-11-01T02:27:40.000Z")
    assert {moved["wa_id"], moved["user_id"]} - {None} == set(new)


def test_a_batch_skips_those_who_opted_out_if_it_asks(
    api: Api,
    tenant: Tenant,
    other_tenant: Tenant,
    account: SimulatedAccount,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    number = connected_number(tenant, account)
    stopped = {"reported_stop": True, "reported_at": now(), "id": tenant.id}
    own = {"tenant_id": tenant.id, "environment": "live", "phone_number_id": number.phone_number_id}
    for row in (
        {**own, "customer": "919800001000"},
        {**own, "customer": "IN.42"},
        {**own, "customer": "919800001001", "tenant_id": other_tenant.id},
        {**own, "customer": "919800001001", "environment": "test"},
        {**own, "customer": "919800001001", "phone_number_id": "another"},
        {**own, "customer": "919800001001", "reported_stop": False},
    ):
        OptOut.objects.create(**stopped | row)
    text = {"type": "text", "text": {"body": "Sale"}}
    messages = [
        {"to": "+91 98000-01000", **text, "message_ref": "a"},
        {"recipient": "IN.42", **text},
        {"to": None, "recipient": "IN.42", **text},
        {"to": 919800001000, **text},
        {"to": "+919800001001", **text},
        {"to": "98000 01000", **text},
        {"to": "+9800001000", **text},
        {"to": "919800001000", "recipient_type": "group", **text},
        {"to": "nobody", **text},
    ]

    def sent(**asked: Any) -> tuple[list[tuple[str, str | None]], dict[str, Any]]:
        body = {"from": number.phone_number_id, "messages": messages, **asked}
        path = f"/v1/messages/batch/{api.post('/v1/messages/batch', body).json()['id']}"
        runner.run()
        items = api.get(f"{path}/items").json()["data"]
        return [(item["status"], item["skip_reason"]) for item in items], api.get(path).json()

    skipped, accepted, failed = ("skipped", "opted_out"), ("accepted", None), ("failed", None)
    outcomes, batch = sent(skip_opted_out=True)
    # The message to the group is sent, and the group is unknown to Meta.
    # Meta adds the country code of the business to a number without `+`, so "98000 01000" has opted out as well.
    assert outcomes == [*[skipped] * 4, accepted, skipped, accepted, failed, failed]
    assert (batch["status"], batch["accepted"], batch["skip_opted_out"]) == ("completed", 2, True)
    # The references of skipped messages are free again. Without `skip_opted_out` everything is sent.
    outcomes, batch = sent()
    assert (outcomes, batch["skip_opted_out"]) == ([accepted] * 7 + [failed] * 2, False)
    error = assert_error(
        api.post(
            "/v1/messages/batch",
            {"from": number.phone_number_id, "messages": messages, "skip_opted_out": "yes"},
        ),
        400,
        "invalid_request",
    )
    assert list(error["details"]["fields"]) == ["skip_opted_out"]


def test_a_batch_skips_a_customer_whose_wa_id_has_a_digit_more_or_less_than_the_number(
    api: Api, tenant: Tenant, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    number = connected_number(tenant, account)
    stopped = {"tenant_id": tenant.id, "environment": "live", "id": tenant.id}
    stopped |= {"reported_stop": True, "reported_at": now()}
    expected = {
        ("553187654321", "+55 31 98765-4321"): "skipped",
        ("5511987654322", "+55 11 8765-4322"): "skipped",
        ("5215512345678", "+52 55 1234 5678"): "skipped",
        ("525512345679", "+52 1 55 1234 5679"): "skipped",
        ("5491123456789", "+54 11 2345-6789"): "skipped",
        ("541123456780", "+54 9 11 2345-6780"): "skipped",
        # A land line of Brazil is another customer than the mobile number with a 9 before it.
        ("5511934567890", "+55 11 3456-7890"): "accepted",
    }
    for customer, _ in expected:
        OptOut.objects.create(**stopped, phone_number_id=number.phone_number_id, customer=customer)
    messages = [{"to": to, "type": "text", "text": {"body": "Sale"}} for _, to in expected]
    body = {"from": number.phone_number_id, "skip_opted_out": True, "messages": messages}
    path = f"/v1/messages/batch/{api.post('/v1/messages/batch', body).json()['id']}/items"
    runner.run()
    assert [item["status"] for item in api.get(path).json()["data"]] == list(expected.values())
    assert Batch.objects.get().skipped == [*expected.values()].count("skipped")
