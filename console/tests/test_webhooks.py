"""The console's webhook pages: endpoints from creation to deletion, deliveries, events, and access by role."""

import html
import re
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from django.conf import settings
from django.test import Client
from pytest_django import Settings

from gateway import ids
from gateway.clock import isoformat, now
from gateway.database import bounded_walk
from gateway.upstream.notifications.change import MessageFacts
from messaging.models import MessageTemplate
from messaging.tests.incoming import number_of
from tenants.credentials import api_keys
from tenants.models import AuditEntry, Tenant, User
from tests.browsers import browser_of, text
from tests.certificates import self_signed
from tests.one_of_each import one_of_each
from tests.pages import blocks
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.endpoints import lifecycle
from webhooks.models import Delivery, Endpoint, Event, EventPayload, Figure
from webhooks.requests import credentials, signed_request
from webhooks.templatetags import delivery_errors
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


def create(client: Client, receiver: Receiver, *types: str, **more: str) -> Any:
    return client.post(
        "/console/webhooks",
        {"url": receiver.url, "description": "shop", "event_types": types or ["message.inbound"], **more},
    )


def test_an_endpoint_is_created_pinged_and_shows_its_secret_once(browser: Client, receiver: Receiver) -> None:
    assert re.search('name="form_id" value="[^"]', text(browser, "/console/webhooks"))
    answer = create(browser, receiver, form_id="f1")
    assert "no-store" in answer["Cache-Control"]
    assert create(browser, receiver, form_id="f1").status_code == 302, "a reload creates no second one"
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", html.unescape(answer.content.decode()))
    assert secret is not None
    row = Endpoint.objects.get()
    assert (row.status, row.secret, row.event_types) == ("active", secret[0], ["message.inbound"])
    assert len(receiver.pings) == 1
    for path in ("/console/webhooks", f"/console/webhooks/{row.id}"):
        page = text(browser, path)
        assert receiver.url in page
        assert secret[0] not in page


