"""`/upstream/webhook`: its responses, the stored rows and their tenant, and the unchanged bytes."""

from typing import Any

import orjson
import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from pytest_django import Settings

from gateway.database import statements
from gateway.upstream.notifications.change import MOST_EVENTS
from gateway.upstream.notifications.normalise import normalise
from gateway.upstream.tests.notifications import BODIES, at_path
from messaging import known_nodes
from messaging.models import KeptNotification
from messaging.notifications import incoming
from messaging.notifications.incoming import Intake
from messaging.tests.incoming import (
    delivered,
    envelopes_of,
    events_of,
    notification,
    number_of,
    post,
    signature_of,
    text_change,
)
from phone_numbers.models import AppData, PhoneNumber
from tenants.models import Tenant
from tests.database_settings import without_database
from tests.fixtures import assert_error, in_threads
from web import routes
from webhooks.models import Delivery, Endpoint, Event, EventKey, EventPayload
from webhooks.tests.publishing import endpoint_of

WABA, NUMBER = "100200300400500", "200300400500600"
OTHER_WABA, OTHER_NUMBER = "100200300400501", "200300400500601"


@pytest.fixture
def number(tenant: Tenant) -> PhoneNumber:
    """`tenant`'s live number."""
    return number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)


@pytest.fixture
def other_number(other_tenant: Tenant) -> PhoneNumber:
    """`other_tenant`'s live number."""
    return number_of(other_tenant, waba_id=OTHER_WABA, phone_number_id=OTHER_NUMBER, digits="919800000002")


def taken_in(body: bytes) -> bool:
    """Store a notification as the group commit does, on the test's connection. Returns whether it was stored."""
    signed = incoming._Signed(body, normalise(body).changes, ("live",))
    (is_taken,) = statements.run(incoming._taking_in([signed]))
    return is_taken


def verified_endpoint(tenant: Tenant, *event_types: str) -> Endpoint:
    return endpoint_of(tenant, event_types=list(event_types) or ["*"])


class TestVerification:
    def get(self, **query: str) -> Any:
        return Client().get("/upstream/webhook", {f"hub.{name}": value for name, value in query.items()})

    def test_the_right_token_gets_the_challenge_as_plain_text(self, settings: Settings) -> None:
        answer = self.get(
            mode="subscribe", challenge="1158201444", verify_token=settings.META_WEBHOOK_VERIFY_TOKEN
        )
        assert answer.status_code == 200
        assert answer.content == b"1158201444"
        assert answer["Content-Type"].startswith("text/plain")

    @pytest.mark.parametrize("token", ["", "wrong", "süm-verify-token"])
    def test_a_wrong_token_is_403(self, token: str) -> None:
        answer = self.get(mode="subscribe", challenge="1", verify_token=token)
        assert_error(answer, 403, "forbidden")
        assert b"1158" not in answer.content

    def test_another_mode_is_400(self, settings: Settings) -> None:
        token = settings.META_WEBHOOK_VERIFY_TOKEN
        assert_error(self.get(mode="unsubscribe", verify_token=token), 400, "invalid_request")


