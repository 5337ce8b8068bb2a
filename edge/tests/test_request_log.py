"""The request log of calls that the edge answers."""

from collections.abc import Iterator

import pytest

from edge.tests.doors import EdgeDoor
from gateway import ids
from gateway.api import finished_calls
from gateway.request_log import recorder
from gateway.request_log.models import ApiRequest
from tenants.credentials import api_keys
from tests.fixtures import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    finished_calls.register(recorder.record)
    yield
    finished_calls.forget_listeners()


def test_a_call_that_the_edge_answers_is_logged(edge_address: tuple[str, int], key: api_keys.NewKey) -> None:
    door = EdgeDoor(edge_address)
    stranger = door.ask("POST", "/v1/messages", b"{}", Authorization="Bearer wb_live_" + "x" * 40)
    answer = door.ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
    assert (stranger.status_code, answer.status_code) == (401, 400)
    request_id = ids.decode(ids.REQUEST, answer["X-Service-Request-Id"])
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    (line,) = ApiRequest.objects.all()
    assert (line.id, line.tenant_id, line.environment) == (request_id, key.row.tenant_id, "live")
    assert (line.method, line.route, line.status, line.error_code, line.key_prefix) == (
        "POST",
        "/v1/messages",
        400,
        "invalid_request",
        key.row.prefix,
    )
    assert line.own_ms > 0


def test_a_refused_standing_is_logged(edge_address: tuple[str, int], key: api_keys.NewKey) -> None:
    tenant = key.row.tenant
    assert tenant is not None
    tenant.status = "suspended"
    tenant.save()
    answer = EdgeDoor(edge_address).ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
    assert answer.status_code == 403
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    assert ApiRequest.objects.get().error_code == "tenant_suspended"
