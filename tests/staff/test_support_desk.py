"""The support desk: staff find out why a message failed, and see the console as a tenant sees it, read only."""

import html
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import resolve, reverse
from pytest_django import Settings

from console.tests import conversing
from console.tests.pages import PAGES
from console.tests.test_authorisation import _others_are_away as _others_are_away
from console.tests.test_authorisation import world as world
from gateway import ids
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from messaging.message_log import staff_message_search
from messaging.models import Batch
from phone_numbers.tests.conftest import verified_endpoint
from tenants.audit import GATEWAY
from tenants.credentials import api_keys
from tenants.models import AuditEntry, Tenant, TenantNote, User
from tenants.staff import support_view
from tests.api_contract.authorisation import World
from tests.browsers import logged_in, text
from webhooks.endpoints import lifecycle
from webhooks.models import Delivery, Event, Message
from webhooks.tests.publishing import uuid_at

pytestmark = pytest.mark.django_db

TEXT = "a secret wish of a customer"


@pytest.fixture
def support() -> User:
    person = User.objects.create_user("help@service.example", "a long enough password", is_staff=True)
    person.groups.add(Group.objects.get(name="support"))
    return person


def failed(
    tenant: Tenant, wa_id: str = "919812345678", *, at: datetime | None = None, **columns: Any
) -> Message:
    event_id = uuid_at(at or now())
    return Message.objects.create(
        tenant_id=tenant.id,
        environment="live",
        key=f"wamid.{event_id.hex}",
        month=ids.month_of(event_id),
        id=event_id,
        direction="outbound",
        type="text",
        wa_id=wa_id,
        accepted_at=now(),
        failed_at=now(),
        error_code=131026,
        **columns,
    )


def test_staff_find_why_a_message_failed_in_three_steps_from_the_number(
    support: User, tenant: Tenant, other_tenant: Tenant
) -> None:
    message = failed(tenant)
    failed(other_tenant, wa_id="919812345679")
    client = logged_in(support)
    for asked in ("+91 98123-45678", "919812345678", "98123 45678", message.key):
        found = client.get("/admin/find/", {"q": asked})
        assert found.status_code == 302, asked
        page = html.unescape(text(client, found["Location"]))
        assert "Failed" in page
        assert "131026" in page
        assert "Message undeliverable" in page or "cannot receive" in page or "WhatsApp" in page
        assert "Asha Traders" in page
        assert other_tenant.name not in page


def test_a_number_of_ten_digits_may_be_of_any_country(support: User, tenant: Tenant) -> None:
    failed(tenant, wa_id="6591234567")
    client = logged_in(support)
    assert "131026" in text(client, client.get("/admin/find/?q=6591234567")["Location"])


def test_of_several_messages_each_is_a_line_with_its_status(support: User, tenant: Tenant) -> None:
    failed(tenant)
    failed(tenant)
    page = text(logged_in(support), "/admin/find/?q=919812345678")
    assert page.count("Failed (131026): text to +91") == 2


@pytest.mark.parametrize(
    ("today", "begin"),
    [
        (datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 9, 1, tzinfo=UTC)),
        (datetime(2026, 7, 31, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)),
        (datetime(2026, 1, 30, tzinfo=UTC), datetime(2025, 11, 1, tzinfo=UTC)),
    ],
)
def test_a_customers_messages_are_found_in_this_month_and_the_two_months_before(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, today: datetime, begin: datetime
) -> None:
    monkeypatch.setattr(staff_message_search, "now", lambda: today)
    ages = (timedelta(), timedelta(days=12), timedelta(days=40), -timedelta(seconds=1))
    written = [failed(tenant, at=begin + age).id for age in ages]
    found = staff_message_search.find_of_customer(["919812345678", "919812345679"])
    assert [message.id for message in found] == [written[2], written[1], written[0]]


def test_the_page_of_a_message_has_its_steps_and_the_deliveries_of_its_events(
    support: User, tenant: Tenant
) -> None:
    endpoint = verified_endpoint(tenant)
    wamid = conversing.outbound(tenant)
    event = Event.objects.get(wamid=wamid)
    Delivery.objects.all().delete()
    for endpoint_id, fields in (
        (endpoint.id, {"status": "delivered", "last_http_status": 204}),
        (ids.uuid7(), {"status": "dead", "last_error": "timeout"}),
    ):
        Delivery.objects.create(
            tenant_id=tenant.id, endpoint_id=endpoint_id, event_id=event.id, event_type=event.type, **fields
        )
    at = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
    steps = ("accepted", "sent", "delivered", "read")
    Message.objects.update(**{f"{step}_at": at + timedelta(hours=place) for place, step in enumerate(steps)})
    page = html.unescape(
        text(logged_in(support), reverse("admin:staff_message", args=[tenant.id, "live", wamid]))
    )
    happened = page.partition("What happened")[2]
    assert re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", happened) == [
        ("Accepted by Meta", "22 Nov 2026, 00:00:00 IST"),
        ("Sent to the phone", "22 Nov 2026, 01:00:00 IST"),
        ("Delivered", "22 Nov 2026, 02:00:00 IST"),
        ("Read", "22 Nov 2026, 03:00:00 IST"),
    ]
    found = re.findall(r"message.outbound</a>: ([^<]+)<br><small[^>]*>([^<]+)<", page)
    assert sorted(found) == [
        ("Dead, it took too long to answer", "a deleted endpoint"),
        ("Delivered, HTTP 204", endpoint.url),
    ]


