"""Staff pages of endpoints and deliveries: their contents, and actions in a tenant's name, which are audited as actions
of staff.
"""

import html
import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from django.core.cache import cache
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from gateway.clock import now
from gateway.ids import uuid7
from tenants.models import AuditEntry, Tenant, User
from tenants.staff import dashboard
from tests.browsers import logged_in, text
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks import replay
from webhooks.admin import cards_and_charts, finders
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Endpoint, Event, Figure, ReplayChunk
from webhooks.requests.credentials import Credentials, OAuth2, Tls, packed
from webhooks.requests.signed_request import packed_headers
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import dead_delivery, endpoint_of, make, uuid_at

pytestmark = pytest.mark.django_db(transaction=True)


def press(user: User, model: type[Model], name: str, key: UUID, **fields: Any) -> Any:
    """Submit the dialog of an action."""
    browser = Client()
    browser.force_login(user)
    path = reverse(f"admin:webhooks_{model._meta.model_name}_{name}", args=[key])
    return browser.post(path, {"_form_submitted": "on", **fields}, headers={"HX-Request": "true"})


@pytest.fixture
def failed(tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver) -> Delivery:
    """A failed delivery. By now its receiver works again."""
    receiver.answer = lambda request: web.Response(
        status=500, text="no such <table>", headers={"X-Trace": "t"}
    )
    publish_one(tenant)
    dispatcher.run()
    receiver.answer = lambda request: web.Response()
    return Delivery.objects.get()


def test_a_delivery_shows_its_endpoint_and_what_the_receiver_said(staff: User, failed: Delivery) -> None:
    browser = Client()
    browser.force_login(staff)
    page = browser.get(reverse("admin:webhooks_delivery_change", args=[failed.pk])).content.decode()
    assert Endpoint.objects.get().url in page
    assert reverse("admin:webhooks_endpoint_change", args=[failed.endpoint_id]) in page
    assert reverse("admin:webhooks_event_change", args=[failed.event_id]) in page
    assert "no such &lt;table&gt;" in page
    assert "X-Trace: t" in page


def test_a_delivery_shows_the_headers_of_an_answer_without_a_body(
    staff: User, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=503, headers={"Retry-After": "30"})
    publish_one(tenant)
    dispatcher.run()
    page = text(logged_in(staff), reverse("admin:webhooks_delivery_change", args=[Delivery.objects.get().pk]))
    assert "Retry-After: 30" in page


def test_an_endpoint_shows_its_settings_without_its_secrets(staff: User, failed: Delivery) -> None:
    stored = Credentials(oauth2=OAuth2("https://login.example/token", "gateway", "s3cret"), seed=b"s" * 32)
    Endpoint.objects.update(
        credentials=packed(stored),
        retry_schedule="5 30",
        filter={"type": "message.inbound"},
        batch_events=50,
        batch_milliseconds=200,
    )
    browser = Client()
    browser.force_login(staff)
    page = text(browser, reverse("admin:webhooks_endpoint_change", args=[failed.endpoint_id]))
    shown = (
        "OAuth2, second signature",
        "5, 30",
        '{"type": "message.inbound"}',
        "up to 50 within 200 ms",
    )
    assert [each for each in shown if each not in page] == []
    assert "s3cret" not in page


@pytest.mark.parametrize(("name", "column"), [("event", "type"), ("delivery", "event_type")])
def test_lists_of_staff_are_narrowed_by_the_type_of_event(
    staff: User, tenant: Tenant, name: str, column: str
) -> None:
    endpoint_of(tenant)
    for kind in ("message.inbound", "message.status"):
        publish_one(tenant, kind, type=kind)
    model: Any = {"event": Event, "delivery": Delivery}[name]
    ids = {getattr(row, column): row.public_id for row in model.objects.all()}
    browser = Client()
    browser.force_login(staff)
    page = text(browser, reverse(f"admin:webhooks_{name}_changelist") + "?type=message.status")
    assert [each in page for each in (ids["message.status"], ids["message.inbound"])] == [True, False]


