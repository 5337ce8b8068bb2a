"""Operational events: the other endpoints and the tenant's mailbox are notified once of each change of state."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from django.db import transaction

from gateway import ids
from gateway.clock import isoformat, now
from tenants.mail import links_in
from tenants.models import OutboundMail, Tenant
from tests.fixtures import Api, in_threads
from tests.receiver import Receiver
from webhooks import tasks
from webhooks.delivery import dispatcher
from webhooks.endpoints import lifecycle, notices
from webhooks.endpoints.health import health_of
from webhooks.endpoints.notices import notify_changes, report_exhausted
from webhooks.events import envelope
from webhooks.models import Delivery, Endpoint, Event, ExhaustedDelivery
from webhooks.requests.verify_ping import _examples
from webhooks.tests import publishing
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import dead_delivery, endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = timedelta(minutes=16)
EXHAUSTED = "webhook.delivery.exhausted"


@pytest.fixture(autouse=True)
def _mailbox(tenant: Tenant, settings: Any) -> None:
    settings.EMAIL_MODE = "log"
    Tenant.objects.filter(pk=tenant.pk).update(contact_email="asha@example.com")


def make(tenant: Tenant, receiver: Receiver, path: str, **given: Any) -> Endpoint:
    """A verified endpoint."""
    return endpoint_of(tenant, url=f"{receiver.url}/{path}", verified_at=now(), **given)


@pytest.fixture
def broken(tenant: Tenant, receiver: Receiver) -> Endpoint:
    """An endpoint whose receiver answers 503."""
    receiver.answer = lambda request: web.Response(status=503 if "broken" in request.path else 200)
    return make(tenant, receiver, "broken", uid="shop-17")


@pytest.fixture
def other(tenant: Tenant, receiver: Receiver, broken: Endpoint) -> Endpoint:
    return make(tenant, receiver, "other")


def fail(tenant: Tenant, endpoint: Endpoint, *, since: timedelta = LONG_AGO) -> None:
    """Let the delivery of an event fail, and let the endpoint have been failing for this long."""
    publish_one(tenant, f"k{Event.objects.count()}")
    dispatcher.run()
    moment = now() - since
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=moment, verified_at=moment - since)


def heal(endpoint: Endpoint, receiver: Receiver) -> None:
    receiver.answer = lambda request: web.Response()
    Delivery.objects.filter(endpoint_id=endpoint.pk, status="failed").update(next_attempt_at=now())
    dispatcher.run()


def reported(endpoint: Endpoint) -> list[str]:
    """The operational events that an endpoint gets, in order."""
    rows = Delivery.objects.filter(endpoint_id=endpoint.pk, event_type__startswith="webhook.").order_by("id")
    return [row.event_type for row in rows]


def mails() -> list[str]:
    return list(OutboundMail.objects.order_by("id").values_list("subject", flat=True))


def test_failing_and_recovered_are_reported_once_to_the_others_and_by_mail(
    tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    fail(tenant, broken)
    assert [notify_changes() for _ in range(3)] == [1, 0, 0]
    dispatcher.run()
    (failing,) = [got.json for got in receiver.received if got.json["type"] == "webhook.failing"]
    assert failing["data"]["endpoint_id"] == str(broken.id)
    assert failing["data"]["uid"] == "shop-17"
    assert failing["data"]["reason"] == {"error": "http_5xx", "http_status": 503}
    assert failing["data"]["waiting"]["count"] == 1
    since = Endpoint.objects.get(pk=broken.pk).failing_since
    assert since is not None
    assert failing["data"]["since"] == isoformat(since)
    oldest = Delivery.objects.filter(endpoint_id=broken.pk).earliest("id").created_at
    assert failing["data"]["waiting"]["oldest"] == isoformat(oldest)

    heal(broken, receiver)
    assert [notify_changes() for _ in range(3)] == [1, 0, 0]
    assert (reported(broken), reported(other)) == ([], ["webhook.failing", "webhook.recovered"])
    dispatcher.run()
    (recovered,) = [got.json for got in receiver.received if got.json["type"] == "webhook.recovered"]
    assert recovered["data"]["since"] == isoformat(since)
    assert mails() == [
        "A webhook endpoint of “Asha Traders” is failing",
        "A webhook endpoint of “Asha Traders” works again",
    ]
    assert broken.url in OutboundMail.objects.earliest("id").text


def test_what_is_no_news_and_a_suspended_tenants_failure_are_not_reported(
    tenant: Tenant, broken: Endpoint, other: Endpoint
) -> None:
    fail(tenant, broken)
    failing = Endpoint.objects.filter(pk=broken.pk)
    since = failing.get().failing_since
    for change in ({"status": "paused"}, {"status": "disabled"}, {"failing_since": None}):
        failing.update(**change)
        assert notify_changes() == 0, change
        failing.update(status="active", failing_since=since)
    failing.update(failing_since=now() - timedelta(minutes=14))
    assert notify_changes() == 0, "it has failed for a short time"
    failing.update(failing_since=since)
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    assert notify_changes() == 0
    assert (reported(other), mails()) == ([], [])
    Tenant.objects.filter(pk=tenant.pk).update(status="active")
    assert notify_changes() == 1, "nothing else kept it back"


def test_an_endpoint_that_was_only_resumed_has_not_recovered(
    api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint
) -> None:
    fail(tenant, broken)
    notify_changes()
    api.post(f"/v1/webhooks/{broken.id}/resume")
    assert notify_changes() == 0
    fail(tenant, broken)
    assert notify_changes() == 0, "it is the same failure"
    assert reported(other) == ["webhook.failing"]


def test_disabled_is_reported_once_and_a_passed_ping_reports_the_recovery(
    api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    fail(tenant, broken)
    notify_changes()
    for _ in range(2):
        with transaction.atomic():
            lifecycle.disable(endpoint_id=broken.pk, reason="failing", generation=0)
    assert notify_changes() == 0
    assert api.post(f"/v1/webhooks/{broken.id}/verify").status_code == 200
    assert notify_changes() == 1
    assert reported(other) == ["webhook.failing", "webhook.disabled", "webhook.recovered"]
    assert len(mails()) == 3
    (disabled,) = Event.objects.filter(type="webhook.disabled")
    found = envelope.load([disabled.id], tenant_id=disabled.tenant_id)[disabled.id]
    assert found is not None
    shown = json.loads(found.data)
    assert (shown["cause"], shown["since"] is not None) == ("failing", True)


def test_a_failure_after_a_passed_ping_is_a_new_one(
    api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    fail(tenant, broken)
    notify_changes()
    assert api.post(f"/v1/webhooks/{broken.id}/verify").status_code == 200
    dispatcher.run()
    assert Endpoint.objects.get(pk=broken.pk).failing_since is not None
    assert [notify_changes() for _ in range(2)] == [1, 0]
    Endpoint.objects.filter(pk=broken.pk).update(failing_since=now() - LONG_AGO)
    assert [notify_changes() for _ in range(2)] == [1, 0]
    assert reported(other) == ["webhook.failing", "webhook.recovered", "webhook.failing"]
    assert len(mails()) == 3


def test_an_endpoint_that_says_it_is_gone_is_reported_and_its_recovery_too(
    api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=410 if "broken" in request.path else 200)
    publish_one(tenant)
    dispatcher.run()
    dispatcher.run()
    (disabled,) = [got.json for got in receiver.received if got.json["type"] == "webhook.disabled"]
    assert disabled["data"]["cause"] == "gone"
    assert notify_changes() == 0
    assert api.post(f"/v1/webhooks/{broken.id}/verify").status_code == 200
    assert notify_changes() == 1
    assert reported(other) == ["webhook.disabled", "webhook.recovered"]


def test_the_failure_of_an_operational_event_makes_none(
    tenant: Tenant, broken: Endpoint, receiver: Receiver
) -> None:
    watching = make(tenant, receiver, "broken/too", event_types=["webhook.failing"])
    fail(tenant, broken)
    assert notify_changes() == 1
    dispatcher.run()
    row = Delivery.objects.get(endpoint_id=watching.pk)
    assert (row.event_type, row.status) == ("webhook.failing", "failed")
    Endpoint.objects.filter(pk=watching.pk).update(failing_since=now() - LONG_AGO)
    assert notify_changes() == 0
    assert reported(broken) == []


def test_an_endpoint_whose_deliveries_are_given_up_soon_is_reported_too(
    tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    """Nothing waits for a retry when the tenant is to be notified."""
    Endpoint.objects.filter(pk=broken.pk).update(retry_schedule="1")
    fail(tenant, broken)
    Delivery.objects.filter(status="failed").update(next_attempt_at=now())
    dispatcher.run()
    assert [notify_changes() for _ in range(2)] == [1, 0]
    dispatcher.run()
    (failing,) = [got.json for got in receiver.received if got.json["type"] == "webhook.failing"]
    assert failing["data"]["reason"] == {"error": "http_5xx", "http_status": 503}
    assert failing["data"]["waiting"] == {"count": 0, "oldest": None}


@pytest.mark.parametrize(
    ("kind", "column"),
    [("webhook.failing", None), ("message.inbound", "last_success_at"), ("message.inbound", "verified_at")],
)
def test_what_was_given_up_before_a_success_or_is_a_notice_is_not_reported(
    tenant: Tenant, broken: Endpoint, settings: Any, kind: str, column: str | None
) -> None:
    settings.WEBHOOK_RETRY_SCHEDULE = []
    publish_one(tenant, "webhook:0:failing", type=kind)
    dispatcher.run()
    assert Delivery.objects.get().status == "dead"
    Endpoint.objects.update(failing_since=now() - LONG_AGO)
    if column is not None:
        Endpoint.objects.update(**{column: now()})
    assert notify_changes() == 0


def test_endpoints_without_a_report_keep_no_other_out(
    tenant: Tenant, broken: Endpoint, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(2):
        make(tenant, receiver, f"other/{place}")
    fail(tenant, broken)
    # No delivery waits at the two other endpoints, so they are not reported.
    Endpoint.objects.exclude(pk=broken.pk).update(failing_since=now() - LONG_AGO)
    monkeypatch.setattr(notices, "MOST_ENDPOINTS", 1)
    assert any(notify_changes() for _ in range(200))
    assert Endpoint.objects.get(pk=broken.pk).told_failing_since is not None


def test_endpoints_that_fail_together_make_one_mail(
    tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    more = [make(tenant, receiver, f"broken/{number}") for number in range(3)]
    fail(tenant, broken)
    Endpoint.objects.exclude(failing_since=None).update(failing_since=now() - LONG_AGO)
    assert notify_changes() == 4
    assert reported(other) == ["webhook.failing"] * 4
    assert mails() == ["4 webhook endpoints of “Asha Traders” are failing"]
    text = OutboundMail.objects.get().text
    assert all(endpoint.url in text for endpoint in (broken, *more))


def test_a_mail_says_how_each_endpoint_is_retried_and_links_each_environment(
    tenant: Tenant, broken: Endpoint, receiver: Receiver, settings: Any
) -> None:
    impatient = make(tenant, receiver, "broken/test", environment="test", retry_schedule="5 30")
    for endpoint in (broken, impatient):
        publish_one(tenant, endpoint.environment, environment=endpoint.environment)
    dispatcher.run()
    Endpoint.objects.update(failing_since=now() - LONG_AGO)
    assert notify_changes() == 2
    Endpoint.objects.update(failing_since=None, last_success_at=now())
    assert notify_changes() == 2
    failing, recovered = OutboundMail.objects.order_by("id")
    kept, given_up = failing.text.partition(impatient.url)[::2]
    assert ("three days" in kept, "given up" in kept) == (True, False)
    assert ("three days" in given_up, "then an event is given up" in given_up) == (False, True)
    for mail, page in ((failing, "webhooks"), (recovered, "deliveries")):
        pages = [f"{settings.APP_URL}/console/{page}?in={name}" for name in ("live", "test")]
        assert links_in(mail.text)[-2:] == pages
        assert [f'href="{link}"' in mail.html for link in pages] == [True, True]


def test_the_other_environment_and_other_tenants_receive_nothing(
    tenant: Tenant, other_tenant: Tenant, broken: Endpoint, receiver: Receiver
) -> None:
    others = [
        make(tenant, receiver, "test", environment="test"),
        make(other_tenant, receiver, "stranger"),
    ]
    fail(tenant, broken)
    assert notify_changes() == 1
    assert [reported(endpoint) for endpoint in others] == [[], []]


def test_notices_about_an_endpoint_of_the_sandbox_go_to_endpoints_of_the_sandbox(
    tenant: Tenant, receiver: Receiver
) -> None:
    watching, live = (make(tenant, receiver, name, environment=name) for name in ("test", "live"))
    endpoint = make(tenant, receiver, "broken", environment="test", failing_since=now() - LONG_AGO)
    with transaction.atomic():
        lifecycle.disable(endpoint_id=endpoint.pk, reason="failing", generation=0)
    assert (reported(watching), reported(live)) == (["webhook.disabled"], [])


@pytest.mark.parametrize(("environment", "reports"), [("test", 1), ("live", 0)])
def test_a_business_that_waits_for_approval_gets_the_notices_of_its_sandbox(
    tenant: Tenant, receiver: Receiver, environment: str, reports: int
) -> None:
    watching = make(tenant, receiver, "other", environment=environment)
    endpoint = make(tenant, receiver, "broken", environment=environment)
    publish_one(tenant, environment=environment)
    Delivery.objects.update(status="failed", attempts=1)
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=now() - LONG_AGO)
    Tenant.objects.filter(pk=tenant.pk).update(status="pending_approval")
    assert notify_changes() == reports
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=None, last_success_at=now())
    assert notify_changes() == reports
    assert reported(watching) == ["webhook.failing", "webhook.recovered"] * reports
    assert len(mails()) == 2 * reports


def test_an_endpoint_receives_no_notice_about_itself_even_as_a_missed_event(
    api: Api, tenant: Tenant, broken: Endpoint, receiver: Receiver
) -> None:
    fail(tenant, broken)
    notify_changes()
    assert Event.objects.filter(type="webhook.failing").count() == 1
    range_ = {"from": isoformat(now() - timedelta(hours=1)), "to": isoformat(now() + timedelta(hours=1))}
    body = {**range_, "status": ["missed"], "preview": True}
    assert api.post(f"/v1/webhooks/{broken.id}/replay", body).json()["count"] == 0


def test_two_processes_notify_once(
    tenant: Tenant, broken: Endpoint, other: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(tenant, broken)
    barrier = threading.Barrier(2)

    def both_have_looked(endpoint: Endpoint) -> Any:
        barrier.wait(10)
        return health_of(endpoint)

    monkeypatch.setattr(notices, "health_of", both_have_looked)

    assert sorted(in_threads(notify_changes, notify_changes)) == [0, 1]
    assert (reported(other), len(mails())) == (["webhook.failing"], 1)


def test_one_tenants_failure_does_not_stop_the_others(
    tenant: Tenant,
    other_tenant: Tenant,
    broken: Endpoint,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = make(other_tenant, receiver, "broken/theirs")
    fail(tenant, broken)
    fail(other_tenant, theirs)
    true_health = health_of

    def poisoned(endpoint: Endpoint) -> Any:
        if endpoint.pk == broken.pk:
            raise ValueError
        return true_health(endpoint)

    monkeypatch.setattr(notices, "health_of", poisoned)
    assert notify_changes() == 1
    assert Endpoint.objects.get(pk=theirs.pk).told_failing_since is not None


def test_the_examples_have_the_members_of_real_events(
    tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
) -> None:
    fail(tenant, broken)
    notify_changes()
    heal(broken, receiver)
    notify_changes()
    with transaction.atomic():
        lifecycle.disable(endpoint_id=broken.pk, reason="failing", generation=0)
    dispatcher.run()
    for kind in ("webhook.failing", "webhook.disabled", "webhook.recovered"):
        (made,) = [got.json for got in receiver.received if got.json["type"] == kind]
        example = _examples()[kind]
        assert list(made) == list(example)
        assert list(made["data"]) == list(example["data"])
        assert made["dedupe_key"].split(":")[::2] == ["webhook", example["dedupe_key"].split(":")[2]]


class TestExhausted:
    """Deliveries that were given up."""

    @pytest.fixture(autouse=True)
    def _one_attempt(self, settings: Any) -> None:
        settings.WEBHOOK_RETRY_SCHEDULE = []

    def test_they_are_reported_together_and_once(
        self, tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
    ) -> None:
        for key in ("k1", "k2"):
            publish_one(tenant, key)
        dispatcher.run()
        assert [report_exhausted() for _ in range(2)] == [2, 0]
        dispatcher.run()
        (report,) = [got.json for got in receiver.received if got.json["type"] == EXHAUSTED]
        dead = Delivery.objects.filter(endpoint_id=broken.pk, status="dead").order_by("id")
        assert report["data"] == {
            "endpoint_id": str(broken.id),
            "url": broken.url,
            "uid": "shop-17",
            "count": 2,
            "deliveries": [
                {
                    "id": row.public_id,
                    "event_id": ids.encode(ids.EVENT, row.event_id),
                    "event_type": "message.inbound",
                    "attempts": 1,
                    "last_error": "http_5xx",
                    "last_http_status": 503,
                }
                for row in dead
            ],
        }
        assert (reported(broken), reported(other)) == ([], [EXHAUSTED])

    def test_an_event_counts_all_and_names_the_first(
        self, tenant: Tenant, broken: Endpoint, other: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notices, "MOST_NAMED", 2)
        for key in ("k1", "k2", "k3"):
            publish_one(tenant, key)
        dispatcher.run()
        assert report_exhausted() == 3
        (event,) = Event.objects.filter(type=EXHAUSTED)
        found = envelope.load([event.id], tenant_id=tenant.id)[event.id]
        assert found is not None
        data = json.loads(found.data)
        dead = Delivery.objects.filter(endpoint_id=broken.pk, status="dead").order_by("id")
        assert data["count"] == 3
        assert [each["id"] for each in data["deliveries"]] == [row.public_id for row in dead[:2]]

    def test_one_that_is_about_a_notice_or_a_single_replay_is_not_reported(
        self, api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint, receiver: Receiver
    ) -> None:
        receiver.answer = lambda request: web.Response(status=503)
        publish_one(tenant, "webhook:0:failing", type="webhook.failing")
        dispatcher.run()
        assert Delivery.objects.filter(status="dead").count() == 2
        row = Delivery.objects.filter(endpoint_id=broken.pk).earliest("id")
        assert api.post(f"/v1/webhook-deliveries/{row.public_id}/replay").json()["status"] == "dead"
        assert not ExhaustedDelivery.objects.exists()

    @pytest.mark.parametrize(
        ("threshold", "expected"),
        [(1, ["A webhook delivery of"]), (2, ["2 webhook deliveries of"]), (3, []), (None, [])],
    )
    def test_a_mail_leaves_once_in_a_day_from_the_threshold_on(
        self, tenant: Tenant, broken: Endpoint, threshold: int | None, expected: list[str]
    ) -> None:
        Endpoint.objects.filter(pk=broken.pk).update(exhausted_mail_threshold=threshold)
        for key in ("k1", "k2"):
            publish_one(tenant, key)
            dispatcher.run()
            tasks.notify_endpoint_changes()
        assert [subject.partition(" “")[0] for subject in mails()] == expected
        if expected:
            Endpoint.objects.filter(pk=broken.pk).update(exhausted_since=now() - notices.MAIL_WINDOW)
            for key in ("k3", "k4"):
                publish_one(tenant, key)
                dispatcher.run()
                report_exhausted()
            assert len(mails()) == 2

    @pytest.mark.parametrize(("hours", "count"), [(None, 1), (23, 6), (25, 1)])
    def test_given_up_deliveries_are_counted_together_for_a_day(
        self, tenant: Tenant, hours: int | None, count: int
    ) -> None:
        since = None if hours is None else now() - timedelta(hours=hours)
        endpoint = endpoint_of(tenant, exhausted_count=5, exhausted_since=since, exhausted_mail_threshold=1)
        (event,) = publishing.make(tenant)
        row = dead_delivery(endpoint, event)
        ExhaustedDelivery.objects.create(delivery_id=row.id, endpoint_id=endpoint.id)
        assert report_exhausted() == 1
        endpoint.refresh_from_db()
        assert endpoint.exhausted_count == count
        assert (endpoint.exhausted_since == since) == (count == 6), "a day begins with its first report"
        assert len(mails()) == (count == 1)

    @pytest.mark.parametrize(
        ("threshold", "hours", "mails_then"),
        [(6, 2, 1), (6, 25, 2), (None, 0, 1)],
    )
    def test_a_day_without_another_mail_begins_with_the_mail(
        self, tenant: Tenant, threshold: int | None, hours: int, mails_then: int
    ) -> None:
        """A day of counting ended an hour after the mail. Without a threshold, nothing counts until there is one."""
        since = now() - timedelta(hours=23)
        endpoint = endpoint_of(
            tenant, exhausted_count=5, exhausted_since=since, exhausted_mail_threshold=threshold
        )

        def give_up(count: int) -> None:
            for event in publishing.make(tenant, count=count):
                row = dead_delivery(endpoint, event)
                ExhaustedDelivery.objects.create(delivery_id=row.id, endpoint_id=endpoint.id)
            report_exhausted()

        give_up(1)
        assert len(mails()) == (0 if threshold is None else 1)
        row = Endpoint.objects.get()
        assert row.exhausted_since is not None
        row.exhausted_since -= timedelta(hours=hours)
        Endpoint.objects.update(exhausted_since=row.exhausted_since, exhausted_mail_threshold=6)
        give_up(6)
        assert len(mails()) == mails_then

    def test_each_endpoint_has_one_event_in_a_round_and_a_run_has_an_end(
        self, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An endpoint with more given-up deliveries than one event can report does not delay other endpoints."""
        receiver.answer = lambda request: web.Response(status=503)
        endpoints = {str(make(tenant, receiver, name).pk) for name in ("a", "b")}
        for key in ("k1", "k2"):
            publish_one(tenant, key)
        dispatcher.run()
        monkeypatch.setattr(notices, "MOST_EXHAUSTED", 1)
        monkeypatch.setattr(notices, "MOST_ROUNDS", 1)
        assert [report_exhausted() for _ in range(3)] == [2, 2, 0]
        found = list(Event.objects.filter(type=EXHAUSTED).order_by("id").values_list("id", flat=True))
        bodies = [body for body in envelope.load(found, tenant_id=tenant.id).values() if body is not None]
        assert {json.loads(body.data)["endpoint_id"] for body in bodies[:2]} == endpoints

    def test_nothing_is_reported_for_a_deleted_endpoint(
        self, api: Api, tenant: Tenant, broken: Endpoint, other: Endpoint
    ) -> None:
        publish_one(tenant)
        dispatcher.run()
        api.delete(f"/v1/webhooks/{broken.id}")
        assert report_exhausted() == 0
        assert not ExhaustedDelivery.objects.exists()
        assert reported(other) == []

    def test_one_endpoint_that_cannot_be_reported_stops_no_other(
        self, tenant: Tenant, other_tenant: Tenant, broken: Endpoint, receiver: Receiver, monkeypatch: Any
    ) -> None:
        make(other_tenant, receiver, "broken/theirs")
        for owner in (tenant, other_tenant):
            publish_one(owner)
        dispatcher.run()
        event = notices._event

        def poisoned(endpoint: Endpoint, *given: Any, **named: Any) -> Any:
            if endpoint.pk == broken.pk:
                raise ValueError
            return event(endpoint, *given, **named)

        monkeypatch.setattr(notices, "_event", poisoned)
        assert report_exhausted() == 1
        monkeypatch.setattr(notices, "_event", event)
        assert report_exhausted() == 1, "it is reported later"

    def test_two_workers_report_each_once(self, tenant: Tenant, broken: Endpoint, other: Endpoint) -> None:
        publish_one(tenant)
        dispatcher.run()
        assert sorted(in_threads(report_exhausted, report_exhausted)) == [0, 1]
        assert reported(other) == [EXHAUSTED]


def test_answers_to_successes_are_kept_when_asked(
    api: Api, tenant: Tenant, other: Endpoint, receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(text="thanks " * 100)
    for keeps in (False, True):
        assert api.patch(f"/v1/webhooks/{other.id}", {"keep_answers": keeps}).status_code == 200
        publish_one(tenant, f"keeps {keeps}")
        dispatcher.run()
    kept = [
        api.get(f"/v1/webhook-deliveries/{row.public_id}").json()["attempt_log"][0]
        for row in Delivery.objects.filter(endpoint_id=other.pk, status="delivered").order_by("id")
    ]
    assert [(each["response_body"], each["response_headers"]) for each in kept] == [
        (None, None),
        (("thanks " * 100)[:500], {}),
    ]
    source = Delivery.objects.filter(endpoint_id=other.pk).latest("id")
    again = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()
    (attempt,) = api.get(f"/v1/webhook-deliveries/{again['id']}").json()["attempt_log"]
    assert attempt["response_body"] == ("thanks " * 100)[:500], "also those to a single replay"