@pytest.mark.parametrize("asked", ["1234567", "1234567890123456", "order 919812345678", "919812345678x"])
def test_what_is_no_phone_number_finds_no_message(support: User, tenant: Tenant, asked: str) -> None:
    failed(tenant, wa_id="".join(filter(str.isdecimal, asked)))
    assert "Nothing has this ID" in text(logged_in(support), f"/admin/find/?q={asked}")


def test_staff_find_a_call_by_its_request_id(support: User, tenant: Tenant) -> None:
    call = ApiRequest.objects.create(
        id=ids.uuid7(), tenant_id=tenant.id, environment="live", method="POST", route="/v1/messages",
        status=400, error_code="invalid_request", own_ms=2, upstream_ms=0,
    )  # fmt: skip
    page = text(logged_in(support), f"/admin/request_log/apirequest/{call.pk}/change/")
    found = logged_in(support).get("/admin/find/", {"q": call.public_id})
    assert found["Location"] == f"/admin/request_log/apirequest/{call.pk}/change/"
    assert "invalid_request" in page


def test_notes_are_for_staff(support: User, tenant: Tenant, browser: Client) -> None:
    client = logged_in(support)
    client.post(
        reverse("admin:tenants_tenant_add_note", args=[tenant.pk]),
        {"text": "Called them on Monday", "_form_submitted": "on"},
    )
    note = TenantNote.objects.get()
    assert (note.author, note.tenant) == (support, tenant)
    assert "Called them on Monday" in text(client, f"/admin/tenants/tenant/{tenant.pk}/change/")
    assert "Called them" not in text(browser, "/console")


# --- The console as a tenant sees it.


@pytest.fixture
def view(world: World, support: User) -> Client:
    """A client of a staff member with an open support view of the tenant of `world`."""
    client = Client(raise_request_exception=False)
    client.force_login(support)
    path = reverse("admin:tenants_tenant_see_as", args=[world.tenant.pk])
    assert client.post(path, {"reason": "ticket 7", "_form_submitted": "on"})["Location"] == "/console"
    return client


def test_a_view_is_audited_and_says_so_on_each_page(view: Client, world: World, support: User) -> None:
    entry = AuditEntry.objects.get(action="support.view")
    assert (entry.tenant_id, entry.actor_user_id) == (world.tenant.id, support.pk)
    assert entry.details["reason"] == "ticket 7"
    page = text(view, "/console")
    assert f"You see {world.tenant.name} read-only, as a member of our team, until" in page
    owner = logged_in(User.objects.create_user("owner@traders.example", tenant=world.tenant))
    audit = text(owner, "/console/settings/audit")
    assert "Console opened by our team, read only" in audit
    assert "ticket 7" not in audit


def test_no_page_of_a_view_holds_a_text(view: Client, world: World) -> None:
    """The tenant has an inbound and an outbound message with the same text. No page of a support view shows it."""
    lifecycle.create(tenant_id=world.tenant.pk, environment="live", actor=GATEWAY, kind="inbox")
    wamids = [write(world.tenant, TEXT) for write in (conversing.inbound, conversing.outbound)]
    for name in sorted(support_view.SHOWN_PAGES):
        answer = view.get(reverse(name, kwargs=PAGES[name].made(world)))
        assert answer.status_code < 400, name
        assert TEXT.encode() not in b"".join(answer), name  # type: ignore[arg-type]
    owner = logged_in(User.objects.create_user("owner@traders.example", tenant=world.tenant))
    for wamid in wamids:
        path = reverse("console_message", args=[wamid])
        assert TEXT in text(owner, path)
        assert TEXT not in text(view, path)
        assert TEXT not in text(view, reverse("admin:staff_message", args=[world.tenant.id, "live", wamid]))


def test_the_navigation_of_a_view_has_only_pages_that_it_opens(view: Client) -> None:
    navigation = text(view, "/console").partition('aria-label="Console"')[2].partition("</nav>")[0]
    paths = re.findall(r'<a href="(/console[^"]*)"', navigation)
    assert {"/console", "/console/messages", "/console/numbers", "/console/settings"} <= set(paths)
    assert [path for path in paths if view.get(path).status_code != 200] == []


