"""`/v1/webhooks*`: create and verify, change, rotate, delete, limits. Lists of `/v1/webhook-deliveries`."""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from django.db import connection, transaction
from django.test import Client
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gateway import ids
from gateway.clock import isoformat, now
from tenants.models import ApiKey, AuditEntry, Tenant, User
from tests.fixtures import Api, assert_error, in_threads, wait_until, waiting_for_locks
from tests.receiver import Received, Receiver
from webhooks.delivery import dispatcher, recorder
from webhooks.endpoints import lifecycle
from webhooks.endpoints.lifecycle import MOST_ENDPOINTS
from webhooks.events.envelope import EVENT_TYPES
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

FIELDS = [
    "id", "environment", "kind", "url", "format", "description", "event_types", "waba_ids", "phone_number_ids",
    "statuses", "filter", "uid", "metadata", "headers", "timeout_seconds", "rate_per_second", "ordered", "keep_answers",
    "exhausted_mail_threshold", "retry_schedule", "tls", "oauth2", "asymmetric_signature", "destination", "public_key",
    "batch", "quiet_seconds",
    "status", "verified_at", "secret_prefix", "previous_secret_expires_at", "last_success_at", "consecutive_failures",
]  # fmt: skip


def verifies(secret: str, got: Received) -> bool:
    try:
        Webhook(secret).verify(got.body, {name.lower(): value for name, value in got.headers.items()})
    except WebhookVerificationError:
        return False
    return True


def refuse(receiver: Receiver, status: int = 500, text: str = "no") -> None:
    receiver.ping_answer = lambda request: web.Response(status=status, text=text)


def disable_gone(endpoint_id: str) -> None:
    """Disable an endpoint whose newest attempt was answered 410."""
    generation = Endpoint.objects.get(pk=endpoint_id).circuit_generation
    recorder.disable({UUID(endpoint_id): recorder.Disabling("gone", generation)})