def test_an_endpoint_shows_how_it_collects_and_what_it_presents(staff: User, tenant: Tenant) -> None:
    endpoint = endpoint_of(
        tenant,
        quiet_seconds=7,
        headers=packed_headers({"X-Shop": "s3cret"}),
        metadata={"team": "orders"},
        credentials=packed(Credentials(tls=Tls("certificate", "k3y", "authority"))),
    )
    browser = Client()
    browser.force_login(staff)
    page = text(browser, reverse("admin:webhooks_endpoint_change", args=[endpoint.pk]))
    for shown in ("a customer's within 7 s", "client certificate, own CA", "X-Shop", "team: orders"):
        assert shown in html.unescape(page)
    assert not [secret for secret in ("s3cret", "k3y") if secret in page]


def test_a_delivery_of_a_deleted_endpoint_and_a_replay_say_so(staff: User, tenant: Tenant) -> None:
    endpoint = endpoint_of(tenant)
    publish_one(tenant)
    original = Delivery.objects.get()
    again = dead_delivery(endpoint, Event.objects.get(), is_replay=True, replay_of=original.pk)
    Endpoint.objects.all().delete()
    browser = Client()
    browser.force_login(staff)
    page = text(browser, reverse("admin:webhooks_delivery_change", args=[again.pk]))
    assert f"{endpoint.pk} (deleted)" in page
    assert reverse("admin:webhooks_delivery_change", args=[original.pk]) in page


def test_a_tenants_page_has_its_figures_of_thirty_days_by_environment(tenant: Tenant) -> None:
    hour = int(now().timestamp()) // 3600
    for days, environment, direction, measure, count in (
        (0, "live", "outbound", "sent", 1_200),
        (29, "live", "outbound", "sent", 34),
        (0, "live", "outbound", "delivered", 5),
        (0, "live", "outbound", "failed", 6),
        (0, "live", "inbound", "received", 7),
        (0, "live", "webhook", "delivered", 8),
        (0, "live", "webhook", "failed", 9),
        (30, "live", "webhook", "failed", 90),
        (0, "test", "webhook", "delivered", 1),
    ):
        Figure.objects.create(
            tenant_id=tenant.id, environment=environment, hour=hour - days * 24, direction=direction,
            measure=measure, count=count,
        )  # fmt: skip
    assert {line.title: line.text for line in finders._figures(tenant)} == {
        "Last 30 days, live": "1,234 sent, 5 delivered, 6 failed, 7 received; webhooks 8 delivered, 9 dead",
        "Last 30 days, test": "0 sent, 0 delivered, 0 failed, 0 received; webhooks 1 delivered, 0 dead",
    }


def test_staff_send_again_verify_and_resume_under_their_own_name(
    staff: User, tenant: Tenant, failed: Delivery, receiver: Receiver
) -> None:
    Endpoint.objects.update(status="paused")
    assert press(staff, Endpoint, "resume", failed.endpoint_id)["HX-Redirect"]
    assert Endpoint.objects.get().status == "active"
    press(staff, Delivery, "send_again", failed.pk)
    assert Delivery.objects.get(replay_of=failed.pk).status == "delivered"
    pings = len(receiver.pings)
    press(staff, Endpoint, "verify", failed.endpoint_id)
    assert len(receiver.pings) == pings + 1
    done = AuditEntry.objects.filter(actor_user_id=staff.pk, tenant_id=tenant.id).order_by("id")
    assert list(done.values_list("action", flat=True)) == [
        "webhook_endpoint.resume",
        "webhook_delivery.replay",
        "webhook_endpoint.verify",
    ]


@pytest.mark.parametrize(("model", "status"), [(Endpoint, "disabled"), (Tenant, "suspended")])
def test_a_delivery_that_was_not_sent_again_is_not_recorded_as_such(
    staff: User, failed: Delivery, model: Any, status: str
) -> None:
    model.objects.update(status=status)
    assert "HX-Redirect" not in press(staff, Delivery, "send_again", failed.pk)
    assert not AuditEntry.objects.filter(action="webhook_delivery.replay").exists()