def test_the_links_and_hits_of_a_view_lead_only_to_pages_that_it_opens(view: Client, world: World) -> None:
    for name in ("console_credit_note", "console_delivery"):
        PAGES[name].made(world)
    event = Event.objects.get(wamid=conversing.outbound(world.tenant))
    key = api_keys.create(name="shop", environment="live", tenant=world.tenant)
    batch = PAGES["console_batch"].made(world)
    Batch.objects.update(failed=1)
    pages = [reverse(name, kwargs=PAGES[name].made(world)) for name in support_view.SHOWN_PAGES]
    pages += [reverse("console_message", args=[event.wamid]), reverse("console_batch", kwargs=batch)]
    pages += [f"/console/search/hits?q={asked}" for asked in (event.public_id, key.key, "billing")]
    # An empty list advises the business to send a message.
    opens = {*support_view.SHOWN_PAGES, "console_send"}
    for page in pages:
        links = re.findall(rb'href="(/console[^"?#]*)', b"".join(view.get(page)))  # type: ignore[arg-type]
        assert [link for link in links if resolve(link.decode()).url_name not in opens] == [], page
    assert "/second-factor/" in text(view, "/console/search/hits?q=security")


def test_only_staff_with_a_role_begin_a_view(world: World, browser: Client) -> None:
    path = reverse("admin:tenants_tenant_see_as", args=[world.tenant.pk])
    no_role = logged_in(User.objects.create_user("new@service.example", is_staff=True))
    for client in (browser, no_role, Client()):
        client.post(path, {"reason": "x", "_form_submitted": "on"})
        assert "support_view" not in client.session
    assert not AuditEntry.objects.filter(action="support.view").exists()


@pytest.mark.parametrize("change", ["other staff", "no staff", "no tenant", "nothing"])
def test_a_view_is_of_the_staff_member_who_began_it(
    support: User, tenant: Tenant, other_tenant: Tenant, change: str
) -> None:
    request: Any = SimpleNamespace(session={})
    support_view.begin(request, tenant=other_tenant, user=support, reason="ticket 7")
    entry = AuditEntry.objects.get(action="support.view")
    assert entry.details == {"reason": "ticket 7", "until": request.session["support_view"]["until"]}
    visitor = support
    if change == "other staff":
        visitor = User.objects.create_superuser("boss@service.example")
    elif change == "no staff":
        support.is_staff = False
    elif change == "no tenant":
        Tenant.objects.filter(pk=other_tenant.pk).delete()
    view = support_view.current(request, visitor)
    assert (view and view.tenant) == (other_tenant if change == "nothing" else None)
    assert support_view.end(request, visitor) == (other_tenant if change == "nothing" else None)
    assert AuditEntry.objects.filter(action="support.view_end").exists() is (change == "nothing")
    assert request.session == {}


CLOSED = {
    *("console_event", "console_export", "console_endpoint_secret", "console_data", "console_device"),
    *("console_connect_app", "console_connected_apps", "console_phone", "console_scheduled_message"),
    *("console_audit_csv", "console_figures_csv", "console_messages_csv", "console_requests_csv"),
    "console_batch_failed",
}


def test_pages_with_texts_files_and_credentials_are_closed_to_a_view() -> None:
    of_customers = {name for name, page in PAGES.items() if page.area == "conversations"}
    assert (of_customers | CLOSED) - PAGES.keys() == set()
    assert (of_customers | CLOSED) & support_view.SHOWN_PAGES == set()


def test_a_view_says_what_it_does_not_allow(view: Client) -> None:
    for answer, cannot in (
        (view.get("/console/conversations"), "you cannot open this page"),
        (view.post("/console/settings", {"retention_days": "30"}), "you cannot change anything"),
    ):
        assert answer.status_code == 403
        assert cannot in answer.content.decode()


def test_a_view_needs_a_reason(world: World, support: User) -> None:
    client = logged_in(support)
    client.post(
        reverse("admin:tenants_tenant_see_as", args=[world.tenant.pk]),
        {"reason": "", "_form_submitted": "on"},
    )
    assert client.get("/console")["Location"] == "/admin/"


def test_a_view_ends_by_its_button_by_time_by_the_log_out_and_with_the_role(
    view: Client, world: World, support: User, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    def is_open(client: Client) -> bool:
        return client.get("/console/messages").status_code == 200

    assert is_open(view)
    with monkeypatch.context() as later:
        later.setattr(support_view, "now", lambda: now() + support_view.LASTS + timedelta(seconds=1))
        assert not is_open(view)
    support.groups.clear()
    assert not is_open(view)
    support.groups.add(Group.objects.get(name="support"))
    settings.STAFF_SECOND_FACTOR = True
    assert not is_open(view)
    settings.STAFF_SECOND_FACTOR = False
    assert is_open(view)
    answer = view.post("/admin/see/end/")
    assert answer["Location"] == f"/admin/tenants/tenant/{world.tenant.pk}/change/"
    assert not is_open(view)
    entry = AuditEntry.objects.get(action="support.view_end", tenant_id=world.tenant.id)
    assert entry.actor_user_id == support.pk

    view.post(
        reverse("admin:tenants_tenant_see_as", args=[world.tenant.pk]),
        {"reason": "again", "_form_submitted": "on"},
    )
    assert is_open(view)
    view.post("/logout")
    view.force_login(support)
    assert not is_open(view)
