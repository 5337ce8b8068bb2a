"""Conversations: the list, the search, a thread, replies, roles, and the inbox. With the inbox, a number can be
connected without an endpoint.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.datastructures import MultiValueDict
from django.utils.http import urlencode

from console import conversations
from console.conversation_forms import ReplyForm
from console.tests.conversing import PNID, WA_ID, inbound, outbound, status
from gateway import ids
from gateway.clock import now
from messaging.conversations import list_and_search, read_marks
from messaging.models import MessageTemplate, OptOut, ReadMark
from messaging.tests.incoming import number_of
from messaging.tests.test_opt_outs import T0
from messaging.tests.test_opt_outs import write as take_in
from phone_numbers.models import PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from tenants.audit import GATEWAY
from tenants.models import AuditEntry, Tenant
from tests.browsers import browser_of, text
from tests.fixtures import Api, assert_error
from webhooks.endpoints import lifecycle
from webhooks.models import Delivery, Endpoint, Event, EventPayload, Message
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/console/conversations"
THREAD = f"{LIST}/{PNID}/{WA_ID}"


def turn_on(tenant: Tenant, environment: str = "live") -> Endpoint:
    return lifecycle.create(
        tenant_id=tenant.id, environment=environment, actor=GATEWAY, kind=Endpoint.Kind.INBOX
    )


@pytest.fixture
def here(tenant: Tenant) -> PhoneNumber:
    found = number_of(tenant, waba_id="100200300400500", phone_number_id=PNID)
    Endpoint.objects.filter(pk=turn_on(tenant).pk).update(created_at=now() - timedelta(days=60))
    return found


def rows(browser: Client, **query: str) -> list[str]:
    """The rows of the list as displayed."""
    page = browser.get(f"{LIST}?{urlencode(query)}").content.decode()
    found = re.findall(r'<li[^>]*><a href="/console/conversations/.*?</a></li>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found]


# --- The inbox


def test_turning_conversations_on_connects_a_number_without_a_server(tenant: Tenant, browser: Client) -> None:
    number = number_of(tenant, waba_id="100200300400500", phone_number_id=PNID)
    PhoneNumber.objects.update(connection_state="pending", connection_detail="no_verified_endpoint")
    assert "Turn conversations on" in text(browser, LIST)
    assert browser.post(f"{LIST}/on").status_code == 302
    number.refresh_from_db()
    assert (number.connection_state, number.connection_detail) == ("connected", None)
    tenant.refresh_from_db()
    assert tenant.checklist["webhook_verified"] is True
    assert AuditEntry.objects.filter(action="webhook_endpoint.create", tenant_id=tenant.id).exists()
    assert "Nobody has written yet" in text(browser, LIST)
    assert "You have no verified endpoint. Your numbers cannot send" in text(browser, f"{LIST}/off")
    browser.post(f"{LIST}/off")
    number.refresh_from_db()
    assert (number.connection_state, number.connection_detail) == ("pending", "no_verified_endpoint")


def test_an_environment_has_one_inbox_and_it_has_no_deliveries(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    browser.post(f"{LIST}/on")
    assert Endpoint.objects.filter(kind="inbox").count() == 1
    inbound(tenant)
    assert not Delivery.objects.exists()


def test_an_inbox_is_made_by_api(api: Api, tenant: Tenant) -> None:
    made = api.post("/v1/webhooks", {"kind": "inbox", "description": "Shop"})
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["kind"], body["status"], body["event_types"]) == ("inbox", "active", [])
    assert body["verified_at"] is not None
    assert_error(api.post("/v1/webhooks", {"kind": "inbox"}), 409, "conflict")
    path = f"/v1/webhooks/{body['id']}"
    assert_error(api.post(f"{path}/verify"), 409, "conflict")
    assert_error(api.post(f"{path}/rotate-secret", {}), 409, "conflict")
    assert_error(api.post(f"{path}/test", {"event_type": "message.inbound"}), 409, "conflict")
    assert_error(api.patch(path, {"event_types": ["*"]}), 409, "conflict")
    period = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
    assert_error(api.post(f"{path}/replay", period), 409, "conflict")
    assert api.patch(path, {"description": "Counter"}).json()["description"] == "Counter"
    assert api.patch(path, {"status": "paused"}).json()["status"] == "paused"
    assert api.patch(path, {"status": "active"}).json()["status"] == "active"


def test_an_inbox_takes_no_settings_of_a_webhook(api: Api) -> None:
    refused = assert_error(
        api.post("/v1/webhooks", {"kind": "inbox", "url": "https://shop.example/"}), 400, "invalid_request"
    )
    assert "url" in refused["details"]["fields"]
    missing = assert_error(api.post("/v1/webhooks", {"description": "Shop"}), 400, "invalid_request")
    assert "url" in missing["details"]["fields"]


def test_an_inbox_is_no_page_of_the_webhooks(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    inbox = Endpoint.objects.get()
    assert "/console/conversations</a>" not in browser.get("/console/webhooks").content.decode()
    assert browser.get(f"/console/webhooks/{inbox.pk}").status_code == 404
    for asked in ("conversations", str(inbox.pk)):
        assert f"/console/webhooks/{inbox.pk}" not in text(browser, f"/console/search/hits?q={asked}")


def test_the_inbox_counts_among_the_endpoints(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    for number in range(lifecycle.MOST_ENDPOINTS - 2):
        Endpoint.objects.create(tenant=tenant, url=f"https://{number}.example/", event_types=["*"])
    assert "New endpoint" in text(browser, "/console/webhooks")
    Endpoint.objects.create(tenant=tenant, url="https://last.example/", event_types=["*"])
    page = text(browser, "/console/webhooks")
    assert "New endpoint" not in page
    assert "There are 20 endpoints with the inbox of Conversations, which is the limit." in page


# --- The list


def test_the_customer_who_wrote_last_comes_first(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    inbound(tenant, "Is it open today?", at=now() - timedelta(hours=30))
    inbound(tenant, "Bus or train?", wa_id="919800000002", name="Ravi", at=now() - timedelta(hours=3))
    outbound(tenant, "Open until nine.", at=now() - timedelta(hours=1))
    first, second = rows(browser)
    assert first.startswith("Ravi")
    assert "Bus or train?" in first
    assert "20 h left" in first or "21 h left" in first
    assert "1 unread" in first
    assert "You: Open until nine." in second
    assert "+919812345678" in second
    assert "Closed" in second


def test_a_message_in_a_group_is_no_part_of_a_conversation(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "CONVERSATIONS_PER_PAGE", 1)
    in_group: dict[str, Any] = {"group_id": "120363000000000001"}
    inbound(tenant, "My order?", at=now() - timedelta(hours=30))
    inbound(tenant, "Bus or train?", wa_id="919800000002", name="Ravi", at=now() - timedelta(hours=3))
    take_in("Hello all", **in_group)
    take_in("I am new in this group", at=T0 + 1, **in_group, **{"from": "919800000003"})
    (first,) = rows(browser)
    assert first.startswith("Ravi")
    older = re.search(r"before=([0-9a-f-]+)[^>]*>Older", browser.get(LIST).content.decode())
    assert older is not None
    (second,) = rows(browser, before=older[1])
    assert "My order?" in second
    assert "Closed" in second
    assert "Hello all" not in text(browser, THREAD)
    in_log = [row for row in messages(browser) if "group" in row or "Hello" in row]
    assert ["+91" in row for row in in_log] == [False, False]


def test_a_conversation_of_an_earlier_month_is_listed_beside_a_new_one(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, "Is it ready?", at=now() - timedelta(days=32), wa_id="919800000002", name="Ravi")
    inbound(tenant)
    assert [row.split()[0] for row in rows(browser)] == ["Asha", "Ravi"]


def test_the_window_begins_when_the_customer_wrote_however_late_the_notification_came(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, at=now() - timedelta(hours=25), stored_at=now())
    assert "Closed" in rows(browser)[0]


@pytest.mark.parametrize("kind", ["edit", "revoke"])
def test_a_change_of_an_old_message_opens_no_window(
    tenant: Tenant, browser: Client, here: PhoneNumber, kind: str
) -> None:
    inbound(tenant, at=now() - timedelta(hours=30))
    inbound(tenant, body={"type": kind, kind: {"original_message_id": "wamid.1"}})
    assert "Closed" in rows(browser)[0]


def test_a_customer_who_opted_out_carries_a_mark_until_it_ends(browser: Client, here: PhoneNumber) -> None:
    take_in("STOP")
    (row,) = rows(browser)
    assert "No marketing" in row
    page = text(browser, THREAD)
    assert "Wants no marketing" in page
    assert 'title="Wrote a stop word on' in page
    take_in("START", at=T0 + 60)
    assert "No marketing" not in rows(browser)[0]
    assert "Wants no marketing" not in text(browser, THREAD)


def test_the_day_of_an_opt_out_is_in_the_members_zone(browser: Client, here: PhoneNumber) -> None:
    take_in("STOP")
    OptOut.objects.update(wrote_at=datetime(2026, 12, 1, 20, 30, tzinfo=UTC))
    assert 'title="Wrote a stop word on 2 December 2026"' in text(browser, THREAD)


def test_pages_of_the_list_name_each_conversation_once(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "CONVERSATIONS_PER_PAGE", 2)
    for minute in range(3):
        for customer in ("919800000001", "919800000002", "919800000003"):
            inbound(tenant, wa_id=customer, name=customer[-1], at=now() - timedelta(minutes=30 - minute))
    first = browser.get(LIST).content.decode()
    older = re.search(r"before=([0-9a-f-]+)", first)
    assert older is not None
    seen = [row[0] for row in rows(browser) + rows(browser, before=older[1])]
    assert sorted(seen) == ["1", "2", "3"]
    assert "live, every 15s" in first
    assert "every 15s" not in text(browser, f"{LIST}?before={older[1]}"), "it would become the newest page"


def test_pages_hide_no_conversation_behind_a_later_one_of_the_same_customer(
    tenant: Tenant,
    other_tenant: Tenant,
    browser: Client,
    here: PhoneNumber,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later message counts only for its own number, environment, tenant and direction."""
    monkeypatch.setattr(conversations, "CONVERSATIONS_PER_PAGE", 1)
    second = "200300400500601"
    number_of(tenant, waba_id="100200300400501", phone_number_id=second, digits="919800000077")
    minutes = iter(range(9, 0, -1))

    def write(kind: Callable[..., object] = inbound, owner: Tenant = tenant, **members: Any) -> None:
        kind(owner, at=now() - timedelta(minutes=next(minutes)), **members)

    write(name="First")
    write(wa_id="919800000002", name="Between")
    write(name="Other", phone_number_id=second)
    write(environment="test")
    write(owner=other_tenant)
    write(outbound)
    seen, query = [], dict[str, str]()
    for _ in range(4):
        seen += [row.split()[0] for row in rows(browser, **query)]
        older = re.search(r"before=([0-9a-f-]+)[^>]*>Older", browser.get(LIST, query).content.decode())
        if older is None:
            break
        query = {"before": older[1]}
    assert seen == ["Other", "Between", "First"]


