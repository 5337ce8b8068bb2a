"""The request log of calls that the listener answers."""

from collections.abc import Iterator

import pytest

from gateway import ids
from gateway.api import call_log
from gateway.request_log import recorder
from gateway.request_log.models import ApiRequest
from tenants.credentials import api_keys
from tests.fixtures import wait_until
from web.tests.client import FrontClient

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    call_log.register(recorder.record)
    yield
    call_log.forget_listeners()


def test_a_call_is_logged(front: FrontClient, key: api_keys.NewKey) -> None:
    stranger = front.ask("POST", "/v1/messages", b"{}", Authorization="Bearer wb_live_" + "x" * 40)
    answer = front.ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
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


def test_a_refused_standing_is_logged(front: FrontClient, key: api_keys.NewKey) -> None:
    tenant = key.row.tenant
    assert tenant is not None
    tenant.status = "suspended"
    tenant.save()
    answer = front.ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
    assert answer.status_code == 403
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    assert ApiRequest.objects.get().error_code == "tenant_suspended"