def test_a_form_that_was_refused_can_be_corrected_and_sent_again(
    browser: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the browser's Back, the form has the same id."""
    monkeypatch.setattr(lifecycle, "MOST_ENDPOINTS", 0)
    assert create(browser, receiver, form_id="f1").status_code == 400
    monkeypatch.undo()
    page = html.unescape(create(browser, receiver, form_id="f1").content.decode())
    assert "was already sent" not in page
    assert "whsec_" in page
    assert create(browser, receiver, form_id="f1").status_code == 302
    assert Endpoint.objects.count() == 1


def test_the_audit_log_names_the_person_or_the_key_behind_a_change(
    browser: Client, tenant: Tenant, receiver: Receiver
) -> None:
    create(browser, receiver)
    row = Endpoint.objects.get()
    browser.post(f"/console/webhooks/{row.id}/pause")
    browser.post(f"/console/webhooks/{row.id}/resume")
    browser.post(f"/console/webhooks/{row.id}/secret", {"overlap_hours": "1"})
    key = api_keys.create(name="server", environment="live", tenant=tenant)
    headers = {"Authorization": f"Bearer {key.key}"}
    assert Client(headers=headers).delete(f"/v1/webhooks/{row.id}").status_code == 200
    person = User.objects.get(pk=browser.session["_auth_user_id"])
    log = AuditEntry.objects.filter(target_id=str(row.id)).order_by("id")
    assert [(entry.action.rpartition(".")[2], entry.actor_user_id) for entry in log] == [
        *((action, person.pk) for action in ("create", "update", "resume", "rotate_secret")),
        ("delete", None),
    ]
    assert log[4].details["acting_key"] == key.row.prefix
    page = text(browser, "/console/settings/audit")
    assert person.email in page
    assert f"API key {key.row.prefix}" in page


def test_a_failed_ping_shows_what_the_server_said_and_still_the_secret(
    browser: Client, receiver: Receiver
) -> None:
    receiver.ping_answer = lambda request: web.Response(status=500, text="<b>broken</b>")
    page = create(browser, receiver).content.decode()
    assert re.search(r"HTTP 500 after (&lt; )?\d+ ms \(it failed while it worked on the request\)", page)
    assert "&lt;b&gt;broken" in page
    row = Endpoint.objects.get()
    assert row.status == "pending"
    assert f"WEBHOOK_SECRET='{row.secret}' python" in html.unescape(page)
    again = browser.post(f"/console/webhooks/{row.id}/verify").content.decode()
    assert "HTTP 500" in again
    receiver.ping_answer = lambda request: web.json_response({"challenge": request.json["challenge"]})
    browser.post(f"/console/webhooks/{row.id}/verify")
    row.refresh_from_db()
    assert row.status == "active"


def test_a_form_of_the_other_environment_changes_nothing(browser: Client, receiver: Receiver) -> None:
    """The business has two tabs open. One switches to test, and the other still shows live."""
    form = {"url": receiver.url, "event_types": ["message.inbound"], "for_environment": "live"}
    browser.post("/console/preferences", {"environment": "test"})
    came_from = {"Referer": "http://testserver/console/webhooks?x=1"}
    answer = browser.post("/console/webhooks", form, headers=came_from)
    assert answer.status_code == 409
    page = html.unescape(answer.content.decode())
    assert "Switch to Live and go back" in page
    assert 'value="/console/webhooks?x=1"' in page
    assert not Endpoint.objects.exists()
    for referer in ("https://elsewhere.example/x", "http://[1"):
        strange = browser.post("/console/webhooks", form, headers={"Referer": referer})
        assert 'name="next" value="/console"' in strange.content.decode()
    browser.post("/console/preferences", {"environment": "live"})
    assert browser.post("/console/webhooks", form).status_code == 200
    assert Endpoint.objects.get().environment == "live"


def test_a_business_that_waits_for_approval_has_endpoints_only_in_its_sandbox(
    browser: Client, tenant: Tenant, receiver: Receiver, settings: Settings
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status="pending_approval")
    browser.post("/console/preferences", {"environment": "live"})
    assert create(browser, receiver).status_code == 403
    page = text(browser, "/console/webhooks")
    assert "choose “Test” at the top" in page
    assert "Create and ping it" not in page
    browser.post("/console/preferences", {"environment": "test"})
    assert "Create and ping it" in text(browser, "/console/webhooks")
    create(browser, receiver)
    row = Endpoint.objects.get()
    assert (row.environment, row.status) == ("test", "active")
    settings.ACCOUNT_RATE_LIMITS = {"call_while_waiting": "2/h/key"}
    for _ in range(3):
        page = browser.post(f"/console/webhooks/{row.id}/verify", follow=True).content.decode()
    assert "has called its endpoints too often" in page
    assert len(receiver.pings) == 3, "one at the creation, two within the limit"
    Tenant.objects.filter(pk=tenant.pk).update(status="active")
    # The approval has switched the console to live, so test is chosen again.
    browser.post("/console/preferences", {"environment": "test"})
    browser.post(f"/console/webhooks/{row.id}/verify")
    assert len(receiver.pings) == 4


def test_a_wrong_url_is_explained_and_nothing_is_created(browser: Client) -> None:
    wrong = {"ftp://example.com/x": "https", "": "required", "https://user@example.com": "user"}
    for url, words in wrong.items():
        answer = browser.post("/console/webhooks", {"url": url, "event_types": ["*"]})
        assert answer.status_code == 400, url
        assert words in answer.content.decode(), url
    assert not Endpoint.objects.exists()


def test_pause_resume_change_rotate_and_delete(browser: Client, receiver: Receiver) -> None:
    create(browser, receiver)
    row = Endpoint.objects.get()
    browser.post(f"/console/webhooks/{row.id}/pause")
    row.refresh_from_db()
    assert row.status == "paused"
    browser.post(f"/console/webhooks/{row.id}/resume")
    row.refresh_from_db()
    assert row.status == "active"
    changed = {"url": receiver.url, "description": "till", "event_types": ["*"]}
    assert browser.post(f"/console/webhooks/{row.id}/change", changed).status_code == 302
    old = row.secret
    rotates = f"/console/webhooks/{row.id}/secret", {"overlap_hours": "1", "form_id": "f1"}
    page = browser.post(*rotates).content.decode()
    assert "was already sent" in browser.post(*rotates, follow=True).content.decode()
    row.refresh_from_db()
    assert (row.description, row.event_types) == ("till", ["*"])
    assert row.secret != old
    assert f"WEBHOOK_SECRET='{row.secret}' python" in html.unescape(page)
    assert row.previous_secret == old
    assert "The old secret also signs" in text(browser, f"/console/webhooks/{row.id}")
    Endpoint.objects.update(previous_secret_expires_at=now())
    assert "The old secret" not in text(browser, f"/console/webhooks/{row.id}")
    browser.post(f"/console/webhooks/{row.id}/delete")
    assert not Endpoint.objects.exists()


SETTINGS = {
    "phone_number_ids": "1001, 1002",
    "waba_ids": "2001",
    "statuses": ["failed"],
    "headers": "X-Api-Key: s3cret\nX-Shop: asha",
    "timeout_seconds": "5",
    "rate_per_second": "10",
    "ordered": "on",
    "uid": "shop-1",
    "metadata": "team: orders",
}


def test_an_endpoint_that_is_deleted_while_its_secret_is_rotated_is_not_found(
    browser: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(browser, receiver)
    row, rotate = Endpoint.objects.get(), lifecycle.rotate_secret

    def deleted_first(**given: Any) -> Endpoint:
        Endpoint.objects.for_environment(given["tenant_id"], given["environment"]).filter(pk=row.pk).delete()
        return rotate(**given)

    monkeypatch.setattr(lifecycle, "rotate_secret", deleted_first)
    answer = browser.post(f"/console/webhooks/{row.pk}/secret", {"overlap_hours": "1"})
    assert answer.status_code == 404


def test_every_setting_is_stored_and_changed_one_by_one(browser: Client, receiver: Receiver) -> None:
    basic = {"url": receiver.url, "description": "shop", "event_types": ["message.inbound"]}
    browser.post("/console/webhooks", {**basic, **SETTINGS})
    row = Endpoint.objects.get()
    assert (row.phone_number_ids, row.waba_ids, row.statuses) == (["1001", "1002"], ["2001"], ["failed"])
    assert (row.timeout_seconds, row.rate_per_second, row.ordered, row.uid) == (5, 10, True, "shop-1")
    assert row.metadata == {"team": "orders"}
    path = f"/console/webhooks/{row.id}/change"
    page = text(browser, path)
    assert "s3cret" not in page
    assert "X-Api-Key: ***" in page
    masked = {
        **basic,
        **SETTINGS,
        "headers": "X-Api-Key: ***\n \nX-New: 1",
        "phone_number_ids": "",
        "uid": "",
    }
    assert browser.post(path, masked).status_code == 302
    row.refresh_from_db()
    assert signed_request.unpacked_headers(row.headers) == {"X-Api-Key": "s3cret", "X-New": "1"}
    assert (row.phone_number_ids, row.uid, row.waba_ids) == (None, None, ["2001"])
    entry = AuditEntry.objects.filter(action="webhook_endpoint.update").latest("id")
    assert entry.details["changed"] == ["headers", "phone_number_ids", "uid"]


def test_a_form_changes_only_what_the_member_changed(browser: Client, receiver: Receiver) -> None:
    """The API has stored notes that cannot be typed as lines."""
    create(browser, receiver)
    row = Endpoint.objects.get()
    notes = {"crm:team": "orders", "lines": "one\n\ntwo: 2", "empty": ""}
    Endpoint.objects.update(metadata=notes, retry_schedule="5 30")
    path = f"/console/webhooks/{row.id}/change"
    shown = re.search(r'<textarea name="metadata"[^>]*>\n(.*?)</textarea>', text(browser, path), re.DOTALL)
    assert shown is not None
    form = {"url": receiver.url, "event_types": ["message.inbound"], "retry_schedule": "5, 30"}
    form["metadata"] = shown[1].replace("\n", "\r\n")
    for changed, stored in (
        ({"description": "till"}, notes),
        ({"metadata": f"{form['metadata']}\r\nnew: 1"}, {**notes, "new": "1"}),
    ):
        assert browser.post(path, {**form, "description": "shop", **changed}).status_code == 302
        entry = AuditEntry.objects.filter(action="webhook_endpoint.update").latest("id")
        assert entry.details["changed"] == list(changed)
        row.refresh_from_db()
        assert (row.metadata, row.retry_schedule) == (stored, "5 30")
        Endpoint.objects.update(description="shop")
    answer = browser.post(path, {**form, "retry_schedule": "9" * 5_000})
    assert "Give whole seconds" in answer.content.decode()


def test_a_form_keeps_what_another_member_changed_since_it_was_opened(
    browser: Client, receiver: Receiver
) -> None:
    create(browser, receiver)
    row = Endpoint.objects.get()
    path = f"/console/webhooks/{row.id}/change"
    page = text(browser, path)
    assert page.index('<button type="submit" hidden>Save') < page.index('name="preview"'), "Enter saves"
    opened = dict(re.findall(r'name="(initial-[^"]+)" value="([^"]*)"', page))
    changed = {"event_types": ["*"], "statuses": ["read"], "timeout_seconds": 5, "uid": "shop-1"}
    Endpoint.objects.update(**changed)
    form = {"url": receiver.url, "event_types": ["message.inbound"], "description": "till"}
    assert browser.post(path, {**opened, **form}).status_code == 302
    row.refresh_from_db()
    assert {name: getattr(row, name) for name in changed} == changed
    assert row.description == "till"


def test_what_an_endpoint_authenticates_with_is_stored_masked_and_kept(
    browser: Client, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer = lambda _: web.json_response({"access_token": "t"})
    ca = "-----BEGIN" + self_signed(tmp_path).read_text().split("-----BEGIN")[2]
    basic = {"url": receiver.url, "event_types": ["message.inbound"]}
    given = {
        "tls_ca": ca,
        "oauth2_token_url": f"{receiver.url}/token",
        "oauth2_client_id": "gateway",
        "oauth2_client_secret": "s3cret",
        "asymmetric_signature": "on",
        "retry_schedule": "5, 30",
        "batch_events": "50",
    }
    browser.post("/console/webhooks", {**basic, **given})
    row = Endpoint.objects.get()
    stored = credentials.unpacked(row.credentials)
    assert stored.oauth2 == credentials.OAuth2(f"{receiver.url}/token", "gateway", "s3cret")
    assert (stored.tls, row.retry_schedule) == (credentials.Tls(ca=ca.strip()), "5 30")
    page = text(browser, f"/console/webhooks/{row.id}")
    assert stored.public_key is not None
    assert (row.batch_events, row.batch_milliseconds) == (50, 200)
    for shown in (stored.public_key, f"{receiver.url}/token", "5, 30 s", "up to 50 events in a request"):
        assert shown in page
    path = f"/console/webhooks/{row.id}/change"
    assert "s3cret" not in text(browser, path)
    pings = len(receiver.pings)
    kept = {**basic, **given, "oauth2_client_secret": "***", "tls_ca": "", "retry_schedule": ""}
    kept["batch_milliseconds"] = "200"
    assert browser.post(path, kept).status_code == 302
    row.refresh_from_db()
    changed = credentials.unpacked(row.credentials)
    assert (changed.oauth2, changed.seed, changed.tls) == (stored.oauth2, stored.seed, None)
    assert (row.retry_schedule, len(receiver.pings)) == (None, pings + 1)
    entry = AuditEntry.objects.filter(action="webhook_endpoint.update").latest("id")
    assert entry.details["changed"] == ["retry_schedule", "tls"]
    answer = browser.post(f"/console/webhooks/{row.id}/secret", {"overlap_hours": "0", "secret": "whsec_x"})
    assert (answer.status_code, Endpoint.objects.get().secret) == (400, row.secret)


def test_a_filter_is_previewed_in_its_form_and_not_saved(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver)
    row = Endpoint.objects.get()
    publish_one(tenant)
    form = {"url": receiver.url, "event_types": ["message.inbound"], "preview": "yes"}
    for given, words in (
        ('{"type": "message.inbound"}', "<strong>1</strong> of the newest 1 events pass."),
        ('{"type": "message.echo"}', "<strong>0</strong> of the newest 1 events pass."),
        ('{"data.a": {"$odd": 1}}', "$odd"),
    ):
        page = browser.post(f"/console/webhooks/{row.id}/change", {**form, "filter": given}).content.decode()
        assert words in html.unescape(page), re.findall(r"errorlist.*|id=.preview.*", page)
        assert ("events pass" in page) is ("pass" in words)
    row.refresh_from_db()
    assert row.filter is None


WRONG_SETTINGS: list[tuple[dict[str, str], str]] = [
    ({"tls_client_key": "no pem"}, "go together"),
    ({"oauth2_client_id": "a"}, "This field is required."),
    ({"retry_schedule": "soon"}, "Give whole seconds"),
    ({"headers": "Host: evil"}, "set by the service"),
    ({"headers": "no colon"}, "Write “name: value”"),
    ({"headers": "X-A: ***"}, "No value of `X-A` is stored"),
    ({"metadata": "a: 1\na: 2"}, "appears twice"),
    ({"phone_number_ids": "+91"}, "digits only"),
    ({"timeout_seconds": "31"}, "less than or equal to 30"),
    ({"batch_milliseconds": "9"}, "This field is required."),
    ({"batch_events": "5", "ordered": "on"}, "sends one event after another"),
    ({"format": "meta"}, "the handshake shows it"),
    ({"verify_token": "t"}, "Only endpoints with"),
]


def test_a_wrong_setting_is_explained_beside_its_field(browser: Client, receiver: Receiver) -> None:
    for wrong, words in WRONG_SETTINGS:
        body = {"url": receiver.url, "event_types": ["message.inbound"], **wrong}
        answer = browser.post("/console/webhooks", body)
        assert answer.status_code == 400, wrong
        page = html.unescape(answer.content.decode())
        assert words in page, wrong
        assert "<details open><summary>More settings" in page, wrong
    assert not Endpoint.objects.exists()


def test_an_open_page_is_notified_only_of_its_own_environments_events(
    browser: Client, stranger: Client, tenant: Tenant
) -> None:
    def news(client: Client, seen: str | None) -> tuple[bool, str]:
        headers = {"Last-Event-ID": seen} if seen else {}
        answer = client.get("/console/live", headers=headers)
        assert answer["Content-Type"] == "text/event-stream"
        body = answer.content.decode()
        place = re.search(r"^id: (\S+)$", body, re.MULTILINE)
        assert place is not None
        return "event: news" in body, place[1]

    is_new, begin = news(browser, None)
    assert not is_new
    _, others = news(stranger, None)
    publish_one(tenant)
    is_new, seen = news(browser, begin)
    assert is_new
    assert not news(browser, seen)[0], "it is reported once"
    assert not news(browser, "nonsense")[0]
    assert not news(stranger, others)[0]
    browser.post("/console/preferences", {"environment": "test"})
    assert not news(browser, begin)[0]


def test_an_open_page_is_notified_of_what_happened_since_it_was_opened(
    browser: Client, stranger: Client, tenant: Tenant
) -> None:
    def path(client: Client) -> str:
        found = re.search(r'data-live="(\S+)"', client.get("/console/events").content.decode())
        assert found is not None
        return found[1]

    def is_new(client: Client, path: str) -> bool:
        return "event: news" in client.get(path).content.decode()

    opened, others = path(browser), path(stranger)
    assert not is_new(browser, opened)
    event_id = publish_one(tenant)
    assert is_new(browser, opened)
    assert not is_new(stranger, others)
    assert not is_new(browser, f"/console/live?after={UUID(int=event_id.int + 1)}")
    assert not is_new(browser, "/console/live?after=nonsense")
    browser.post("/console/preferences", {"environment": "test"})
    assert not is_new(browser, opened)


def test_an_open_page_is_also_refreshed_if_too_many_other_events_hide_its_own(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `MOST_WALKED` events are read: an event before them may be one of the page's environment."""
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", 2)
    path = f"/console/live?after={ids.first_at(now())}"
    publish_one(tenant, "first", environment="test")
    assert "event: news" not in browser.get(path).content.decode()
    publish_one(tenant, "second", environment="test")
    assert "event: news" in browser.get(path).content.decode()


def test_the_test_phone_follows_the_sandbox_while_its_person_looks_at_live(
    browser: Client, stranger: Client, tenant: Tenant
) -> None:
    path = "/console/live?environment=test"
    begin = re.search(r"^id: (\S+)$", browser.get(path).content.decode(), re.MULTILINE)
    assert begin is not None
    headers = {"Last-Event-ID": begin[1]}
    publish_one(tenant)
    assert "event: news" not in browser.get(path, headers=headers).content.decode()
    publish_one(tenant, "k2", environment="test")
    assert "event: news" in browser.get(path, headers=headers).content.decode()
    assert "event: news" not in stranger.get(path, headers=headers).content.decode()


def test_an_example_event_shows_what_the_endpoint_said(browser: Client, receiver: Receiver) -> None:
    create(browser, receiver)
    receiver.answer = lambda request: web.Response(status=503, text="later")
    path = f"/console/webhooks/{Endpoint.objects.get().id}/example"
    page = browser.post(path, {"event_type": "message.status"}).content.decode()
    assert "HTTP 503" in page
    assert "later" in page
    assert receiver.received[0].json["test"] is True
    assert not Event.objects.exists()


def test_a_delivery_shows_its_attempts_and_is_sent_again(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver, "*")
    receiver.answer = lambda request: web.Response(status=500, text="out of order")
    publish_one(tenant)
    dispatcher.run()
    row = Delivery.objects.get()
    assert row.public_id in text(browser, "/console/deliveries?status=failed")
    assert row.public_id not in text(browser, "/console/deliveries?status=delivered")
    page = text(browser, f"/console/deliveries/{row.public_id}")
    for words in ("HTTP 500", "out of order", receiver.url):
        assert words in page
    receiver.answer = lambda request: web.Response(text="ok")
    answer = browser.post(f"/console/deliveries/{row.public_id}/again", follow=True)
    assert "Delivered: HTTP 200" in answer.content.decode()
    again = Delivery.objects.get(replay_of=row.id)
    assert again.status == "delivered"
    assert answer.redirect_chain == [(f"/console/deliveries/{again.public_id}", 302)]


def test_a_delivery_that_fails_again_says_so_and_a_suspended_business_sends_none(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver, "*")
    receiver.answer = lambda request: web.Response(status=500)
    publish_one(tenant)
    dispatcher.run()
    path = f"/console/deliveries/{Delivery.objects.get().public_id}/again"
    page = browser.post(path, follow=True).content.decode()
    assert "did not accept it" in page
    assert "Delivered: HTTP" not in page
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert browser.post(path).status_code == 403
    assert Delivery.objects.count() == len(receiver.received) == 2


@pytest.mark.parametrize(
    ("error", "words", "again"),
    [
        ("timeout", "answer 2xx at once", True),
        ("endpoint_disabled", "Repair your server, then verify the endpoint.", True),
        ("payload_expired", "It cannot be sent any more.", False),
        ("endpoint_deleted", "Another endpoint can get the event", False),
    ],
)
def test_a_delivery_that_failed_says_what_repairs_it_and_offers_no_vain_button(
    browser: Client, receiver: Receiver, tenant: Tenant, error: str, words: str, again: bool
) -> None:
    create(browser, receiver)
    publish_one(tenant)
    row = Delivery.objects.get()
    Delivery.objects.update(status="dead", last_error=error, next_attempt_at=None)
    if error == "payload_expired":
        EventPayload.objects.all().delete()
    if error == "endpoint_deleted":
        browser.post(f"/console/webhooks/{row.endpoint_id}/delete")
    page = text(browser, f"/console/deliveries/{row.public_id}")
    assert words in page
    assert ("Send it again now" in page) is again


def test_a_delivery_whose_body_is_past_retention_is_not_sent_again_and_says_why(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver)
    publish_one(tenant)
    Delivery.objects.update(status="delivered", last_http_status=200, next_attempt_at=None)
    path = f"/console/deliveries/{Delivery.objects.get().public_id}"
    assert "Send it again now" in text(browser, path)
    EventPayload.objects.all().delete()
    assert "Send it again now" not in text(browser, path)
    answer = browser.post(f"{path}/again", follow=True)
    assert answer.redirect_chain == [(path, 302)]
    assert "The body of this event is past retention." in answer.content.decode()
    assert receiver.received == []


def test_an_error_without_words_is_named() -> None:
    assert delivery_errors.in_words("an_error_of_tomorrow") == "an_error_of_tomorrow"


def test_an_event_shows_its_body_and_its_deliveries(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver, "*")
    publish_one(tenant, raw=b'{"object": "whatsapp_business_account"}')
    event = Event.objects.get()
    assert event.public_id in text(browser, f"/console/events?type={event.type}")
    page = text(browser, f"/console/events/{event.public_id}")
    assert receiver.url in page
    Event.objects.update(wa_id="919812345678", display_phone_number="919800000001")
    for number in ("%2B91 98123-45678", "98123 45678", "919812345678"):
        typed = text(browser, f"/console/events?wa_id={number}")
        assert all(shown in typed for shown in (event.public_id, "+919812345678", "+919800000001"))
    assert event.public_id not in text(browser, "/console/events?wa_id=%2B98123 45678")
    assert event.public_id not in text(browser, "/console/events?wa_id=919812345679")
    assert "with its country code" in text(browser, "/console/events?wa_id=asha")
    for half, text_of in (("data", "What you get."), ("raw", "As Meta sent it.")):
        assert f'name="body" value="{half}"' in page
        assert text_of in page
    publish_one(tenant, "own", raw_path=None)
    publish_one(tenant, "in an erased notification")
    _, own, of_erased = Event.objects.order_by("id")
    for shown, title in ((own, "The gateway created this event itself"), (of_erased, "was erased.")):
        page = text(browser, f"/console/events/{shown.public_id}")
        assert title in page
        assert "As Meta sent it." not in page


def test_a_missing_body_is_past_retention_only_after_the_retention(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_one(tenant, wa_id="919812345678", message=MessageFacts(direction="inbound", is_message=True))
    EventPayload.objects.all().delete()
    event = Event.objects.get()
    paths = (f"/console/events/{event.public_id}", f"/console/messages/{event.wamid}")
    for path in paths:
        page = text(browser, path)
        assert "past your retention" not in page
        assert "was deleted: it was erased on request" in page
    after = now() + timedelta(days=tenant.retention_days)
    monkeypatch.setattr("console.events.now", lambda: after)
    for path in paths:
        assert f"is past your retention of {tenant.retention_days} days." in text(browser, path)


def test_an_event_that_came_while_its_endpoint_was_paused_says_why_it_has_no_delivery(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver, "*")
    endpoint = f"/console/webhooks/{Endpoint.objects.get().id}"
    browser.post(f"{endpoint}/pause")
    publish_one(tenant)
    path = f"/console/events/{Event.objects.get().public_id}"
    page = text(browser, path)
    assert "No endpoint is set to get this event" not in page
    assert "when the event came, no endpoint that is set to get it was active" in page
    assert "choose “Never sent”" in page
    browser.post(f"{endpoint}/resume")
    form = {"hours": "2", "status": ["missed"]}
    page = browser.post(f"{endpoint}/recover", form).content.decode()
    assert "Send 1 again" in page


def test_recovering_counts_before_it_queues(browser: Client, receiver: Receiver, tenant: Tenant) -> None:
    create(browser, receiver, "*")
    publish_one(tenant)
    Delivery.objects.update(status="dead")
    path = f"/console/webhooks/{Endpoint.objects.get().id}/recover"
    page = html.unescape(browser.post(path, {"hours": "2", "status": ["dead"]}).content.decode())
    counting, confirming = re.findall(rf'action="{path}#recover">(.*?)</form>', page, re.DOTALL)
    assert 'name="confirmed"' not in counting, "what is typed after the count is not confirmed"
    assert "Send 1 again" in confirming
    publish_one(tenant, "after the count")
    Delivery.objects.update(status="dead")
    given = dict(re.findall(r'type="hidden" name="(since|until|status)" value="([^"]+)"', confirming))
    assert given["status"] == "dead"
    answer = browser.post(path, {**given, "confirmed": "yes"}, follow=True)
    assert "1 delivery is queued" in answer.content.decode()


def test_recovering_takes_a_period_in_the_time_zone_of_the_person(
    browser: Client, receiver: Receiver, tenant: Tenant
) -> None:
    create(browser, receiver, "*")
    publish_one(tenant)
    Delivery.objects.update(status="dead")
    path = f"/console/webhooks/{Endpoint.objects.get().id}/recover"

    def counted(since: timedelta, until: timedelta, zone: str) -> bool:
        moments = [f"{(now() + away).astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M}" for away in (since, until)]
        period = dict(zip(("since", "until"), moments, strict=True))
        return "Send 1 again" in browser.post(path, {**period, "status": ["dead"]}).content.decode()

    hour = timedelta(hours=1)
    assert counted(-hour, hour, "Asia/Kolkata"), "Indian time until a person switches"
    assert not counted(-3 * hour, -hour, "Asia/Kolkata")
    browser.post("/console/preferences", {"time_zone": "UTC"})
    assert counted(-hour, hour, "UTC")
    assert not counted(-hour, hour, "Asia/Kolkata"), "read as UTC it has not begun"
    for wrong, words in (
        ({"until": "2026-11-22T10:00"}, "Enter a start."),
        ({"since": "2999-01-01T00:00"}, "The start must be before the end."),
        ({}, "Enter a number of hours, or a start."),
        ({"hours": "8760"}, "The range must not be longer than the retention (90 days)."),
    ):
        answer = browser.post(path, {**wrong, "status": ["dead"]})
        assert answer.status_code == 400
        assert words in answer.content.decode()
        assert answer.context["recover_form"]["status"].value() == ["dead"]


def test_another_tenant_and_the_other_environment_see_nothing(
    browser: Client, receiver: Receiver, tenant: Tenant, stranger: Client
) -> None:
    create(browser, receiver, "*")
    publish_one(tenant)
    row, delivery, event = Endpoint.objects.get(), Delivery.objects.get(), Event.objects.get()
    browser.post("/console/preferences", {"environment": "test"})
    for client in (stranger, browser):
        for path in ("/console/webhooks", "/console/deliveries", "/console/events"):
            page = text(client, path)
            for secret in (receiver.url, delivery.public_id, event.public_id):
                assert secret not in page
        for path in (f"/console/deliveries/{delivery.public_id}", f"/console/events/{event.public_id}"):
            assert client.get(path).status_code == 404
        assert client.get(f"/console/webhooks/{row.id}").status_code == 404
        assert client.post(f"/console/deliveries/{delivery.public_id}/again").status_code == 404
        for action in ("verify", "resume", "pause", "example", "secret", "recover", "delete", "change"):
            assert client.post(f"/console/webhooks/{row.id}/{action}").status_code == 404
    row.refresh_from_db()
    assert row.status == "active"


def test_the_receivers_shown_are_those_that_the_documentation_tests() -> None:
    shown = (settings.BASE_DIR / "templates/console/webhooks/receiver.html").read_text()
    codes = [
        html.unescape(code) for code in re.findall(r"</summary><pre.*?><code>(.*?)</code>", shown, re.DOTALL)
    ]
    assert codes == [blocks("docs/webhooks.md", "python")[0], blocks("docs/webhooks.md", "js")[0]]


@pytest.mark.usefixtures("within_half_an_hour")
def figure(owner: Tenant, **values: Any) -> None:
    """Create a count of this hour."""
    hour = int(now().timestamp()) // 3600
    counted = {"environment": "live", "hour": hour, "phone_number_id": "1", "template": "", "value": ""}
    Figure.objects.create(tenant_id=owner.id, **{**counted, **values})


def days(page: str) -> list[list[str]]:
    """The days of the table of figures as displayed, each with its date and its figures."""
    return [re.findall("<td[^>]*>([^<]*)", row) for row in re.findall('<tr><td class="short">.*?</tr>', page)]


def test_figures_count_days_and_show_the_tenants_own_alone(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for owner, environment, count in ((tenant, "live", 41), (tenant, "test", 52), (other_tenant, "live", 63)):
        for measure in ("sent", "delivered"):
            sent = {"direction": "outbound", "measure": measure, "count": count}
            figure(owner, environment=environment, **sent)
    page = text(browser, "/console/figures")
    assert '<td class="amount">41</td>' in page
    assert '<td class="amount">52</td>' not in page
    assert '<td class="amount">63</td>' not in page
    assert page.count('<tr><td class="short">') == 7
    midnight = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=0, minute=0, second=0, microsecond=0)
    across = int(midnight.timestamp()) // 3600
    for at, count in ((across, 17), (across - 1, 19)):
        figure(tenant, hour=at, direction="inbound", measure="received", count=count)
    shown = [day[:2] for day in days(text(browser, "/console/figures"))]
    yesterday = midnight - timedelta(days=1)
    assert shown[:2] == [[f"{midnight:%-d %b %Y}", "17"], [f"{yesterday:%-d %b %Y}", "19"]], "days of India"
    assert "days of IST" in page
    assert text(browser, "/console/figures?days=30").count('<tr><td class="short">') == 30
    assert text(browser, "/console/figures?days=999").count('<tr><td class="short">') == 7
    for measure, value, count in (("delivered", "", 7), ("failed", "", 2), ("delivered_ms", "250", 7)):
        figure(tenant, direction="webhook", measure=measure, value=value, count=count)
    webhooks = text(browser, "/console/figures").partition("<h2>Webhook deliveries</h2>")[2]
    today = f"{midnight:%-d %B}"
    for title in (f"7 delivered on {today}", f"2 failed on {today}", f"250 ms on {today}"):
        assert f"<title>{title}</title>" in webhooks
    home = text(browser, "/console")
    assert "the highest bar is 41 a day" in home
    assert home.count('height="120"') == 2, "the bars of 41 sent and 41 delivered reach the top"
    assert "Messages of the last 7 days" not in text(browser_of(tenant, "billing"), "/console")


def test_the_filters_of_figures_offer_some_numbers_and_the_chosen_one(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.analytics.MOST_CHOICES", 1)
    for number in ("7001", "7002", "7003"):
        number_of(tenant, waba_id="100200300400500", phone_number_id=number)
    page = text(browser, "/console/figures?phone_number_id=7003")
    offered = re.findall(r'<option value="(700\d)"( selected)?', page)
    assert offered == [("7001", ""), ("7003", " selected")]


@pytest.mark.django_db
def test_figures_without_their_days_are_still_filtered(browser: Client, tenant: Tenant) -> None:
    for number, count in (("7001", 3), ("7002", 5)):
        number_of(tenant, waba_id="100200300400500", phone_number_id=number)
        figure(tenant, direction="outbound", measure="sent", count=count, phone_number_id=number)
    page = text(browser, "/console/figures?days=30&phone_number_id=7001&template=")
    assert "The filter applies to messages. Webhook deliveries are those of all numbers." in page
    assert "Webhook deliveries are those of all numbers." not in text(browser, "/console/figures?days=30")
    without = re.search(r'<a href="([^"]+)" aria-label="Without Show: 30 days"', page)
    assert without is not None
    page = text(browser, without[1])
    assert "required" not in page
    assert sorted(day[2] for day in days(page)) == [*["0"] * 6, "3"]
    file = b"".join(browser.get(f"/console/figures/export.csv?{urlsplit(without[1]).query}")).decode()
    assert [line.split(",")[1] for line in file.splitlines()[1:]] == ["7001"]


@pytest.mark.parametrize(
    ("fields", "badge", "note", "buttons"),
    [
        ({"status": "active"}, "Active", None, ["Verify", "Pause"]),
        (
            {"status": "active", "consecutive_failures": 1},
            "Active",
            "Its last",
            ["Verify", "Resume", "Pause"],
        ),
        (
            {"status": "active", "circuit_open_until": now() + timedelta(hours=1)},
            "Failing",
            "It is failing",
            ["Verify", "Resume", "Pause"],
        ),
        ({"status": "pending"}, "Not verified", "It is not verified", ["Verify"]),
        (
            {"status": "paused"},
            "Paused",
            "It is paused. Deliveries that already wait stay, but new events are not queued",
            ["Verify", "Resume"],
        ),
        ({"status": "disabled", "disabled_at": now()}, "Disabled", "It was disabled", ["Verify"]),
    ],
)
@pytest.mark.django_db
def test_an_endpoint_says_its_state_and_has_its_buttons(
    browser: Client, tenant: Tenant, fields: dict[str, Any], badge: str, note: str | None, buttons: list[str]
) -> None:
    made = {"url": "https://shop.example/", "event_types": ["*"], **fields}
    row = Endpoint.objects.create(tenant=tenant, environment="live", **made)
    state = (
        text(browser, f"/console/webhooks/{row.id}").partition('id="state"')[2].partition('class="cards"')[0]
    )
    assert re.findall(r'class="badge \w+">([^<]+)', state) == [badge]
    notes = re.findall(r'<div class="note \w+"><p>([^<]+)', state)
    assert [each[: len(note or "")] for each in notes] == ([note] if note else [])
    assert re.findall(r"<button[^>]*>([^<]+)", state) == buttons


@pytest.mark.django_db
def test_events_and_deliveries_say_what_became_of_them(browser: Client, tenant: Tenant) -> None:
    endpoint = Endpoint.objects.create(
        tenant=tenant, environment="live", url="https://shop.example/", event_types=["*"], status="active"
    )
    event = one_of_each(tenant).event
    Event.objects.create(
        tenant_id=tenant.id,
        type="message.inbound",
        dedupe_key="k",
        payload_expires_on=event.payload_expires_on,
    )
    Delivery.objects.all().delete()
    at = now() + timedelta(hours=2)
    log = [{"at": isoformat(at), "http_status": status, "ms": 5, "error": None} for status in (500, 429, 204)]
    counts = {"delivered": 1, "pending": 2, "failed": 3, "dead": 4}
    for status in [status for status, count in counts.items() for _ in range(count)]:
        Delivery.objects.create(
            tenant_id=tenant.id,
            endpoint_id=endpoint.id,
            event_id=event.id,
            event_type=event.type,
            status=status,
            next_attempt_at=at,
            attempt_log=log,
        )
    rows = re.findall(r'<td class="state">(.*?)</td>', text(browser, "/console/events"))
    assert [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in rows] == [
        "–",
        "1 delivered 2 waiting 3 failed 4 given up",
    ]
    for status, badge, waits in (
        ("delivered", "Delivered", False),
        ("pending", "Waiting", True),
        ("failed", "Failed, retried", True),
        ("dead", "Given up", False),
    ):
        row = Delivery.objects.filter(status=status).first()
        assert row is not None
        page = text(browser, f"/console/deliveries/{row.public_id}").partition("<main")[2]
        assert re.findall(r'class="badge[^"]*">([^<]+)', page) == [badge]
        assert ("Next attempt</dt>" in page and "(in 2 hours)" in page) is waits
        assert re.findall(r'<li class="(\w+)"><p><strong>HTTP (\d+)', page) == [
            ("ok", "204"),
            ("bad", "429"),
            ("bad", "500"),
        ]


@pytest.mark.django_db
def test_home_warns_of_own_endpoints_that_fail_or_were_disabled(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for serial, (owner, environment, status, is_failing) in enumerate(
        (
            (tenant, "live", "disabled", False),
            (tenant, "live", "active", True),
            (tenant, "live", "active", False),
            (tenant, "live", "paused", True),
            (tenant, "live", "pending", True),
            (tenant, "test", "disabled", False),
            (other_tenant, "live", "disabled", False),
        )
    ):
        Endpoint.objects.create(
            tenant=owner,
            environment=environment,
            url=f"https://{serial}.example/",
            event_types=["*"],
            status=status,
            circuit_open_until=now() if is_failing else None,
        )
    found = re.findall(
        r'<div class="note (\w+)"><p>https://(\d).example/ (.+?) <a href="[^"]+">([^<]+)',
        text(browser, "/console"),
    )
    assert found == [
        ("bad", "1", "is failing. Its deliveries wait and are retried.", "See why"),
        ("bad", "0", "was disabled: it gets no events.", "Repair it"),
    ]


@pytest.mark.django_db
def test_the_newest_day_of_figures_is_the_day_of_the_member(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour after midnight in India, it is still the day before in UTC."""
    at = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=1, minute=0)
    monkeypatch.setattr("console.analytics.now", lambda: at.astimezone(UTC))
    figure(tenant, hour=int(at.timestamp()) // 3600, direction="outbound", measure="sent", count=3)
    newest, *older = days(text(browser, "/console/figures"))
    assert (newest[0], newest[2]) == (f"{at:%-d %b %Y}", "3")
    assert {day[2] for day in older} == {"0"}
    assert f"3 sent on {at:%-d %B}" in text(browser, "/console")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("at", "first"),
    [
        # The clocks went back on 1 November, and forward on 8 March.
        (datetime(2026, 11, 6, 4, 30, tzinfo=UTC), date(2026, 10, 30)),
        (datetime(2026, 3, 10, 4, 30, tzinfo=UTC), date(2026, 3, 4)),
    ],
)
def test_figures_begin_on_the_first_day_when_the_clocks_change(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, at: datetime, first: date
) -> None:
    zone = ZoneInfo("America/New_York")
    User.objects.filter(tenant=tenant).update(time_zone=zone.key)
    monkeypatch.setattr("console.analytics.now", lambda: at)
    monkeypatch.setattr("console.exports.now", lambda: at)
    for back, count in ((0, 3), (1, 5)):
        day = datetime.combine(first - timedelta(days=back), time(12), zone)
        hour = int(day.timestamp()) // 3600
        figure(tenant, hour=hour, direction="outbound", measure="sent", count=count)
    shown = days(text(browser, "/console/figures?days=7"))
    assert (shown[-1][0], shown[-1][2]) == (f"{first:%-d %b %Y}", "3")
    lines = b"".join(browser.get("/console/figures/export.csv?days=7")).decode().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == [str(first)]


@pytest.mark.django_db
def test_a_file_of_figures_has_the_days_of_the_page(browser: Client, tenant: Tenant) -> None:
    today = now().astimezone(ZoneInfo("Asia/Kolkata"))
    for age in range(9):
        hour = int((today - timedelta(days=age)).timestamp()) // 3600
        figure(tenant, hour=hour, direction="outbound", measure="sent", count=1)
    shown = days(text(browser, "/console/figures?days=7"))
    lines = b"".join(browser.get("/console/figures/export.csv?days=7")).decode().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == [
        f"{today - timedelta(days=age):%Y-%m-%d}" for age in range(len(shown))
    ]


@pytest.mark.django_db
def test_a_day_has_each_of_its_figures_and_its_most_frequent_codes(browser: Client, tenant: Tenant) -> None:
    for direction, measure, value, count in (
        ("inbound", "received", "", 11),
        ("outbound", "sent", "", 1_012),
        ("outbound", "delivered", "", 13),
        ("outbound", "read", "", 14),
        *(("outbound", "failed", code, count) for code, count in (("1", 2), ("2", 9), ("3", 1), ("4", 3))),
        ("webhook", "delivered", "", 16),
        ("webhook", "failed", "", 17),
        *(
            ("webhook", "delivered_ms", value, count)
            for value, count in (("100", 94), ("900", 4), ("2000", 2))
        ),
    ):
        figure(tenant, direction=direction, measure=measure, value=value, count=count)
    noon = now().astimezone(ZoneInfo("Asia/Kolkata")).replace(hour=12) - timedelta(days=1)
    figure(tenant, hour=int(noon.timestamp()) // 3600, direction="outbound", measure="failed", count=5)
    today, yesterday, *_ = days(text(browser, "/console/figures"))
    codes = "2:\xa09, 4:\xa03, 1:\xa02"
    assert today[1:] == ["11", "1,012", "13", "14", "15", codes, "16", "17", "900 ms"]
    assert yesterday[1:] == ["0", "0", "0", "0", "5", "–", "0", "0", "–"], "these failed without a code"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("direction", "measure", "is_sent"),
    [("inbound", "received", False), ("outbound", "sent", True), ("webhook", "delivered", False)],
)
def test_each_kind_of_traffic_opens_the_figures_and_what_is_sent_opens_the_chart_at_home(
    browser: Client, tenant: Tenant, direction: str, measure: str, is_sent: bool
) -> None:
    assert "Nothing was sent or received" in text(browser, "/console/figures")
    figure(tenant, direction=direction, measure=measure, count=1)
    assert "Nothing was sent or received" not in text(browser, "/console/figures")
    assert ("Messages of the last 7 days" in text(browser, "/console")) is is_sent


@pytest.mark.django_db
def test_the_figures_name_the_ads_with_the_most_messages(
    browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.analytics.MOST_ADS", 2)
    figure(tenant, direction="inbound", measure="received", count=21)
    for ad, count in (("501", 5), ("502", 9), ("503", 7)):
        figure(tenant, direction="inbound", measure="referral", value=ad, count=count)
    assert re.findall(r"referral=(\d+)", text(browser, "/console/figures")) == ["502", "503"]


@pytest.mark.django_db
def test_the_filters_of_figures_offer_only_what_the_environment_has(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    for serial, (owner, environment) in enumerate(
        ((tenant, "live"), (tenant, "test"), (other_tenant, "live"))
    ):
        number = number_of(
            owner, waba_id=f"200{serial}", phone_number_id=f"700{serial}", environment=environment
        )
        MessageTemplate.objects.create(
            tenant=owner,
            account=number.account,
            environment=environment,
            template_id=str(serial),
            name=f"order_{serial}",
            document="{}",
            changed_at=now(),
        )
    page = text(browser, "/console/figures")
    assert re.findall(r'<option value="(700\d|order_\d)"', page) == ["7000", "order_0"]


def test_a_home_page_opens_without_a_part_that_fails(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("webhooks.analytics.statistics.read", broken)
    assert "First steps" in text(browser, "/console")