def test_the_first_page_leads_to_the_deliveries_that_it_counts(staff: User, tenant: Tenant) -> None:
    endpoint, [event] = endpoint_of(tenant), make(tenant)
    Delivery.objects.all().delete()
    created = now() - timedelta(days=8)
    dead = dead_delivery(endpoint, event, id=uuid_at(created), dead_at=now())
    late = dead_delivery(endpoint, event, id=uuid_at(created))
    Delivery.objects.filter(pk=late.pk).update(status="failed", next_attempt_at=now() - timedelta(hours=1))
    cache.delete(dashboard.CACHE_KEY)
    browser = logged_in(staff)
    page = html.unescape(text(browser, "/admin/"))
    cache.delete(dashboard.CACHE_KEY)
    path = reverse("admin:webhooks_delivery_changelist")
    for status, counted in (("dead", dead), ("failed", late)):
        [link] = re.findall(rf'href="({path}\?[^"]*={status})"', page)
        assert counted.public_id in text(browser, link)


def test_a_flows_refusal_is_shown(staff: User, failed: Delivery, api: Api) -> None:
    Endpoint.objects.update(status="pending", verified_at=None)
    answer = press(staff, Endpoint, "resume", failed.endpoint_id)
    assert "HX-Redirect" not in answer
    assert "verify it first" in answer.content.decode()
    assert Endpoint.objects.get().status == "pending"


def test_staff_recover_a_time_range_after_they_saw_its_count(
    staff: User, tenant: Tenant, failed: Delivery, receiver: Receiver
) -> None:
    chosen = {"hours": "24", "status": ["failed", "dead"]}
    first = press(staff, Endpoint, "recover", failed.endpoint_id, **chosen)
    assert "1 delivery, the oldest of" in first.content.decode()
    assert "Send 1 again" in first.content.decode()
    counted = shown_value(first, "counted")
    other = press(
        staff, Endpoint, "recover", failed.endpoint_id, hours="24", status=["delivered"], counted=counted
    )
    assert "Nothing matches." in other.content.decode(), "other choices are counted anew"
    assert not ReplayChunk.objects.exists()
    assert not AuditEntry.objects.filter(actor_user_id=staff.pk).exists()
    assert press(staff, Endpoint, "recover", failed.endpoint_id, **chosen, counted=counted)["HX-Redirect"]
    assert replay.release_due() == 1
    dispatcher.run()
    assert Delivery.objects.get(replay_of=failed.pk).status == "delivered"
    entry = AuditEntry.objects.get(action="webhook_endpoint.recover")
    assert (entry.actor_user_id, entry.tenant_id, entry.details["queued"]) == (staff.pk, tenant.id, 1)


@pytest.mark.parametrize(("hours", "said"), [("2", "Nothing matches."), ("4", "1 delivery, the oldest of")])
def test_a_recovery_is_of_the_last_hours(staff: User, tenant: Tenant, hours: str, said: str) -> None:
    endpoint = endpoint_of(tenant)
    (event,) = make(tenant, age=timedelta(hours=3))
    dead_delivery(endpoint, event, id=uuid_at(event.created_at))
    answer = press(staff, Endpoint, "recover", endpoint.pk, hours=hours, status=["dead"])
    assert said in answer.content.decode()


def test_the_charts_have_the_messages_and_deliveries_of_each_of_the_last_hours(tenant: Tenant) -> None:
    moment = now().replace(minute=30)
    for hours, kind, status in (
        (0, "message.inbound", "pending"),
        (0, "message.inbound", "delivered"),
        (23, "message.outbound", "dead"),
        (0, "message.outbound", "failed"),
        (0, "message.status", "delivered"),
        (24, "message.inbound", "dead"),
    ):
        at = moment - timedelta(hours=hours)
        Event.objects.create(
            id=uuid_at(at),
            tenant_id=tenant.id,
            type=kind,
            dedupe_key=str(uuid7()),
            payload_expires_on="2030-01-01",
        )
        Delivery.objects.create(
            id=uuid_at(at),
            tenant_id=tenant.id,
            endpoint_id=uuid7(),
            event_id=uuid7(),
            event_type=kind,
            status=status,
        )
    plots = cards_and_charts._plots(moment)
    assert plots is not None
    charts = {name: json.loads(chart) for name, chart in plots.items()}
    counted = {
        f"{name} {series['label']}": (
            len(series["data"]),
            sum(series["data"]),
            series["data"][0],
            series["data"][-1],
        )
        for name, chart in charts.items()
        for series in chart["datasets"]
    }
    assert counted == {
        "messages In": (24, 2, 0, 2),
        "messages Out": (24, 2, 1, 1),
        "deliveries Deliveries": (24, 3, 0, 3),
        "failures Failed or dead": (24, 2, 1, 1),
    }
    labels = charts["messages"]["labels"]
    assert (labels[0], labels[-1]) == (f"{moment - timedelta(hours=23):%H}:00", f"{moment:%H}:00")


