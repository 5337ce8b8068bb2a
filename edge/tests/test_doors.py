"""The contract of each route that has two doors: Django's and the edge's give the same answers."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings as django_settings
from django.db import connection

from edge import notifications
from edge.tests.doors import DjangoDoor, Door, EdgeDoor
from gateway.clock import now
from gateway.database import partitions
from messaging.media import media_owners
from messaging.models import KeptNotification
from messaging.notifications import incoming, views
from messaging.notifications.intake import Intake
from messaging.tests.incoming import events_of, notification, number_of, signature_of, text_change
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.fixtures import assert_error, assert_service_headers

pytestmark = pytest.mark.django_db(transaction=True)

WABA, NUMBER = "100200300400500", "200300400500600"


@pytest.fixture(params=["django", "edge"])
def door(request: pytest.FixtureRequest) -> Door:
    return DjangoDoor() if request.param == "django" else EdgeDoor(request.getfixturevalue("edge_address"))


@pytest.fixture
def number(tenant: Tenant) -> PhoneNumber:
    return number_of(tenant, waba_id=WABA, phone_number_id=NUMBER)


def post(door: Door, body: bytes, **headers: str) -> Any:
    """A notification, signed by the live app unless the headers say otherwise."""
    signed = {"X_Hub_Signature_256": signature_of(body, django_settings.META_APP_SECRET)}
    return door.ask("POST", "/upstream/webhook", body, **{**signed, **headers})


class TestHealth:
    def test_says_the_build_and_the_database(self, door: Door) -> None:
        answer = door.ask("GET", "/v1/health")
        assert json.loads(answer.content) == {"ok": True, "sha": "unknown", "db": "ok"}
        assert_service_headers(answer)  # type: ignore[arg-type]

    def test_live_and_ready(self, door: Door) -> None:
        assert json.loads(door.ask("GET", "/v1/health/live").content) == {"ok": True, "sha": "unknown"}
        answer = door.ask("GET", "/v1/health/ready")
        assert (answer.status_code, json.loads(answer.content)) == (
            200,
            {"ok": True, "sha": "unknown", "db": "ok", "migrations": "ok", "partitions": "ok"},
        )

    @pytest.mark.parametrize("path", ["/v1/health", "/v1/health/live", "/v1/health/ready"])
    def test_answers_whoever_asks_by_address(self, door: Door, path: str) -> None:
        assert door.ask("GET", path, Host="10.1.2.3:8000").status_code == 200

    def test_503_without_a_database(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as stopped:
            stopped.setitem(connection.settings_dict, "HOST", "/nonexistent")
            answer = door.ask("GET", "/v1/health")
            assert (answer.status_code, answer["X-Service-Error-Source"]) == (503, "whabuzz")
            assert door.ask("GET", "/v1/health/ready").status_code == 503
            assert door.ask("GET", "/v1/health/live").status_code == 200

    def test_not_ready_without_the_partition_of_today(self, door: Door) -> None:
        def partitions_word() -> tuple[int, str]:
            answer = door.ask("GET", "/v1/health/ready")
            return answer.status_code, json.loads(answer.content)["partitions"]

        today = f"api_requests_p{now():%Y_%m_%d}"
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE api_requests DETACH PARTITION {today}")
        try:
            assert partitions_word() == (503, "error")
        finally:
            partitions.maintain()
        assert partitions_word() == (200, "ok")

    def test_other_methods_are_405(self, door: Door) -> None:
        assert_error(door.ask("POST", "/v1/health"), 405, "method_not_allowed")  # type: ignore[arg-type]


class TestNotifications:
    def test_200_after_the_commit(self, door: Door, number: PhoneNumber, tenant: Tenant) -> None:
        answer = post(door, notification((WABA, [text_change(NUMBER, "wamid.1")])))
        assert (answer.status_code, answer.content) == (200, b"")
        assert_service_headers(answer)
        assert [event.wamid for event in events_of(tenant)] == ["wamid.1"]

    def test_a_wrong_signature_is_401_and_nothing_is_kept(
        self, door: Door, number: PhoneNumber, tenant: Tenant
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        assert_error(post(door, body, X_Hub_Signature_256="sha256=" + "0" * 64), 401, "unauthorized")
        assert_error(post(door, body, X_Hub_Signature_256=""), 401, "unauthorized")
        assert events_of(tenant) == []
        assert not KeptNotification.objects.exists()

    def test_a_former_app_secret_counts_while_it_is_set(
        self, door: Door, number: PhoneNumber, tenant: Tenant, settings: Any
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        by_the_former = {"X_Hub_Signature_256": signature_of(body, "former secret")}
        assert_error(post(door, body, **by_the_former), 401, "unauthorized")
        settings.META_APP_SECRET_FALLBACKS = ["older secret", "former secret"]
        assert post(door, body, **by_the_former).status_code == 200
        assert [(event.wamid, event.environment) for event in events_of(tenant)] == [("wamid.1", "live")]

    def test_what_is_malformed_is_kept_and_answered_200(self, door: Door) -> None:
        assert post(door, b"not JSON").status_code == 200
        assert KeptNotification.objects.get().reason == "malformed"

    def test_413_over_the_limit(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(incoming, "MAX_BODY_BYTES", 1000)
        monkeypatch.setattr(views.webhook, "body_limit", 1000)
        assert_error(post(door, b"x" * 1001), 413, "payload_too_large")
        assert post(door, b"x" * 1000).status_code == 200

    def test_503_without_a_database_and_the_repeat_is_taken(
        self, door: Door, number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = notification((WABA, [text_change(NUMBER, "wamid.1")]))
        connection.close()
        with monkeypatch.context() as stopped:
            # The edge keeps its connections, so it gets an intake that has none yet.
            stopped.setattr(notifications, "_intake", Intake())
            stopped.setitem(connection.settings_dict, "HOST", "/nonexistent")
            answer = post(door, body)
            assert_error(answer, 503, "service_unavailable")
            assert answer["Retry-After"] == "1"
            connection.close()
        assert post(door, body).status_code == 200
        assert [event.wamid for event in events_of(tenant)] == ["wamid.1"]

    def test_the_number_of_a_media_is_noted(self, door: Door, number: PhoneNumber, tenant: Tenant) -> None:
        change = text_change(NUMBER, "wamid.1")
        change["value"]["messages"][0] |= {"type": "image", "image": {"id": "518262192608783"}}
        assert post(door, notification((WABA, [change]))).status_code == 200
        noted = media_owners.number_of(tenant_id=tenant.id, environment="live", media_id="518262192608783")
        assert noted == NUMBER

    def test_the_verification(self, door: Door) -> None:
        def verify(token: str, mode: str = "subscribe") -> Any:
            query = {"hub.mode": mode, "hub.challenge": "1158201444", "hub.verify_token": token}
            return door.ask("GET", f"/upstream/webhook?{urlencode(query)}")

        answer = verify(django_settings.META_WEBHOOK_VERIFY_TOKEN)
        assert (answer.status_code, answer.content) == (200, b"1158201444")
        assert answer["Content-Type"].startswith("text/plain")
        for wrong in ("", "wrong", "süm-verify-token"):
            assert_error(verify(wrong), 403, "forbidden")
        assert_error(verify(django_settings.META_WEBHOOK_VERIFY_TOKEN, "unsubscribe"), 400, "invalid_request")

    def test_other_methods_are_405(self, door: Door) -> None:
        assert_error(door.ask("PUT", "/upstream/webhook"), 405, "method_not_allowed")  # type: ignore[arg-type]


def test_another_version_is_400(door: Door) -> None:
    assert_error(
        door.ask("GET", "/v1/health", X_Service_Version="2001-01-01"),  # type: ignore[arg-type]
        400,
        "invalid_request",
    )


def test_the_edge_has_no_other_path(edge_address: tuple[str, int]) -> None:
    assert_error(EdgeDoor(edge_address).ask("GET", "/v1/nothing-here"), 404, "not_found")  # type: ignore[arg-type]
