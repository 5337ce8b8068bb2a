"""Health of an endpoint in the API: why it fails, how it is resumed, and creation without a ping."""

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from django.test import Client
from standardwebhooks.webhooks import Webhook

from gateway import ids
from gateway.clock import isoformat, now
from tenants.models import Tenant
from tests.browsers import text
from tests.fixtures import Api, assert_error
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.endpoints import health
from webhooks.models import Delivery, Endpoint
from webhooks.requests.signed_request import is_secret, key_of, new_secret
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


def shown_health(api: Api, endpoint: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = api.get(f"/v1/webhooks/{endpoint['id']}").json()["health"]
    return shown


def open_circuit() -> str:
    """Open the endpoint's circuit for ten minutes. Returns when that time ends, as the API shows it."""
    until = now() + timedelta(minutes=10)
    Endpoint.objects.update(
        circuit_open_until=until, circuit_opened=3, consecutive_failures=12, failing_since=now()
    )
    return isoformat(until)


def rows(tenant: Tenant, endpoint: dict[str, Any], status: str, *each: dict[str, Any], **values: Any) -> None:
    """Deliveries to the endpoint with a status, one for each of the given columns."""
    for columns in each or ({},):
        Delivery.objects.create(
            tenant_id=tenant.id,
            endpoint_id=endpoint["id"],
            event_id=ids.uuid7(),
            event_type="message.inbound",
            status=status,
            **columns,
            **values,
        )


class TestHealth:
    def test_of_one_that_answers(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        for n in range(4):
            publish_one(tenant, f"k{n}")
        dispatcher.run()
        shown = shown_health(api, endpoint)
        last_hour = shown.pop("last_hour")
        assert shown == {
            "state": "healthy",
            "since": None,
            "reason": None,
            "retry_at": None,
            "waiting": {"count": 0, "oldest": None},
        }
        assert (last_hour["attempted"], last_hour["success_share"]) == (4, 1.0)
        assert 0 <= last_hour["p50_ms"] <= last_hour["p95_ms"]
        assert "health" not in api.get("/v1/webhooks").json()["data"][0]

    def test_of_one_that_fails_names_the_reason_and_what_waits(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        receiver.answer = lambda request: web.Response(status=503)
        publish_one(tenant, "k1")
        dispatcher.run()
        publish_one(tenant, "k2")
        shown = shown_health(api, endpoint)
        oldest = Delivery.objects.order_by("id")[0]
        earliest = min(due for due in Delivery.objects.values_list("next_attempt_at", flat=True) if due)
        assert (shown["state"], shown["retry_at"]) == ("failing", isoformat(earliest))
        assert shown["since"] == isoformat(Endpoint.objects.get().failing_since or now())
        assert shown["reason"] == {"error": "http_5xx", "http_status": 503}
        assert shown["waiting"] == {"count": 2, "oldest": isoformat(oldest.created_at)}
        assert shown["last_hour"]["success_share"] == 0.0

    def test_of_one_that_was_disabled_by_410_names_the_reason(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        """No waiting delivery has the reason. Another endpoint's dead delivery does not count."""
        other = api.post("/v1/webhooks", {"url": receiver.url, "event_types": ["message.status"]}).json()
        receiver.answer = lambda request: web.Response(status=410)
        publish_one(tenant, "k1")
        dispatcher.run()
        body = api.get(f"/v1/webhooks/{endpoint['id']}").json()
        assert (body["status"], body["health"]["waiting"]["count"]) == ("disabled", 0)
        assert body["health"]["reason"] == {"error": "http_4xx", "http_status": 410}
        Endpoint.objects.filter(pk=other["id"]).update(consecutive_failures=1)
        assert shown_health(api, other)["reason"] is None

    def test_of_an_open_circuit_says_until_when(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        publish_one(tenant)
        until = open_circuit()
        shown = shown_health(api, endpoint)
        assert (shown["state"], shown["retry_at"], shown["waiting"]["count"]) == ("circuit_open", until, 1)
        due = now()
        Delivery.objects.update(next_attempt_at=due)
        Endpoint.objects.update(circuit_open_until=now(), consecutive_failures=0)
        shown = shown_health(api, endpoint)
        assert (shown["state"], shown["retry_at"]) == ("failing", isoformat(due)), "it is about to be probed"
        Delivery.objects.update(status="dead", next_attempt_at=None)
        shown = shown_health(api, endpoint)
        assert (shown["state"], shown["retry_at"]) == ("failing", None), "nothing waits for a probe"

    @pytest.mark.parametrize("status", ["paused", "disabled"])
    def test_of_one_that_fails_and_is_not_active_plans_no_attempt(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], status: str
    ) -> None:
        publish_one(tenant)
        Endpoint.objects.update(status=status, consecutive_failures=2, failing_since=now())
        assert (shown_health(api, endpoint)["state"], shown_health(api, endpoint)["retry_at"]) == (
            "failing",
            None,
        )
        open_circuit()
        assert (shown_health(api, endpoint)["state"], shown_health(api, endpoint)["retry_at"]) == (
            "circuit_open",
            None,
        )

    def test_of_a_secret_that_cannot_be_read(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        open_circuit()
        since = now() - timedelta(hours=3)
        Endpoint.objects.update(secret_unreadable_since=since)
        shown = shown_health(api, endpoint)
        assert shown["reason"] == {"error": "secret_unreadable", "http_status": None}
        assert shown["since"] == isoformat(since)

    def test_names_the_newest_attempt_that_failed_not_a_delivery_that_was_never_attempted(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        Endpoint.objects.update(consecutive_failures=1)
        for attempts, error, status in (
            (3, "http_4xx", 404),
            (4, "http_5xx", 503),
            (0, "payload_expired", None),
        ):
            rows(tenant, endpoint, "dead", attempts=attempts, last_error=error, last_http_status=status)
        assert shown_health(api, endpoint)["reason"] == {"error": "http_5xx", "http_status": 503}
        for error, status, hours_ago, due_in in (("timeout", None, 3, 7), ("http_4xx", 401, 0, 0)):
            entry = {"at": isoformat(now() - timedelta(hours=hours_ago)), "http_status": status}
            rows(
                tenant,
                endpoint,
                "failed",
                attempts=1,
                last_error=error,
                last_http_status=status,
                attempt_log=[{"at": isoformat(now() - timedelta(days=1))}, entry],
                next_attempt_at=now() + timedelta(hours=due_in),
            )
        assert shown_health(api, endpoint)["reason"] == {"error": "http_4xx", "http_status": 401}

    def test_of_the_last_hour_has_the_share_and_the_times_of_attempts(
        self, api: Api, browser: Client, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        times = [{"attempts": 1, "last_response_ms": ms} for ms in range(1, 25)]
        rows(tenant, endpoint, "delivered", *times[:16])
        rows(tenant, endpoint, "failed", *times[16:20])
        rows(tenant, endpoint, "dead", *times[20:])
        rows(tenant, endpoint, "pending")
        assert shown_health(api, endpoint)["last_hour"] == {
            "attempted": 24,
            "success_share": 0.6667,
            "p50_ms": 12,
            "p95_ms": 23,
        }
        page = text(browser, f"/console/webhooks/{endpoint['id']}")
        assert "66.7 %" in page
        assert "of 24 delivered; half answered within 12" in page

    def test_another_endpoints_deliveries_are_not_counted(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        other = api.post("/v1/webhooks", {"url": receiver.url, "event_types": ["message.status"]}).json()
        publish_one(tenant)
        dispatcher.run()
        publish_one(tenant, "k2")
        assert shown_health(api, endpoint)["last_hour"]["attempted"] == 1
        assert shown_health(api, other)["last_hour"]["attempted"] == 0
        assert shown_health(api, other)["waiting"]["count"] == 0

    @pytest.mark.parametrize(("minutes", "counted"), [(59, 1), (61, 0)])
    def test_the_last_hour_is_an_hour(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], minutes: int, counted: int
    ) -> None:
        publish_one(tenant)
        dispatcher.run()
        Delivery.objects.update(id=ids.first_at(now() - timedelta(minutes=minutes)))
        assert shown_health(api, endpoint)["last_hour"]["attempted"] == counted

    def test_a_backlog_is_counted_up_to_a_bound(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(health, "COUNTED_ROWS", 2)
        for n in range(4):
            publish_one(tenant, f"k{n}")
        assert shown_health(api, endpoint)["waiting"]["count"] == 2


class TestHeldBackDeliveries:
    def shown(self, api: Api) -> tuple[Any, Any]:
        """`last_error` and `next_attempt_at` of the only delivery, which are the same in every operation."""
        (listed,) = api.get("/v1/webhook-deliveries").json()["data"]
        one = api.get(f"/v1/webhook-deliveries/{listed['id']}").json()
        (of_event,) = api.get(f"/v1/events/{listed['event_id']}").json()["deliveries"]
        answers = {(row["last_error"], row["next_attempt_at"]) for row in (listed, one, of_event)}
        assert len(answers) == 1
        return answers.pop()

    def test_show_the_circuit_and_its_end(self, api: Api, tenant: Tenant, endpoint: dict[str, Any]) -> None:
        publish_one(tenant)
        until = open_circuit()
        assert self.shown(api) == ("circuit_open", until)
        later = now() + timedelta(hours=1)
        Delivery.objects.update(next_attempt_at=later, status="failed", last_error="timeout")
        assert self.shown(api) == ("timeout", isoformat(later)), "its own schedule is later"
        Endpoint.objects.update(circuit_open_until=now())
        Delivery.objects.update(status="dead", next_attempt_at=None)
        assert self.shown(api) == ("timeout", None)

    def test_show_a_secret_that_cannot_be_read(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        publish_one(tenant)
        until = open_circuit()
        Endpoint.objects.update(secret_unreadable_since=now())
        assert self.shown(api) == ("secret_unreadable", until)

    def test_show_nothing_of_a_circuit_whose_time_is_over(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        publish_one(tenant)
        due = now() - timedelta(minutes=1)
        Delivery.objects.update(status="failed", last_error="timeout", next_attempt_at=due)
        Endpoint.objects.update(circuit_open_until=now() - timedelta(seconds=1), consecutive_failures=12)
        assert self.shown(api) == ("timeout", isoformat(due))

    def test_of_an_endpoint_that_is_not_active_have_no_next_attempt(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        publish_one(tenant)
        Endpoint.objects.update(status="disabled")
        assert self.shown(api) == ("endpoint_disabled", None)
        Endpoint.objects.update(status="paused")
        assert self.shown(api) == (None, None)
        Delivery.objects.update(status="failed", last_error="timeout")
        assert self.shown(api) == ("timeout", None), "the reason of its last attempt stays"


class TestResume:
    @pytest.mark.parametrize("status", ["active", "paused"])
    def test_sends_what_waits_at_once(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, status: str
    ) -> None:
        publish_one(tenant)
        open_circuit()
        Endpoint.objects.update(status=status)
        dispatcher.run()
        assert receiver.received == []
        answer = api.post(f"/v1/webhooks/{endpoint['id']}/resume").json()
        assert (answer["status"], answer["health"]["state"]) == ("active", "healthy")
        dispatcher.run()
        assert len(receiver.wait_for(1)) == 1
        assert receiver.pings == [], "a verified endpoint is not pinged"

    @pytest.mark.parametrize(
        ("status", "verified"), [("pending", False), ("disabled", True), ("paused", False)]
    )
    def test_does_not_replace_a_ping(
        self, api: Api, endpoint: dict[str, Any], status: str, verified: bool
    ) -> None:
        Endpoint.objects.update(status=status, verified_at=now() if verified else None)
        assert_error(api.post(f"/v1/webhooks/{endpoint['id']}/resume"), 409, "conflict")
        assert Endpoint.objects.get().status == status


class TestCreate:
    def test_a_secret_of_the_callers_signs(self, api: Api, tenant: Tenant, receiver: Receiver) -> None:
        secret = "whsec_" + b64encode(b"s" * 24).decode()
        body = api.post("/v1/webhooks", {"url": receiver.url, "secret": secret}).json()
        assert (body["secret"], body["status"]) == (secret, "active")
        publish_one(tenant)
        dispatcher.run()
        (got,) = receiver.wait_for(1)
        Webhook(secret).verify(got.body, {name.lower(): value for name, value in got.headers.items()})

    def test_a_weak_or_wrong_secret_is_refused(self, api: Api, receiver: Receiver) -> None:
        encoded = [b64encode(b"s" * length).decode() for length in (32, 23, 65)]
        wrong = [
            "",
            "whsec_",
            "secret",
            encoded[0],
            *(f"whsec_{each}" for each in encoded[1:]),
            "whsec_!!!",
            5,
            None,
        ]
        for secret in wrong:
            answer = api.post("/v1/webhooks", {"url": receiver.url, "secret": secret})
            fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
            assert list(fields) == ["secret"], secret

    def test_a_secret_has_twenty_four_to_sixty_four_bytes(self) -> None:
        secrets = {length: "whsec_" + b64encode(b"s" * length).decode() for length in (23, 24, 64, 65)}
        assert [length for length, secret in secrets.items() if is_secret(secret)] == [24, 64]
        assert len(key_of(new_secret())) == 32

    def test_pending_needs_no_ping(self, api: Api, receiver: Receiver) -> None:
        answer = api.post("/v1/webhooks", {"url": receiver.url, "status": "pending"})
        assert answer.status_code == 201
        body = answer.json()
        assert (body["status"], body["verified_at"], receiver.pings) == ("pending", None, [])
        assert body["secret"].startswith("whsec_")
        assert api.post(f"/v1/webhooks/{body['id']}/verify").json()["status"] == "active"

    def test_no_other_status_can_be_asked_for(self, api: Api, receiver: Receiver) -> None:
        for status in ("active", "paused", "disabled", None):
            answer = api.post("/v1/webhooks", {"url": receiver.url, "status": status})
            fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
            assert list(fields) == ["status"], status