def test_a_recovery_touches_no_other_environment_or_endpoint(
    staff: User, tenant: Tenant, failed: Delivery, receiver: Receiver
) -> None:
    Delivery.objects.create(
        tenant_id=tenant.id,
        environment="test",
        endpoint_id=uuid7(),
        event_id=failed.event_id,
        event_type="message.inbound",
        status="dead",
    )
    answer = press(staff, Endpoint, "recover", failed.endpoint_id, hours="24", status=["failed", "dead"])
    assert shown_value(answer, "counted")
    assert "1 delivery," in answer.content.decode()


def test_a_recovery_of_a_paused_endpoint_is_refused_in_the_dialog(staff: User, failed: Delivery) -> None:
    Endpoint.objects.update(status="paused")
    answer = press(staff, Endpoint, "recover", failed.endpoint_id, hours="24", status=["dead"])
    assert "nothing is sent to it until it is active" in answer.content.decode()
    assert "HX-Redirect" not in answer


def shown_value(answer: Any, name: str) -> str:
    """The value of a hidden field in a dialog."""
    found = re.search(rf'name="{name}" value="([^"]*)"', answer.content.decode())
    assert found is not None
    return found[1]


def test_the_overview_opens_while_its_figures_cannot_be_read_in_time(
    staff: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(10) WHERE {} IS NOT NULL"
    for name, parameter in (
        ("_BUSIEST", "%(first)s"),
        ("_FAILING", "%(first)s"),
        ("_DELIVERIES", "%s::uuid"),
    ):
        monkeypatch.setattr(cards_and_charts, name, cancelled.format(parameter))
    cache.delete(dashboard.CACHE_KEY)
    browser = Client()
    browser.force_login(staff)
    page = browser.get("/admin/").content.decode()
    cache.delete(dashboard.CACHE_KEY)
    assert "Dead deliveries" in page
    assert "Busiest businesses" not in page
    assert "Failures per hour" not in page


def test_the_busiest_and_the_failing_businesses_are_those_of_the_last_day_in_the_live_environment(
    tenant: Tenant, other_tenant: Tenant
) -> None:
    quiet, hour = Tenant.objects.create(name="Quiet"), int(now().timestamp()) // 3600
    for owner, environment, age, direction, measure, count in (
        (tenant, "live", 0, "inbound", "received", 3),
        (tenant, "live", 23, "outbound", "failed", 1),
        (tenant, "live", 0, "webhook", "delivered", 90),
        (other_tenant, "live", 0, "outbound", "sent", 7),
        (other_tenant, "live", 0, "outbound", "read", 70),
        (other_tenant, "live", 24, "outbound", "failed", 70),
        (quiet, "test", 0, "outbound", "failed", 70),
        (quiet, "live", 1, "webhook", "failed", 2),
    ):
        Figure.objects.create(
            tenant_id=owner.id,
            environment=environment,
            hour=hour - age,
            direction=direction,
            measure=measure,
            count=count,
        )
    busiest, failing = cards_and_charts.busiest(), cards_and_charts.failing()
    assert busiest is not None
    assert failing is not None
    mine, quiets = ("3", "0", "0", "1", "90", "0"), ("0", "0", "0", "0", "0", "2")
    others = ("0", "7", "0", "0", "0", "0")
    assert [(row.name, row.values) for row in busiest.rows] == [
        (other_tenant.name, others),
        (tenant.name, mine),
        ("Quiet", quiets),
    ]
    assert [(row.name, row.values) for row in failing.rows] == [("Quiet", quiets), (tenant.name, mine)]
