"""The contract of the routes that the listener answers itself."""

import json

import pytest
from django.db import connection

from gateway.clock import now
from gateway.database import partitions
from tenants.credentials import api_keys
from tests.database_settings import without_database
from tests.fixtures import assert_error, assert_service_headers
from web import routes
from web.tests.client import FrontClient

pytestmark = pytest.mark.django_db(transaction=True)


class TestHealth:
    def test_says_the_build_and_the_database(self, front: FrontClient) -> None:
        answer = front.ask("GET", "/v1/health")
        assert json.loads(answer.content) == {"ok": True, "sha": "unknown", "db": "ok"}
        assert_service_headers(answer)  # type: ignore[arg-type]

    def test_live_and_ready(self, front: FrontClient) -> None:
        assert json.loads(front.ask("GET", "/v1/health/live").content) == {"ok": True, "sha": "unknown"}
        answer = front.ask("GET", "/v1/health/ready")
        assert (answer.status_code, json.loads(answer.content)) == (
            200,
            {"ok": True, "sha": "unknown", "db": "ok", "migrations": "ok", "partitions": "ok"},
        )

    @pytest.mark.parametrize("path", ["/v1/health", "/v1/health/live", "/v1/health/ready"])
    def test_answers_a_caller_that_uses_an_address(self, front: FrontClient, path: str) -> None:
        assert front.ask("GET", path, Host="10.1.2.3:8000").status_code == 200

    def test_503_without_a_database(self, front: FrontClient) -> None:
        with without_database():
            answer = front.ask("GET", "/v1/health")
            assert (answer.status_code, answer["X-Service-Error-Source"]) == (503, "whabuzz")
            assert front.ask("GET", "/v1/health/ready").status_code == 503
            assert front.ask("GET", "/v1/health/live").status_code == 200

    def test_not_ready_without_the_partition_of_today(self, front: FrontClient) -> None:
        def partitions_word() -> tuple[int, str]:
            answer = front.ask("GET", "/v1/health/ready")
            return answer.status_code, json.loads(answer.content)["partitions"]

        today = f"api_requests_p{now():%Y_%m_%d}"
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE api_requests DETACH PARTITION {today}")
        try:
            assert partitions_word() == (503, "error")
        finally:
            partitions.maintain()
        assert partitions_word() == (200, "ok")


METHODS = {
    "/upstream/webhook": "GET, HEAD, OPTIONS, POST",
    "/v1/messages/read": "OPTIONS, POST",
    "/v1/events/stream": "GET, HEAD, OPTIONS",
    "/v1/health": "GET, HEAD, OPTIONS",
    "/v1/health/live": "GET, HEAD, OPTIONS",
    "/v1/health/ready": "GET, HEAD, OPTIONS",
}
"""The `Allow` header of each path that only the listener answers."""


@pytest.mark.parametrize("path", METHODS)
class TestMethods:
    def test_it_is_named_here(self, path: str) -> None:
        assert {path for path, route in routes.ROUTES.items() if not route.is_shared} == set(METHODS)

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST", "GET"])
    def test_others_are_405_with_allow(
        self, front: FrontClient, key: api_keys.NewKey, path: str, method: str
    ) -> None:
        if method in METHODS[path].split(", "):
            return
        answer = front.ask(method, path, Authorization=f"Bearer {key.key}")
        assert_error(answer, 405, "method_not_allowed")  # type: ignore[arg-type]
        assert answer["Allow"] == METHODS[path]

    def test_options(self, front: FrontClient, key: api_keys.NewKey, path: str) -> None:
        answer = front.ask("OPTIONS", path, Authorization=f"Bearer {key.key}")
        assert (answer.status_code, answer["Allow"], answer.content) == (204, METHODS[path], b"")
        assert_service_headers(answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["OPTIONS", "PUT"])
@pytest.mark.parametrize("path", ["/v1/messages/read", "/v1/events/stream"])
def test_a_callers_wrong_method_is_admitted_first(
    front: FrontClient, key: api_keys.NewKey, path: str, method: str
) -> None:
    assert_error(front.ask(method, path), 401, "unauthorized")  # type: ignore[arg-type]
    assert front.ask(method, path, Authorization=f"Bearer {key.key}")["RateLimit-Limit"]


@pytest.mark.parametrize("path", ["/v1/health", "/v1/health/live", "/v1/health/ready"])
def test_head_is_get_without_a_body(front: FrontClient, path: str) -> None:
    whole, head = front.ask("GET", path), front.ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head["Content-Length"] == str(len(whole.content))


def test_messages_are_listed_by_django_and_sent_by_the_listener(
    front: FrontClient, key: api_keys.NewKey
) -> None:
    bearer = f"Bearer {key.key}"
    assert json.loads(front.ask("GET", "/v1/messages", Authorization=bearer).content)["data"] == []
    refused = front.ask("POST", "/v1/messages", b"{}", Authorization=bearer)
    assert_error(refused, 400, "invalid_request")  # type: ignore[arg-type]
    answer = front.ask("PUT", "/v1/messages", Authorization=bearer)
    assert_error(answer, 405, "method_not_allowed")  # type: ignore[arg-type]
    assert "POST" in answer["Allow"]


@pytest.mark.parametrize("path", ["/v1/health/ready", "/v1/tenant"])
def test_a_nul_in_the_query_is_400_and_names_the_parameter(
    front: FrontClient, key: api_keys.NewKey, path: str
) -> None:
    answer = front.ask("GET", f"{path}?x=%00", Authorization=f"Bearer {key.key}")
    error = assert_error(answer, 400, "invalid_request")  # type: ignore[arg-type]
    assert list(error["details"]["fields"]) == ["x"]


def test_another_version_is_400(front: FrontClient) -> None:
    assert_error(
        front.ask("GET", "/v1/health", X_Service_Version="2001-01-01"),  # type: ignore[arg-type]
        400,
        "invalid_request",
    )