class TestCreate:
    def test_is_verified_by_a_signed_ping_and_shows_the_secret_once(
        self, api: Api, receiver: Receiver
    ) -> None:
        answer = api.post("/v1/webhooks", {"url": receiver.url, "description": "shop"})
        assert answer.status_code == 201
        body = answer.json()
        at = FIELDS.index("secret_prefix")
        assert list(body) == [*FIELDS[:at], "secret", *FIELDS[at:]]
        assert body["secret"].startswith("whsec_")
        assert body["secret"].startswith(body["secret_prefix"])
        assert (body["status"], body["event_types"], body["description"]) == ("active", ["*"], "shop")
        defaults = {name: body[name] for name in FIELDS[FIELDS.index("waba_ids") : FIELDS.index("status")]}
        assert {name: value for name, value in defaults.items() if value} == {"exhausted_mail_threshold": 1}
        assert body["secret_prefix"] == body["secret"][:12]
        (ping,) = receiver.pings
        assert ping.json["type"] == "webhook.verify"
        assert verifies(body["secret"], ping)
        shown = api.get(f"/v1/webhooks/{body['id']}").json()
        assert list(shown) == [*FIELDS, "health"]
        del shown["health"]
        assert api.get("/v1/webhooks").json() == {"data": [shown], "next_cursor": None}
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM webhooks_endpoint")
            assert body["secret"] not in str(cursor.fetchone()), "it is stored encrypted"

    def test_the_challenge_may_come_as_text_or_json(self, api: Api, receiver: Receiver) -> None:
        receiver.ping_answer = lambda request: web.Response(text=f" {request.json['challenge']}\n")
        assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
        receiver.ping_answer = lambda request: web.json_response({"challenge": request.json["challenge"]})
        assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201

    def test_an_answer_that_repeats_the_request_does_not_pass(self, api: Api, receiver: Receiver) -> None:
        """A server that only echoes, or shows what it did not understand, need not know that it receives events."""
        for beginning in ("", "Unknown: "):

            def echo(ping: Received, beginning: str = beginning) -> web.Response:
                return web.Response(text=beginning + json.dumps({"seen": ping.json}))

            receiver.ping_answer = echo
            answer = api.post("/v1/webhooks", {"url": receiver.url})
            error = assert_error(answer, 422, "webhook_verify_failed")
            assert error["details"]["error"] == "wrong_answer"

    @pytest.mark.parametrize(
        ("status", "text", "repair"),
        [
            (500, "broken", "Look at your server's log"),
            (401, "sign", "your server refuses the signature"),
            (200, "hello", "Answer 2xx with the challenge"),
            (302, "", "Set the endpoint's URL to the address that your server redirects to"),
            (200, '{"challenge": "x"}', "Answer 2xx with the challenge"),
            (200, "[1]", "Answer 2xx with the challenge"),
            (500, "x" * 600, "Look at your server's log"),
        ],
    )
    def test_a_failed_ping_leaves_it_pending_and_says_why(
        self, api: Api, receiver: Receiver, status: int, text: str, repair: str
    ) -> None:
        refuse(receiver, status, text)
        error = assert_error(api.post("/v1/webhooks", {"url": receiver.url}), 422, "webhook_verify_failed")
        details = error["details"]
        assert {"endpoint_id", "http_status", "response_ms", "body_excerpt", "secret"} <= set(details)
        assert (details["http_status"], details["body_excerpt"]) == (status, text[:500])
        assert (
            details["error"]
            == {200: "wrong_answer", 302: "http_3xx", 401: "http_4xx", 500: "http_5xx"}[status]
        )
        assert repair in error["hint"]
        assert error["hint"].endswith("Then POST /v1/webhooks/{endpoint_id}/verify.")
        endpoint = Endpoint.objects.get(pk=details["endpoint_id"])
        assert (endpoint.status, endpoint.verified_at, endpoint.secret) == (
            "pending", None, details["secret"],
        )  # fmt: skip

        receiver.ping_answer = lambda request: web.Response(text=request.json["challenge"])
        verified = api.post(f"/v1/webhooks/{endpoint.id}/verify")
        assert verified.status_code == 200
        assert list(verified.json()) == ["id", "status", "verified_at", "response_ms"]
        assert verified.json()["status"] == "active"

    def test_a_ping_that_nobody_answers_has_no_http_status(
        self, api: Api, receiver: Receiver, settings: Any
    ) -> None:
        answer = api.post("/v1/webhooks", {"url": "http://127.0.0.1:9/"})
        error = assert_error(answer, 422, "webhook_verify_failed")
        assert error["hint"].startswith("Nothing answered at the url")
        details = error["details"]
        assert details["http_status"] is None
        answer = api.post(f"/v1/webhooks/{details['endpoint_id']}/verify")
        assert assert_error(answer, 422, "webhook_verify_failed")["details"]["http_status"] is None

    def test_bad_input_is_named_and_nothing_is_stored(self, api: Api, receiver: Receiver) -> None:
        at = "https://example.com/"
        urls = [
            "ftp://example.com",
            "https://user:pw@example.com/",
            f"{at}#part",
            at + "x" * 2040,
            "no url",
            None,
        ]
        wrong: dict[str, list[Any]] = {
            "url": urls,
            "event_types": [[], ["message.unknown"], "message.status"],
            "description": ["x" * 501],
        }
        for change in ({name: value} for name, values in wrong.items() for value in values):
            answer = api.post("/v1/webhooks", {"url": receiver.url, **change})
            error = assert_error(answer, 400, "invalid_request")
            assert [name.partition(".")[0] for name in error["details"]["fields"]] == list(change), change
        assert Endpoint.objects.count() == 0

    def test_plain_http_and_private_addresses_only_where_allowed(
        self, api: Api, receiver: Receiver, settings: Any
    ) -> None:
        settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
        answer = api.post("/v1/webhooks", {"url": receiver.url})
        error = assert_error(answer, 422, "webhook_verify_failed")
        assert error["details"]["error"] == "blocked_address"
        assert "whabuzz listen --forward-to" in error["hint"]
        assert receiver.pings == []
        settings.WEBHOOK_ALLOW_HTTP = False
        assert_error(api.post("/v1/webhooks", {"url": receiver.url}), 400, "invalid_request")

    def test_at_most_twenty_also_when_two_race_for_the_last(
        self, api: Api, tenant: Tenant, receiver: Receiver
    ) -> None:
        for _ in range(MOST_ENDPOINTS - 1):
            Endpoint.objects.create(
                tenant=tenant, url=receiver.url, event_types=["*"], secret="whsec_eA==", secret_prefix="w"
            )
        answers = in_threads(*[lambda: api.post("/v1/webhooks", {"url": receiver.url})] * 2)
        made, refused = sorted(answers, key=lambda answer: answer.status_code)
        assert made.status_code == 201
        error = assert_error(refused, 409, "conflict")
        assert error["details"] == {"limit": MOST_ENDPOINTS}
        assert Endpoint.objects.count() == MOST_ENDPOINTS

    def test_a_second_one_with_a_uid_beside_the_verification_of_the_first_is_refused(
        self, api: Api, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = Endpoint.objects.create(
            tenant=tenant, environment="live", url=receiver.url, event_types=["*"],
            secret="whsec_eA==", secret_prefix="w", uid="shop", status="pending",
        )  # fmt: skip
        is_saved = threading.Event()
        original = lifecycle.endpoints_changed.send

        def send(*sender: Any, **given: Any) -> None:
            is_saved.set()
            wait_until(lambda: waiting_for_locks() > 0, "the creation waits for the change")
            original(*sender, **given)

        def create() -> Any:
            assert is_saved.wait(10)
            return api.post("/v1/webhooks", {"url": receiver.url, "uid": "shop"})

        monkeypatch.setattr(lifecycle.endpoints_changed, "send", send)
        verified, refused = in_threads(lambda: api.post(f"/v1/webhooks/{first.id}/verify"), create)
        assert verified.status_code == 200
        assert_error(refused, 400, "invalid_request")


class TestChange:
    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("PATCH", "", {"description": "new"}),
            ("POST", "/resume", None),
            ("POST", "/rotate-secret", {"overlap_hours": 1}),
        ],
    )
    def test_one_beside_another_change_loses_nothing_of_it(
        self, api: Api, endpoint: dict[str, Any], method: str, path: str, body: dict[str, Any] | None
    ) -> None:
        has_changed = threading.Event()

        def change() -> None:
            with transaction.atomic():
                Endpoint.objects.update(rate_per_second=7)
                has_changed.set()
                wait_until(lambda: waiting_for_locks() > 0, "the other change does not wait")

        def change_too() -> Any:
            assert has_changed.wait(10)
            return api.request(method, f"/v1/webhooks/{endpoint['id']}{path}", body)

        assert in_threads(change, change_too)[1].status_code == 200
        assert Endpoint.objects.get().rate_per_second == 7

    def test_a_new_url_is_taken_only_when_it_passes_the_ping(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        before = api.get(path).json()
        refuse(receiver)
        for url in (receiver.url + "/new", "http://127.0.0.1:9/"):
            error = assert_error(api.patch(path, {"url": url}), 422, "webhook_verify_failed")
            assert error["hint"].endswith("hen PATCH /v1/webhooks/{endpoint_id} again."), (
                "verify pings the old url"
            )
        assert api.get(path).json() == before
        receiver.ping_answer = lambda request: web.Response(text=request.json["challenge"])
        changed = api.patch(path, {"url": receiver.url + "/new"}).json()
        assert (changed["url"], changed["status"]) == (receiver.url + "/new", "active")
        assert changed["verified_at"] > before["verified_at"]
        assert receiver.pings[-1].path == "/hook/new"

    def test_other_members_change_without_a_ping(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        refuse(receiver)
        changed = api.patch(
            f"/v1/webhooks/{endpoint['id']}",
            {"description": "new", "event_types": ["message.status"], "url": receiver.url},
        ).json()
        assert (changed["description"], changed["event_types"]) == ("new", ["message.status"])
        every = ["*", *EVENT_TYPES]
        answer = api.patch(f"/v1/webhooks/{endpoint['id']}", {"event_types": every})
        assert answer.json()["event_types"] == every
        assert receiver.pings == []

    def test_paused_nothing_is_attempted_or_queued_and_what_waited_goes_on(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        publish_one(tenant, "before")
        assert api.patch(path, {"status": "paused"}).json()["status"] == "paused"
        dispatcher.run()
        publish_one(tenant, "meanwhile")
        assert receiver.received == []
        assert Delivery.objects.count() == 1
        assert api.patch(path, {"status": "active"}).json()["status"] == "active"
        dispatcher.run()
        assert len(receiver.wait_for(1)) == 1
        assert receiver.pings == [], "a verified endpoint is not pinged"

    def test_a_passed_ping_does_not_end_a_pause(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        assert api.patch(path, {"status": "paused"}).status_code == 200
        verified = api.post(f"{path}/verify")
        assert (verified.status_code, verified.json()["status"]) == (200, "paused")
        changed = api.patch(path, {"url": receiver.url + "/new"})
        assert (changed.status_code, changed.json()["status"]) == (200, "paused")
        assert api.get(path).json()["status"] == "paused"

    @pytest.mark.parametrize(
        ("before", "after"), [("pending", "active"), ("disabled", "active"), ("paused", "paused")]
    )
    def test_a_new_url_that_passes_the_ping_ends_everything_but_a_pause(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver, before: str, after: str
    ) -> None:
        Endpoint.objects.update(status=before, verified_at=None, consecutive_failures=7, failing_since=now())
        changed = api.patch(f"/v1/webhooks/{endpoint['id']}", {"url": receiver.url + "/new"}).json()
        assert (changed["status"], changed["verified_at"] is not None) == (after, True)
        assert changed["consecutive_failures"] == (7 if after == "paused" else 0)

    @pytest.mark.parametrize("status", ["disabled", "pending", "paused"])
    def test_active_asks_for_a_passed_ping(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver, status: str
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        Endpoint.objects.update(
            status=status, verified_at=now() if status == "disabled" else None, consecutive_failures=40
        )
        refuse(receiver)
        assert_error(api.patch(path, {"status": "active"}), 422, "webhook_verify_failed")
        assert api.get(path).json()["status"] == status
        receiver.ping_answer = lambda request: web.Response(text=request.json["challenge"])
        changed = api.patch(path, {"status": "active"}).json()
        assert (changed["status"], changed["consecutive_failures"]) == ("active", 0)

    def test_a_pause_does_not_replace_the_ping_of_a_disabled_endpoint(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        disable_gone(endpoint["id"])
        assert api.patch(path, {"status": "paused"}).json()["status"] == "paused"
        assert_error(api.post(f"{path}/resume"), 409, "conflict")
        refuse(receiver)
        assert_error(api.patch(path, {"status": "active"}), 422, "webhook_verify_failed")
        assert api.get(path).json()["status"] == "paused"
        receiver.ping_answer = lambda request: web.Response(text=request.json["challenge"])
        assert api.post(f"{path}/verify").json()["status"] == "paused"
        assert api.post(f"{path}/resume").json()["status"] == "active"

    def test_only_active_and_paused_can_be_set(self, api: Api, endpoint: dict[str, Any]) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        for status in ("disabled", "pending", "nonsense", None):
            assert_error(api.patch(path, {"status": status}), 400, "invalid_request")
            assert api.get(path).json()["status"] == "active", status


class TestRotateSecret:
    def sent(self, tenant: Tenant, receiver: Receiver, key: str) -> Received:
        publish_one(tenant, key)
        dispatcher.run()
        return receiver.wait_for(len(receiver.received))[-1]

    def test_both_sign_during_the_overlap_then_the_new_one_alone(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        rotated = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret").json()
        assert list(rotated) == ["id", "secret", "secret_prefix", "previous_secret_expires_at"]
        assert rotated["secret_prefix"] == rotated["secret"][:12]
        expires_at = Endpoint.objects.get().previous_secret_expires_at
        assert expires_at is not None
        assert timedelta(hours=23.9) < expires_at - now() < timedelta(hours=24.1)
        got = self.sent(tenant, receiver, "k1")
        assert [verifies(secret, got) for secret in (endpoint["secret"], rotated["secret"])] == [True, True]
        Endpoint.objects.update(previous_secret_expires_at=now())
        got = self.sent(tenant, receiver, "k2")
        assert [verifies(secret, got) for secret in (endpoint["secret"], rotated["secret"])] == [False, True]

    def test_without_overlap_the_old_one_stops_at_once(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        rotated = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": 0}).json()
        assert rotated["previous_secret_expires_at"] is None
        got = self.sent(tenant, receiver, "k1")
        assert [verifies(secret, got) for secret in (endpoint["secret"], rotated["secret"])] == [False, True]

    def test_twice_in_an_overlap_the_newest_two_sign(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}/rotate-secret"
        second, third = api.post(path).json(), api.post(path).json()
        got = self.sent(tenant, receiver, "k1")
        secrets = (endpoint["secret"], second["secret"], third["secret"])
        assert [verifies(secret, got) for secret in secrets] == [False, True, True]

    def test_overlap_out_of_range_is_refused(self, api: Api, endpoint: dict[str, Any]) -> None:
        for hours in (-1, 169, "a", 1.5, None):
            answer = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": hours})
            fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
            assert list(fields) == ["overlap_hours"], hours


class TestDeliveries:
    def test_one_has_its_attempts_and_its_last_answer(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        receiver.answer = lambda request: web.Response(status=500)
        failed_event = publish_one(tenant)
        dispatcher.run()
        (listed,) = api.get("/v1/webhook-deliveries?event_type=message.status,message.inbound").json()["data"]
        one = api.get(f"/v1/webhook-deliveries/{listed['id']}").json()
        assert list(one) == [
            "id", "event_id", "event_type", "endpoint_id", "status", "attempts", "last_http_status",
            "last_error", "last_response_ms", "next_attempt_at", "attempt_log", "is_replay", "replay_of",
        ]  # fmt: skip
        assert one["event_id"] == ids.encode("evt_", failed_event)
        assert (one["status"], one["last_http_status"], one["last_error"]) == ("failed", 500, "http_5xx")

    def test_from_is_inclusive_and_to_exclusive(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        publish_one(tenant)
        delivery = Delivery.objects.get()
        at, later = (isoformat(delivery.created_at + timedelta(milliseconds=more)) for more in (0, 1))
        for query, found in ((f"from={at}", 1), (f"to={at}", 0), (f"from={later}", 0), (f"to={later}", 1)):
            assert len(api.get(f"/v1/webhook-deliveries?{query}").json()["data"]) == found, query

    def test_a_bad_filter_is_refused(self, api: Api) -> None:
        bad = "status=late endpoint_id=x event_id=x from=x to=x limit=0 cursor=%21 http_status=99 http_status=600"
        for query in (*bad.split(), "http_status=-1", "event_type=x", "event_type=message.inbound,x"):
            error = assert_error(api.get(f"/v1/webhook-deliveries?{query}"), 400, "invalid_request")
            assert list(error["details"]["fields"]) == [query.partition("=")[0]], query


class TestDuringAPing:
    """A ping takes seconds. A change during a ping takes precedence over the ping's result."""

    def meanwhile(self, receiver: Receiver, does: Callable[[], object]) -> None:
        """Call `does` while the next ping waits for its response."""

        def act() -> None:
            does()
            connection.close()

        async def answer(request: Received) -> web.Response:
            await asyncio.to_thread(act)
            return web.json_response({"challenge": request.json["challenge"]})

        receiver.ping_answer = answer

    @pytest.mark.parametrize("before", ["pending", "active", "disabled"])
    def test_a_pause_stays(self, api: Api, endpoint: dict[str, Any], receiver: Receiver, before: str) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        Endpoint.objects.update(status=before, verified_at=None)
        self.meanwhile(receiver, lambda: Endpoint.objects.update(status="paused"))
        assert api.post(f"{path}/verify").json()["status"] == "paused"
        shown = api.get(path).json()
        assert (shown["status"], shown["verified_at"] is not None) == ("paused", True), "the pass is kept"

    def test_a_410_stays(self, api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        gone = endpoint["id"]
        self.meanwhile(receiver, lambda: disable_gone(gone))
        assert api.post(f"{path}/verify").json()["status"] == "disabled"
        assert api.get(path).json()["status"] == "disabled"

    def test_a_second_410_of_a_disabled_one_stays(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        gone = endpoint["id"]
        disable_gone(gone)

        def back_and_gone_again() -> None:
            Endpoint.objects.update(status="active")
            disable_gone(gone)

        self.meanwhile(receiver, back_and_gone_again)
        assert api.post(f"/v1/webhooks/{gone}/verify").json()["status"] == "disabled"

    @pytest.mark.parametrize(
        "change", [{"status": "active"}, {"url": "/new"}, {"url": "/new", "status": "active"}]
    )
    def test_a_change_that_needs_a_ping_leaves_a_pause(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver, change: dict[str, str]
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        Endpoint.objects.update(status="disabled")
        if "url" in change:
            change = {**change, "url": receiver.url + change["url"]}
        self.meanwhile(receiver, lambda: Endpoint.objects.update(status="paused"))
        answer = api.patch(path, change)
        if "status" in change:
            assert_error(answer, 409, "conflict")
            assert api.get(path).json()["url"] == receiver.url
        else:
            assert (answer.json()["status"], answer.json()["url"]) == ("paused", change["url"])
        assert api.get(path).json()["status"] == "paused"

    def test_a_new_url_leaves_a_410(self, api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
        gone = endpoint["id"]
        self.meanwhile(receiver, lambda: disable_gone(gone))
        changed = api.patch(f"/v1/webhooks/{gone}", {"url": receiver.url + "/new"}).json()
        assert (changed["status"], changed["url"]) == ("disabled", receiver.url + "/new")

    @pytest.mark.parametrize("change", [None, {"status": "active"}, {"url": "/new"}])
    def test_a_deletion_stays(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver, change: dict[str, str] | None
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        Endpoint.objects.update(status="disabled")
        self.meanwhile(receiver, lambda: Endpoint.objects.all().delete())
        if change is None:
            assert_error(api.post(f"{path}/verify"), 409, "conflict")
        else:
            if "url" in change:
                change = {"url": receiver.url + "/new"}
            assert_error(api.patch(path, change), 404, "not_found")
        assert not Endpoint.objects.exists()

    def test_another_url_is_not_taken_for_verified(
        self, api: Api, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        path = f"/v1/webhooks/{endpoint['id']}"
        Endpoint.objects.update(status="disabled", verified_at=None)
        self.meanwhile(receiver, lambda: Endpoint.objects.update(url=receiver.url + "/other"))
        assert_error(api.post(f"{path}/verify"), 409, "conflict")
        Endpoint.objects.update(url=receiver.url)
        assert_error(api.patch(path, {"status": "active"}), 409, "conflict")
        shown = api.get(path).json()
        assert (shown["status"], shown["verified_at"]) == ("disabled", None)

    def test_a_description_that_changes_beside_a_pause_leaves_it(
        self, api: Api, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        find = lifecycle.find

        def found_then_paused(**of: Any) -> Endpoint:
            found = find(**of)
            Endpoint.objects.update(status="paused")
            return found

        monkeypatch.setattr(lifecycle, "find", found_then_paused)
        answer = api.patch(f"/v1/webhooks/{endpoint['id']}", {"description": "new"})
        assert (answer.json()["status"], answer.json()["description"]) == ("paused", "new")


@pytest.mark.parametrize("how", ["verify", "active"])
def test_a_passed_ping_and_active_close_the_circuit_at_once(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, how: str
) -> None:
    path = f"/v1/webhooks/{endpoint['id']}"
    publish_one(tenant)
    Endpoint.objects.update(
        circuit_open_until=now() + timedelta(minutes=15),
        circuit_opened=5,
        consecutive_failures=12,
        failing_since=now(),
        disabled_at=now(),
    )
    dispatcher.run()
    assert receiver.received == []
    answer = api.post(f"{path}/verify") if how == "verify" else api.patch(path, {"status": "active"})
    assert answer.status_code == 200
    health = api.get(path).json()["health"]
    assert (health["state"], health["since"]) == ("healthy", None)
    dispatcher.run()
    assert len(receiver.wait_for(1)) == 1
    row = Endpoint.objects.get()
    assert (row.circuit_open_until, row.circuit_opened, row.consecutive_failures) == (None, 0, 0)
    assert row.disabled_at is None


@pytest.mark.parametrize("status", Endpoint.Status.values)
def test_only_an_active_endpoint_is_disabled_by_its_answers(
    tenant: Tenant, endpoint: dict[str, Any], status: str
) -> None:
    Endpoint.objects.update(status=status)
    disable_gone(endpoint["id"])
    row = Endpoint.objects.get()
    is_new = status == "active"
    assert row.status == ("disabled" if is_new else status)
    assert (row.disabled_at is not None) is is_new
    assert Event.objects.filter(type="webhook.disabled").count() == is_new
    audited = AuditEntry.objects.filter(action="webhook_endpoint.disable", target_id=endpoint["id"])
    assert [entry.details["reason"] for entry in audited] == ["gone"] * is_new


def test_the_audit_log_keeps_the_host_of_each_address_that_got_events_and_no_secret(
    api: Api, receiver: Receiver
) -> None:
    first = receiver.url.removesuffix("/hook")
    second = first.replace("127.0.0.1", "localhost")
    oauth2 = {"token_url": f"{first}/s3cret", "client_id": "s3cret", "client_secret": "s3cret"}
    receiver.answer = lambda _: web.json_response({"access_token": "s3cret"})
    endpoint = api.post("/v1/webhooks", {"url": f"{receiver.url}/s3cret?s3cret", "oauth2": oauth2}).json()
    moved = {"url": f"{second}/s3cret", "oauth2": {**oauth2, "token_url": f"{second}/s3cret"}}
    for changes in (moved, {"description": "s3cret"}):
        assert api.patch(f"/v1/webhooks/{endpoint['id']}", changes).status_code == 200
    api.delete(f"/v1/webhooks/{endpoint['id']}")
    created, update, described, deleted = AuditEntry.objects.filter(target_id=endpoint["id"]).order_by("id")
    addresses = {"url": first, "token_url": first}
    more = {"event_types": ["*"]}
    assert created.details["after"] == {**addresses, **more, "status": "pending"}
    assert update.details["before"] == addresses
    assert update.details["after"] == {"url": second, "token_url": second}
    assert described.details.keys() == {"changed", "acting_key"}
    assert deleted.details["before"] == {**update.details["after"], **more, "status": "active"}
    assert "s3cret" not in str([entry.details for entry in AuditEntry.objects.all()])


def test_the_audit_log_names_the_person_or_the_key_that_changed_an_endpoint(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = api.post("/v1/webhooks", {"url": receiver.url}).json()
    created = AuditEntry.objects.get(action="webhook_endpoint.create")
    key = ApiKey.objects.get(tenant=tenant)
    assert (created.actor_user_id, created.details["acting_key"]) == (None, key.prefix)
    person = User.objects.create_user("dev@traders.example", tenant=tenant, role="developer")
    browser = Client()
    browser.force_login(person)
    for step in ("pause", "resume", "delete"):
        browser.post(f"/console/webhooks/{endpoint['id']}/{step}")
    done = AuditEntry.objects.exclude(pk=created.pk).filter(action__startswith="webhook_endpoint.")
    assert list(done.order_by("id").values_list("action", "actor_user_id")) == [
        ("webhook_endpoint.update", person.pk),
        ("webhook_endpoint.resume", person.pk),
        ("webhook_endpoint.delete", person.pk),
    ]