def test_a_walk_that_ends_early_goes_on_with_the_next_page(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_and_search, "SHORT_WALK", 2)
    monkeypatch.setattr(list_and_search, "MOST_WALKED", 3)
    inbound(tenant, wa_id="919800000009", name="Old", at=now() - timedelta(minutes=9))
    for minute in range(4):
        inbound(tenant, at=now() - timedelta(minutes=4 - minute))
    assert [row.split()[0] for row in rows(browser)] == ["Asha"]
    older = re.search(r"before=([0-9a-f-]+)", browser.get(LIST).content.decode())
    assert older is not None
    assert [row.split()[0] for row in rows(browser, before=older[1])] == ["Old"]


def test_messages_of_others_use_up_no_walk_and_no_search(
    tenant: Tenant, other_tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("SHORT_WALK", "MOST_WALKED", "MOST_SEARCHED"):
        monkeypatch.setattr(list_and_search, bound, 2)
    inbound(tenant, "A kite, please", at=now() - timedelta(minutes=9))
    for environment, owner in (("live", other_tenant), ("test", tenant)):
        for minute in (3, 2):
            at = now() - timedelta(minutes=minute)
            inbound(owner, environment=environment, wa_id="919700000002", at=at)
        assert len(rows(browser)) == len(rows(browser, q="kite")) == 1, environment


def test_a_customer_with_two_ids_is_one_conversation(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, wa_id=None, user_id="IN.778899", at=now() - timedelta(minutes=3))
    inbound(tenant, user_id="IN.778899", at=now() - timedelta(minutes=2))
    assert len(rows(browser)) == 1
    assert text(browser, THREAD).count("Where is my order?") == 2


def test_nothing_of_another_tenant_environment_or_number_is_listed(
    tenant: Tenant, other_tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    turn_on(other_tenant)
    inbound(other_tenant, "Of another business", name="Other")
    inbound(tenant, "Of the sandbox", name="Sandbox", environment="test", wa_id="919800000005")
    inbound(tenant, "To the second number", name="Second", phone_number_id="200300400500601")
    number_of(tenant, waba_id="100200300400501", phone_number_id="200300400500601", digits="919800000077")
    inbound(tenant, "Mine")
    inbound(tenant, "Newer, of the sandbox", environment="test")
    assert rows(browser, q="9198000") == []
    assert "Mine" in rows(browser)[0]
    assert "1 unread" in rows(browser)[0]
    assert [row.split()[0] for row in rows(browser)] == ["Asha", "Second"]
    assert [row.split()[0] for row in rows(browser, number=PNID)] == ["Asha"]
    assert len(rows(browser, q="second number")) == 1
    assert rows(browser, q="second number", number=PNID) == []
    assert len(rows(browser, number="999")) == 2, "a number of another business filters nothing"
    for query in ("Of another", "Of the sandbox", "Other", "Sandbox"):
        assert rows(browser, q=query) == []
    thread = text(browser, THREAD)
    assert "Mine" in thread
    for text_ in ("Of another business", "Of the sandbox", "Newer, of the sandbox", "To the second number"):
        assert text_ not in thread


def test_reading_ends_unread_and_what_comes_later_begins_it_again(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, at=now() - timedelta(minutes=5))
    inbound(tenant, "Hello?", at=now() - timedelta(minutes=4))
    assert "2 unread" in rows(browser)[0]
    browser_of(tenant, "read_only").get(THREAD)
    assert "2 unread" in rows(browser)[0], "who may not answer has not read it for the team"
    browser.get(THREAD)
    assert "unread" not in rows(browser)[0]
    inbound(tenant, "Anybody?")
    assert "1 unread" in rows(browser)[0]


def test_messages_before_conversations_were_on_are_not_unread(tenant: Tenant, browser: Client) -> None:
    number_of(tenant, waba_id="100200300400500", phone_number_id=PNID)
    inbound(tenant, at=now() - timedelta(minutes=5))
    turn_on(tenant)
    assert "unread" not in rows(browser)[0]


def test_a_read_mark_only_goes_forward_and_is_pruned(tenant: Tenant, settings: Any) -> None:
    key = read_marks.key_of(PNID, WA_ID)
    scope: dict[str, Any] = {"tenant_id": tenant.id, "environment": "live"}
    newer, older = ids.first_at(now()), ids.first_at(now() - timedelta(days=1))
    for through in (newer, older):
        read_marks.mark(**scope, conversations=[key], through=through)
    read_marks.mark(**scope, conversations=[key + 1], through=older)
    assert read_marks.through(**scope, conversations=[key]) == {key: newer}
    assert read_marks.through(tenant_id=tenant.id, environment="test", conversations=[key]) == {}
    old = ReadMark.objects.filter(conversation=key)
    long_ago = now() - timedelta(days=settings.EVENT_METADATA_DAYS + 1)
    old.update(read_at=long_ago)
    read_marks.mark(**scope, conversations=[key], through=ids.first_at(now() + timedelta(days=1)))
    assert read_marks.prune_read_marks() == 0, "it was read again"
    old.update(read_at=long_ago)
    assert read_marks.prune_read_marks() == 1
    assert ReadMark.objects.get().conversation == key + 1


# --- The search


@pytest.mark.parametrize(("role", "is_noted"), [("agent", True), ("developer", False)])
def test_the_list_says_which_role_the_test_phone_needs(tenant: Tenant, role: str, is_noted: bool) -> None:
    turn_on(tenant, "test")
    member = browser_of(tenant, role)
    member.post("/console/preferences", {"environment": "test"})
    assert ("(needs the role Developer)" in text(member, LIST)) is is_noted


def test_a_search_finds_a_name_a_number_by_its_start_and_a_text(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant)
    inbound(tenant, "Bus or train?", wa_id="919700000002", name="Ravi")
    for typed in ("98123", "+91 98123", "919812345678", " asha ", "ORDER", "where is"):
        assert [row.split()[0] for row in rows(browser, q=typed)] == ["Asha"], typed


def test_customers_of_other_numbers_use_up_no_page_of_a_search_by_number(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "CONVERSATIONS_PER_PAGE", 2)
    second = "200300400500601"
    number_of(tenant, waba_id="100200300400501", phone_number_id=second, digits="919800000077")
    inbound(tenant, name="Both", wa_id="919812300000")
    inbound(tenant, name="Both", wa_id="919812300000", phone_number_id=second)
    outbound(tenant, wa_id="919812300000", phone_number_id=second)
    assert len(rows(browser, q="981230")) == 2, "one conversation with each number"
    assert "Type more digits to find others." in text(browser, f"{LIST}?q=981230")
    assert "Type more digits" not in text(browser, f"{LIST}?q=981230&number={PNID}")
    for place in range(3):
        inbound(tenant, name="Second", phone_number_id=second, wa_id=f"91981234560{place}")
        inbound(tenant, name=f"Here{place}", wa_id=f"91981234567{place}")
    found = rows(browser, q="981234", number=PNID)
    assert [row.split()[0] for row in found] == ["Here1", "Here0"], (
        "a page of the first customers, the newest first"
    )
    monkeypatch.setattr(list_and_search, "MOST_SEARCHED", 4)
    assert [row.split()[0] for row in rows(browser, q="981234", number=PNID)] == ["Here0"], (
        "the walk is bounded"
    )


def test_a_conversation_loads_the_list_that_it_was_opened_from(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    wamid = inbound(tenant)
    inbound(tenant, "Bus or train?", wa_id="919700000002", name="Ravi")
    older = Event.objects.get(wamid=wamid).id
    for query, names in (("q=asha", {"Asha"}), (f"before={older}", {"Asha", "Ravi"})):
        page = text(browser, f"{THREAD}?{query}")
        assert "Conversations are being loaded" in page
        loads = re.search(r'id="conversations"[^>]* hx-get="([^"]+)" hx-trigger="load, ', page)
        assert loads is not None, query
        loaded = text(browser, loads[1])
        assert "Conversations are being loaded" not in loaded
        assert set(re.findall(r"Asha|Ravi", loaded)) == names, query


def test_a_search_finds_every_text_of_a_message(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    document = {"id": "11", "filename": "Quote-7.pdf", "caption": "As agreed", "mime_type": "application/pdf"}
    inbound(tenant, body={"type": "document", "document": document})
    button = {"type": "reply", "reply": {"id": "a", "title": "Monday"}}
    interactive = {
        "type": "button",
        "header": {"type": "text", "text": "Delivery"},
        "body": {"text": "Which day?"},
        "footer": {"text": "Until noon"},
        "action": {"buttons": [button]},
    }
    outbound(tenant, wa_id="919700000002", body={"type": "interactive", "interactive": interactive})
    for typed in ("quote-7", "as agreed", "delivery", "which day", "until noon"):
        assert len(rows(browser, q=typed)) == 1, typed


def test_a_search_reads_a_page_of_messages_and_goes_on(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_and_search, "MOST_SEARCHED", 2)
    inbound(tenant, "A kite, please", at=now() - timedelta(minutes=5))
    for minute in (3, 2):
        inbound(tenant, wa_id="919700000002", name="Ravi", at=now() - timedelta(minutes=minute))
    page = browser.get(f"{LIST}?q=kite").content.decode()
    assert rows(browser, q="kite") == []
    older = re.search(r"before=([0-9a-f-]+)", page)
    assert older is not None
    assert "Search older messages" in page
    assert len(rows(browser, q="kite", before=older[1])) == 1


def test_a_search_with_more_conversations_than_a_page_goes_on(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.conversations.CONVERSATIONS_PER_PAGE", 2)
    for minute in range(1, 6):
        inbound(tenant, wa_id=f"91970000000{minute}", name=f"N{minute}", at=now() - timedelta(minutes=minute))
    found, query = list[str](), {"q": "order"}
    for _ in range(3):
        found += [row.split()[0] for row in rows(browser, **query)]
        page = browser.get(LIST, query).content.decode()
        if older := re.search(r"before=([0-9a-f-]+)[^>]*>Search older", page):
            query["before"] = older[1]
    assert older is None
    assert found == ["N1", "N2", "N3", "N4", "N5"]


# --- A thread


def test_a_thread_shows_every_kind_of_message(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    first = inbound(tenant, "Do you have <b>kites</b>?")
    for body in (
        {"type": "image", "image": {"id": "11", "caption": "This one", "mime_type": "image/jpeg"}},
        {"type": "audio", "audio": {"id": "12", "voice": True}},
        {"type": "video", "video": {"id": "13"}},
        {"type": "document", "document": {"id": "14", "filename": "bill.pdf"}},
        {"type": "location", "location": {"latitude": 18.5, "longitude": 73.8, "name": "Pune"}},
        {
            "type": "contacts",
            "contacts": [{"name": {"formatted_name": "Ravi K"}, "phones": [{"phone": "+91 1"}]}],
        },
        {
            "type": "order",
            "order": {
                "product_items": [
                    {"quantity": 2, "product_retailer_id": "KITE", "item_price": 50, "currency": "INR"}
                ]
            },
        },
        {"type": "button", "button": {"text": "Yes please", "payload": "y"}},
        {
            "type": "interactive",
            "interactive": {"type": "list_reply", "list_reply": {"id": "1", "title": "Red kite"}},
        },
        {"type": "unknown", "unknown": "x"},
        {"type": "contacts", "contacts": [{"name": "not an object"}]},
    ):
        inbound(tenant, body=body)
    reply = outbound(
        tenant,
        "Yes, these.",
        body={"type": "text", "text": {"body": "Yes, these."}, "context": {"message_id": first}},
    )
    inbound(tenant, body={"type": "reaction", "reaction": {"message_id": reply, "emoji": "👍"}})
    page = browser.get(THREAD).content.decode()
    for shown in (
        "&lt;b&gt;kites&lt;/b&gt;",
        "This one",
        "<audio",
        "<video",
        "<img",
        "bill.pdf",
        "Pune",
        "Ravi K",
        "2 × KITE",
        "Yes please",
        "Red kite",
        "A message of the type unknown",
        "A message of the type contacts",
        "👍",
    ):
        assert shown in page, shown
    assert re.search(r"<blockquote[^>]*>Do you have", page)


def test_statuses_have_seconds_and_a_failure_its_sentence(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant)
    sent = outbound(tenant, "Sorry for the wait")
    status(tenant, sent, "failed", error_code=131047)
    page = text(browser, THREAD)
    assert "(code 131047)" in page
    assert re.search(r"Failed <time[^>]*>\d\d:\d\d:\d\d", browser.get(THREAD).content.decode())
    assert "Failed" in rows(browser)[0]


TWO_KITES = {"type": "text", "text": {"body": "Two kites"}}


def test_an_edit_and_a_deletion_are_shown_at_their_message(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    edited, deleted = inbound(tenant, "Tow kites"), inbound(tenant, "A secret")
    inbound(tenant, body={"type": "edit", "edit": {"original_message_id": edited, "message": TWO_KITES}})
    inbound(tenant, body={"type": "revoke", "revoke": {"original_message_id": deleted}})
    page = text(browser, THREAD)
    assert "Two kites" in page
    assert "Tow kites" not in page
    assert "This message was deleted." in page
    outbound(
        tenant,
        body={"type": "text", "text": {"body": "Why?"}, "context": {"message_id": deleted}},
    )
    for shown in (page, text(browser, THREAD), *rows(browser)):
        assert "A secret" not in shown


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        ("reaction", {"message_id": "ID", "emoji": "👍"}, "Reacted with 👍"),
        ("reaction", {"message_id": "ID", "emoji": ""}, "Took a reaction back"),
        ("reaction", "odd", "Took a reaction back"),
        ("edit", {"original_message_id": "ID", "message": TWO_KITES}, "Edited: Two kites"),
        ("edit", {"original_message_id": "ID", "message": "odd"}, "Edited a message"),
        ("revoke", {"original_message_id": "ID"}, "Deleted a message"),
        ("revoke", "odd", "Deleted a message"),
        ("revoke", {"original_message_id": "ID", "message": TWO_KITES}, "Deleted a message"),
    ],
)
def test_the_list_names_what_the_customer_did_last_to_a_message(
    tenant: Tenant, browser: Client, here: PhoneNumber, kind: str, content: Any, shown: str
) -> None:
    changed = inbound(tenant, "Tow kites")
    if isinstance(content, dict):
        content = {name: changed if value == "ID" else value for name, value in content.items()}
    inbound(tenant, body={"type": kind, kind: content})
    [row] = rows(browser)
    assert shown in row
    assert "Tow kites" not in row
    assert browser.get(THREAD).status_code == 200


def test_the_last_of_several_edits_and_reactions_counts(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    edited, liked = inbound(tenant, "Tow kites"), outbound(tenant, "Yes, these.")
    for words in ("Too kites", "Two kites"):
        changed = {"type": "text", "text": {"body": words}}
        inbound(tenant, body={"type": "edit", "edit": {"original_message_id": edited, "message": changed}})
    for emoji in ("👍", "🎉", ""):
        inbound(tenant, body={"type": "reaction", "reaction": {"message_id": liked, "emoji": emoji}})
    page = text(browser, THREAD)
    assert "Two kites" in page
    for former in ("Tow kites", "Too kites", "👍", "🎉"):
        assert former not in page


def test_a_template_reads_as_the_customer_reads_it(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    _template(tenant, here)
    _send_template(tenant)
    assert "Your order SS-1042 is on its way." in text(browser, THREAD)
    _send_template(tenant, name="gone")
    assert "Template gone" in text(browser, THREAD)


def test_a_deleted_template_of_the_same_name_does_not_change_the_text(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    """Another account of the tenant had a template of this name, or it was created once more."""
    _template(tenant, here)
    gone = {"components": [{"type": "BODY", "text": "Of another year."}]}
    _template(tenant, here, template_id="1235", document=orjson.dumps(gone).decode(), deleted_at=now())
    _send_template(tenant)
    assert "Your order SS-1042 is on its way." in text(browser, THREAD)
    MessageTemplate.objects.filter(template_id="1234").update(deleted_at=now() - timedelta(days=1))
    assert "Of another year." in text(browser, THREAD)


def test_past_retention_the_text_is_gone_and_the_message_stays(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, at=now() - timedelta(days=3))
    EventPayload.objects.all().delete()
    assert "The text is no longer kept." in text(browser, THREAD)
    assert "The text is no longer kept." in rows(browser)[0]
    Tenant.objects.filter(pk=tenant.pk).update(retention_days=30)
    inbound(tenant, "Of long ago", at=now() - timedelta(days=31))
    assert "Of long ago" not in text(browser, THREAD)


def test_older_messages_are_on_a_page_of_their_own(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MESSAGES_PER_PAGE", 2)
    for number in range(3):
        inbound(tenant, f"Message {number}", at=now() - timedelta(minutes=9 - number))
    page = browser.get(THREAD).content.decode()
    assert "Message 0" not in page
    older = re.search(r"before=([0-9a-f-]+)", page)
    assert older is not None
    assert "Message 0" in text(browser, f"{THREAD}?before={older[1]}")


def test_parts_answer_204_while_nothing_changed(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    inbound(tenant)
    for page, part in ((THREAD, f"{THREAD}/messages"), (LIST, f"{LIST}/rows")):
        content = browser.get(page).content.decode()
        [seen] = re.findall(re.escape(part) + r"\?seen=(\w+)", content)
        assert browser.get(f"{part}?seen={seen}").status_code == 204
    [seen] = re.findall(r"messages\?seen=(\w+)", browser.get(THREAD).content.decode())
    inbound(tenant, "One more")
    answer = browser.get(f"{THREAD}/messages?seen={seen}")
    assert "One more" in answer.content.decode()


def test_a_status_of_the_last_message_changes_the_parts(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant)
    wamid = outbound(tenant)
    for page, part in ((THREAD, f"{THREAD}/messages"), (LIST, f"{LIST}/rows")):
        content = browser.get(page).content.decode()
        [seen] = re.findall(re.escape(part) + r"\?seen=(\w+)", content)
        status(tenant, wamid, "delivered" if page == THREAD else "read")
        assert browser.get(f"{part}?seen={seen}").status_code == 200


def _send_template(tenant: Tenant, name: str = "order_update") -> None:
    template = {
        "name": name,
        "language": {"code": "en"},
        "components": [{"type": "body", "parameters": [{"type": "text", "text": "SS-1042"}]}],
    }
    outbound(tenant, body={"type": "template", "template": template})


def _template(tenant: Tenant, number: PhoneNumber, **values: Any) -> MessageTemplate:
    document = {
        "name": "order_update",
        "language": "en",
        "components": [{"type": "BODY", "text": "Your order {{1}} is on its way."}],
    }
    return MessageTemplate.objects.create(
        **{
            "tenant": tenant,
            "account": number.account,
            "environment": number.environment,
            "template_id": "1234",
            "name": "order_update",
            "language": "en",
            "status": "APPROVED",
            "category": "UTILITY",
            "document": orjson.dumps(document).decode(),
            "changed_at": now(),
            **values,
        }
    )


# --- The list of messages, and the home page


def messages(browser: Client, **query: str) -> list[str]:
    """The rows of the list of messages as displayed."""
    page = browser.get(f"/console/messages?{urlencode(query)}").content.decode()
    found = re.findall(r"<tr><td.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found]


def test_the_list_of_messages_says_who_wrote_what(tenant: Tenant, browser: Client, here: PhoneNumber) -> None:
    inbound(tenant, "Where is *my* order?")
    outbound(tenant, "On its way.")
    outbound(tenant, "Nobody knows this one.", wa_id="919800000009")
    other, answer, question = messages(browser)
    assert "Asha R +919812345678" in question
    assert "Where is *my* order?" in question
    assert "Asha R +919812345678" in answer
    assert "On its way." in answer
    assert "Asha" not in other
    assert "+919800000009 Nobody knows this one." in other


def test_a_message_that_was_refused_at_once_is_found_among_the_failed(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    outbound(tenant, "On its way.", status="failed", error_code=131026)
    Message.objects.update(wa_id=None)
    (row,) = messages(browser, status="failed")
    assert "+919812345678 On its way." in row, "the recipient in the request"
    assert messages(browser, wa_id=WA_ID) == []
    page = browser.get(f"/console/messages?wa_id={WA_ID}").content.decode()
    assert 'href="/console/messages?status=failed">Look among the failed messages' in page
    assert "Look among the failed" not in browser.get("/console/messages").content.decode()


def test_past_retention_the_list_of_messages_shows_no_text(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    inbound(tenant, "Secret words")
    EventPayload.objects.all().delete()
    (row,) = messages(browser)
    assert "Secret words" not in row
    assert "+919812345678" in row


def test_lists_are_of_the_days_that_a_person_asks_for_in_the_zone_of_that_person(
    tenant: Tenant, browser: Client, here: PhoneNumber
) -> None:
    # Half an hour after midnight in India, it is the previous day in UTC.
    midnight = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=0, minute=0) - timedelta(days=2)
    inbound(tenant, "Early", at=midnight - timedelta(minutes=30))
    inbound(tenant, "Late", at=midnight + timedelta(minutes=30))
    day, before = str(midnight.date()), str(midnight.date() - timedelta(days=1))
    assert ["Late" in row for row in messages(browser, since=day)] == [True]
    assert ["Early" in row for row in messages(browser, until=before)] == [True]
    assert len(messages(browser, since=before, until=day)) == 2
    assert messages(browser, until=str(midnight.date() - timedelta(days=2))) == []
    for path in ("messages", "events", "deliveries", "requests"):
        for day in ("0001-01-01", "9999-12-31", "soon"):
            answer = browser.get(f"/console/{path}?since={day}&until={day}")
            assert answer.status_code == 200
            assert 'class="problem"' in answer.content.decode()


def test_a_chip_leaves_its_filter_out_and_keeps_the_others(browser: Client) -> None:
    page = text(browser, "/console/messages?direction=inbound&status=read&before=&template=")
    assert re.findall(r'<a href="([^"]+)" aria-label="([^"]+)">', page) == [
        ("/console/messages?status=read&template=", "Without Direction: From customers"),
        ("/console/messages?direction=inbound&template=", "Without Status: Read"),
    ]


def test_a_delivery_says_which_status_of_whose_message(tenant: Tenant, browser: Client) -> None:
    endpoint = verified_endpoint(tenant)
    wamid = outbound(tenant)
    for name in ("delivered", "read"):
        status(tenant, wamid, name)
    page = re.sub(r"<[^>]+>", " ", text(browser, f"/console/deliveries?endpoint={endpoint.id}"))
    for name in ("delivered", "read"):
        assert f"message.status {name}" in " ".join(page.split())


@pytest.mark.django_db
def test_the_cards_at_home_name_three_of_what_needs_attention(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.home.CONVERSATIONS_PER_PAGE", 5)
    for serial in range(6):
        at = now() - timedelta(minutes=9 - serial)
        inbound(tenant, wa_id=f"91980000010{serial}", name=f"Customer{serial}", at=at)
    for serial, state in enumerate(("connected", "disconnected", "pending", "disconnected", "connected")):
        row = number_of(tenant, waba_id="100200300400500", phone_number_id=f"2{serial}")
        PhoneNumber.objects.filter(pk=row.pk).update(
            connection_state=state, display_phone_number=f"N{serial}"
        )

    def cards() -> str:
        return " ".join(re.sub(r"<[^>]+>", " ", text(browser, "/console").partition("<main")[2]).split())

    assert "Conversations 5+ unread Customer5 Where is my order? Customer4" in cards()
    browser.get(f"{LIST}/{PNID}/919800000104")
    assert "Conversations 4+ unread" in cards()
    shown = re.findall(r"Customer\d|\bN\d", cards())
    assert shown == ["Customer5", "Customer3", "Customer2", "N2", "N3", "N1"]
    assert "Numbers 3 of 6 connected" in cards()
    monkeypatch.setattr("console.home.CONVERSATIONS_PER_PAGE", 6)
    assert "Conversations 5 unread" in cards()
    monkeypatch.setattr("console.home.CONVERSATIONS_PER_PAGE", 1)
    browser.get(f"{LIST}/{PNID}/919800000105")
    assert "0 unread Older conversations may have unread messages." in cards()


def test_a_reply_with_a_file_quotes_too() -> None:
    file = SimpleUploadedFile("a.png", b"\x89PNG", content_type="image/png")
    form = ReplyForm({"quote": "wamid.1"}, MultiValueDict({"file": [file]}))
    assert form.is_valid(), form.errors
    quoted = {"context": {"message_id": "wamid.1"}}
    assert form.message("51") == {**quoted, "type": "image", "image": {"id": "51"}}


@pytest.mark.django_db
def test_a_row_has_the_time_of_today_or_the_day_and_the_number_of_several(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=0, minute=0, second=0, microsecond=0)
    monkeypatch.setattr(
        "console.templatetags.console.now", lambda: (midnight + timedelta(hours=1)).astimezone(UTC)
    )
    before = midnight - timedelta(minutes=30)
    inbound(tenant, wa_id="919800000001", at=before)
    inbound(tenant, wa_id="919800000002", at=midnight + timedelta(minutes=30))

    def times(page: str) -> list[str]:
        return re.findall(r"<small><time[^>]*>([^<]+)", page)

    page = text(browser, LIST)
    assert times(page) == ["00:30", f"{before.day} {before:%b}"]
    assert " to +" not in page
    number_of(tenant, waba_id="100200300400501", phone_number_id="2", digits="919800000077")
    assert text(browser, LIST).count(" to +919800000001</small>") == 2


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("content_type", "megabytes"),
    [
        ("image/jpeg", 5),
        ("image/png", 5),
        ("image/webp", 100),
        ("video/mp4", 16),
        ("audio/ogg", 16),
        ("application/pdf", 100),
    ],
)
def test_a_file_may_be_as_large_as_its_kind_allows(content_type: str, megabytes: int) -> None:
    for size, is_taken in ((megabytes * MEGABYTE, True), (megabytes * MEGABYTE + 1, False)):
        file = SimpleUploadedFile("file", b"x", content_type)
        file.size = size
        form = ReplyForm({"text": ""}, MultiValueDict({"file": [file]}))
        assert form.is_valid() is is_taken
        assert is_taken or f"at most {megabytes} MB" in str(form.errors["file"])


@pytest.mark.django_db
def test_a_thread_is_divided_by_the_days_of_the_member(
    tenant: Tenant, browser: Client, here: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=0, minute=0, second=0, microsecond=0)
    monkeypatch.setattr("console.conversations.now", lambda: (midnight + timedelta(hours=1)).astimezone(UTC))
    for said, hours in (("Four", 0.5), ("Three", -0.5), ("Two", -23.5), ("One", -24.5)):
        inbound(tenant, said, at=midnight + timedelta(hours=hours))
    found = re.findall(r'<h2 class="day">([^<]+)|<p dir="auto">(One|Two|Three|Four)', text(browser, THREAD))
    earlier = midnight - timedelta(days=2)
    days = [f"{earlier.day} {earlier:%B %Y}", "Yesterday", "Today"]
    assert ["".join(each) for each in found] == [days[0], "One", days[1], "Two", "Three", days[2], "Four"]


@pytest.mark.parametrize(("role", "is_link"), [("owner", True), ("agent", False)])
@pytest.mark.django_db
def test_the_ad_of_a_customer_links_to_its_messages_for_who_may_open_them(
    tenant: Tenant, here: PhoneNumber, role: str, is_link: bool
) -> None:
    inbound(tenant, referral_source_type="ad", referral_source_id="502")
    member = browser_of(tenant, role)
    page = text(member, THREAD)
    assert "an ad" in page
    assert ("/console/messages?referral=502" in page) is is_link
    inbound(tenant, referral_source_type="ad", referral_ctwa_clid="a click")
    page = text(member, THREAD)
    assert ("an ad" in page, "?referral=" in page) == (True, False), "Meta did not name the ad"
    assert (member.get("/console/messages?referral=502").status_code == 200) is is_link


@pytest.mark.parametrize(
    ("role", "may_turn_off", "may_erase"),
    [
        ("owner", True, True),
        ("developer", True, False),
        ("agent", False, False),
        ("read_only", False, False),
    ],
)
@pytest.mark.django_db
def test_only_who_may_turn_off_or_erase_is_offered_it(
    tenant: Tenant, here: PhoneNumber, role: str, may_turn_off: bool, may_erase: bool
) -> None:
    inbound(tenant)
    member = browser_of(tenant, role)
    assert ("Turn conversations off" in text(member, LIST)) is may_turn_off
    assert ("erase …" in text(member, THREAD)) is may_erase
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert "Turn conversations off" not in text(member, LIST)
    assert "erase …" not in text(member, THREAD)
    Endpoint.objects.all().delete()
    assert "An owner or a developer can turn them on." in text(member, LIST)
    Tenant.objects.filter(pk=tenant.pk).update(status="active")
    assert ('action="/console/conversations/on"' in text(member, LIST)) is may_turn_off


@pytest.mark.parametrize(
    ("fields", "receives"),
    [
        ({}, True),
        ({"status": "paused"}, False),
        ({"verified_at": None}, False),
        ({"kind": "sqs"}, True),
        ({"environment": "test"}, False),
    ],
)
@pytest.mark.django_db
def test_turning_off_warns_unless_another_endpoint_is_verified(
    tenant: Tenant, browser: Client, here: PhoneNumber, fields: dict[str, Any], receives: bool
) -> None:
    endpoint = verified_endpoint(tenant)
    Endpoint.objects.filter(pk=endpoint.pk).update(**fields)
    assert ("You have no verified endpoint" not in text(browser, f"{LIST}/off")) is receives


def test_turning_off_in_test_says_that_the_sandbox_still_sends(tenant: Tenant, browser: Client) -> None:
    browser.post("/console/preferences", {"environment": "test"})
    browser.post(f"{LIST}/on")
    assert "Your numbers outside the sandbox cannot send until you add one" in text(browser, f"{LIST}/off")
    endpoint = endpoint_of(tenant, environment="test", verified_at=now())
    page = text(browser, f"/console/webhooks/{endpoint.pk}/delete")
    assert "the numbers there, except those of the sandbox, are no longer connected" in page
    browser.post("/console/preferences", {"environment": "live"})
    live = verified_endpoint(tenant)
    assert "the numbers there are no longer connected" in text(browser, f"/console/webhooks/{live.pk}/delete")


def test_home_says_who_waits_and_how_the_numbers_are(
    tenant: Tenant, browser: Client, stranger: Client, other_tenant: Tenant, here: PhoneNumber
) -> None:
    inbound(tenant, "Hello?", name="Asha R")
    number_of(tenant, waba_id="100200300400500", phone_number_id="2")
    PhoneNumber.objects.filter(phone_number_id="2").update(
        connection_state="disconnected", display_phone_number="+91 98000 00002"
    )
    PhoneNumber.objects.filter(pk=here.pk).update(connection_state="connected")
    home = " ".join(re.sub(r"<[^>]+>", " ", text(browser, "/console")).split())
    assert "Conversations 1 unread Asha R Hello?" in home
    assert "Numbers 1 of 2 connected +91 98000 00002" in home
    # Another tenant sees neither card's data, although it has conversations enabled.
    turn_on(other_tenant)
    theirs = text(stranger, "/console")
    assert "No customer is waiting for an answer." in theirs
    assert "Hello?" not in theirs
    assert "of 2 connected" not in theirs
    # In the other environment the card shows no unread messages. A role without access sees neither card.
    browser.post("/console/preferences", {"environment": "test"})
    assert "unread" not in text(browser, "/console")
    bills = text(browser_of(tenant, "billing"), "/console")
    assert "of 2 connected" not in bills
    assert "Hello?" not in bills