@pytest.mark.django_db(transaction=True)
class TestSignature:
    def test_missing_wrong_or_of_another_body_is_401_and_nothing_is_kept(
        self, number: PhoneNumber, settings: Settings
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        right = signature_of(body, settings.META_APP_SECRET)
        for header in ("", "sha256=", right[:-1], right.removeprefix("sha256="), "sha256=" + "é" * 64,
                       signature_of(body + b" ", settings.META_APP_SECRET),
                       signature_of(body, "another secret"), signature_of(body, "")):  # fmt: skip
            error = assert_error(post(body, **{"X-Hub-Signature-256": header}), 401, "unauthorized")
            assert "META_APP_SECRET" in error["hint"]
        answer = Client().post("/upstream/webhook", body, content_type="application/json")
        assert_error(answer, 401, "unauthorized")
        assert not Event.objects.exists()
        assert not KeptNotification.objects.exists()

    def test_a_former_app_secret_counts_while_it_is_set(
        self, number: PhoneNumber, tenant: Tenant, settings: Settings
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        assert_error(post(body, secret="former secret"), 401, "unauthorized")
        settings.META_APP_SECRET_FALLBACKS = ["older secret", "former secret"]
        assert post(body, secret="former secret").status_code == 200
        assert [(event.wamid, event.environment) for event in events_of(tenant)] == [("wamid.1", "live")]

    def test_the_sandbox_secret_opens_only_test_numbers(
        self, number: PhoneNumber, tenant: Tenant, settings: Settings
    ) -> None:
        settings.META_APP_SECRET, settings.SANDBOX_APP_SECRET = "live secret", "sandbox secret"
        number_of(tenant, waba_id="10", phone_number_id="20", environment="test")
        live = notification((WABA, [text_change(NUMBER, "wamid.live")]))
        sandbox = notification(("10", [text_change("20", "wamid.test")]))
        assert post(live, secret="sandbox secret").status_code == 200
        assert post(sandbox, secret="live secret").status_code == 200
        assert events_of(tenant) == []
        assert KeptNotification.objects.filter(reason="unroutable").count() == 2
        assert post(live, secret="live secret").status_code == 200
        assert post(sandbox, secret="sandbox secret").status_code == 200
        assert [(event.wamid, event.environment) for event in events_of(tenant)] == [
            ("wamid.live", "live"),
            ("wamid.test", "test"),
        ]


@pytest.mark.django_db(transaction=True)
class TestRaw:
    @pytest.mark.parametrize(
        "body",
        [
            notification((WABA, [text_change(NUMBER, "wamid.1", body="café 👍 <b>")])).replace(b"/", rb"\/"),
            notification((WABA, [text_change(NUMBER, "wamid.1")])).replace(b'"id":', b'  "id" \t:\r\n ')
            + b"\r\n ",
            notification((WABA, [text_change(NUMBER, "wamid.1", body="N")])).replace(
                b'"N"', b'"N", "big": 410000000000000123456789, "exp": 1E400, "real": 1.10, "e": "\\u00E9"'
            ),
        ],
        ids=["escapes", "spacing", "numbers"],
    )
    def test_the_delivered_bytes_contain_the_posted_bytes(
        self, number: PhoneNumber, tenant: Tenant, body: bytes
    ) -> None:
        assert post(body).status_code == 200
        (event,) = events_of(tenant)
        sent = delivered(event)
        assert b'"raw":' + body + b',"raw_path":"entry[0].changes[0].value.messages[0]"}' in sent

    def test_a_notification_is_stored_once_however_many_events_it_holds(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, *(f"wamid.{n}" for n in range(30)))]))
        assert post(body).status_code == 200
        assert len(events_of(tenant)) == 30
        assert EventPayload.objects.filter(body=body).count() == 1
        assert EventPayload.objects.count() == 31

    def test_every_golden_notification_of_one_tenant_arrives_byte_for_byte(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        arrived, before = 0, None
        for name, body in BODIES.items():
            assert post(body).status_code == 200, name
            newest = Event.objects.exclude(raw_id=None).order_by("-id").first()
            if newest and newest != before and not KeptNotification.objects.filter(id__gt=newest.id).exists():
                arrived, before = arrived + 1, newest
                assert body in delivered(newest), name
        assert arrived > 0.8 * len(BODIES)


@pytest.mark.django_db(transaction=True)
class TestRouting:
    def test_entries_changes_and_items_become_one_event_each(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        body = notification(
            (WABA, [text_change(NUMBER, "wamid.1", "wamid.2"), text_change(NUMBER, "wamid.3")]),
            (WABA, [text_change(NUMBER, "wamid.4")]),
        )
        assert post(body).status_code == 200
        envelopes = envelopes_of(tenant)
        assert [each["wamid"] for each in envelopes] == ["wamid.1", "wamid.2", "wamid.3", "wamid.4"]
        for each in envelopes:
            assert at_path(each["raw"], each["raw_path"])["id"] == each["wamid"]
            assert each["raw"] == orjson.loads(body)
            assert (each["waba_id"], each["phone_number_id"]) == (WABA, NUMBER)

    def test_a_number_that_moved_to_another_tenants_account_never_reaches_its_former_owner(
        self,
        number: PhoneNumber,
        other_number: PhoneNumber,
        tenant: Tenant,
        other_tenant: Tenant,
    ) -> None:
        """The previous tenant still has a row for the number, and the process has just cached it."""
        assert post(notification((WABA, [text_change(NUMBER, "wamid.before")]))).status_code == 200
        moved = notification((OTHER_WABA, [text_change(NUMBER, "wamid.moved")]))
        assert post(moved).status_code == 200
        assert [event.wamid for event in events_of(tenant)] == ["wamid.before"]
        (event,) = events_of(other_tenant)
        assert (event.wamid, event.waba_id, event.phone_number_id) == ("wamid.moved", OTHER_WABA, NUMBER)

    def test_an_event_about_a_named_account_is_its_owners_whatever_number_it_names(
        self,
        number: PhoneNumber,
        other_number: PhoneNumber,
        tenant: Tenant,
        other_tenant: Tenant,
    ) -> None:
        value = {
            "event": "DISABLED_UPDATE",
            "waba_info": {"waba_id": WABA},
            "metadata": {"phone_number_id": OTHER_NUMBER},
        }
        assert post(notification(("42", [{"field": "account_update", "value": value}]))).status_code == 200
        assert {event.waba_id for event in events_of(tenant)} == {WABA}
        assert events_of(other_tenant) == []

    def test_each_tenant_sees_its_own_bytes_alone(
        self,
        number: PhoneNumber,
        other_number: PhoneNumber,
        tenant: Tenant,
        other_tenant: Tenant,
    ) -> None:
        body = notification(
            (OTHER_WABA, [text_change(OTHER_NUMBER, "wamid.o1", body="theirs")]),
            (WABA, [text_change(NUMBER, "wamid.1", body="ours")]),
            (OTHER_WABA, [text_change(OTHER_NUMBER, "wamid.o2", body="theirs")]),
            (WABA, [text_change(NUMBER, "wamid.2", body="ours")]),
        )
        assert post(body).status_code == 200
        for owner, mine, foreign in ((tenant, "ours", b"theirs"), (other_tenant, "theirs", b"ours")):
            events = events_of(owner)
            assert len(events) == 2
            for event in events:
                sent = delivered(event)
                assert foreign not in sent
                each = orjson.loads(sent)
                item = at_path(each["raw"], each["raw_path"])
                assert (item["id"], item["text"]["body"]) == (event.wamid, mine)
        assert not KeptNotification.objects.exists()

    def test_a_number_whose_entry_is_nobodys_account_routes_by_itself(
        self, number: PhoneNumber, other_number: PhoneNumber, other_tenant: Tenant, tenant: Tenant
    ) -> None:
        assert post(notification(("42", [text_change(OTHER_NUMBER, "wamid.1")]))).status_code == 200
        (event,) = events_of(other_tenant)
        assert event.waba_id == OTHER_WABA
        assert events_of(tenant) == []

    def test_an_unknown_number_of_a_known_account_is_the_accounts(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        change = text_change("999", "wamid.1")
        change["value"]["metadata"]["display_phone_number"] = "919800000009"
        assert post(notification((WABA, [change]))).status_code == 200
        (each,) = envelopes_of(tenant)
        assert (each["waba_id"], each["phone_number_id"]) == (WABA, "999")
        assert each["display_phone_number"] == "919800000009"

    def test_what_belongs_to_nobody_is_kept_and_answered_200(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        mine, nobodys = (
            text_change(NUMBER, "wamid.1", body="ours"),
            text_change("2", "wamid.2", body="nobodys"),
        )
        assert post(notification(("1", [nobodys]), (WABA, [mine]))).status_code == 200
        (kept,) = KeptNotification.objects.all()
        assert (kept.reason, kept.waba_id, kept.error) == ("unroutable", "1", None)
        assert orjson.loads(kept.body)["entry"] == [{"id": "1", "changes": [nobodys]}]
        (each,) = envelopes_of(tenant)
        assert each["raw"]["entry"] == [{"id": WABA, "changes": [mine]}]

    @pytest.mark.parametrize("waba_id", [WABA, "1"])
    def test_a_change_beyond_the_limits_arrives_whole(
        self, number: PhoneNumber, tenant: Tenant, waba_id: str
    ) -> None:
        value = text_change(NUMBER if waba_id == WABA else "2")["value"]
        threads = [{"id": "919812345678", "messages": [{}] * (MOST_EVENTS + 1)}]
        value["history"] = [{"metadata": {"progress": 100}, "threads": threads}]
        body = notification((waba_id, [{"field": "history", "value": value}]))
        assert post(body).status_code == 200
        if waba_id != WABA:
            assert [bytes(kept.body) for kept in KeptNotification.objects.all()] == [body]
            return
        (each,) = envelopes_of(tenant)
        assert (each["type"], each["phone_number_id"], each["data"]) == (
            "meta.other",
            NUMBER,
            {"field": "history"},
        )
        assert each["raw"] == orjson.loads(body)
        assert AppData.objects.get(kind="history").status == "completed"

    def test_a_repeat_of_what_is_kept_is_kept_once(self, db: None) -> None:
        body = notification(("1", [text_change("2", "wamid.1")]))
        for _ in range(3):
            assert post(body).status_code == 200
        assert KeptNotification.objects.count() == 1

    def test_a_new_id_of_known_digits_is_kept_as_the_upstream_says(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        assert post(notification((WABA, [text_change("999", "wamid.1")]))).status_code == 200
        (each,) = envelopes_of(tenant)
        assert (each["waba_id"], each["phone_number_id"]) == (WABA, "999")

    def test_management_events_get_the_number_that_their_digits_name(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        change = {
            "field": "phone_number_quality_update",
            "value": {"display_phone_number": "919800000001", "event": "FLAGGED"},
        }
        assert post(notification((WABA, [change]), time=1793500000)).status_code == 200
        (each,) = (envelope for envelope in envelopes_of(tenant) if envelope["type"] == "number.quality")
        assert each["phone_number_id"] == NUMBER
        assert each["display_phone_number"] == "919800000001"


@pytest.mark.django_db(transaction=True)
class TestMalformed:
    def test_is_kept_with_its_error_and_answered_200(self) -> None:
        entries = (b"[]", b"{}", b"[1]")
        bodies = [
            *(b"", b"not JSON", b"[]", b"null", b"{}", b"\xff\xfe{}", b'{"object":"page","entry":[]}'),
            *(b'{"object":"whatsapp_business_account","entry":%b}' % entry for entry in entries),
            b"[" * 100_000,
        ]
        for body in bodies:
            assert post(body).status_code == 200
            kept = KeptNotification.objects.latest("id")
            assert bytes(kept.body) == body
            assert kept.reason == "malformed"
            assert kept.error

    def test_what_stands_beside_a_malformed_entry_arrives_and_all_of_it_is_kept(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        whole = orjson.loads(
            notification((WABA, [text_change(NUMBER, "wamid.1")]), ("1", [text_change("2", "wamid.2")]))
        )
        whole["entry"].append({"id": WABA, "changes": "none"})
        body = orjson.dumps(whole)
        assert post(body).status_code == 200
        assert [event.wamid for event in events_of(tenant)] == ["wamid.1"]
        assert "none" not in delivered(events_of(tenant)[0]).decode()
        (kept,) = KeptNotification.objects.all()
        assert bytes(kept.body) == body
        assert kept.error == "entry[2].changes is not a list"

    def test_text_that_postgres_cannot_hold_is_no_obstacle(self, number: PhoneNumber, tenant: Tenant) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.\0", body="\0 \ud800")]))
        assert post(body).status_code == 200
        assert body in delivered(events_of(tenant)[0])

    def test_413_over_16_mebibytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert incoming.MAX_BODY_BYTES == 16 * 1024 * 1024
        monkeypatch.setattr(incoming, "MAX_BODY_BYTES", 1000)
        assert post(b"x" * 1000).status_code == 200
        assert_error(post(b"x" * 1001), 413, "payload_too_large")
        assert KeptNotification.objects.count() == 1


@pytest.mark.django_db(transaction=True)
class TestOnce:
    def test_a_repeat_makes_no_event_no_body_and_no_delivery(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        verified_endpoint(tenant)
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        for _ in range(3):
            assert post(body).status_code == 200
        assert (Event.objects.count(), EventPayload.objects.count(), Delivery.objects.count()) == (1, 2, 1)

    def test_the_new_part_of_a_repeat_arrives(self, number: PhoneNumber, tenant: Tenant) -> None:
        assert post(notification((WABA, [text_change(NUMBER, "wamid.1")]))).status_code == 200
        assert post(notification((WABA, [text_change(NUMBER, "wamid.1", "wamid.2")]))).status_code == 200
        assert [(each["wamid"], each["raw_path"][-11:]) for each in envelopes_of(tenant)] == [
            ("wamid.1", "messages[0]"),
            ("wamid.2", "messages[1]"),
        ]

    def test_the_same_item_twice_in_one_notification(self, number: PhoneNumber, tenant: Tenant) -> None:
        assert post(notification((WABA, [text_change(NUMBER, "wamid.1", "wamid.1")]))).status_code == 200
        assert len(events_of(tenant)) == 1


@pytest.mark.django_db
class TestCost:
    def test_one_statement_however_many_items_and_a_look_up_a_second(
        self, number: PhoneNumber, other_number: PhoneNumber, tenant: Tenant
    ) -> None:
        verified_endpoint(tenant)
        verified_endpoint(tenant)
        PhoneNumber.objects.update(last_event_at="2100-01-01T00:00:00Z")
        for count, expected in ((1, ["SELECT", "WITH"]), (50, ["WITH"])):
            wamids = [f"wamid.{count}.{n}" for n in range(count)]
            made: list[str] = []

            def note(execute: Any, sql: str, *rest: Any, seen: list[str] = made) -> Any:
                seen.append(sql.split()[0])
                return execute(sql, *rest)

            with connection.execute_wrapper(note):
                assert taken_in(notification((WABA, [text_change(NUMBER, *wamids)])))
            assert made == expected

    def test_an_owner_is_remembered_for_a_second_and_nobody_never(
        self, number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        clock = [1000.0]
        monkeypatch.setattr("messaging.notifications.routing.monotonic", lambda: clock[0])

        def look_ups(sent: bytes) -> int:
            looked: list[str] = []

            def note(execute: Any, sql: str, *rest: Any) -> Any:
                looked.append(sql.split()[0])
                return execute(sql, *rest)

            with connection.execute_wrapper(note):
                taken_in(sent)
            return looked.count("SELECT")

        PhoneNumber.objects.update(last_event_at="2100-01-01T00:00:00Z")
        assert [look_ups(body), look_ups(body)] == [1, 0]
        clock[0] += 1.1
        assert look_ups(body) == 1
        stranger = notification(("9", [text_change("99", "wamid.2")]))
        assert [look_ups(stranger), look_ups(stranger)] == [1, 1]
        number_of(tenant, waba_id="9", phone_number_id="99", digits="919800000099")
        assert taken_in(stranger)
        assert [event.wamid for event in events_of(tenant)] == ["wamid.1", "wamid.2"]


@pytest.mark.django_db(transaction=True)
class TestMany:
    def test_the_number_of_a_media_is_noted(self, number: PhoneNumber, tenant: Tenant) -> None:
        kinds = ("image", "video", "audio", "document", "sticker", "contacts")
        change = text_change(NUMBER, *kinds)
        for place, message in enumerate(change["value"]["messages"]):
            message |= {"type": kinds[place], kinds[place]: {"id": f"51{place}"}}
        assert post(notification((WABA, [change]))).status_code == 200
        noted = [
            known_nodes.number_of_media(tenant_id=tenant.id, environment="live", media_id=f"51{place}")
            for place in range(len(kinds))
        ]
        assert noted == [*[NUMBER] * 5, None]

    def test_a_flow_is_known_by_its_notification(self, number: PhoneNumber, tenant: Tenant) -> None:
        change = {"field": "flows", "value": {"event": "FLOW_STATUS_CHANGE", "flow_id": "600600600"}}
        assert post(notification((WABA, [change]))).status_code == 200
        found = known_nodes.find_node("600600600", tenant_id=tenant.id, environment="live")
        assert found is not None
        assert (found.kind, found.account) == ("flow", number.account)

    def test_two_hundred_changes_of_ten_tenants(self, db: None) -> None:
        tenants = [Tenant.objects.create(name=f"T{n}", status="active") for n in range(10)]
        for n, owner in enumerate(tenants):
            number_of(owner, waba_id=f"1{n:03}", phone_number_id=f"2{n:03}", digits=f"91980000{n:04}")
            verified_endpoint(owner)
        body = notification(
            *(
                (f"1{n % 10:03}", [text_change(f"2{n % 10:03}", f"wamid.{n}", body="x" * 10_000)])
                for n in range(200)
            )
        )
        assert len(body) > 2_000_000
        assert post(body).status_code == 200
        assert Event.objects.count() == Delivery.objects.count() == 200
        (first, *_) = envelopes_of(tenants[7])
        assert len(first["raw"]["entry"]) == 20
        assert at_path(first["raw"], first["raw_path"])["id"] == first["wamid"]


_ENDS_ITS_CONNECTION = """
CREATE FUNCTION ends_its_connection() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(5); RETURN NULL; END $$
"""


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_the_same_notification_at_the_same_moment(self, number: PhoneNumber, tenant: Tenant) -> None:
        verified_endpoint(tenant)
        for round_ in range(5):
            body = notification((WABA, [text_change(NUMBER, *(f"wamid.{round_}.{n}" for n in range(20)))]))
            answers = in_threads(*[lambda body=body: post(body).status_code] * 4)
            assert answers == [200] * 4
        assert Event.objects.count() == EventKey.objects.count() == Delivery.objects.count() == 100
        assert EventPayload.objects.count() == 105

    def test_overlapping_notifications_in_opposite_orders(self, number: PhoneNumber, tenant: Tenant) -> None:
        for round_ in range(5):
            wamids = [f"wamid.{round_}.{n}" for n in range(50)]
            there = notification((WABA, [text_change(NUMBER, *wamids[:40])]))
            back = notification((WABA, [text_change(NUMBER, *reversed(wamids[10:]))]))
            jobs = [lambda b=body: post(b).status_code for body in (there, back, there, back)]
            assert in_threads(*jobs) == [200] * 4
        assert sorted(event.wamid or "" for event in events_of(tenant)) == sorted(
            f"wamid.{round_}.{n}" for round_ in range(5) for n in range(50)
        )
        for each in envelopes_of(tenant):
            assert at_path(each["raw"], each["raw_path"])["id"] == each["wamid"]

    def test_no_200_before_the_commit(
        self, number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A change with a side effect is stored in a transaction of several statements."""
        change = {
            "field": "security",
            "value": {"display_phone_number": "919800000001", "event": "PIN_CHANGED"},
        }
        body = notification((WABA, [change]), time=1793500000)

        def broken_commit(of: BaseDatabaseWrapper) -> None:
            of.rollback()
            raise OperationalError("server closed the connection unexpectedly")

        with monkeypatch.context() as broken:
            broken.setattr(BaseDatabaseWrapper, "_commit", broken_commit)
            assert_error(post(body), 503, "service_unavailable")
        assert events_of(tenant) == []
        assert post(body).status_code == 200
        assert [event.type for event in events_of(tenant)].count("account.security") == 1

    def test_no_200_when_the_database_ends_before_it_has_stored(
        self, number: PhoneNumber, tenant: Tenant
    ) -> None:
        """A notification of messages is stored by one statement, which is its own transaction."""
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))

        with connection.cursor() as cursor:
            cursor.execute(_ENDS_ITS_CONNECTION)
            cursor.execute(
                "CREATE TRIGGER ends BEFORE INSERT ON events EXECUTE FUNCTION ends_its_connection()"
            )
        try:
            assert_error(post(body), 503, "service_unavailable")
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP FUNCTION ends_its_connection() CASCADE")
        assert events_of(tenant) == []
        assert post(body).status_code == 200
        assert len(events_of(tenant)) == 1

    def test_a_stopped_database_is_503_and_the_repeat_is_taken(
        self, number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        with monkeypatch.context() as stopped, without_database():
            # The process's intake keeps its connections open, so this uses a new intake.
            stopped.setattr(routes, "_intake", Intake())
            for each in (body, b"malformed"):
                answer = post(each)
                assert_error(answer, 503, "service_unavailable")
                assert answer["Retry-After"] == "1"
        assert post(body).status_code == 200
        assert len(events_of(tenant)) == 1
